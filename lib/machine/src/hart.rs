//! Harts and what they can do.
//!
//! [`Hart`] has what the kernel decides by: its id, whether it may be used, its MMU, its [`Extensions`], its [`Context`] in a controller.

use bitflags::Flags as _;
use core::num::NonZero;
use core::{fmt, slice};

use crate::blob::{Node, texts};
use crate::{Error, Machine};

/// The number by which firmware and interrupt controllers know a hart. Not an index: ids may be sparse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HartId(pub u64);

impl fmt::Display for HartId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A hart, as its node in `/cpus` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hart {
    /// From `reg`.
    pub id: HartId,
    /// Whether `status` lets it be used.
    pub enabled: bool,
    /// The largest page-table format, from `mmu-type`. `None` where the tree names none: such a hart is not for an
    /// operating system (hart 0 of SiFive's boards), or the tree is a poor one.
    pub mmu: Option<Mmu>,
    /// What the tree offers; firmware may have left some of it switched off.
    pub extensions: Extensions,
    /// Bytes that `cbo.zero` clears, a power of two. `None` without Zicboz, and where the tree does not say how many.
    pub zero_block: Option<NonZero<u32>>,
    /// Where this hart's supervisor external interrupts come from.
    pub context: Option<Context>,
    /// Names the hart's own interrupt controller in the tree.
    pub(crate) interrupt_phandle: Option<NonZero<u32>>,
}

/// A hart's context in an interrupt controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Index into the machine's `plics`.
    pub plic: u8,
    /// The context's number in it.
    pub number: u16,
}

/// Page-table formats, each with all the smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Mmu {
    Sv39,
    Sv48,
    Sv57,
}

bitflags::bitflags! {
    /// Extensions that a kernel may care about; the tree has more.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Extensions: u32 {
        /// Base integers, 32 registers.
        const I = 1 << 0;
        /// Multiplication and division.
        const M = 1 << 1;
        /// Atomic operations.
        const A = 1 << 2;
        /// Floating point, single precision.
        const F = 1 << 3;
        /// Floating point, double precision.
        const D = 1 << 4;
        /// Compressed instructions.
        const C = 1 << 5;
        /// Hypervisor.
        const H = 1 << 6;
        /// Vectors.
        const V = 1 << 7;
        /// Shifted additions.
        const ZBA = 1 << 8;
        /// Bit counting, rotation, minimum and maximum.
        const ZBB = 1 << 9;
        /// Single bits.
        const ZBS = 1 << 10;
        /// `cbo.clean`, `cbo.flush`, `cbo.inval`.
        const ZICBOM = 1 << 11;
        /// `cbo.zero`.
        const ZICBOZ = 1 << 12;
        /// `pause`.
        const ZIHINTPAUSE = 1 << 13;
        /// `wrs.nto`, `wrs.sto`.
        const ZAWRS = 1 << 14;
        /// `stimecmp`: a timer without firmware.
        const SSTC = 1 << 15;
        /// The hart faults where A or D would have to be set.
        const SVADE = 1 << 16;
        /// The hart can set A and D itself.
        const SVADU = 1 << 17;
        /// `sinval.vma` and its fences.
        const SVINVAL = 1 << 18;
        /// Leaves of 64 KiB.
        const SVNAPOT = 1 << 19;
        /// Memory types in page-table entries.
        const SVPBMT = 1 << 20;
    }
}

impl Extensions {
    /// The extension of this name, in either case, or none.
    fn named(name: &[u8]) -> Self {
        let mut flags = Self::FLAGS.iter();
        let flag = flags.find(|flag| flag.name().as_bytes().eq_ignore_ascii_case(name));
        flag.map_or(Self::empty(), |flag| *flag.value())
    }

