//! The kernel's address space: one Sv39 page table for all harts, in the upper half.
//!
//! The logic is `lib/paging`. This file says what is mapped where, gives it memory for tables, and executes the fences that
//! changes owe, here and on the other harts. DESIGN.md draws the map.
//!
//! Owns the page table, under a lock (invariants VM-1, VM-2): [`map`], [`protect`], [`unmap`], [`retire`]. No frame and no address of what was
//! unmapped is used again before every hart has fenced. [`view`] reads without the lock, by probes.

use core::arch::asm;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use arrayvec::ArrayVec;
use frames::{FrameNumber, FrameRange};
use machine::{Machine, PhysicalRange, Reservation};
use paging::{AddressSpace, Error, Fence, Harts, Layer, Owed, Pages, TableMemory, View};
pub use paging::{Mapping, PAGE, Rights, VirtualAddress};

use crate::image::{self, Section};
use crate::sync::SpinLock;
use crate::{exit, frame, hart, interrupts, platform, probe, sbi};

/// `satp` with the mode Sv39 and ASID 0 (privileged spec 4.1.11).
pub const SATP_SV39: usize = 8 << 60;

/// Root entry of the image.
pub const KERNEL_ROOT_INDEX: usize = 510;
/// Entry of the image's first 2 MiB in the middle table.
pub const KERNEL_MIDDLE_INDEX: usize = 1;
/// Root entry of the device that the first page table shows.
const EARLY_DEVICE_ROOT_INDEX: usize = 384;
/// First root entry of the direct map.
pub const DIRECT_MAP_ROOT_INDEX: usize = 256;

/// Where physical address 0 stands in the direct map.
const DIRECT_MAP: usize = root_address(DIRECT_MAP_ROOT_INDEX);
/// How much physical memory the direct map can show.
pub const DIRECT_MAP_BYTES: usize = 128 << 30;
/// Where devices are mapped.
pub const DEVICES: usize = root_address(384);
/// Where stacks are mapped, from here up to the image.
pub const STACKS: Range<usize> = root_address(448)..root_address(KERNEL_ROOT_INDEX);

/// Memory that the boot takes for page tables at first; what it does not need it gives back.
const MEMORY_FOR_TABLES: usize = 1 << 20;

/// Memory without which the kernel does not begin: for its heap, and for the demo's threads.
const LEAST_MEMORY: usize = 1 << 20;
/// The same for each hart: its stacks, and what it keeps free for itself.
const LEAST_MEMORY_OF_A_HART: usize = 128 << 10;

/// Banks, reservations and parts of the image that the direct map can show differently.
const LAYERS: usize = 64;
const TOO_MANY: &str = "more than 64 banks and reservations";
const _: () = assert!(LAYERS == 64, "the text says how many");

/// What the largest page of a middle table covers.
const LARGE_PAGE: usize = 2 << 20;

/// The lowest virtual address under a root entry of the upper half.
const fn root_address(index: usize) -> usize {
    assert!(index >= 256, "the lower half is the user's");
    (usize::MAX << 39) | index << 30
}

/// One page of 512 entries. Entries are atomic: a hart's walk may read them at any time.
#[repr(C, align(4096))]
pub struct Table([AtomicUsize; paging::ENTRIES]);

/// The first page table, filled in by the entry (`boot.rs`): root, the image's middle table and its two lowest, the middle table
/// of the device tree's GiB, and that of the GiB with the memory that the boot uses.
pub static BOOT_TABLES: [Table; 6] =
    [const { Table([const { AtomicUsize::new(0) }; paging::ENTRIES]) }; 6];

const BOOT_ROOT: usize = 0;
const BOOT_TREE_MIDDLE: usize = 4;
const BOOT_MEMORY_MIDDLE: usize = 5;

/// Physical address at which the image was loaded.
static IMAGE_BASE: AtomicUsize = AtomicUsize::new(0);

/// The kernel's page table, once it is built. Its lock is held while fences of a change are executed.
static SPACE: SpinLock<Option<Space>> = SpinLock::new("address space", None);

/// How many changes may wait for one fence.
const RETIRED: usize = 16;

/// The page table, and the fences that other harts owe for what was retired.
struct Space {
    table: AddressSpace<Tables>,
    retired: ArrayVec<Owed, RETIRED>,
}

