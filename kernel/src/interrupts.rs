//! Whether this hart takes interrupts: masked as a value. And for how long it took none: [`Stretches`].
//!
//! While a [`Masked`] lives, its hart takes no interrupt and stays the same hart; the last to be dropped restores what was before the first, in
//! whatever order.

use core::arch::asm;
use core::fmt;
use core::marker::PhantomData;
use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::explore::{self, Point};
use crate::hart::{self, CpuNumber, Hart, MAX_CPUS};
use crate::probe;
use crate::trap::Cause;

/// `sstatus.SIE`.
const STATUS_INTERRUPTS: usize = 1 << 1;
/// The bit set: interrupts are on.
pub const ON: usize = STATUS_INTERRUPTS;
/// `sstatus.SPIE`: in a trap frame, whether interrupts were on when the trap came.
const STATUS_INTERRUPTS_BEFORE: usize = 1 << 5;

/// While one of these lives, its hart takes no interrupt. The last of them to be dropped, in whatever order, restores what
/// was before the first.
#[must_use]
pub struct Masked {
    /// Masked is a hart's state: the value must not go to another.
    not_send: PhantomData<*const ()>,
}

/// Masks interrupts on this hart.
#[inline]
#[track_caller]
pub fn mask() -> Masked {
    let were_on = clear();
    let hart = hart::of_this_cpu();
    hart.enter_masked(were_on);
    if MEASURES && were_on != 0 {
        begin(Site::Line(Location::caller()));
    }
    Masked { not_send: PhantomData }
}

impl Masked {
    /// The hart this runs on; it stays this one for as long as interrupts are masked.
    pub fn hart(&self) -> &'static Hart {
        hart::of_this_cpu()
    }

    /// Takes over a guard of this hart that was forgotten.
    ///
    /// # Safety
    ///
    /// There is such a guard, forgotten on this hart, and nobody else takes it over.
    pub unsafe fn assume() -> Masked {
        Masked { not_send: PhantomData }
    }
}

impl Masked {
    /// Drops the only guard of `hart`, the one here, for a thread that had interrupts on before or not, wherever it ran: SIE, the bit in
    /// its place, or 0.
    #[inline]
    pub fn drop_last(self, hart: &Hart, were_on: usize) {
        core::mem::forget(self);
        hart.leave_last_mask();
        restore(were_on);
    }
}

impl Drop for Masked {
    #[inline]
    fn drop(&mut self) {
        if let Some(were_on) = hart::of_this_cpu().leave_masked() {
            restore(were_on);
        }
    }
}

/// Sets SIE if it was set before it was cleared: the bit in its place, or 0.
#[inline]
fn restore(were_on: usize) {
    if MEASURES && were_on != 0 {
        end();
    }
    // SAFETY: as in `enable`; nothing is set where interrupts were off. Without a branch it costs less.
    unsafe { asm!("csrs sstatus, {}", in(reg) were_on) };
    if explore::EXPLORES && were_on != 0 {
        explore::schedule_point(Point::InterruptsEnabled);
    }
}

/// Clears SIE and gives the bit as it was.
#[inline]
fn clear() -> usize {
    let before: usize;
    // SAFETY: clearing SIE only delays interrupts. Neither `nomem` nor `pure`: nothing may move across it.
    unsafe { asm!("csrrci {}, sstatus, {}", out(reg) before, const STATUS_INTERRUPTS) };
    before & STATUS_INTERRUPTS
}

/// Masks interrupts without a guard, and says whether they were on.
#[track_caller]
pub fn disable() -> bool {
    let were_on = clear() != 0;
    if MEASURES && were_on {
        begin(Site::Line(Location::caller()));
    }
    were_on
}

/// Lets this hart take interrupts.
pub fn enable() {
    if MEASURES {
        end();
    }
    // SAFETY: handlers find what they need on any stack (invariant TRAP-1). Not `nomem`: nothing may move across it.
    unsafe { asm!("csrsi sstatus, {}", const STATUS_INTERRUPTS) };
}

