//! Changing a page table.
//!
//! [`AddressSpace`] owns the tables. A change gets the memory it needs before it begins, so it happens whole or not at all; tables that are empty
//! are given back.

use core::fmt;

use frames::FrameNumber;

use crate::address::{FRAMES_END, PAGE, Pages, VirtualAddress};
use crate::entry::{Entry, Rights, VALID};
use crate::fence::{Fence, Harts, MOST_PAGES, Owed, Settled};
use crate::view::{Mapping, Step, TOP, View, index, span};
use crate::{ENTRIES, TableMemory};

/// A page table and all that changes it. The kernel keeps it in a lock.
///
/// Every table but the root holds something; `E` in the errors is that of the [`TableMemory`].
pub struct AddressSpace<M> {
    memory: M,
    root: FrameNumber,
    table_pages: usize,
    /// Changes above the leaves whose fence is not known to be done.
    unfenced_links: usize,
}

/// Why a change was not made. Everything is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error<E> {
    /// Something is mapped there already, or was and its fence is not done: the first such address, and its entry.
    Occupied(Step),
    /// Nothing is mapped there: the first such address.
    Hole(VirtualAddress),
    /// So many pages from this frame on end beyond what an entry can hold.
    TooHigh(FrameNumber, usize),
    /// There is no memory for a table.
    NoTable(E),
}

/// Entries of a table that are looked at together.
const LOOKED_AT: usize = 16;

/// Frames for tables, got before a change begins. Each holds in its first entry which is next: 0 for none, else one more than
/// its number.
struct Reserve(Option<FrameNumber>);

/// Leaves of one size that are to lie one after the other in one table.
struct Run {
    /// What is there on the way to the first.
    slot: Step,
    /// Their level.
    level: usize,
    /// Where the first begins, from the beginning of all pages.
    offset: usize,
    /// How many.
    leaves: usize,
}

impl<M: TableMemory> AddressSpace<M> {
    /// A page table that maps nothing: one page.
    pub fn new(memory: M) -> Result<Self, M::Error> {
        let root = memory.allocate()?;
        Ok(AddressSpace { memory, root, table_pages: 1, unfenced_links: 0 })
    }

    /// The frame of the root, as `satp` wants it.
    pub fn root(&self) -> FrameNumber {
        self.root
    }