/// Frames for the tables of the first build, from the memory that the boot has mapped: the next, and the end.
static BOOT_FRAMES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// How often something was mapped.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// The next free address for a device.
static NEXT_DEVICE: AtomicUsize = AtomicUsize::new(DEVICES);

/// Records where the image was loaded. Called once, first of all.
pub fn set_image_base(base: usize) {
    IMAGE_BASE.store(base, Ordering::Relaxed);
}

/// Virtual minus physical address, for everything in the image.
pub fn image_offset() -> usize {
    image::start() - IMAGE_BASE.load(Ordering::Relaxed)
}

/// The physical address of something in the image.
pub fn physical_of_image(address: usize) -> usize {
    address - image_offset()
}

/// Where a physical address below [`DIRECT_MAP_BYTES`] stands in the direct map. Says nothing about whether it is mapped.
pub const fn direct(physical: usize) -> usize {
    DIRECT_MAP + physical
}

/// Whether `address` is one of the direct map.
pub fn is_direct(address: usize) -> bool {
    (DIRECT_MAP..DIRECT_MAP + DIRECT_MAP_BYTES).contains(&address)
}

/// The physical address that stands at `address` in the direct map.
pub const fn physical_of_direct(address: usize) -> usize {
    address - DIRECT_MAP
}

/// There is no frame for a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfFrames;

/// Why a mapping was not changed.
pub type MapError = Error<OutOfFrames>;

/// Tables in the direct map, in frames of the allocator.
pub struct Tables;

impl Tables {
    fn entry(table: FrameNumber, index: usize) -> &'static AtomicUsize {
        let tables = core::ptr::without_provenance::<Table>(direct(table.address()));
        // SAFETY: only frames from `allocate` are tables, all in the direct map, and entries are atomic (invariant VM-1).
        unsafe { &(&*tables).0[index] }
    }
}

impl TableMemory for Tables {
    type Error = OutOfFrames;

    fn read(&self, table: FrameNumber, index: usize) -> usize {
        Self::entry(table, index).load(Ordering::Relaxed)
    }

    fn write(&self, table: FrameNumber, index: usize, bits: usize) {
        // Release: a walk that sees this entry sees the table behind it.
        Self::entry(table, index).store(bits, Ordering::Release);
    }

    fn allocate(&self) -> Result<FrameNumber, OutOfFrames> {
        let [next, end] = &BOOT_FRAMES;
        let boot = next.load(Ordering::Relaxed);
        if boot < end.load(Ordering::Relaxed) {
            next.store(boot + 1, Ordering::Relaxed);
            frame::zero(FrameNumber(boot));
            return Ok(FrameNumber(boot));
        }
        frame::allocate_zeroed().ok_or(OutOfFrames)
    }

    fn free(&self, table: FrameNumber) {
        frame::free(table).expect("a table's frame is in use");
    }
}

/// Tables read through probes: a crash report may look while they change, or when they are broken.
pub struct ProbedTables;

impl TableMemory for ProbedTables {
    type Error = OutOfFrames;

    fn read(&self, table: FrameNumber, index: usize) -> usize {
        let entry = direct(table.0.wrapping_mul(PAGE)).wrapping_add(index * 8);
        probe::read(entry).map_or(0, |bits| bits as usize)
    }

    fn write(&self, _: FrameNumber, _: usize, _: usize) {
        unreachable!("a view does not write");
    }

    fn allocate(&self) -> Result<FrameNumber, OutOfFrames> {
        Err(OutOfFrames)
    }

    fn free(&self, _: FrameNumber) {
        unreachable!("a view frees nothing");
    }
}

/// The active page table, to be read without a lock.
pub fn view() -> View<'static, ProbedTables> {
    View::new(&ProbedTables, FrameNumber(riscv::register::satp::read().ppn()))
}

/// The page that holds `address`, if it is mapped.
pub fn lookup(address: usize) -> Option<Mapping> {
    view().lookup(VirtualAddress::new(address)?).mapping()
}

/// What the kernel maps at an address, as it is printed.
pub fn region_of(address: usize) -> &'static str {
    match Section::of(address) {
        _ if STACKS.contains(&address) => "a stack",
        Some(section) => section.name(),
        None if is_direct(address) => "memory",
        None if address >= DEVICES => "a device",
        None => "nothing of the kernel's",
    }
}