/// Whether this hart takes interrupts now.
pub fn are_enabled() -> bool {
    riscv::register::sstatus::read().sie()
}

/// Orders earlier memory accesses before later device accesses (unprivileged spec 2.7).
pub fn fence_before_io() {
    // SAFETY: a fence only orders. Not `nomem`: the compiler must not move stores below it.
    unsafe { asm!("fence rw, o") };
}

/// Whether this build measures for how long interrupts are masked. It costs instructions in each lock.
pub const MEASURES: bool = cfg!(feature = "interrupts_off");

/// Whether it was begun: see [`measure`].
static MEASURING: AtomicBool = AtomicBool::new(false);

/// By CPU number.
static STRETCHES: [Stretches; MAX_CPUS] = [const { Stretches::new() }; MAX_CPUS];

/// What masked interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// A line that masked them.
    Line(&'static Location<'static>),
    /// A trap.
    Trap(Cause),
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Line(line) => write!(f, "from {}:{} on", line.file(), line.line()),
            Site::Trap(cause) => write!(f, "in the handler of: {}", cause.name()),
        }
    }
}

/// A stretch with interrupts masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// Its length. A trap's is that of its handler: the vector's own 80 instructions come on top.
    pub instructions: u64,
    /// What began it.
    pub site: Site,
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} instructions, {}", self.instructions, self.site)
    }
}

/// The stretch with interrupts masked that a hart is in, and the longest so far, in instructions on its counter. On that hart, with
/// interrupts masked; anyone may ask for the longest.
///
/// A stretch belongs to the hart: a thread that masks interrupts and switches leaves it to the next thread, which ends it. What the
/// firmware takes is not counted: the stretch then begins later by as much.
///
/// Counts mean instructions where QEMU counts them (`-icount shift=0`), and one hart's where there is one.
pub struct Stretches {
    /// The counter at the beginning of the stretch; 0 for none.
    began: AtomicU64,
    current: SiteCell,
    /// The longest one's length; 0 for none.
    longest: AtomicU64,
    longest_site: SiteCell,
}

/// A site that is shared: a line, or, where that is null, a cause.
struct SiteCell {
    line: AtomicPtr<Location<'static>>,
    code: AtomicUsize,
}

impl SiteCell {
    const fn new() -> SiteCell {
        SiteCell { line: AtomicPtr::new(ptr::null_mut()), code: AtomicUsize::new(0) }
    }

    fn set(&self, site: Site) {
        let (line, code) = match site {
            Site::Line(line) => (ptr::from_ref(line).cast_mut(), 0),
            Site::Trap(cause) => (ptr::null_mut(), cause.code),
        };
        self.line.store(line, Ordering::Relaxed);
        self.code.store(code, Ordering::Relaxed);
    }

    fn get(&self) -> Site {
        // SAFETY: null, or what `set` was given: a reference to a constant.
        match unsafe { self.line.load(Ordering::Relaxed).as_ref() } {
            Some(line) => Site::Line(line),
            None => Site::Trap(Cause { code: self.code.load(Ordering::Relaxed), value: 0 }),
        }
    }
}

impl Stretches {
    /// None yet.
    pub const fn new() -> Stretches {
        Stretches {
            began: AtomicU64::new(0),
            current: SiteCell::new(),
            longest: AtomicU64::new(0),
            longest_site: SiteCell::new(),
        }
    }

    /// A stretch begins.
    pub fn begin(&self, now: u64, site: Site) {
        self.current.set(site);
        self.began.store(now, Ordering::Relaxed);
    }

    /// The stretch ends, if there is one.
    pub fn end(&self, now: u64) {
        let began = self.began.load(Ordering::Relaxed);
        if began != 0 && now.wrapping_sub(began) > self.longest.load(Ordering::Relaxed) {
            self.longest_site.set(self.current.get());
            self.longest.store(now.wrapping_sub(began), Ordering::Relaxed);
        }
        self.began.store(0, Ordering::Relaxed);
    }

