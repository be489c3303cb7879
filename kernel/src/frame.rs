//! Physical memory, a frame of 4 KiB at a time.
//!
//! The logic is `lib/frames`: lock-free, one bit a frame decides. This file tells it what memory there is, gives each hart a cache,
//! clears frames, and in checked builds fills the free ones so that a use after free shows.
//!
//! Owns the one allocator, written once before other harts run (invariant FRAME-1). [`allocate`] and [`free`] take no lock and may be called
//! anywhere, [`allocate_run`] gives frames in a row; what is wrong with a free is an error that names the address.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use frames::{FrameNumber, FrameRange, Frames, FreeError, Setup, Statistics};
use machine::{Machine, PhysicalRange};

use crate::hart;
use crate::probe;
use crate::vm::{self, PAGE};

static FRAMES: Allocator = Allocator(UnsafeCell::new(Frames::empty()));

/// The allocator, which has no memory at first. No `Once`: looking whether it has started would cost each allocation a sixth.
struct Allocator(UnsafeCell<Frames<'static>>);

// SAFETY: it is written once, when nobody else uses it, and only shared from then on (invariant FRAME-1).
unsafe impl Sync for Allocator {}

/// Bytes that `cbo.zero` clears, or 0 where it cannot be used.
static ZERO_BLOCK: AtomicUsize = AtomicUsize::new(0);

/// What fills a free frame in checked builds: as an address it is not canonical, as a number it is odd.
pub const FREE_PATTERN: u64 = 0xdead_f4ee_dead_f4ef;

/// Takes over the machine's memory: what is in a bank and not reserved. `boot` and `tables` are in use, and what is not needed of
/// them is freed later; the beginning of `boot` becomes the allocator's own storage, of [`storage_bytes`].
///
/// Called once, when the boot page table maps `boot`.
pub fn start(
    machine: &Machine<'_>,
    reserved: &[PhysicalRange],
    boot: PhysicalRange,
    tables: PhysicalRange,
) {
    let banks = banks(machine);
    let storage = vm::direct(boot.start() as usize);
    // SAFETY: `boot` is memory that nobody else has, mapped to read and write, and aligned to a page (invariant BOOT-5).
    let words = unsafe {
        core::slice::from_raw_parts(
            core::ptr::without_provenance::<AtomicU64>(storage),
            storage_bytes(machine) / size_of::<AtomicU64>(),
        )
    };
    let mut setup = Setup::new(&banks, words).expect("the banks are sorted and have frames");
    for bank in &banks {
        setup.release(*bank);
    }
    for used in [boot, tables] {
        setup.occupy(FrameRange::inside(addresses(used)));
    }
    for range in reserved {
        setup.reserve(FrameRange::touching(addresses(*range)));
    }
    for reservation in machine.reservations() {
        setup.reserve(FrameRange::touching(addresses(reservation.range)));
    }
    // SAFETY: the boot hart is alone, and holds no reference to the allocator here (FRAME-1).
    unsafe { *FRAMES.0.get() = setup.finish() };
}

/// Bytes of storage that the allocator needs for the machine's memory, in whole pages.
pub fn storage_bytes(machine: &Machine<'_>) -> usize {
    (frames::words_needed(&banks(machine)) * size_of::<AtomicU64>()).next_multiple_of(PAGE)
}

/// The machine's banks, as far as the direct map can show them.
fn banks(machine: &Machine<'_>) -> arrayvec::ArrayVec<FrameRange, { machine::MAXIMUM_BANKS + 1 }> {
    let end = vm::DIRECT_MAP_BYTES as u64;
    machine
        .banks
        .iter()
        .filter_map(|bank| PhysicalRange::between(bank.range.start(), bank.range.end().min(end)))
        .map(|range| FrameRange::inside(addresses(range)))
        .collect()
}

fn addresses(range: PhysicalRange) -> core::ops::Range<usize> {
    range.start() as usize..range.end() as usize
}

fn all() -> &'static Frames<'static> {
    // SAFETY: nobody writes it while this is used (FRAME-1).
    unsafe { &*FRAMES.0.get() }
}

/// Takes a frame, with whatever is in it. Nothing where there is none. Takes no lock; may be called anywhere.
#[inline(always)]
pub fn allocate() -> Option<FrameNumber> {
    let frame = all().allocate(hart::frame_cache())?;
    if cfg!(feature = "checked") {
        check_pattern(frame);
    }
    Some(frame)
}

/// Takes a frame full of zeros.
#[inline]
pub fn allocate_zeroed() -> Option<FrameNumber> {
    let frame = allocate()?;
    zero(frame);
    Some(frame)
}

/// Takes back a frame. Nobody may reach it any more, through any address.
///
/// # Errors
/// If it is not in use; nothing has changed then.
#[inline]
pub fn free(frame: FrameNumber) -> Result<(), FreeError> {
    if cfg!(feature = "checked") {
        fill(frame, 1);
    }
    all().free(hart::frame_cache(), frame)
}

/// Takes back the frame at a physical address; as [`free`].
pub fn free_address(address: usize) -> Result<(), FreeError> {
    free(FrameNumber::starting_at(address).ok_or(FreeError::Unaligned(address))?)
}

/// Takes `count` frames in a row, the first a multiple of `alignment` frames.
pub fn allocate_run(count: usize, alignment: usize) -> Option<FrameNumber> {
    let first = all().allocate_run(count, alignment)?;
    if cfg!(feature = "checked") {
        (first.0..first.0 + count).map(FrameNumber).for_each(check_pattern);
    }
    Some(first)
}

/// Takes back `count` frames from `first` on, all or none.
///
/// # Errors
/// If one of them is not in use; nothing has changed then.
pub fn free_run(first: FrameNumber, count: usize) -> Result<(), FreeError> {
    if cfg!(feature = "checked") {
        fill(first, count);
    }
    all().free_run(first, count)
}

/// What a frame is; nothing where it is none of the allocator's.
pub fn state(frame: FrameNumber) -> Option<frames::State> {
    all().state(frame)
}

/// How many frames there are of each sort. Looks at all of them.
pub fn statistics() -> Statistics {
    all().statistics()
}

/// Fills frames with the pattern of free memory, if all of them are in use: what is not is left to the error that follows.
fn fill(first: FrameNumber, count: usize) {
    let frames = || (0..count).map(|offset| FrameNumber(first.0 + offset));
    if frames().all(|frame| state(frame) == Some(frames::State::InUse)) {
        frames().flat_map(words).for_each(|word| word.store(FREE_PATTERN, Ordering::Relaxed));
    }
}

/// Panics if somebody wrote to a frame after it was filled.
fn check_pattern(frame: FrameNumber) {
    let is_free = |word: &AtomicU64| word.load(Ordering::Relaxed) == FREE_PATTERN;
    let mut words = words(frame);
    // Memory that was never freed holds anything.
    if words.clone().take(2).all(is_free) || words.clone().skip(PAGE / 8 - 2).all(is_free) {
        let written = words.position(|word| !is_free(word));
        assert!(
            written.is_none(),
            "the frame at {frame} was written after it was freed: {written:?}"
        );
    }
}

/// A frame's words, through the direct map.
fn words(frame: FrameNumber) -> core::slice::Iter<'static, AtomicU64> {
    let start = core::ptr::without_provenance::<AtomicU64>(vm::direct(frame.address()));
    // SAFETY: the direct map shows every frame that the allocator has, to read and write (invariant VM-2), and atomics may be
    // shared.
    unsafe { core::slice::from_raw_parts(start, PAGE / size_of::<AtomicU64>()) }.iter()
}

