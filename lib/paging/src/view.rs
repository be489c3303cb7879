//! Reading a page table.
//!
//! [`View`] owns nothing and may look while another hart changes the table: each entry is read once, and what it gives was there at some moment.

use frames::FrameNumber;

use crate::address::{PAGE, Pages, VirtualAddress};
use crate::entry::{Entry, Rights};
use crate::{ENTRIES, TableMemory};

/// The level of the root.
pub(crate) const TOP: usize = 2;

/// Bytes that an entry of a table covers: 4 KiB at level 0, 2 MiB at 1, 1 GiB at 2.
pub(crate) const fn span(level: usize) -> usize {
    1 << span_bits(level)
}

/// The logarithm of [`span`]. Shifts by it are cheap, and there are a thousand in a boot.
const fn span_bits(level: usize) -> u32 {
    PAGE.ilog2().wrapping_add(ENTRIES.ilog2().wrapping_mul(level as u32)) % usize::BITS
}

/// Which entry of a table of the level is on the way to an address.
pub(crate) const fn index(address: VirtualAddress, level: usize) -> usize {
    (address.position() >> span_bits(level)) % ENTRIES
}

/// One step of a walk: the entry that a table has for an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The address that is looked for.
    pub address: VirtualAddress,
    /// 2 for the root, whose entries cover 1 GiB each; 1: 2 MiB; 0: 4 KiB.
    pub level: usize,
    /// The frame of the table.
    pub table: FrameNumber,
    /// The entry's index in it.
    pub index: usize,
    /// What the entry says.
    pub entry: Entry,
}

impl Step {
    /// What harts find here, if it is a page.
    pub fn mapping(&self) -> Option<Mapping> {
        match self.entry {
            Entry::Leaf { frame, rights, live: true } => Some(self.page(frame, rights)),
            _ => None,
        }
    }

    /// The whole page of this entry.
    pub(crate) fn page(&self, frame: FrameNumber, rights: Rights) -> Mapping {
        let size = span(self.level);
        let start = VirtualAddress::at_position(self.address.position() / size * size);
        let pages = Pages::new(start, size).expect("an entry covers whole pages of one half");
        Mapping { pages, frame, rights }
    }
}

/// Pages mapped to as many frames in a row with the same rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The pages.
    pub pages: Pages,
    /// The frame of the first.
    pub frame: FrameNumber,
    /// What may be done there.
    pub rights: Rights,
}

impl Mapping {
    /// The physical address of something in these pages.
    pub fn physical(self, address: usize) -> usize {
        self.frame.address() + (address - self.pages.start().value())
    }

    /// Both in one, if the pages after these go on in frames, with the same rights, and in the same half.
    fn joined(self, next: Mapping) -> Option<Mapping> {
        let goes_on =
            self.frame.0 + self.pages.count() == next.frame.0 && self.rights == next.rights;
        let pages = Pages::new(self.pages.start(), self.pages.size() + next.pages.size()).ok()?;
        goes_on.then_some(Mapping { pages, ..self })
    }
}

/// A page table to look at. Needs no lock: entries are read one at a time, and every state between two writes of
/// a change is a whole table. Only a reader that stays on its way while a table is freed behind its back may see nonsense.
pub struct View<'a, M> {
    memory: &'a M,
    root: FrameNumber,
}

impl<'a, M: TableMemory> View<'a, M> {
    /// The page table whose root is the frame `root`.
    pub fn new(memory: &'a M, root: FrameNumber) -> Self {
        View { memory, root }
    }

    /// The entries on the way to an address, from the root on, down to the first that points to no table. Retired tables are
    /// followed, as harts would not.
    pub fn walk(&self, address: VirtualAddress) -> impl Iterator<Item = Step> + use<'a, M> {
        let memory = self.memory;
        let mut next = Some((TOP, self.root));
        core::iter::from_fn(move || {
            let (level, table) = next?;
            let index = index(address, level);
            let entry = Entry::decode(memory.read(table, index));
            next = match entry {
                Entry::Table { frame, .. } if level > 0 => Some((level - 1, frame)),
                _ => None,
            };
            Some(Step { address, level, table, index, entry })
        })
    }

    /// The last step of the [walk](Self::walk).
    pub fn lookup(&self, address: VirtualAddress) -> Step {
        let (mut level, mut table) = (TOP, self.root);
        loop {
            let index = index(address, level);
            let entry = Entry::decode(self.memory.read(table, index));
            match entry {
                Entry::Table { frame, .. } if level > 0 => (level, table) = (level - 1, frame),
                _ => return Step { address, level, table, index, entry },
            }
        }
    }

    /// Every mapping, in the order of positions (the lower half first), neighbours joined.
    pub fn mappings(&self) -> impl Iterator<Item = Mapping> + use<'a, M> {
        let view = View { ..*self };
        let mut position = 0;
        core::iter::from_fn(move || {
            let mut found: Option<Mapping> = None;
            while position < span(TOP) * ENTRIES {
                let step = view.lookup(VirtualAddress::at_position(position));
                let leaf = step.mapping();
                if let Some(begun) = found {
                    let Some(joined) = leaf.and_then(|leaf| begun.joined(leaf)) else { break };
                    found = Some(joined);
                } else {
                    found = leaf;
                }
                position += span(step.level);
            }
            found
        })
    }
}
