//! What a kernel must know about its machine, read from a flattened device tree.
//!
//! [`Machine::discover`] takes the blob and gives one typed structure: memory, harts, timebase,
//! interrupt controllers, UART, exit device, and what the boot loader chose. It neither panics nor
//! hangs nor reads outside the blob, whatever the bytes are: all reading goes through checked
//! slices, its stack does not grow with the tree's depth, and its time is linear in the blob's size
//! but for bounded factors.
//!
//! - What a kernel cannot do without is an [`Error`] where it is missing; anything else is `None` or
//!   left out, with a [`Warning`] that says which node, which property, and what was done instead.
//! - Nothing is guessed: a hart's context in an interrupt controller comes from
//!   `interrupts-extended`, and an address is translated by every bus above it.
//! - Properties and nodes that are not known are not looked at.

#![no_std]
#![forbid(unsafe_code)]

mod blob;
mod chosen;
mod device;
mod hart;
mod listing;
mod memory;
mod range;
mod report;

use core::num::NonZero;

use arrayvec::ArrayVec;

pub use blob::{HEADER_SIZE, MAXIMUM_BLOB_SIZE, blob_size};
pub use chosen::Chosen;
pub use device::{Interrupt, Plic, Uart, UartKind};
pub use hart::{Context, Extensions, Hart, HartId, Mmu};
pub use memory::{Bank, Reservation};
pub use range::{PHYSICAL_END, PhysicalRange};
pub use report::{Error, Warning};

use blob::{Cells, Node, Tree, entries, entry_size};

/// Banks that are kept, after those that touch were joined.
pub const MAXIMUM_BANKS: usize = 31;
/// Harts that are kept, the disabled ones included.
pub const MAXIMUM_HARTS: usize = 32;
/// Interrupt controllers that are kept; a machine has one, or one for each NUMA node.
pub const MAXIMUM_PLICS: usize = 4;
/// Warnings that are kept; the others are counted.
pub const MAXIMUM_WARNINGS: usize = 8;

/// A machine as its device tree describes it. Only [`Machine::discover`] makes one, so its fields
/// are what they promise.
#[derive(Clone)]
#[non_exhaustive]
pub struct Machine<'a> {
    /// The root's `model`, or empty.
    pub model: &'a str,
    /// Memory, at least one bank: sorted by address, without overlaps, those that touch within a
    /// NUMA node joined. Addresses are the tree's, aligned to nothing.
    pub banks: ArrayVec<Bank, { MAXIMUM_BANKS + 1 }>,
    /// At least one that is enabled: sorted by id, each id once.
    pub harts: ArrayVec<Hart, MAXIMUM_HARTS>,
    /// Ticks of the `time` counter in a second.
    pub timebase: NonZero<u64>,
    /// What the boot loader chose.
    pub chosen: Chosen<'a>,
    /// The UART for the console.
    pub uart: Option<Uart<'a>>,
    /// The interrupt controllers that can be driven.
    pub plics: ArrayVec<Plic<'a>, MAXIMUM_PLICS>,
    /// Registers of a SiFive test device: a 32-bit write of `code << 16 | 0x3333` at their start ends
    /// QEMU.
    pub exit_device: Option<PhysicalRange>,
    /// What is wrong with the tree but does not stop a boot.
    pub warnings: ArrayVec<Warning<'a>, MAXIMUM_WARNINGS>,
    /// How many more warnings there were.
    pub warnings_left_out: usize,
    tree: Tree<'a>,
    cpus: Option<Node<'a>>,
    reserved_memory: Option<Node<'a>>,
}

// Kernel stacks have 16 KiB, and a value on its way into a static is there more than once.
const _: () = assert!(size_of::<Machine>() <= 3 * 1024);

