//! The page table and the address space it spans.
//!
//! Memory map (virtual, Sv39's upper half; the lower half is left to user programs):
//!
//! | from | what |
//! |---|---|
//! | `0xffff_ffc0_0000_0000` | direct map of physical memory, 128 GiB |
//! | `0xffff_ffe0_0000_0000` | devices |
//! | `0xffff_ffff_8020_0000` | the image |

use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::address::{PAGE, PhysicalAddress, VirtualAddress};
use crate::hart;
use crate::image;

/// `satp` with the mode Sv39 and ASID 0 (privileged spec 4.1.11).
pub const SATP_SV39: usize = 8 << 60;

/// Root entry of the image.
pub const KERNEL_ROOT_INDEX: usize = 510;
/// Entry of the image's first 2 MiB in the middle table.
pub const KERNEL_MIDDLE_INDEX: usize = 1;
/// First root entry of the direct map.
pub const DIRECT_MAP_ROOT_INDEX: usize = 256;
/// Physical memory that the direct map can show, in GiB: one root entry each.
pub const DIRECT_MAP_GIBS: usize = 128;
/// Root entry of the devices.
const DEVICE_ROOT_INDEX: usize = 384;

/// Where physical address 0 stands in the direct map.
const DIRECT_MAP: usize = root_address(DIRECT_MAP_ROOT_INDEX);
/// Where devices are mapped, and everything above them but the image.
pub const DEVICES: VirtualAddress = VirtualAddress(root_address(DEVICE_ROOT_INDEX));

const VALID: usize = 1 << 0;
const READ: usize = 1 << 1;
const WRITE: usize = 1 << 2;
const EXECUTE: usize = 1 << 3;
const ACCESSED: usize = 1 << 6;
const DIRTY: usize = 1 << 7;

/// The lowest virtual address under a root entry of the upper half.
const fn root_address(index: usize) -> usize {
    assert!(index >= 256, "the lower half is the user's");
    (usize::MAX << 39) | index << 30
}

/// One page of 512 entries. Entries are atomic: a hart's walk may read them at any time.
#[repr(C, align(4096))]
pub struct Table([AtomicUsize; 512]);

/// The first page table, filled in by the entry (`boot.rs`): root, the image's middle table and its two lowest, then the
/// devices' middle and lowest table.
pub static BOOT_TABLES: [Table; 6] = [const { Table([const { AtomicUsize::new(0) }; 512]) }; 6];

const ROOT: usize = 0;
const IMAGE_LOWEST: usize = 2;
const DEVICE_MIDDLE: usize = 4;
const DEVICE_LOWEST: usize = 5;

/// Physical address at which the image was loaded.
static IMAGE_BASE: AtomicUsize = AtomicUsize::new(0);

/// Records where the image was loaded. Called once, first of all.
pub fn set_image_base(base: PhysicalAddress) {
    IMAGE_BASE.store(base.0, Ordering::Relaxed);
}

/// Virtual minus physical address, for everything in the image.
pub fn image_offset() -> usize {
    image::start() - IMAGE_BASE.load(Ordering::Relaxed)
}

/// The physical address of something in the image.
pub fn physical_of_image(address: usize) -> PhysicalAddress {
    PhysicalAddress(address - image_offset())
}

/// Where a physical address stands in the direct map, if it reaches that far. Says nothing about whether it is mapped.
pub fn direct(address: PhysicalAddress) -> Option<VirtualAddress> {
    (address.0 >> 30 < DIRECT_MAP_GIBS).then_some(VirtualAddress(DIRECT_MAP + address.0))
}

/// What may be done with a page. Writable and executable cannot be said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// `R--`
    Read,
    /// `RW-`
    ReadWrite,
    /// `R-X`
    ReadExecute,
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rights::Read => "R--",
            Rights::ReadWrite => "RW-",
            Rights::ReadExecute => "R-X",
        })
    }
}

/// Takes away the page below each boot stack, so that an overflow faults.
pub fn guard_the_boot_stacks() {
    for guard in hart::boot_stack_guards() {
        let page = (guard - image::start()) / PAGE;
        BOOT_TABLES[IMAGE_LOWEST + page / 512].0[page % 512].store(0, Ordering::Relaxed);
    }
    riscv::asm::sfence_vma_all();
}

/// A device that is to be mapped does not fit into the devices' part of the boot page table.
#[derive(Debug)]
pub struct NoRoom;

