//! The fences that changes owe, as values.
//!
//! A change gives an [`Owed`]. What an unmap took out of use is inside, and comes out when the [`Fence`] is done: so a frame cannot be used again
//! too early, whatever the caller forgets.

use crate::address::Pages;

/// Up to so many pages are fenced one by one. Beyond, forgetting everything costs a hart less: it has to fetch again
/// what its TLB held, some tens of entries.
pub(crate) const MOST_PAGES: usize = 64;

/// What `sfence.vma` must cover (privileged spec 4.2.1). The second operand, the address space, is always 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// The leaf entries of these pages: `sfence.vma` with the address of each.
    Pages(Pages),
    /// Every entry of every level: `sfence.vma` without an address (rs1 = x0).
    Everything,
}

/// Which harts must execute a fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harts {
    /// The one that made the change, before it uses the pages. Entries only became valid: another hart may still have the
    /// invalid one and fault; before it first uses the pages it must execute [`Fence::Everything`].
    This,
    /// All.
    All,
}

/// A change was made to a page table, and harts may still use what was there before.
///
/// To be given to [`AddressSpace::close`](crate::AddressSpace::close) when the fence is done. Dropped, it leaks what the change
/// took out of use, and later fences are larger than need be; no stale entry ever reaches memory that is used again.
#[must_use = "harts may use the old entries until the fence is executed"]
#[derive(Debug)]
pub struct Owed {
    pub(crate) fence: Fence,
    pub(crate) harts: Harts,
    /// What an unmap took out of use.
    pub(crate) retired: Option<Pages>,
    /// Whether an entry above the leaves was changed.
    pub(crate) links: bool,
}

/// A change whose fence is done.
#[must_use = "what was unmapped is lost until `close` takes it back"]
#[derive(Debug)]
pub struct Settled(pub(crate) Owed);

impl Owed {
    /// Executes the fence: `execute` returns `Ok` when it is done on all the harts that it is told. Else the debt stays.
    pub fn settle<E>(
        self,
        execute: impl FnOnce(Fence, Harts) -> Result<(), E>,
    ) -> Result<Settled, (Owed, E)> {
        match execute(self.fence, self.harts) {
            Ok(()) => Ok(Settled(self)),
            Err(error) => Err((self, error)),
        }
    }

    /// Executes the fence on this hart alone: the debt stays.
    pub fn settle_here(&self, execute: impl FnOnce(Fence)) {
        execute(self.fence);
    }

    /// Executes one fence for several changes: all of every hart's entries. If that fails, the debts are dropped.
    pub fn settle_all<E>(
        owed: impl IntoIterator<Item = Owed>,
        execute: impl FnOnce(Fence, Harts) -> Result<(), E>,
    ) -> Result<impl Iterator<Item = Settled>, E> {
        execute(Fence::Everything, Harts::All)?;
        Ok(owed.into_iter().map(Settled))
    }
}
