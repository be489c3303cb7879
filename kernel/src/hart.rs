//! Harts: the per-hart structure, and starting the others.
//!
//! A hart has two names: the id that firmware and device tree use ([`HartId`], may be sparse), and the dense
//! [`CpuNumber`] that indexes the kernel's tables. The boot hart is CPU 0, whatever its id. `tp` holds the address of the
//! hart's own [`Hart`] from the entry on and is never written again (invariant HART-1).
//!
//! Owns [`HARTS`]: everything that a hart touches often is in its own [`Hart`], reached with interrupts masked. [`start_others`] brings the
//! others up; [`all`] and [`by_cpu`] give those that are.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use machine::{HartId, Machine};
use protocols::Arrival;
use riscv::register::{sie, sip, time};

use crate::boot::{self, StartRecord};
use crate::console::println;
use crate::debugger::Fact;
use crate::explore::Draws;
use crate::interrupts;
use crate::sbi::{self, HartGroup};
use crate::stack::{self, STACK_BYTES, Stack};
use crate::stop::{self, Note};
use crate::thread::ThreadRef;
use crate::trace::{self, Which};
use crate::vm::{self, PAGE};
use crate::{crash, irq, sched, timer};

/// Harts that the kernel has room for.
pub const MAX_CPUS: usize = 8;

/// How long a started hart is waited for, in seconds. It needs microseconds; a starved host may take longer.
const ARRIVAL_SECONDS: u64 = 30;
/// Parts of a second: no more than one counts between two looks at the clock. A host that was elsewhere meanwhile has not run the other
/// hart either.
const ARRIVAL_PARTS: u64 = 100;

/// A hart's dense number: 0 for the boot hart, and below [`MAX_CPUS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CpuNumber(pub usize);

impl fmt::Display for CpuNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Everything that belongs to one hart. Reached from that hart only while interrupts are masked ([`interrupts::Masked::hart`]), or it could
/// be another's by the next instruction.
#[repr(C)]
pub struct Hart {
    /// Lowest address of the stack this hart runs on. The trap vector checks against it.
    pub stack_low: AtomicUsize,
    /// Highest address of the emergency stack, where the trap vector goes when a frame does not fit.
    pub emergency_top: AtomicUsize,
    /// Reports begun on this hart: a second one is a fault in the first.
    pub reports: AtomicUsize,
    /// Lowest address of the stack it entered on.
    entry_low: AtomicUsize,
    /// Its place in [`HARTS`].
    cpu: CpuNumber,
    /// The firmware's name for it.
    id: AtomicUsize,
    /// Guards alive that mask interrupts.
    masks: AtomicUsize,
    /// `sstatus.SIE` before the first of them: the bit in its place, or 0.
    interrupts_were_on: AtomicUsize,
    /// Interrupts taken from other harts.
    pub ipis: AtomicUsize,
    /// Where it stopped for another's crash report.
    pub stop: Note,
    /// What it runs.
    pub scheduling: sched::Part,
    /// Where it is in what it draws while schedules are explored.
    pub draws: Draws,
    /// Its ticks, and who sleeps here.
    pub timer: timer::Part,
    arrival: Arrival,
    frame_cache: frames::Cache,
    start: UnsafeCell<StartRecord>,
    /// What it did last. At the end: the trap vector reaches no further than 2 KiB.
    pub trace: trace::Ring<{ trace::EVENTS }>,
}

// SAFETY: every field but `start` is atomic. `start` is written by the boot hart before the hart it is for is started, and
// only read by that hart's entry (invariant BOOT-2).
unsafe impl Sync for Hart {}

/// All harts by CPU number. The entry gives element 0 to the boot hart.
pub static HARTS: [Hart; MAX_CPUS] = [
    Hart::new(0),
    Hart::new(1),
    Hart::new(2),
    Hart::new(3),
    Hart::new(4),
    Hart::new(5),
    Hart::new(6),
    Hart::new(7),
];

/// For debuggers.
pub const LAYOUT: &[Fact] = &[
    Fact::new("from hart to hart", size_of::<Hart>()),
    Fact::new("hart: id", offset_of!(Hart, id)),
    Fact::new("hart: scheduling", offset_of!(Hart, scheduling)),
    Fact::new("hart: timer", offset_of!(Hart, timer)),
];

/// See [`are_started`].
static ARE_STARTED: AtomicBool = AtomicBool::new(false);

/// See [`count`].
static COUNT: AtomicUsize = AtomicUsize::new(1);

/// Two stacks with an unmapped page below each: an overflow faults, whichever stack it is.
#[repr(C, align(4096))]
pub struct StackPair {
    guard: [u8; PAGE],
    stack: [u8; STACK_BYTES],
    emergency_guard: [u8; PAGE],
    emergency: [u8; STACK_BYTES],
}

