//! Memory: the banks there are, and what of them is not free.
//!
//! [`Bank`]s do not overlap and are sorted. What a [`Reservation`] covers is never free; one that cannot be read is an error.

use crate::blob::{Cells, Node};
use crate::{Error, Machine, PHYSICAL_END, PhysicalRange};

/// A range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// Where it is.
    pub range: PhysicalRange,
    /// The NUMA node that it belongs to; 0 where the tree does not say.
    pub numa_node: u32,
}

/// Physical addresses that are not to be used as free memory, whether or not there is memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation<'a> {
    /// Where it is.
    pub range: PhysicalRange,
    /// The node's name in `/reserved-memory`; empty for an entry of the header's reservation map.
    pub name: &'a str,
    /// Whether it must not be mapped either.
    pub no_map: bool,
}

impl<'a> Machine<'a> {
    /// Everything that is reserved: the header's reservation map, then the children of
    /// `/reserved-memory`, in the tree's order. They may overlap. The blob and the initrd are not
    /// among them unless the tree says so.
    ///
    /// They are read from the tree each time, so their number has no limit.
    pub fn reservations(&self) -> impl Iterator<Item = Reservation<'a>> + use<'a> {
        let reservation = |(start, size), name, no_map| {
            let range = PhysicalRange::new(start, size)?;
            Some(Reservation { range, name, no_map })
        };
        let map = self.tree.reservation_map();
        let map = map.filter_map(move |range| reservation(range, "", false));
        map.chain(self.reservation_nodes().flat_map(move |(node, cells)| {
            let no_map = node.property("no-map").is_some();
            node.reg(cells).filter_map(move |range| reservation(range, node.name(), no_map))
        }))
    }

    /// The children of `/reserved-memory`, each with the widths in its `reg`. A disabled one
    /// reserves nothing.
    fn reservation_nodes(&self) -> impl Iterator<Item = (Node<'a>, Cells)> + use<'a> {
        self.reserved_memory.into_iter().flat_map(|parent| {
            let cells = parent.child_cells();
            parent.children().filter(Node::is_enabled).map(move |node| (node, cells))
        })
    }

    /// Warns of reservations that say no place. One that says a place which cannot be read is an error: what it
    /// reserves would be used.
    pub(crate) fn check_reservations(&mut self) -> Result<(), Error<'a>> {
        for (node, cells) in self.reservation_nodes() {
            if node.property("reg").is_some() {
                self.check_reg(&node, cells).map_err(Error::Reservation)?;
            } else if node.property("size").is_some() {
                self.warn(&node, "size", node.number("size"), "without reg: not reserved");
            } else {
                self.warn(&node, "", None, "has neither reg nor size: not reserved");
            }
        }
        Ok(())
    }

    /// Adds the banks that a memory node describes.
    pub(crate) fn read_memory(&mut self, node: &Node<'a>, cells: Cells) {
        // Banks that can be read are used.
        let _ = self.check_reg(node, cells);
        let numa_node = node.number("numa-node-id").map_or(0, |id| id as u32);
        for (start, size) in node.reg(cells) {
            if start.checked_add(size).is_none_or(|end| end > PHYSICAL_END) {
                self.warn(node, "reg", Some(start), "ends where no address can be: cut off");
            }
            if let Some(range) = PhysicalRange::new(start, size) {
                self.add_bank(node, Bank { range, numa_node });
            }
        }
    }

    /// Keeps the banks sorted, without overlaps, and as one those that touch within a NUMA node.
    /// One place is free between calls: when it has been taken, the smallest bank goes.
    fn add_bank(&mut self, node: &Node<'a>, bank: Bank) {
        let index = self.banks.partition_point(|other| other.range < bank.range);
        self.banks.insert(index, bank);
        let mut kept: usize = 0;
        for index in 0..self.banks.len() {
            let Bank { range, numa_node } = self.banks[index];
            let last = kept.checked_sub(1).map(|last| self.banks[last]);
            let taken = last.map_or(0, |last| last.range.end());
            if range.start() < taken {
                self.warn(node, "reg", Some(range.start()), "is in another bank too: taken once");
            }
            let joins = last.filter(|last| taken >= range.start() && last.numa_node == numa_node);
            let start = joins.map_or(range.start().max(taken), |last| last.range.start());
            if let Some(range) = PhysicalRange::between(start, range.end().max(taken)) {
                kept -= usize::from(joins.is_some());
                self.banks[kept] = Bank { range, numa_node };
                kept += 1;
            }
        }
        self.banks.truncate(kept);
        if self.banks.is_full() {
            let banks = self.banks.iter().enumerate();
            let smallest = banks.min_by_key(|(_, bank)| bank.range.size());
            let left_out = self.banks.remove(smallest.map_or(0, |(index, _)| index));
            let start = left_out.range.start();
            self.warn(node, "reg", Some(start), "is in one bank too many: left out");
        }
    }
}
