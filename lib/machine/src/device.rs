//! Devices: which of them can be driven, where their registers are, whom they interrupt.

use core::num::NonZero;

use crate::blob::{Lineage, Node, entries, phandle};
use crate::{Context, Machine, PhysicalRange, Problem};

/// How many nodes with a known `compatible` are looked at; so damage cannot make this take long.
const MAXIMUM_CANDIDATES: usize = 128;

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
    /// Bytes of one access: 1, 2 or 4.
    pub access_width: u8,
    /// The clock that its divisor divides, in Hz.
    pub clock: Option<NonZero<u32>>,
    /// What the firmware set, in bits per second, or what `stdout-path` asks for.
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
const DEVICES: [(&str, Device); 18] = [
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
    fn known_as(compatible: &str) -> Option<Self> {
        DEVICES
            .iter()
            .find(|(name, _)| *name == compatible)
            .map(|&(_, device)| device)
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
    /// Finds the devices. Harts must be known before; `stdout` is the node that the console should be.
    pub(crate) fn read_devices(&mut self, stdout: Option<Node<'a>>) {
        let mut lineage = Lineage::new(self.tree);
        let mut candidates = 0;
        // A UART's interrupt can be resolved when all the controllers are known.
        let mut source = None;
        for node in self.tree.nodes() {
            lineage.enter(&node);
            let Some(device) = node.compatible(Device::known_as) else {
                continue;
            };
            candidates += 1;
            if candidates > MAXIMUM_CANDIDATES {
                self.warn(
                    &node,
                    "compatible",
                    Problem::TooMany,
                    "devices from here on are left out",
                );
                break;
            }
            if !lineage.is_enabled() {
                continue;
            }
            match device {
                Device::Uart(kind) => {
                    let preferred = stdout.is_some_and(|stdout| stdout.is(&node));
                    if (preferred || self.uart.is_none())
                        && let Some(uart) = self.read_uart(&node, &lineage, kind)
                    {
                        self.uart = Some(uart);
                        source = Some((node, interrupt_source(&node, &lineage)));
                    }
                }
                Device::Plic => self.read_plic(&node, &lineage),
                Device::Exit if self.exit_device.is_none() => {
                    self.exit_device = self.registers(&node, &lineage, 4, "there is no exit code");
                }
                Device::Exit => {}
                Device::NotDriven => self.warn(&node, "", Problem::NotDriven, "it is not used"),
            }
        }
        if let Some((node, source)) = source {
            let interrupt = self.interrupt(&node, source);
            self.uart = self.uart.map(|uart| Uart { interrupt, ..uart });
        }
    }

    /// Where the CPU sees the first entry of a node's `reg`, if that has at least so many bytes.
    fn registers(
        &mut self,
        node: &Node<'a>,
        lineage: &Lineage<'a>,
        least: u64,
        instead: &'static str,
    ) -> Option<PhysicalRange> {
        let (start, size) = self.reg(node, lineage.parent_cells(), instead).next()?;
        let start = lineage.translate(start, size);
        let range = start
            .and_then(|start| PhysicalRange::new(start, size))
            .filter(|range| range.size() >= least);
        if range.is_none() {
            let problem = if start.is_none() {
                Problem::Unreachable
            } else {
                Problem::TooSmall(size)
            };
            self.warn(node, "reg", problem, instead);
        }
        range
    }

    fn read_uart(
        &mut self,
        node: &Node<'a>,
        lineage: &Lineage<'a>,
        kind: UartKind,
    ) -> Option<Uart<'a>> {
        let instead = "the UART is not used";
        let mut number = |name, default, allowed: &[u64]| {
            let value = node.number(name).unwrap_or(default);
            if !allowed.contains(&value) {
                self.warn(node, name, Problem::Value(value), instead);
                return None;
            }
            Some(value as u8)
        };
        let (shift, width, least) = match kind {
            UartKind::Ns16550 => {
                let shift = number("reg-shift", 0, &[0, 1, 2, 3, 4])?;
                (shift, number("reg-io-width", 1, &[1, 2, 4])?, 8 << shift)
            }
            UartKind::SiFive => (2, 4, 0x1c),
        };
        let offset = node.number("reg-offset").unwrap_or(0);
        let registers = self.registers(node, lineage, least, instead)?;
        let end = registers.end();
        let registers = PhysicalRange::between(registers.start().saturating_add(offset), end)
            .filter(|range| range.size() >= least);
        if registers.is_none() {
            self.warn(node, "reg-offset", Problem::Value(offset), instead);
        }
        let nonzero = |name| NonZero::new(u32::try_from(node.number(name)?).ok()?);
        Some(Uart {
            name: node.name(),
            kind,
            registers: registers?,
            register_shift: shift,
            access_width: width,
            clock: nonzero("clock-frequency"),
            speed: nonzero("current-speed"),
            interrupt: None,
        })
    }

    fn read_plic(&mut self, node: &Node<'a>, lineage: &Lineage<'a>) {
        let instead = "it interrupts no hart";
        if self.plics.is_full() {
            return self.warn(node, "", Problem::TooMany, instead);
        }
        let least = plic::FIRST_CONTEXT + plic::CONTEXT_SIZE;
        let Some(registers) = self.registers(node, lineage, least, instead) else {
            return;
        };
        let sources = node.number("riscv,ndev");
        if !sources.is_some_and(|sources| (1..=plic::MAXIMUM_SOURCE).contains(&sources)) {
            let problem = sources.map_or(Problem::Missing, Problem::Value);
            self.warn(
                node,
                "riscv,ndev",
                problem,
                "it is taken to have 1023 sources",
            );
        }
        let Some(contexts) = node.property("interrupts-extended") else {
            return self.warn(node, "interrupts-extended", Problem::Missing, instead);
        };
        // How many contexts have registers inside the range.
        let count = ((registers.size() - plic::FIRST_CONTEXT) / plic::CONTEXT_SIZE)
            .min(plic::MAXIMUM_CONTEXTS);
        // A hart's own controller always has one cell for an interrupt, which is the cause.
        for (number, [target, cause]) in (0..).zip(entries(contexts, [1, 1])) {
            if cause != Some(SUPERVISOR_EXTERNAL) {
                continue;
            }
            let target = phandle(target);
            let mut harts = self.harts.iter_mut();
            let Some(hart) =
                harts.find(|hart| target.is_some() && hart.interrupt_phandle == target)
            else {
                continue;
            };
            if number >= count {
                self.warn(
                    node,
                    "interrupts-extended",
                    Problem::Value(number),
                    "that context is left out",
                );
            } else if hart.context.is_some() {
                self.warn(
                    node,
                    "interrupts-extended",
                    Problem::Again,
                    "the hart's first context is taken",
                );
            } else {
                hart.context = Some(Context {
                    plic: self.plics.len() as u8,
                    number: number as u16,
                });
            }
        }
        self.plics.push(Plic {
            name: node.name(),
            registers,
            sources: sources
                .unwrap_or(plic::MAXIMUM_SOURCE)
                .clamp(1, plic::MAXIMUM_SOURCE) as u16,
            phandle: node.phandle(),
        });
    }

    /// Looks up a source of interrupts in the controllers that can be driven.
    fn interrupt(&mut self, node: &Node<'a>, source: Option<Source>) -> Option<Interrupt> {
        let instead = "it is polled";
        let Some(Source {
            property,
            parent,
            number,
        }) = source
        else {
            self.warn(node, "interrupts", Problem::Missing, instead);
            return None;
        };
        let mut plics = self.plics.iter();
        let Some(plic) = plics.position(|plic| parent.is_some() && plic.phandle == parent) else {
            self.warn(node, property, Problem::NotDriven, instead);
            return None;
        };
        if !(1..=u64::from(self.plics[plic].sources)).contains(&number) {
            self.warn(node, property, Problem::Value(number), instead);
            return None;
        }
        Some(Interrupt {
            plic: plic as u8,
            number: number as u16,
        })
    }
}

/// A device's first interrupt, as the tree says it.
struct Source {
    property: &'static str,
    parent: Option<NonZero<u32>>,
    number: u64,
}

/// Reads `interrupts-extended`, or `interrupts` with the nearest `interrupt-parent` (specification 2.4.1).
fn interrupt_source(node: &Node, lineage: &Lineage) -> Option<Source> {
    if let Some(value) = node.property("interrupts-extended") {
        let [parent, number] = entries(value, [1, 1]).next()?;
        return Some(Source {
            property: "interrupts-extended",
            parent: phandle(parent),
            number: number?,
        });
    }
    let [number] = entries(node.property("interrupts")?, [1]).next()?;
    let parent = lineage.nearest(|node| node.number("interrupt-parent"));
    Some(Source {
        property: "interrupts",
        parent: phandle(parent),
        number: number?,
    })
}