/// Clears a frame.
pub fn zero(frame: FrameNumber) {
    let start = vm::direct(frame.address());
    match ZERO_BLOCK.load(Ordering::Relaxed) {
        // Sixteen at a time, which the compiler unrolls.
        0 => words(frame).as_slice().as_chunks::<16>().0.iter().for_each(|sixteen| {
            sixteen.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }),
        block => {
            let mut address = start;
            while address != start + PAGE {
                // SAFETY: each instruction clears an aligned block of the frame, which its caller has; it was tried.
                unsafe {
                    core::arch::asm!(
                        ".rept {blocks}", ".insn i 0x0f, 2, x0, {address}, 4", "add {address}, {address}, {block}", ".endr",
                        blocks = const ZEROED_TOGETHER,
                        address = inout(reg) address,
                        block = in(reg) block,
                    )
                };
            }
        }
    }
}

/// Blocks that are cleared without a look at how many are left.
const ZEROED_TOGETHER: usize = 16;

/// Tries `cbo.zero` once, on a frame that the caller has, where the tree says that the boot hart has it: firmware may have left it
/// off. All harts must have the same block, or a thread could not move.
pub fn try_zero_instruction(machine: &Machine<'_>, frame: FrameNumber) {
    let mut blocks = machine.harts.iter().filter(|hart| hart.enabled).map(|hart| hart.zero_block);
    let Some(Some(block)) = blocks.next() else { return };
    let block = block.get() as usize;
    let fits = block.is_power_of_two() && (8..=PAGE / ZEROED_TOGETHER).contains(&block);
    if !fits || blocks.any(|other| other.is_none_or(|other| other.get() as usize != block)) {
        return;
    }
    // More than it may clear.
    let tried_on = words(frame).take(2 * block / 8);
    tried_on.clone().for_each(|word| word.store(1, Ordering::Relaxed));
    let tried = probe::zero_block(vm::direct(frame.address()));
    let cleared = tried_on.take_while(|word| word.load(Ordering::Relaxed) == 0).count() * 8;
    if tried.is_ok() && cleared == block {
        ZERO_BLOCK.store(block, Ordering::Relaxed);
    }
}

/// Bytes that `cbo.zero` clears here; 0 where it is not used.
pub fn zero_block() -> usize {
    ZERO_BLOCK.load(Ordering::Relaxed)
}

/// For tests: runs that are neither looked at nor filled, so that a host need not have the memory.
#[cfg(feature = "selftest")]
pub mod untouched {
    use super::{FrameNumber, FreeError, all};

    /// As [`allocate_run`](super::allocate_run).
    pub fn allocate_run(count: usize) -> Option<FrameNumber> {
        all().allocate_run(count, 1)
    }

    /// As [`free_run`](super::free_run). What was free before stays as it was.
    ///
    /// # Errors
    /// If one of them is not in use; nothing has changed then.
    pub fn free_run(first: FrameNumber, count: usize) -> Result<(), FreeError> {
        all().free_run(first, count)
    }
}
