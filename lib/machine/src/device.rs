//! Devices: which of them can be driven, where their registers are, whom they interrupt.
//!
//! [`Uart`], [`Plic`] and the exit device are found by the table of `compatible` strings; any other device's registers by
//! [`Machine::registers_of`]. None of them lies in memory.

use core::num::NonZero;

use crate::blob::{Node, Place, entries, refers, texts};
use crate::{Context, Machine, PhysicalRange};

/// How many nodes with a known `compatible` are looked at; so damage cannot make this take long.
const MAXIMUM_CANDIDATES: usize = 64;

/// A UART.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Uart<'a> {
    /// The node's name.
    pub name: &'a str,
    /// Which driver fits.
    pub kind: UartKind,
    /// Its registers, as the CPU sees them, from the first one on.
    pub registers: PhysicalRange,
    /// Register n lies at n << this. At most 4.
    pub register_shift: u8,
    /// Bytes of one access: 1 or 4.
    pub access_width: u8,
    /// The clock that its divisor divides, in Hz.
    pub clock: Option<NonZero<u32>>,
    /// What it is set to, in bits per second.
    pub speed: Option<NonZero<u32>>,
    /// Where its interrupt arrives. `None`: it must be polled.
    pub interrupt: Option<Interrupt>,
}

/// Kinds of UART.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UartKind {
    /// The 16550 and its descendants.
    Ns16550,
    /// SiFive's own.
    SiFive,
}

impl UartKind {
    /// How many registers there are.
    fn registers(self) -> u64 {
        match self {
            UartKind::Ns16550 => 8,
            UartKind::SiFive => 7,
        }
    }
}

/// A device's interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Index into the machine's `plics`.
    pub plic: u8,
    /// The source's number in it, 1 to its `sources`.
    pub number: u16,
}

/// A platform-level interrupt controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plic<'a> {
    /// The node's name.
    pub name: &'a str,
    /// Its registers, as the CPU sees them. The registers of every context that a hart has are inside.
    pub registers: PhysicalRange,
    /// The highest number of an interrupt source, 1 to 1023.
    pub sources: u16,
    phandle: Option<NonZero<u32>>,
}

/// What a `compatible` string stands for.
#[derive(Clone, Copy)]
enum Device {
    Uart(UartKind),
    Plic,
    Exit,
    NotDriven,
}

/// The strings that are known. A new board's devices begin here.
const DEVICES: &[(&str, Device)] = &[
    ("ns16550a", Device::Uart(UartKind::Ns16550)),
    ("ns16550", Device::Uart(UartKind::Ns16550)),
    ("ns16450", Device::Uart(UartKind::Ns16550)),
    ("ns16850", Device::Uart(UartKind::Ns16550)),
    ("ns8250", Device::Uart(UartKind::Ns16550)),
    ("snps,dw-apb-uart", Device::Uart(UartKind::Ns16550)),
    ("sifive,uart0", Device::Uart(UartKind::SiFive)),
    ("sifive,fu540-c000-uart", Device::Uart(UartKind::SiFive)),
    ("sifive,fu740-c000-uart", Device::Uart(UartKind::SiFive)),
    ("sifive,plic-1.0.0", Device::Plic),
    ("riscv,plic0", Device::Plic),
    ("thead,c900-plic", Device::Plic),
    ("sifive,test1", Device::Exit),
    ("sifive,test0", Device::Exit),
    ("riscv,aplic", Device::NotDriven),
    ("riscv,imsics", Device::NotDriven),
    ("andestech,nceplic100", Device::NotDriven),
    ("ucb,htif0", Device::NotDriven),
];

impl Device {
    fn known_as(compatible: &[u8]) -> Option<Self> {
        let mut known = DEVICES.iter().filter(|(name, _)| name.as_bytes() == compatible);
        known.next().map(|&(_, device)| device)
    }
}