/// Builds the kernel's page table, takes over memory, and turns the table on. Refuses a machine with too little memory.
///
/// Called once, by the boot hart before the others start.
pub fn start(machine: &Machine<'_>) {
    // The first page table is given back when it is not needed any more; the rest of the image stays.
    let tables = (&raw const BOOT_TABLES).addr();
    let tables = tables..tables + size_of_val(&BOOT_TABLES);
    let image = image_range();
    let reserved: ArrayVec<PhysicalRange, 4> = [
        PhysicalRange::between(image.start(), physical_range(tables.clone()).start()),
        PhysicalRange::between(physical_range(tables.clone()).end(), image.end()),
        Some(platform::tree()),
        machine.chosen.initrd,
    ]
    .into_iter()
    .flatten()
    .collect();

    let storage = frame::storage_bytes(machine);
    let size = (storage + MEMORY_FOR_TABLES).next_multiple_of(LARGE_PAGE);
    let boot = boot_memory(machine, &reserved, size);
    map_boot_memory(boot);
    frame::start(machine, &reserved, boot, physical_range(tables.clone()));
    let end = boot.end() as usize / PAGE;
    BOOT_FRAMES[0].store((boot.start() as usize + storage) / PAGE, Ordering::Relaxed);
    BOOT_FRAMES[1].store(end, Ordering::Relaxed);
    // On the first frame that becomes a table, which is cleared then.
    frame::try_zero_instruction(machine, FrameNumber(BOOT_FRAMES[0].load(Ordering::Relaxed)));

    let space = build(machine)
        .unwrap_or_else(|error| refuse(format_args!("the page table cannot be built: {error:?}")));
    // The first page table shows the exit device elsewhere.
    let has_exit_device = exit::stop_using_device();
    activate(space);
    if has_exit_device {
        platform::map_exit_device(machine);
    }

    let unused = BOOT_FRAMES[0].swap(end, Ordering::Relaxed);
    frame::free_run(FrameNumber(unused), end - unused).expect("the boot's memory is in use");
    unmap(pages(tables.start, tables.len()), |page| {
        frame::free_run(page.frame, page.pages.count()).expect("the boot's tables are in use");
    })
    .expect("the boot's tables are mapped");
}

fn refuse(why: fmt::Arguments<'_>) -> ! {
    exit::fail(exit::Failure::Refused, why)
}

/// `size` bytes for the boot, of memory that nothing else has. Refuses a machine with too little. A function of its own, or its list of
/// what is taken would lie on the stack for as long as the kernel boots.
#[inline(never)]
fn boot_memory(machine: &Machine<'_>, reserved: &[PhysicalRange], size: usize) -> PhysicalRange {
    let mut taken: ArrayVec<PhysicalRange, LAYERS> = reserved.iter().copied().collect();
    add_reservations(&mut taken, machine);
    let needed = (size + LEAST_MEMORY + machine.harts.len() * LEAST_MEMORY_OF_A_HART) as u64;
    let free = free_bytes(machine, &taken);
    free_memory(machine, &taken, size).filter(|_| free >= needed).unwrap_or_else(|| {
        let (free, needed, piece) = (free >> 10, needed >> 10, size >> 10);
        refuse(format_args!(
            "{free} KiB of memory are free, and the kernel needs {needed} KiB, {piece} KiB of them in one piece from a multiple of 2 MiB on"
        ))
    })
}

/// Adds what the tree reserves to what is taken. Refuses a reservation that keeps the kernel from mapping itself or the tree.
fn add_reservations(taken: &mut ArrayVec<PhysicalRange, LAYERS>, machine: &Machine<'_>) {
    let needed = [image_range(), platform::tree()];
    for Reservation { name, range, no_map, .. } in machine.reservations() {
        if no_map && needed.iter().any(|needed| needed.overlaps(range)) {
            refuse(format_args!(
                "{name} at {range} must not be mapped, and the kernel or the device tree lies there"
            ))
        }
        if taken.try_push(range).is_err() {
            refuse(format_args!("{TOO_MANY}"))
        }
    }
}