    /// Reads an ISA string such as `rv64imafdc_zicboz_sstc1p0` (unprivileged specification, "ISA
    /// Extension Naming Conventions"): letters, then names with underscores between; any of them
    /// may have a version, which is dropped. Old trees end the letters with `su`, for modes.
    fn from_isa(isa: &[u8]) -> Self {
        let isa = texts(isa).next().and_then(|isa| isa.get(4..)).unwrap_or_default();
        // The first name may follow the letters without an underscore.
        let letters_end = isa.iter().position(|byte| b"_szxSZX".contains(byte));
        let (letters, names) = isa.split_at(letters_end.unwrap_or(isa.len()));
        let letters = letters.iter().map(|letter| match letter {
            b'g' | b'G' => Self::I | Self::M | Self::A | Self::F | Self::D,
            letter => Self::named(slice::from_ref(letter)),
        });
        let names = names.split(|&byte| byte == b'_');
        let names = names.filter_map(|name| name.split(u8::is_ascii_digit).next());
        letters.chain(names.map(Self::named)).collect()
    }

    /// A hart's: from `riscv,isa-extensions`, or else the older `riscv,isa`.
    fn of(cpu: &Node) -> Self {
        match cpu.property("riscv,isa-extensions") {
            Some(list) => texts(list).map(Self::named).collect(),
            None => Self::from_isa(cpu.property("riscv,isa").unwrap_or_default()),
        }
    }
}

impl<'a> Machine<'a> {
    /// Reads the nodes in `/cpus`: harts and the timebase.
    pub(crate) fn read_harts(&mut self, cpus: &Node<'a>) -> Result<(), Error<'a>> {
        let [width, _] = cpus.child_cells();
        let mut timebase = cpus.number("timebase-frequency");
        for cpu in cpus.children() {
            if !cpu.is_called("cpu") && cpu.text("device_type") != Some("cpu") {
                continue;
            }
            timebase = timebase.or_else(|| cpu.number("timebase-frequency"));
            let checked = self.check_reg(&cpu, [width, 0]);
            let (Ok(()), Some((id, _))) = (checked, cpu.reg([width, 0]).next()) else {
                continue;
            };
            match self.harts.binary_search_by_key(&HartId(id), |hart| hart.id) {
                Ok(_) => self.warn(&cpu, "reg", Some(id), "is a hart twice: left out"),
                Err(_) if self.harts.is_full() => {
                    self.warn(&cpu, "reg", Some(id), "is one hart too many: left out");
                }
                Err(index) => {
                    let hart = self.read_hart(&cpu, HartId(id));
                    self.harts.insert(index, hart);
                }
            }
        }
        if !self.harts.iter().any(|hart| hart.enabled) {
            return Err(Error::NoHart(self.warnings.last().copied()));
        }
        self.timebase = timebase.and_then(NonZero::new).ok_or(Error::NoTimebase)?;
        Ok(())
    }

    fn read_hart(&mut self, cpu: &Node<'a>, id: HartId) -> Hart {
        let mmu = match cpu.text("mmu-type") {
            Some("riscv,sv39") => Some(Mmu::Sv39),
            Some("riscv,sv48") => Some(Mmu::Sv48),
            Some("riscv,sv57") => Some(Mmu::Sv57),
            _ => None,
        };
        let mut extensions = Extensions::of(cpu);
        let mut zero_block = None;
        if extensions.contains(Extensions::ZICBOZ) {
            let name = "riscv,cboz-block-size";
            zero_block = cpu.nonzero(name).filter(|bytes| bytes.is_power_of_two());
            if zero_block.is_none() {
                extensions.remove(Extensions::ZICBOZ);
                self.warn(cpu, name, cpu.number(name), "is no size: no Zicboz");
            }
        }
        let mut children = cpu.children();
        let controller = children.find(|child| child.property("interrupt-controller").is_some());
        Hart {
            id,
            enabled: cpu.is_enabled(),
            mmu,
            extensions,
            zero_block,
            context: None,
            interrupt_phandle: controller.and_then(|node| node.phandle()),
        }
    }
}