/// The stacks that the boot hart enters on. The other harts' are allocated.
#[repr(transparent)]
pub struct BootStacks(UnsafeCell<StackPair>);

// SAFETY: one hart alone uses it, as its stacks; nothing makes references into it (invariant STACK-1).
unsafe impl Sync for BootStacks {}

/// The boot hart's stacks. Zero bytes: they lie in `.bss`.
pub static BOOT_STACKS: BootStacks = BootStacks(UnsafeCell::new(StackPair {
    guard: [0; PAGE],
    stack: [0; STACK_BYTES],
    emergency_guard: [0; PAGE],
    emergency: [0; STACK_BYTES],
}));

/// From the beginning of the pair to the top of its first stack.
pub const STACK_TOP_OFFSET: usize = offset_of!(StackPair, emergency_guard);

/// A stack of a hart, as reports name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackKind {
    /// The one it entered on.
    Entry,
    /// The one its trap vector flees to.
    Emergency,
}

impl Hart {
    const fn new(cpu: usize) -> Self {
        Hart {
            cpu: CpuNumber(cpu),
            stack_low: AtomicUsize::new(0),
            emergency_top: AtomicUsize::new(0),
            reports: AtomicUsize::new(0),
            entry_low: AtomicUsize::new(0),
            id: AtomicUsize::new(0),
            masks: AtomicUsize::new(0),
            interrupts_were_on: AtomicUsize::new(0),
            ipis: AtomicUsize::new(0),
            stop: Note::new(),
            scheduling: sched::Part::new(cpu),
            draws: Draws::new(),
            timer: timer::Part::new(),
            arrival: Arrival::new(),
            frame_cache: frames::Cache::new(),
            start: UnsafeCell::new(StartRecord::EMPTY),
            trace: trace::Ring::new(),
        }
    }

    /// Its dense number: its place in [`HARTS`].
    pub fn cpu(&self) -> CpuNumber {
        self.cpu
    }

    /// What firmware and device tree call it.
    pub fn id(&self) -> HartId {
        HartId(self.id.load(Ordering::Relaxed) as u64)
    }

    /// One of its stacks; where it has none yet, at address 0.
    pub fn stack(&self, kind: StackKind) -> Range<usize> {
        let low = match kind {
            StackKind::Entry => self.entry_low.load(Ordering::Relaxed),
            StackKind::Emergency => {
                self.emergency_top.load(Ordering::Relaxed).wrapping_sub(STACK_BYTES)
            }
        };
        low..low.wrapping_add(STACK_BYTES)
    }

    /// Lets the trap vector know its stacks and gives the hart its id. Before this, a trap on it cannot be survived.
    fn settle(&'static self, id: HartId, entry_low: usize, emergency_low: usize) {
        self.id.store(id.0 as usize, Ordering::Relaxed);
        self.entry_low.store(entry_low, Ordering::Relaxed);
        self.stack_low.store(entry_low, Ordering::Relaxed);
        self.emergency_top.store(emergency_low + STACK_BYTES, Ordering::Relaxed);
        self.scheduling.settle(self.cpu().0, entry_low);
    }

    /// If a trap frame ends where the emergency stack does, so that the vector has put it there, makes that the stack that later
    /// frames must fit, and gives the bottom of the stack on which this one did not, the first time. There is no way back.
    #[inline]
    pub fn settle_on_emergency_stack(&self, frame_end: usize) -> Option<usize> {
        if frame_end != self.emergency_top.load(Ordering::Relaxed) {
            return None;
        }
        let emergency = self.stack(StackKind::Emergency);
        let left = self.stack_low.swap(emergency.start, Ordering::Relaxed);
        Some(left).filter(|&left| left != emergency.start)
    }

    /// One more guard masks interrupts. `were_on` is `sstatus.SIE` before: the bit in its place, or 0.
    #[inline]
    pub fn enter_masked(&self, were_on: usize) {
        let masks = self.masks.load(Ordering::Relaxed);
        if masks == 0 {
            self.interrupts_were_on.store(were_on, Ordering::Relaxed);
        }
        self.masks.store(masks + 1, Ordering::Relaxed);
    }

    /// One guard fewer. If it was the last, gives `sstatus.SIE` as it was before the first: the bit in its place, or 0.
    #[inline]
    pub fn leave_masked(&self) -> Option<usize> {
        let masks = self.masks.load(Ordering::Relaxed) - 1;
        self.masks.store(masks, Ordering::Relaxed);
        (masks == 0).then(|| self.interrupts_were_on.load(Ordering::Relaxed))
    }