/// Bytes of memory that are not taken. Too few where what is taken overlaps.
fn free_bytes(machine: &Machine<'_>, taken: &[PhysicalRange]) -> u64 {
    let common = taken.iter().flat_map(|range| {
        machine.banks.iter().filter_map(move |bank| bank.range.intersection(*range))
    });
    let all: u64 = machine.banks.iter().map(|bank| bank.range.size()).sum();
    all.saturating_sub(common.map(PhysicalRange::size).sum())
}

/// `size` bytes of memory in one GiB, aligned to 2 MiB, that nothing else has.
fn free_memory(
    machine: &Machine<'_>,
    taken: &[PhysicalRange],
    size: usize,
) -> Option<PhysicalRange> {
    let is_free = |range: &PhysicalRange| {
        !taken.iter().any(|other| other.overlaps(*range))
            && range.start() >> 30 == (range.end() - 1) >> 30
            && range.end() as usize <= DIRECT_MAP_BYTES
    };
    machine.banks.iter().find_map(|bank| {
        let first = bank.range.start().next_multiple_of(LARGE_PAGE as u64);
        (first..bank.range.end())
            .step_by(LARGE_PAGE)
            .map_while(|start| PhysicalRange::new(start, size as u64))
            .take_while(|range| range.end() <= bank.range.end())
            .find(is_free)
    })
}

/// Lets the first page table show a device, until the second is on, to whoever must end the run before. Gives its address.
pub fn map_early(registers: PhysicalRange) -> usize {
    const LEAF: usize = 0b1100_0111; // valid, read, write, accessed, dirty
    const GIB: usize = 1 << 30;
    let start = registers.start() as usize;
    let root = &BOOT_TABLES[BOOT_ROOT].0[EARLY_DEVICE_ROOT_INDEX];
    root.store((start / GIB * GIB / PAGE) << 10 | LEAF, Ordering::Relaxed);
    riscv::asm::sfence_vma_all();
    root_address(EARLY_DEVICE_ROOT_INDEX) + start % GIB
}

/// Lets the first page table show `boot` in the direct map, to read and write.
fn map_boot_memory(boot: PhysicalRange) {
    const LEAF: usize = 0b1100_0111; // valid, read, write, accessed, dirty
    let root = &BOOT_TABLES[BOOT_ROOT].0[DIRECT_MAP_ROOT_INDEX + (boot.start() >> 30) as usize];
    let middle = if root.load(Ordering::Relaxed) != 0 {
        &BOOT_TABLES[BOOT_TREE_MIDDLE]
    } else {
        let middle = &BOOT_TABLES[BOOT_MEMORY_MIDDLE];
        let table = physical_of_image(core::ptr::from_ref(middle).addr());
        root.store((table / PAGE) << 10 | 1, Ordering::Relaxed);
        middle
    };
    for start in (boot.start() as usize..boot.end() as usize).step_by(LARGE_PAGE) {
        let entry = &middle.0[start / LARGE_PAGE % paging::ENTRIES];
        entry.store((start / PAGE) << 10 | LEAF, Ordering::Relaxed);
    }
    riscv::asm::sfence_vma_all();
}

/// Everything that is mapped from the start: image, direct map.
fn build(machine: &Machine<'_>) -> Result<AddressSpace<Tables>, MapError> {
    let mut space = AddressSpace::new(Tables).map_err(Error::NoTable)?;
    let mut layers = ArrayVec::<Layer, LAYERS>::new();
    let mut lay = |range, rights| {
        if layers.try_push(layer(range, rights)).is_err() {
            refuse(format_args!("{TOO_MANY}"));
        }
    };
    for bank in &machine.banks {
        let range = bank.range.aligned_inwards(PAGE as u64);
        let end = DIRECT_MAP_BYTES as u64;
        if let Some(range) =
            range.and_then(|range| PhysicalRange::between(range.start(), range.end().min(end)))
        {
            lay(range, Some(Rights::ReadWrite));
        }
    }
    for reservation in machine.reservations().filter(|reservation| reservation.no_map) {
        lay(reservation.range, None);
    }
    lay(platform::tree(), Some(Rights::Read));
    // Of the image, what may not be written must not be writable here either, and nothing is executed here.
    for section in Section::ALL {
        let rights = match section.rights() {
            Rights::ReadExecute => Rights::Read,
            rights => rights,
        };
        lay(physical_range(section.range()), Some(rights));
    }
    for guard in hart::boot_stack_guards() {
        lay(physical_range(guard..guard + PAGE), None);
    }
    for (frames, rights) in paging::stretches(&layers) {
        map_first(&mut space, frames, direct(0), rights)?;
    }
    // The image where it is linked.
    layers.clear();
    for section in Section::ALL {
        layers.push(layer(physical_range(section.range()), Some(section.rights())));
    }
    for guard in hart::boot_stack_guards() {
        layers.push(layer(physical_range(guard..guard + PAGE), None));
    }
    for (frames, rights) in paging::stretches(&layers) {
        map_first(&mut space, frames, image_offset(), rights)?;
    }
    Ok(space)
}