/// Layout of a PLIC (RISC-V PLIC specification, "Memory Map").
mod plic {
    pub const MAXIMUM_SOURCE: u64 = 1023;
    pub const MAXIMUM_CONTEXTS: u64 = 15872;
    pub const FIRST_CONTEXT: u64 = 0x20_0000;
    pub const CONTEXT_SIZE: u64 = 0x1000;
}

/// The cause of a supervisor external interrupt, which is what a hart's own controller calls it.
const SUPERVISOR_EXTERNAL: u64 = 9;

impl<'a> Machine<'a> {
    /// Finds the devices. Harts must be known; `stdout` is the node that the console should be.
    pub(crate) fn read_devices(&mut self, stdout: Option<Node<'a>>) {
        let mut place = Place::new(self.tree);
        let mut candidates = 0;
        // A UART's interrupt can be looked up when all the controllers are known.
        let mut source = None;
        for node in self.tree.nodes() {
            place.enter(node);
            let mut names = texts(node.property("compatible").unwrap_or_default());
            let Some(device) = names.find_map(Device::known_as) else { continue };
            candidates += 1;
            if candidates > MAXIMUM_CANDIDATES {
                self.warn(&node, "", None, "is one too many: left out");
                break;
            }
            if !place.is_enabled() {
                continue;
            }
            let is_stdout = stdout.is_some_and(|stdout| stdout.is(&node));
            match device {
                Device::Uart(kind) if is_stdout || self.uart.is_none() => {
                    if let Some(uart) = self.read_uart(&place, kind) {
                        self.uart = Some(uart);
                        source = Some((node, interrupt_source(&place)));
                    }
                }
                Device::Plic => self.read_plic(&place),
                Device::Exit if self.exit_device.is_none() => {
                    self.exit_device = self.registers(&place, 0, 4);
                }
                Device::Uart(_) | Device::Exit => {}
                Device::NotDriven => self.warn(&node, "", None, "has no driver: not used"),
            }
        }
        if let Some((node, source)) = source {
            let interrupt = self.interrupt(&node, source);
            self.uart = self.uart.map(|uart| Uart { interrupt, ..uart });
        }
    }

    /// Where the CPU sees the registers of the first device that is `compatible` with this and enabled: for a driver that the boot
    /// does not need. The first entry of its `reg` alone. `None` too if that lies in memory. Walks the whole tree.
    pub fn registers_of(&self, compatible: &str) -> Option<PhysicalRange> {
        let mut place = Place::new(self.tree);
        let mut nodes = self.tree.nodes();
        nodes.find(|node| {
            place.enter(*node);
            let mut names = texts(node.property("compatible").unwrap_or_default());
            names.any(|name| name == compatible.as_bytes()) && place.is_enabled()
        })?;
        let (start, size) = place.node.reg(place.parent_cells()).next()?;
        let registers = PhysicalRange::new(place.translate(start, size)?, size)?;
        let in_memory = self.banks.iter().any(|bank| bank.range.overlaps(registers));
        (!in_memory).then_some(registers)
    }

    /// Where the CPU sees the first entry of a node's `reg` from `offset` on, if there are at least
    /// so many bytes.
    fn registers(&mut self, place: &Place<'a>, offset: u64, least: u64) -> Option<PhysicalRange> {
        let (node, cells) = (&place.node, place.parent_cells());
        // What is wrong has been noted; the first entry may be whole.
        let _ = self.check_reg(node, cells);
        let (start, size) = node.reg(cells).next()?;
        let Some(seen) = place.translate(start, size) else {
            self.warn(node, "reg", Some(start), "is on no bus: not used");
            return None;
        };
        let range = PhysicalRange::between(seen.saturating_add(offset), seen.saturating_add(size));
        let range = range.filter(|range| range.size() >= least);
        let Some(range) = range else {
            self.warn(node, "reg", Some(size), "bytes are too few: not used");
            return None;
        };
        // It would be mapped twice, and whatever is kept there overwritten.
        if self.banks.iter().any(|bank| bank.range.overlaps(range)) {
            self.warn(node, "reg", Some(range.start()), "is in memory: not used");
            return None;
        }
        Some(range)
    }