    /// The only guard goes.
    #[inline]
    pub fn leave_last_mask(&self) {
        debug_assert_eq!(self.masks(), 1, "more than one guard masks interrupts");
        self.masks.store(0, Ordering::Relaxed);
    }

    /// Guards alive on this hart.
    pub fn masks(&self) -> usize {
        self.masks.load(Ordering::Relaxed)
    }

    /// Lets this hart see IPIs: as interrupts where they are on, and out of `wfi` in any case. On this hart itself.
    fn enable_ipis(&self) {
        // SAFETY: a handler can run on this hart's stack (TRAP-1).
        unsafe { sie::set_ssoft() };
    }

    /// The thread that runs here.
    pub fn current(&self) -> ThreadRef {
        self.scheduling.current()
    }

    /// `sstatus.SIE` as it was before the first guard that masks interrupts now. It belongs to the thread: a switch takes it along.
    pub fn interrupts_were_on(&self) -> usize {
        self.interrupts_were_on.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Hart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hart {} (CPU {})", self.id(), self.cpu())
    }
}

/// The structure of the hart this runs on. Only meaningful while interrupts are masked, so others go through
/// [`interrupts::Masked::hart`].
pub fn of_this_cpu() -> &'static Hart {
    let address: *const Hart;
    // SAFETY: reads a register. Not `nomem` and not `pure`: between two calls the thread may have moved to another hart.
    unsafe { asm!("mv {}, tp", out(reg) address) };
    // SAFETY: tp points to this hart's element of `HARTS` from the entry on (HART-1).
    unsafe { &*address }
}

/// Harts that are up, the boot hart first.
pub fn all() -> impl Iterator<Item = &'static Hart> {
    HARTS.iter().filter(|hart| hart.arrival.has_arrived())
}

/// One more than the highest number of a hart that is up.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// The hart with this number, if it is up.
pub fn by_cpu(cpu: CpuNumber) -> Option<&'static Hart> {
    HARTS.get(cpu.0).filter(|hart| hart.arrival.has_arrived())
}

/// A cache of frames for this hart. Any hart may use any: it does not matter if the caller moves to another meanwhile.
pub fn frame_cache() -> &'static frames::Cache {
    &of_this_cpu().frame_cache
}

/// The pages of the image that must not be mapped: the first below each of the boot hart's stacks.
pub fn boot_stack_guards() -> [usize; 2] {
    [StackKind::Entry, StackKind::Emergency].map(|kind| HARTS[0].stack(kind).start - PAGE)
}

/// The stack that `address` lies in or below.
pub fn stack_at(address: usize) -> Option<(&'static Hart, StackKind, Part)> {
    for hart in &HARTS {
        for kind in [StackKind::Entry, StackKind::Emergency] {
            let stack = hart.stack(kind);
            let gap = if vm::STACKS.contains(&stack.start) { stack::GAP_BYTES } else { PAGE };
            if stack.contains(&address) {
                return Some((hart, kind, Part::Stack));
            }
            if (stack.start.saturating_sub(gap)..stack.start).contains(&address) {
                return Some((hart, kind, Part::Guard));
            }
        }
    }
    None
}

/// Calls `act` with every other hart that is up, in groups as the firmware takes them.
pub fn each_group_of_others<E>(mut act: impl FnMut(HartGroup) -> Result<(), E>) -> Result<(), E> {
    const IDS: usize = usize::BITS as usize;
    let masked = interrupts::mask();
    let is_other = |hart: &&Hart| !core::ptr::eq(*hart, masked.hart());
    let base = |hart: &Hart| hart.id().0 as usize / IDS * IDS;
    let mut done = None;
    // Groups in the order of their bases: the next is the lowest that comes after the last.
    while let Some(next) =
        all().filter(is_other).map(base).filter(|&base| done.is_none_or(|done| base > done)).min()
    {
        let members = all().filter(is_other).filter(|hart| base(hart) == next);
        let mask = members.fold(0, |mask, hart| mask | 1 << (hart.id().0 as usize % IDS));
        act(HartGroup { base: next, mask })?;
        done = Some(next);
    }
    Ok(())
}

/// What of a stack an address lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The stack itself.
    Stack,
    /// The unmapped gap below it.
    Guard,
}

/// Gives the boot hart its stacks. The first thing after the entry, so that a trap can be survived.
pub fn settle_boot_hart(id: usize) {
    let pair = BOOT_STACKS.0.get().addr();
    HARTS[0].settle(
        HartId(id as u64),
        pair + core::mem::offset_of!(StackPair, stack),
        pair + core::mem::offset_of!(StackPair, emergency),
    );
    HARTS[0].enable_ipis();
    assert!(HARTS[0].arrival.arrive(), "the boot hart enters once");
}