fn layer(range: PhysicalRange, rights: Option<Rights>) -> Layer {
    let addresses = range.start() as usize..range.end() as usize;
    Layer { frames: FrameRange::touching(addresses), rights }
}

/// Maps frames at their addresses plus `offset`, in a table that no hart uses yet: nobody owes a fence.
fn map_first(
    space: &mut AddressSpace<Tables>,
    frames: FrameRange,
    offset: usize,
    rights: Rights,
) -> Result<(), MapError> {
    let size = frames.count() * PAGE;
    let owed = space.map(pages(frames.start.address() + offset, size), frames.start, rights)?;
    let Ok(settled) = owed.settle(|_, _| Ok::<(), ()>(())) else { unreachable!("it succeeds") };
    space.close(settled, |_| ());
    Ok(())
}

/// Makes `space` the page table of this hart and of those that start later.
fn activate(space: AddressSpace<Tables>) {
    let satp = SATP_SV39 | space.root().0;
    *SPACE.lock() = Some(Space { table: space, retired: ArrayVec::new() });
    // SAFETY: the new table maps what the old one maps of image, stack, tree and memory, to the same frames with the same
    // rights (VM-1). The fences: the tables' stores come before their first walk, and the old table's entries are forgotten.
    unsafe { asm!("sfence.vma", "csrw satp, {}", "sfence.vma", in(reg) satp) };
}

/// Maps `pages` to the frames from `frame` on. Other harts that use them first call [`fence_this_hart`].
///
/// # Errors
/// If something is mapped there, or there is no memory for a table; nothing has changed then.
pub fn map(pages: Pages, frame: FrameNumber, rights: Rights) -> Result<(), MapError> {
    change(|space| space.map(pages, frame, rights), |_| ())?;
    // Release: who sees the number and fences sees the entries.
    MAPPINGS.fetch_add(1, Ordering::Release);
    Ok(())
}

/// How often something was mapped: a hart that fenced when it was as many as now knows all of it.
pub fn mappings_so_far() -> usize {
    MAPPINGS.load(Ordering::Acquire)
}

/// Gives mapped pages other rights. No hart has the old ones when it returns.
///
/// # Errors
/// If one of them is not mapped, or there is no memory for a table; nothing has changed then.
pub fn protect(pages: Pages, rights: Rights) -> Result<(), MapError> {
    change(|space| space.protect(pages, rights), |_| ())
}

/// Unmaps mapped pages. When no hart can reach them any more, `give` is called for what was mapped.
///
/// # Errors
/// As for [`protect`].
pub fn unmap(pages: Pages, give: impl FnMut(Mapping)) -> Result<(), MapError> {
    change(|space| space.unmap(pages), give)
}

/// Unmaps mapped pages for this hart. Others may reach them until [`reclaim`] has fenced those too, one fence for many such changes. Does
/// that first if as many wait as can.
///
/// # Errors
/// As for [`protect`].
pub fn retire(pages: Pages, mut give: impl FnMut(Mapping)) -> Result<(), MapError> {
    let mut locked = SPACE.lock();
    while locked.as_ref().expect(BUILT).retired.is_full() {
        drop(locked);
        reclaim(&mut give);
        locked = SPACE.lock();
    }
    let space = locked.as_mut().expect(BUILT);
    let owed = space.table.unmap(pages)?;
    owed.settle_here(fence_here);
    space.retired.push(owed);
    Ok(())
}

