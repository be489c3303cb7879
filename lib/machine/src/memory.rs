//! Memory: the banks there are, and what of them is not the kernel's.

use crate::blob::{Cells, Node};
use crate::{Machine, PhysicalRange, Problem};

/// A range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// Where it is.
    pub range: PhysicalRange,
    /// The NUMA node that it belongs to; 0 where the tree does not say.
    pub numa_node: u32,
}

/// A range of physical addresses that is not to be used as free memory. It may lie outside memory, in whole or in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation<'a> {
    /// Where it is.
    pub range: PhysicalRange,
    /// The node's name in `/reserved-memory`, or empty for an entry of the header's reservation map.
    pub name: &'a str,
    /// Whether it must not be mapped either.
    pub no_map: bool,
}

impl<'a> Machine<'a> {
    /// Everything that is reserved: the header's reservation map, then the children of `/reserved-memory`. In the
    /// tree's order; they may overlap. The blob itself is not among them unless the tree says so.
    ///
    /// They are read from the tree each time, so there is no limit to their number.
    pub fn reservations(&self) -> impl Iterator<Item = Reservation<'a>> + use<'a> {
        let map = self.tree.reservation_map().filter_map(|(start, size)| {
            Some(Reservation {
                range: PhysicalRange::new(start, size)?,
                name: "",
                no_map: false,
            })
        });
        let nodes = reserved(self.reserved_memory).flat_map(|(node, cells)| {
            let no_map = node.property("no-map").is_some();
            node.reg(cells).filter_map(move |(start, size)| {
                let range = PhysicalRange::new(start, size)?;
                Some(Reservation {
                    range,
                    name: node.name(),
                    no_map,
                })
            })
        });
        map.chain(nodes)
    }

    /// Looks for reservations that cannot be kept.
    pub(crate) fn check_reservations(&mut self) {
        for (node, cells) in reserved(self.reserved_memory) {
            if node.property("reg").is_some() {
                self.check_reg(&node, cells, "that reservation is left out");
            } else {
                self.warn(
                    &node,
                    "reg",
                    Problem::Missing,
                    "memory that is to be placed by the kernel is not placed",
                );
            }
        }
    }

    /// Adds what a memory node describes.
    pub(crate) fn read_memory(&mut self, node: &Node<'a>, cells: Cells) {
        let numa_node = node
            .number("numa-node-id")
            .and_then(|id| u32::try_from(id).ok())
            .unwrap_or(0);
        for (start, size) in self.reg(node, cells, "that bank is left out") {
            if start
                .checked_add(size)
                .is_none_or(|end| end > crate::PHYSICAL_END)
            {
                self.warn(
                    node,
                    "reg",
                    Problem::Value(start),
                    "the bank is cut off where addresses end",
                );
            }
            if let Some(range) = PhysicalRange::new(start, size) {
                self.add_bank(node, Bank { range, numa_node });
            }
        }
    }

    /// Keeps the banks sorted, without overlaps, and those that touch within a NUMA node as one. Between calls one place
    /// is free: when it is taken, the smallest bank goes.
    fn add_bank(&mut self, node: &Node<'a>, bank: Bank) {
        let index = self
            .banks
            .partition_point(|other| other.range.start() < bank.range.start());
        self.banks.insert(index, bank);
        let mut kept = 0;
        let mut overlap = false;
        for index in 0..self.banks.len() {
            let Bank { range, numa_node } = self.banks[index];
            let last = self.banks[..kept].last_mut();
            let start = last
                .as_ref()
                .map_or(0, |last| last.range.end())
                .max(range.start());
            overlap |= start > range.start();
            let Some(range) = PhysicalRange::between(start, range.end()) else {
                continue;
            };
            match last {
                Some(last) if last.range.end() == start && last.numa_node == numa_node => {
                    last.range =
                        PhysicalRange::between(last.range.start(), range.end()).unwrap_or(range);
                }
                _ => {
                    self.banks[kept] = Bank { range, numa_node };
                    kept += 1;
                }
            }
        }
        self.banks.truncate(kept);
        if overlap {
            self.warn(
                node,
                "reg",
                Problem::Again,
                "memory that is in two banks is taken once",
            );
        }
        if self.banks.is_full() {
            let sizes = self.banks.iter().map(|bank| bank.range.size()).enumerate();
            let (smallest, _) = sizes
                .min_by_key(|&(_, size)| size)
                .expect("a full table is not empty");
            self.banks.remove(smallest);
            self.banks_left_out += 1;
        }
    }
}

/// The children of `/reserved-memory`, each with the widths in its `reg`. A disabled one reserves nothing.
fn reserved<'a>(parent: Option<Node<'a>>) -> impl Iterator<Item = (Node<'a>, Cells)> + use<'a> {
    parent.into_iter().flat_map(|parent| {
        let cells = parent.child_cells();
        parent
            .children()
            .filter(Node::is_enabled)
            .map(move |node| (node, cells))
    })
}