/// Starts every hart that the tree describes, but the boot hart, and waits for each. One that cannot be started or does not
/// arrive is reported and left out.
pub fn start_others(machine: &Machine<'_>) {
    let mut free = HARTS.iter().skip(1);
    let mut next = free.next();
    for described in machine.harts.iter().filter(|described| described.id != HARTS[0].id()) {
        let id = described.id;
        if !described.enabled {
            println!("hart {id} is left out: the device tree disables it");
            continue;
        }
        if described.mmu.is_none() {
            println!("hart {id} is left out: it has no page tables");
            continue;
        }
        let Some(hart) = next else {
            println!("hart {id} is left out: the kernel has room for {MAX_CPUS} harts");
            continue;
        };
        let started = start(hart, id, machine.timebase.get());
        if let Err(error) = &started {
            println!("hart {id} is left out: {error}");
        }
        // One that was started and did not arrive may still come, and would be on this stack: its number is used up.
        if matches!(started, Ok(()) | Err(StartError::DidNotArrive)) {
            next = free.next();
        }
    }
    ARE_STARTED.store(true, Ordering::Release);
}

/// Whether the boot hart has done with starting the others.
pub fn are_started() -> bool {
    ARE_STARTED.load(Ordering::Acquire)
}

/// Why a hart is not up.
enum StartError {
    NoStack,
    Firmware(sbi::Error),
    DidNotArrive,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NoStack => f.write_str("there is no memory for its stacks"),
            StartError::Firmware(error) => write!(f, "the firmware does not start it: {error}"),
            StartError::DidNotArrive => f.write_str("it was started and did not arrive"),
        }
    }
}

/// Starts a hart and waits for it, for [`ARRIVAL_SECONDS`] of a timebase of `hertz` at the most.
fn start(hart: &'static Hart, id: HartId, hertz: u64) -> Result<(), StartError> {
    let no_stack = |_| StartError::NoStack;
    let (entry, emergency) =
        (Stack::allocate().map_err(no_stack)?, Stack::allocate().map_err(no_stack)?);
    hart.settle(id, entry.range().start, emergency.range().start);
    // SAFETY: this hart has not been started, so nobody reads its record (BOOT-2).
    unsafe { *hart.start.get() = StartRecord::new(hart) };
    let record = vm::physical_of_image(hart.start.get().addr());
    sbi::hart_start(id, boot::other_hart_entry(), record).map_err(StartError::Firmware)?;
    // From here on the hart may be on them, for good.
    core::mem::forget((entry, emergency));
    let mut patience = hertz.saturating_mul(ARRIVAL_SECONDS);
    let mut looked_at = time::read64();
    while patience > 0 {
        if hart.arrival.has_arrived() {
            COUNT.fetch_max(hart.cpu().0 + 1, Ordering::Relaxed);
            return Ok(());
        }
        let now = time::read64();
        let passed = now.saturating_sub(looked_at).min(hertz / ARRIVAL_PARTS + 1);
        patience = patience.saturating_sub(passed);
        looked_at = now;
        stop::if_asked();
        core::hint::spin_loop();
    }
    if hart.arrival.give_up() {
        return Err(StartError::DidNotArrive);
    }
    COUNT.fetch_max(hart.cpu().0 + 1, Ordering::Relaxed);
    Ok(())
}

/// The first Rust of every hart but the boot hart: on its own stack, interrupts off. It becomes the hart's idle thread.
pub extern "C" fn other_hart_main() -> ! {
    let hart = of_this_cpu();
    hart.enable_ipis();
    if !hart.arrival.arrive() {
        boot::park()
    }
    stop::if_asked();
    crash::on_entry_stack(hart.cpu());
    timer::start_here();
    irq::start_here();
    sched::idle()
}

/// Takes an IPI on this hart at the instruction `interrupted`: the handler of supervisor software interrupts. Whatever it is for is
/// looked at after this: by the idle thread, which wakes, or here, if all are to stop.
#[inline(never)]
pub fn handle_ipi(hart: &Hart, interrupted: usize) {
    let _taken = trace::interrupt(Which::Ipi);
    hart.ipis.fetch_add(1, Ordering::Relaxed);
    // SAFETY: clears this hart's pending bit, before anything is looked at: what comes later sets it again.
    unsafe { sip::clear_ssoft() };
    // The bit is cleared before anything is looked at, for other harts too: CSR writes are not ordered with loads by themselves.
    core::sync::atomic::fence(Ordering::SeqCst);
    stop::if_asked_at(interrupted);
}