/// Fences every hart, and calls `give` for all that was retired: no hart can reach it any more. One lock for each change, so that
/// interrupts are not off for all of them.
pub fn reclaim(mut give: impl FnMut(Mapping)) {
    let owed = SPACE.lock().as_mut().expect(BUILT).retired.take();
    if owed.is_empty() {
        return;
    }
    let fence_all = |which, harts| {
        // On one hart to the end: it is no other's.
        let _masked = interrupts::mask();
        fence(which, harts)
    };
    match Owed::settle_all(owed, fence_all) {
        Ok(settled) => settled.for_each(|settled| {
            SPACE.lock().as_mut().expect(BUILT).table.close(settled, &mut give);
        }),
        Err(error) => panic!("{NO_REMOTE_FENCE}{error}"),
    }
}

const BUILT: &str = "the address space is changed after it was built";
const NO_REMOTE_FENCE: &str = "the firmware does not fence other harts: ";

/// Makes a change and executes the fence that it owes, with the lock held: what was unmapped is nobody's before.
fn change(
    make: impl FnOnce(&mut AddressSpace<Tables>) -> Result<Owed, MapError>,
    give: impl FnMut(Mapping),
) -> Result<(), MapError> {
    let mut space = SPACE.lock();
    let table = &mut space.as_mut().expect(BUILT).table;
    match make(table)?.settle(fence) {
        Ok(settled) => {
            table.close(settled, give);
            Ok(())
        }
        Err((_, error)) => panic!("{NO_REMOTE_FENCE}{error}"),
    }
}

/// Executes a fence on this hart, and where all must, on the others that are up.
fn fence(fence: Fence, harts: Harts) -> Result<(), sbi::Error> {
    fence_here(fence);
    let (start, size) = match fence {
        Fence::Everything => (0, usize::MAX),
        Fence::Pages(pages) => (pages.start().value(), pages.size()),
    };
    match harts {
        Harts::This => Ok(()),
        Harts::All => hart::each_group_of_others(|group| sbi::remote_fence(group, start, size)),
    }
}

/// Executes a fence on this hart.
fn fence_here(fence: Fence) {
    match fence {
        Fence::Everything => fence_this_hart(),
        Fence::Pages(pages) => {
            for address in pages.addresses() {
                // SAFETY: forgets cached leaf entries for an address. Not `nomem`: later accesses must not come before.
                unsafe { asm!("sfence.vma {}, zero", in(reg) address.value()) };
            }
        }
    }
}

/// Forgets everything that this hart has cached of the page table. Owed by a hart before it first uses what another mapped.
pub fn fence_this_hart() {
    riscv::asm::sfence_vma_all();
}

/// Maps a device's registers to read and write, and gives the virtual address of the first.
///
/// # Errors
/// If there is no memory for a table.
pub fn map_device(registers: PhysicalRange) -> Result<usize, MapError> {
    let whole = registers.aligned_outwards(PAGE as u64);
    let (first, size) = (whole.start() as usize, whole.size() as usize);
    // Large registers begin where large pages can map them.
    let alignment = if size < LARGE_PAGE { PAGE } else { LARGE_PAGE };
    let next = NEXT_DEVICE.load(Ordering::Relaxed).next_multiple_of(alignment);
    let start = next + first % alignment;
    map(pages(start, size), FrameNumber(first / PAGE), Rights::ReadWrite)?;
    NEXT_DEVICE.store(start + size, Ordering::Relaxed);
    Ok(start + (registers.start() - whole.start()) as usize)
}

/// Frames that hold tables.
pub fn table_pages() -> usize {
    SPACE.lock().as_ref().map_or(0, |space| space.table.table_pages())
}

/// The physical addresses of the image.
fn image_range() -> PhysicalRange {
    physical_range(image::start()..Section::Symbols.range().end)
}

fn physical_range(addresses: Range<usize>) -> PhysicalRange {
    let start = physical_of_image(addresses.start);
    PhysicalRange::new(start as u64, addresses.len() as u64)
        .expect("a part of the image is not empty")
}

/// Pages whose bounds the kernel computed itself.
pub fn pages(start: usize, size: usize) -> Pages {
    let start = VirtualAddress::new(start).expect("the kernel's addresses are canonical");
    Pages::new(start, size).expect("the kernel maps whole pages")
}