/// Maps a device's registers, readable and writable, and gives the virtual address of the first.
///
/// Boot hart only, before the others start: they begin with a clean TLB.
pub fn map_device(registers: Range<usize>) -> Result<VirtualAddress, NoRoom> {
    let lowest = &BOOT_TABLES[DEVICE_LOWEST].0;
    let first_page = registers.start / PAGE;
    let pages = (registers.end - 1) / PAGE - first_page + 1;
    let slot = lowest.iter().position(|entry| entry.load(Ordering::Relaxed) == 0).ok_or(NoRoom)?;
    if slot + pages > lowest.len() {
        return Err(NoRoom);
    }
    for page in 0..pages {
        let bits = VALID | READ | WRITE | ACCESSED | DIRTY;
        lowest[slot + page].store((first_page + page) << 10 | bits, Ordering::Relaxed);
    }
    link(ROOT, DEVICE_ROOT_INDEX, DEVICE_MIDDLE);
    link(DEVICE_MIDDLE, 0, DEVICE_LOWEST);
    riscv::asm::sfence_vma_all();
    Ok(VirtualAddress(DEVICES.0 + slot * PAGE + registers.start % PAGE))
}

/// Makes an entry of one boot table point to another: valid, and every other bit zero, as non-leaf entries must be.
fn link(from: usize, index: usize, to: usize) {
    let frame = physical_of_image((&raw const BOOT_TABLES[to]).addr()).0 / PAGE;
    BOOT_TABLES[from].0[index].store(frame << 10 | VALID, Ordering::Relaxed);
}

/// A stretch of virtual addresses mapped with the same rights to one stretch of physical ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: VirtualAddress,
    /// Where it goes.
    pub physical: PhysicalAddress,
    /// Bytes.
    pub size: usize,
    /// What may be done there.
    pub rights: Rights,
}

impl Mapping {
    fn continues_as(&self, next: &Mapping) -> bool {
        self.start.0 + self.size == next.start.0
            && self.physical.0 + self.size == next.physical.0
            && self.rights == next.rights
    }
}

/// Shows each stretch of the active page table, in the order of addresses, neighbours joined.
pub fn for_each_mapping(mut show: impl FnMut(&Mapping)) {
    let mut current: Option<Mapping> = None;
    each_leaf(&BOOT_TABLES[ROOT], 2, 0, &mut |leaf| match &mut current {
        Some(stretch) if stretch.continues_as(&leaf) => stretch.size += leaf.size,
        _ => {
            if let Some(finished) = current.replace(leaf) {
                show(&finished);
            }
        }
    });
    if let Some(finished) = current {
        show(&finished);
    }
}

/// The leaf that translates `address`, as the page table says it now.
pub fn lookup(address: VirtualAddress) -> Option<Mapping> {
    let mut found = None;
    for_each_mapping(|mapping| {
        if (mapping.start.0..mapping.start.0 + mapping.size).contains(&address.0) {
            found = Some(*mapping);
        }
    });
    found
}

/// Visits the leaves under `table`, whose entries each span 512 to the power of `level` pages, from `base` on.
fn each_leaf(table: &Table, level: usize, base: usize, visit: &mut dyn FnMut(Mapping)) {
    let span = PAGE << (9 * level);
    for (index, entry) in table.0.iter().enumerate() {
        let entry = entry.load(Ordering::Relaxed);
        if entry & VALID == 0 {
            continue;
        }
        let physical = PhysicalAddress((entry >> 10) * PAGE);
        let start =
            if level == 2 && index >= 256 { root_address(index) } else { base + index * span };
        if entry & (READ | WRITE | EXECUTE) == 0 {
            let next =
                boot_table_at(physical).expect("the boot page table points only to boot tables");
            each_leaf(next, level - 1, start, visit);
        } else {
            let rights = match (entry & WRITE != 0, entry & EXECUTE != 0) {
                (false, false) => Rights::Read,
                (true, false) => Rights::ReadWrite,
                (false, true) => Rights::ReadExecute,
                (true, true) => {
                    panic!("page-table entry {entry:#x} for {start:#x} is writable and executable")
                }
            };
            visit(Mapping { start: VirtualAddress(start), physical, size: span, rights });
        }
    }
}

fn boot_table_at(address: PhysicalAddress) -> Option<&'static Table> {
    BOOT_TABLES
        .iter()
        .find(|table| physical_of_image(core::ptr::from_ref(*table).addr()) == address)
}