    fn read_uart(&mut self, place: &Place<'a>, kind: UartKind) -> Option<Uart<'a>> {
        let node = &place.node;
        let number = |name, default| node.number(name).unwrap_or(default);
        let (shift, width) = match kind {
            UartKind::Ns16550 => (number("reg-shift", 0), number("reg-io-width", 1)),
            UartKind::SiFive => (2, 4),
        };
        if shift > 4 || !matches!(width, 1 | 4) {
            self.warn(node, "reg-shift", Some(shift), "or reg-io-width cannot be: not used");
            return None;
        }
        let least = kind.registers() << shift;
        Some(Uart {
            name: node.name(),
            kind,
            registers: self.registers(place, number("reg-offset", 0), least)?,
            register_shift: shift as u8,
            access_width: width as u8,
            clock: node.nonzero("clock-frequency"),
            speed: node.nonzero("current-speed"),
            interrupt: None,
        })
    }

    fn read_plic(&mut self, place: &Place<'a>) {
        let node = &place.node;
        if self.plics.is_full() {
            return self.warn(node, "", None, "is one PLIC too many: not used");
        }
        let least = plic::FIRST_CONTEXT + plic::CONTEXT_SIZE;
        let Some(registers) = self.registers(place, 0, least) else { return };
        let found = node.number("riscv,ndev");
        let sources = found.filter(|sources| (1..=plic::MAXIMUM_SOURCE).contains(sources));
        if sources.is_none() {
            self.warn(node, "riscv,ndev", found, "is not 1 to 1023: taken as 1023");
        }
        // How many contexts have their registers inside.
        let count = (registers.size() - plic::FIRST_CONTEXT) / plic::CONTEXT_SIZE;
        let count = count.min(plic::MAXIMUM_CONTEXTS);
        let contexts = node.property("interrupts-extended").unwrap_or_default();
        // A hart's own controller has one cell for an interrupt, always: the cause.
        for (number, [target, cause]) in (0..).zip(entries(contexts, [1, 1])) {
            let mut harts = self.harts.iter_mut();
            let hart = harts.find(|hart| refers(target, hart.interrupt_phandle));
            let Some(hart) = hart.filter(|_| cause == Some(SUPERVISOR_EXTERNAL)) else { continue };
            if number >= count || hart.context.is_some() {
                let problem = "is a context without registers, or a hart's second: left out";
                self.warn(node, "interrupts-extended", Some(number), problem);
            } else {
                let (plic, number) = (self.plics.len() as u8, number as u16);
                hart.context = Some(Context { plic, number });
            }
        }
        let sources = sources.unwrap_or(plic::MAXIMUM_SOURCE) as u16;
        let (name, phandle) = (node.name(), node.phandle());
        self.plics.push(Plic { name, registers, sources, phandle });
    }

    /// Looks up a source of interrupts in the controllers that can be driven.
    fn interrupt(&mut self, node: &Node<'a>, [parent, number]: Source) -> Option<Interrupt> {
        for (plic, described) in (0..).zip(&self.plics) {
            if refers(parent, described.phandle)
                && let Some(number) = number.and_then(|number| u16::try_from(number).ok())
                && (1..=described.sources).contains(&number)
            {
                return Some(Interrupt { plic, number });
            }
        }
        self.warn(node, "interrupts", number, "is no known source: polled");
        None
    }
}

/// A device's first interrupt as the tree says it: the controller, and the source's number in it.
type Source = [Option<u64>; 2];

/// Reads `interrupts-extended`, or `interrupts` with the nearest `interrupt-parent` (2.4.1).
fn interrupt_source(place: &Place) -> Source {
    let both = place.node.property("interrupts-extended");
    let both = both.and_then(|list| entries(list, [1, 1]).next());
    let number = place.node.property("interrupts").and_then(|list| entries(list, [1]).next());
    both.unwrap_or([place.nearest("interrupt-parent"), number.and_then(|[number]| number)])
}