    /// The table for reading.
    pub fn view(&self) -> View<'_, M> {
        View::new(&self.memory, self.root)
    }

    /// Pages that hold tables: the root, and retired ones until [`close`](Self::close).
    pub fn table_pages(&self) -> usize {
        self.table_pages
    }

    /// Maps `pages` to the frames from `frame` on, with the largest leaves that both allow.
    pub fn map(
        &mut self,
        pages: Pages,
        frame: FrameNumber,
        rights: Rights,
    ) -> Result<Owed, Error<M::Error>> {
        if frame.0.checked_add(pages.count()).is_none_or(|end| end > FRAMES_END.0) {
            return Err(Error::TooHigh(frame, pages.count()));
        }
        let links = self.change(pages, Some(frame), |slot, offset| match slot.entry {
            Entry::Empty => {
                // It does not overflow, as was checked for all of them.
                let frame = FrameNumber(frame.0.wrapping_add(offset / PAGE));
                Ok(Entry::Leaf { frame, rights, live: true })
            }
            _ => Err(Error::Occupied(*slot)),
        })?;
        // An entry that became valid may be fenced late, a pointer to a table may not (privileged spec 4.2.1).
        let harts = if links { Harts::All } else { Harts::This };
        Ok(self.owe(pages, harts, links, None))
    }

    /// Gives `pages` other rights. All must be mapped; leaves that reach beyond are split.
    pub fn protect(&mut self, pages: Pages, rights: Rights) -> Result<Owed, Error<M::Error>> {
        let links = self.change(pages, None, |slot, _| match slot.entry {
            Entry::Leaf { frame, live: true, .. } => Ok(Entry::Leaf { frame, rights, live: true }),
            _ => Err(Error::Hole(slot.address)),
        })?;
        Ok(self.owe(pages, Harts::All, links, None))
    }

    /// Unmaps `pages`. All must be mapped; leaves that reach beyond are split.
    pub fn unmap(&mut self, pages: Pages) -> Result<Owed, Error<M::Error>> {
        let mut links = self.change(pages, None, |slot, _| match slot.entry {
            Entry::Leaf { frame, rights, live: true } => {
                Ok(Entry::Leaf { frame, rights, live: false })
            }
            _ => Err(Error::Hole(slot.address)),
        })?;
        self.each_spent_table(pages, VALID, |space, parent, frame| {
            space.write(parent.table, parent.index, Entry::Table { frame, live: false });
            links = true;
        });
        Ok(self.owe(pages, Harts::All, links, Some(pages)))
    }

    /// Ends a change whose fence is done. After an unmap, `give` gets each page and the frames that nobody can reach through it
    /// any more, and the tables that became empty go back to the memory.
    pub fn close(&mut self, settled: Settled, mut give: impl FnMut(Mapping)) {
        self.unfenced_links -= usize::from(settled.0.links);
        let Some(pages) = settled.0.retired else { return };
        let mut offset = 0;
        while offset < pages.size() {
            let slot = self.view().lookup(at(pages, offset));
            let Entry::Leaf { frame, rights, live: false } = slot.entry else {
                panic!("at {} lies what no unmap left: {}", slot.address, slot.entry);
            };
            self.write(slot.table, slot.index, Entry::Empty);
            give(slot.page(frame, rights));
            offset += span(slot.level);
        }
        self.each_spent_table(pages, usize::MAX, |space, parent, frame| {
            space.write(parent.table, parent.index, Entry::Empty);
            space.memory.free(frame);
            space.table_pages -= 1;
        });
    }

    /// What a change of `pages` leaves to do.
    fn owe(&mut self, pages: Pages, harts: Harts, links: bool, retired: Option<Pages>) -> Owed {
        self.unfenced_links += usize::from(links);
        let one_by_one = self.unfenced_links == 0 && pages.count() <= MOST_PAGES;
        let fence = if one_by_one { Fence::Pages(pages) } else { Fence::Everything };
        Owed { fence, harts, retired, links }
    }

    /// Gives every leaf entry of `pages` the value `new(slot, offset)`, making tables and splitting leaves on the way, if all
    /// of those values are `Ok`. Gives whether an entry above the leaves was changed.
    ///
    /// The leaves are as large as they can be, by what is there, by `pages`, and by the frames if `frame` is the first.
    fn change(
        &mut self,
        pages: Pages,
        frame: Option<FrameNumber>,
        new: impl Fn(&Step, usize) -> Result<Entry, Error<M::Error>>,
    ) -> Result<bool, Error<M::Error>> {
        let mut tables = 0;
        self.each_run(pages, frame, |run| {
            // Each missing table is counted at the first address that needs it.
            let begins =
                |above| run.offset == 0 || run.slot.address.position().is_multiple_of(span(above));
            tables += (run.level + 1..=run.slot.level).filter(|&above| begins(above)).count();
            if run.slot.level == run.level {
                return self.each_slot(run, |slot, offset| new(slot, offset).map(drop));
            }
            // One entry stands for all of them.
            new(&run.slot, run.offset)?;
            Ok(run.leaves)
        })?;
        let mut reserve = self.reserve(tables).map_err(Error::NoTable)?;
        let mut links = false;
        self.each_run(pages, frame, |run| {
            links |= self.link(run.slot.address, run.level, &mut reserve);
            let slot = self.view().lookup(run.slot.address);
            self.each_slot(&Run { slot, ..*run }, |slot, offset| {
                self.write(slot.table, slot.index, new(slot, offset)?);
                Ok(())
            })
        })?;
        Ok(links)
    }

    /// Visits the leaves that `pages` are to consist of, as many at a time as may lie in one table. A visit gives how many of them it has
    /// seen to.
    fn each_run(
        &self,
        pages: Pages,
        frame: Option<FrameNumber>,
        mut visit: impl FnMut(&Run) -> Result<usize, Error<M::Error>>,
    ) -> Result<(), Error<M::Error>> {
        let mut offset = 0;
        while offset < pages.size() {
            let slot = self.view().lookup(at(pages, offset));
            let physical = frame.map_or(0, |frame| frame.0 * PAGE + offset);
            let alignment = slot.address.position() | physical;
            let left = pages.size() - offset;
            let fits =
                |&level: &usize| alignment.is_multiple_of(span(level)) && left >= span(level);
            let level = (0..=slot.level).rev().find(fits).expect("a page fits");
            let leaves = (left / span(level)).min(ENTRIES - index(slot.address, level));
            offset += visit(&Run { slot, level, offset, leaves })? * span(level);
        }
        Ok(())
    }

    /// Visits the slots of a run whose table is there, each with its offset, up to one that is a way to a table. Gives how many.
    fn each_slot(
        &self,
        run: &Run,
        mut visit: impl FnMut(&Step, usize) -> Result<(), Error<M::Error>>,
    ) -> Result<usize, Error<M::Error>> {
        for leaf in 0..run.leaves {
            let index = run.slot.index + leaf;
            let entry = self.entry(run.slot.table, index);
            if matches!(entry, Entry::Table { .. }) {
                return Ok(leaf);
            }
            // Without a look at overflows, so that what errors alone need is computed for them alone.
            let further = leaf.wrapping_mul(span(run.level));
            let position = run.slot.address.position().wrapping_add(further);
            let address = VirtualAddress::at_position(position);
            let slot = Step { address, index, entry, ..run.slot };
            visit(&slot, run.offset.wrapping_add(further))?;
        }
        Ok(run.leaves)
    }

    /// Makes the table of a level on the way to an address live: links one if missing, links it again if retired, puts one in a
    /// leaf's place with the same translations if there is a leaf. Gives whether there was anything to do.
    fn link(&self, address: VirtualAddress, level: usize, reserve: &mut Reserve) -> bool {
        let mut linked = false;
        let mut table = self.root;
        for above in (level + 1..=TOP).rev() {
            let index = index(address, above);
            let entry = self.entry(table, index);
            let next = match entry {
                Entry::Table { frame, .. } => frame,
                _ => self.take(reserve).expect("as many tables were reserved as the change needs"),
            };
            if let Entry::Leaf { frame, rights, live } = entry {
                for piece in 0..ENTRIES {
                    let frame = FrameNumber(frame.0 + piece * span(above - 1) / PAGE);
                    self.write(next, piece, Entry::Leaf { frame, rights, live });
                }
            }
            let link = Entry::Table { frame: next, live: true };
            if entry != link {
                self.write(table, index, link);
                linked = true;
            }
            table = next;
        }
        linked
    }

    /// Visits the tables that `pages` touches, below the root, lowest first, of which no entry has a bit of `used`.
    fn each_spent_table(
        &mut self,
        pages: Pages,
        used: usize,
        mut visit: impl FnMut(&mut Self, Step, FrameNumber),
    ) {
        for level in 0..TOP {
            let mut offset = 0;
            while offset < pages.size() {
                let address = at(pages, offset);
                let parent = self.view().walk(address).find(|step| step.level == level + 1);
                if let Some(parent) = parent
                    && let Entry::Table { frame, .. } = parent.entry
                {
                    // From the changed entry downwards: of slots that are given out lowest first, the neighbour below is in use. Some
                    // entries at a time, as each of a table's many costs time with interrupts off.
                    let first = index(address, level) / LOOKED_AT + ENTRIES / LOOKED_AT;
                    let is_spent = |group: usize| {
                        let entries = group % (ENTRIES / LOOKED_AT) * LOOKED_AT..;
                        let words =
                            entries.take(LOOKED_AT).map(|entry| self.memory.read(frame, entry));
                        words.fold(0, |bits, word| bits | word) & used == 0
                    };
                    if (0..ENTRIES / LOOKED_AT).all(|group| is_spent(first - group)) {
                        visit(self, parent, frame);
                    }
                }
                offset += span(level + 1) - address.position() % span(level + 1);
            }
        }
    }

    /// Gets frames for tables, or none.
    fn reserve(&mut self, tables: usize) -> Result<Reserve, M::Error> {
        let mut reserve = Reserve(None);
        for _ in 0..tables {
            let frame = self.memory.allocate().inspect_err(|_| {
                while let Some(frame) = self.take(&mut reserve) {
                    self.memory.free(frame);
                }
            })?;
            self.memory.write(frame, 0, reserve.0.map_or(0, |next| next.0 + 1));
            reserve.0 = Some(frame);
        }
        self.table_pages += tables;
        Ok(reserve)
    }

    /// Takes an empty table out of the reserve.
    fn take(&self, reserve: &mut Reserve) -> Option<FrameNumber> {
        let frame = reserve.0?;
        reserve.0 = self.memory.read(frame, 0).checked_sub(1).map(FrameNumber);
        self.write(frame, 0, Entry::Empty);
        Some(frame)
    }

    fn entry(&self, table: FrameNumber, index: usize) -> Entry {
        Entry::decode(self.memory.read(table, index))
    }

    fn write(&self, table: FrameNumber, index: usize, entry: Entry) {
        self.memory.write(table, index, entry.encode());
    }
}

/// The address at an offset into the pages.
fn at(pages: Pages, offset: usize) -> VirtualAddress {
    VirtualAddress::at_position(pages.start().position() + offset)
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Occupied(step) => {
                write!(f, "at {} there is already a {}", step.address, step.entry)
            }
            Error::Hole(address) => write!(f, "nothing is mapped at {address}"),
            Error::TooHigh(frame, pages) => write!(f, "{pages} pages from {frame} on end too high"),
            Error::NoTable(error) => write!(f, "no memory for a page table: {error}"),
        }
    }
}