    /// These instructions of the stretch are not counted.
    pub fn leave_out(&self, instructions: u64) {
        let began = self.began.load(Ordering::Relaxed);
        if began != 0 {
            self.began.store(began.wrapping_add(instructions), Ordering::Relaxed);
        }
    }

    /// The counter at the beginning of the stretch that the hart is in, and what began it.
    pub fn current(&self) -> Option<(u64, Site)> {
        let began = self.began.load(Ordering::Relaxed);
        (began != 0).then(|| (began, self.current.get()))
    }

    /// The longest so far.
    pub fn longest(&self) -> Option<Stretch> {
        let instructions = self.longest.load(Ordering::Relaxed);
        (instructions != 0).then(|| Stretch { instructions, site: self.longest_site.get() })
    }

    /// Forgets the longest.
    pub fn forget(&self) {
        self.longest.store(0, Ordering::Relaxed);
    }
}

/// What the hart here has measured.
pub fn stretches_here() -> &'static Stretches {
    &STRETCHES[hart::of_this_cpu().cpu().0]
}

#[inline(never)]
fn begin(site: Site) {
    if MEASURING.load(Ordering::Relaxed) {
        stretches_here().begin(instructions(), site);
    }
}

#[inline(never)]
fn end() {
    if MEASURING.load(Ordering::Relaxed) {
        stretches_here().end(instructions());
    }
}

/// Instructions that were retired since the machine started, on all harts together.
fn instructions() -> u64 {
    riscv::register::instret::read64()
}

/// Begins to measure stretches anew, if this build does and the hart has a counter that it may read.
pub fn measure() {
    if !MEASURES {
        return;
    }
    forget_longest_off();
    MEASURING.store(probe::has_instruction_counter(), Ordering::Relaxed);
}

/// The longest stretch of all harts, and its hart. Nothing where nothing is measured.
pub fn longest_off() -> Option<(CpuNumber, Stretch)> {
    let of_harts = STRETCHES.iter().enumerate();
    let longest = of_harts.filter_map(|(cpu, hart)| Some((CpuNumber(cpu), hart.longest()?)));
    longest.max_by_key(|(_, stretch)| stretch.instructions)
}

/// Forgets the longest stretches so far.
pub fn forget_longest_off() {
    STRETCHES.iter().for_each(Stretches::forget);
}

/// The handler of a trap with this `scause` begins, with `sstatus` as the trap saved it: a stretch, if interrupts were on.
#[inline]
pub fn handler_begins(code: usize, status: usize) {
    if MEASURES && status & STATUS_INTERRUPTS_BEFORE != 0 {
        begin(Site::Trap(Cause { code, value: 0 }));
    }
}

/// A trap's handler is about to return to where interrupts are as `status` says.
#[inline]
pub fn handler_ends(status: usize) {
    if MEASURES && status & STATUS_INTERRUPTS_BEFORE != 0 {
        end();
    }
}

/// Makes a call of the firmware, whose time is left out of the stretch.
#[inline]
pub fn in_firmware<R>(call: impl FnOnce() -> R) -> R {
    if !MEASURES || !MEASURING.load(Ordering::Relaxed) {
        return call();
    }
    let before = instructions();
    let result = call();
    // With interrupts on there is no stretch, and the thread may be on another hart by now.
    if !are_enabled() {
        stretches_here().leave_out(instructions() - before);
    }
    result
}

/// Waits for an interrupt with interrupts masked, by `wait`: the stretch ends there, and another begins behind it.
#[inline]
#[track_caller]
pub fn while_waiting(wait: impl FnOnce()) {
    if MEASURES {
        end();
    }
    wait();
    if MEASURES {
        begin(Site::Line(Location::caller()));
    }
}