impl<'a> Machine<'a> {
    /// Reads a flattened device tree.
    ///
    /// Bytes after the total size in the blob's header are not looked at. Names, texts and
    /// reservations are borrowed from the blob.
    ///
    /// # Errors
    ///
    /// For a malformed blob, and for a tree without memory, without harts, without a timebase, or
    /// with a reservation that cannot be read.
    pub fn discover(blob: &'a [u8]) -> Result<Self, Error<'a>> {
        let mut slot = None;
        Self::discover_into(&mut slot, blob)?;
        Ok(slot.expect("a machine that was discovered is in its slot"))
    }

    /// As [`discover`](Self::discover), but puts the machine where it is to stay: it is too large to
    /// be moved about on a kernel's stack. After an error about a blob that is well-formed the slot
    /// holds what could be read all the same, the exit device above all.
    ///
    /// # Errors
    ///
    /// As [`discover`](Self::discover).
    pub fn discover_into(slot: &mut Option<Self>, blob: &'a [u8]) -> Result<(), Error<'a>> {
        let (tree, too_deep) = Tree::new(blob)?;
        let root = tree.root();
        let machine = slot.insert(Machine {
            model: root.text("model").unwrap_or_default(),
            banks: ArrayVec::new(),
            harts: ArrayVec::new(),
            timebase: NonZero::<u64>::MIN,
            chosen: Chosen::default(),
            uart: None,
            plics: ArrayVec::new(),
            exit_device: None,
            warnings: ArrayVec::new(),
            warnings_left_out: 0,
            tree,
            cpus: None,
            reserved_memory: None,
        });
        let (mut chosen, mut aliases) = (None, None);
        let cells = root.child_cells();
        for node in root.children() {
            if node.is_called("memory") || node.text("device_type") == Some("memory") {
                if node.is_enabled() {
                    machine.read_memory(&node, cells);
                }
            } else if node.is_called("cpus") {
                machine.cpus = machine.cpus.or(Some(node));
            } else if node.is_called("chosen") {
                chosen = chosen.or(Some(node));
            } else if node.is_called("aliases") {
                aliases = aliases.or(Some(node));
            } else if node.is_called("reserved-memory") {
                machine.reserved_memory = machine.reserved_memory.or(Some(node));
            }
        }
        let memory = match machine.banks.is_empty() {
            true => Err(Error::NoMemory(machine.warnings.last().copied())),
            false => machine.check_reservations(),
        };
        let harts = machine.cpus.ok_or(Error::NoHart(None));
        let harts = harts.and_then(|cpus| machine.read_harts(&cpus));
        let stdout = chosen.and_then(|chosen| machine.read_chosen(&chosen, aliases));
        machine.read_devices(stdout);
        if too_deep > 0 {
            let count = Some(too_deep as u64);
            machine.warn(&root, "has", count, "nodes too deep in it: left out");
        }
        memory.and(harts)
    }

    /// The ISA string of a hart as the tree has it, `riscv,isa`; or empty.
    pub fn isa(&self, id: HartId) -> &'a str {
        let Some(cpus) = self.cpus else { return "" };
        let [width, _] = cpus.child_cells();
        let is_it = |cpu: &Node| cpu.reg([width, 0]).next() == Some((id.0, 0));
        cpus.children().find(is_it).and_then(|cpu| cpu.text("riscv,isa")).unwrap_or_default()
    }

    /// Warns where not all of a node's `reg` can be read, and says whether it can.
    fn check_reg(&mut self, node: &Node<'a>, cells: Cells) -> Result<(), Warning<'a>> {
        let value = node.property("reg");
        let length = value.map(|value| value.len() as u64);
        let value = value.unwrap_or_default();
        let (value, problem) = if value.is_empty() || !value.len().is_multiple_of(entry_size(cells))
        {
            (length, "bytes are not whole entries: the rest is left out")
        } else if entries(value, cells).any(|fields| fields.contains(&None)) {
            (None, "has numbers above 64 bits: left out")
        } else {
            return Ok(());
        };
        let warning = Warning { node: node.name(), property: "reg", value, problem, more: 0 };
        self.keep(warning);
        Err(warning)
    }

    /// Notes what is wrong with a node.
    fn warn(
        &mut self,
        node: &Node<'a>,
        property: &'static str,
        value: Option<u64>,
        problem: &'static str,
    ) {
        self.keep(Warning { node: node.name(), property, value, problem, more: 0 });
    }

    /// Keeps a warning. A row of the same problem is one.
    fn keep(&mut self, warning: Warning<'a>) {
        if let Some(last) = self.warnings.last_mut()
            && (last.property, last.problem) == (warning.property, warning.problem)
        {
            last.more += 1;
            return;
        }
        self.warnings_left_out += usize::from(self.warnings.try_push(warning).is_err());
    }
}
