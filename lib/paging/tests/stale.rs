//! Harts whose caches stay stale until they are fenced: no hart finds what it should not, whatever the order of changes and fences.
//!
//! The caches are as bad as the specification lets them be ([`common::Machine`]): they hold every entry of every level that a walk
//! could have read, at any moment within a change too. The rule (privileged spec 4.2.1): an access may find any translation that the
//! address had at any time since the hart's last fence for it.

mod common;

use std::collections::BTreeSet;

use common::{Found, GIGAPAGE, MEGAPAGE, Machine, PAGE, SPACE, address, cases_divided_by};
use paging::{AddressSpace, Fence, FrameNumber, Harts, Owed, Pages, Rights};
use proptest::prelude::*;

const HARTS: usize = 3;

/// Where ranges begin and end: two megapages in pages, and the edges of two gigapages.
const POINTS: [usize; 16] = [
    0,
    PAGE,
    2 * PAGE,
    70 * PAGE,
    MEGAPAGE - PAGE,
    MEGAPAGE,
    MEGAPAGE + PAGE,
    2 * MEGAPAGE - PAGE,
    2 * MEGAPAGE,
    3 * MEGAPAGE,
    GIGAPAGE - MEGAPAGE,
    GIGAPAGE - PAGE,
    GIGAPAGE,
    GIGAPAGE + PAGE,
    GIGAPAGE + MEGAPAGE,
    2 * GIGAPAGE,
];

/// The position of the first point: the kernel's half.
const BASE: usize = SPACE - 2 * GIGAPAGE;

#[derive(Clone, Debug)]
enum Action {
    Map(usize, usize, Rights),
    Unmap(usize, usize),
    Protect(usize, usize, Rights),
    /// One of the fences that are owed, on one of the harts that have not executed it.
    Fence(usize, usize),
    /// A change that all harts have fenced is closed, or one fence is reported as failed.
    Close(usize),
    /// A hart that was not fenced comes to use new pages.
    ComeToUse(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let range = || {
        let last = POINTS.len() - 1;
        (0..last, 1..4usize).prop_map(move |(from, further)| (from, (from + further).min(last)))
    };
    let rights =
        || prop_oneof![Just(Rights::Read), Just(Rights::ReadWrite), Just(Rights::ReadExecute)];
    prop_oneof![
        4 => (range(), rights()).prop_map(|((a, b), r)| Action::Map(a, b, r)),
        3 => range().prop_map(|(a, b)| Action::Unmap(a, b)),
        2 => (range(), rights()).prop_map(|((a, b), r)| Action::Protect(a, b, r)),
        8 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Action::Fence(a, b)),
        4 => any::<usize>().prop_map(Action::Close),
        1 => (0..HARTS).prop_map(Action::ComeToUse),
    ]
}

/// A change whose fence is not done.
struct Debt {
    owed: Owed,
    fence: Fence,
    /// Harts that have yet to execute it.
    harts: BTreeSet<usize>,
    /// The points of the pages that were changed, and which change it was.
    range: (usize, usize),
    change: usize,
}

struct World<'m> {
    machine: &'m Machine,
    space: AddressSpace<&'m Machine>,
    /// By the stretch from each point to the next: what a hart should find on its first page, after which change.
    history: Vec<Vec<(usize, Found)>>,
    /// By hart and stretch: the change since which the hart is fenced.
    fenced: Vec<Vec<usize>>,
    changes: usize,
    debts: Vec<Debt>,
    next_frame: usize,
}

impl<'m> World<'m> {
    fn new(machine: &'m Machine) -> Self {
        let space = AddressSpace::new(machine).unwrap();
        machine.start(space.root(), HARTS);
        let stretches = POINTS.len() - 1;
        World {
            machine,
            space,
            history: vec![vec![(0, Found::Fault)]; stretches],
            fenced: vec![vec![0; stretches]; HARTS],
            changes: 0,
            debts: Vec::new(),
            next_frame: 1 << 30,
        }
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Map(from, to, rights) => {
                // Each mapping has frames of its own, that lie as the pages do.
                let frame = self.next_frame + POINTS[from] / PAGE;
                self.next_frame += 2 * GIGAPAGE / PAGE;
                let result = self.space.map(pages(from, to), FrameNumber(frame), rights);
                if let Ok(owed) = result {
                    self.changed(from, to, owed, |_, stretch| {
                        found(frame + (POINTS[stretch] - POINTS[from]) / PAGE, rights)
                    });
                }
            }
            Action::Protect(from, to, rights) => {
                if let Ok(owed) = self.space.protect(pages(from, to), rights) {
                    self.changed(from, to, owed, |old, _| match old {
                        Found::Page { frame, .. } => found(frame, rights),
                        Found::Fault => panic!("what is not mapped was given rights"),
                    });
                }
            }
            Action::Unmap(from, to) => {
                if let Ok(owed) = self.space.unmap(pages(from, to)) {
                    self.changed(from, to, owed, |_, _| Found::Fault);
                }
            }
            Action::Fence(debt, hart) => {
                if self.debts.is_empty() {
                    return;
                }
                let debt = debt % self.debts.len();
                let harts = &self.debts[debt].harts;
                if let Some(&hart) = harts.iter().nth(hart % harts.len().max(1)) {
                    self.fence(debt, hart);
                }
            }
            Action::Close(debt) => {
                if !self.debts.is_empty() {
                    self.close(debt % self.debts.len());
                }
            }
            Action::ComeToUse(hart) => self.fence_everything(hart),
        }
    }

    /// A change of the pages between two points was made.
    fn changed(&mut self, from: usize, to: usize, owed: Owed, now: impl Fn(Found, usize) -> Found) {
        self.changes += 1;
        for stretch in from..to {
            let (_, old) = *self.history[stretch].last().unwrap();
            self.history[stretch].push((self.changes, now(old, stretch)));
        }
        // A fence that fails leaves the debt; here, so that harts can execute it one by one.
        let Err((owed, (fence, harts))) = owed.settle(|fence, harts| Err((fence, harts))) else {
            panic!("a fence that failed settles nothing");
        };
        let harts = match harts {
            // The harts take turns in making changes.
            Harts::This => BTreeSet::from([self.changes % HARTS]),
            Harts::All => (0..HARTS).collect(),
        };
        let (range, change) = ((from, to), self.changes);
        self.debts.push(Debt { owed, fence, harts, range, change });
    }

    fn fence(&mut self, debt: usize, hart: usize) {
        let Debt { fence, harts, range, change, .. } = &mut self.debts[debt];
        harts.remove(&hart);
        match *fence {
            Fence::Everything => return self.fence_everything(hart),
            Fence::Pages(pages) => {
                for address in pages.addresses() {
                    self.machine.fence(hart, Some(address.value() & (SPACE - 1)));
                }
            }
        }
        for fenced in &mut self.fenced[hart][range.0..range.1] {
            *fenced = (*fenced).max(*change);
        }
    }

    fn fence_everything(&mut self, hart: usize) {
        self.machine.fence(hart, None);
        self.fenced[hart].fill(self.changes);
    }

    /// Executes what is left of a fence, and closes the change.
    fn close(&mut self, debt: usize) {
        while let Some(&hart) = self.debts[debt].harts.first() {
            self.fence(debt, hart);
        }
        let owed = self.debts.swap_remove(debt).owed;
        let Ok(settled) = owed.settle(|_, _| Ok::<(), ()>(())) else { unreachable!() };
        let mut given = Vec::new();
        self.space.close(settled, |mapping| given.push(mapping));
        // The frames are used again from here on: nobody may find them.
        for mapping in given {
            let frames = mapping.frame.0..mapping.frame.0 + mapping.pages.count();
            for (hart, stretch) in harts_and_stretches() {
                for found in self.machine.outcomes(hart, BASE + POINTS[stretch]) {
                    if let Found::Page { frame, .. } = found {
                        assert!(!frames.contains(&frame), "hart {hart} uses a frame that is free");
                    }
                }
            }
        }
    }

    /// No hart can find anything but what was there since it was fenced.
    fn check(&self) {
        for (hart, stretch) in harts_and_stretches() {
            let history = &self.history[stretch];
            let fenced = self.fenced[hart][stretch];
            let begin = history.iter().rposition(|&(change, _)| change <= fenced).unwrap();
            let allowed: BTreeSet<Found> =
                history[begin..].iter().map(|&(_, found)| found).collect();
            let outcomes = self.machine.outcomes(hart, BASE + POINTS[stretch]);
            assert!(
                outcomes.is_subset(&allowed),
                "hart {hart} at {:#x} may find {outcomes:x?}, and should only {allowed:x?}",
                POINTS[stretch],
            );
        }
    }
}

fn pages(from: usize, to: usize) -> Pages {
    Pages::new(address(BASE + POINTS[from]), POINTS[to] - POINTS[from]).unwrap()
}

fn found(frame: usize, rights: Rights) -> Found {
    let write = rights == Rights::ReadWrite;
    Found::Page { frame, write, execute: rights == Rights::ReadExecute }
}

fn harts_and_stretches() -> impl Iterator<Item = (usize, usize)> {
    (0..HARTS).flat_map(|hart| (0..POINTS.len() - 1).map(move |stretch| (hart, stretch)))
}

proptest! {
    #![proptest_config(cases_divided_by(2))]

    #[test]
    fn no_hart_finds_what_it_was_fenced_from(actions in prop::collection::vec(action(), 1..60)) {
        let machine = Machine::new();
        let mut world = World::new(&machine);
        for action in &actions {
            world.act(action);
            world.check();
        }
        while !world.debts.is_empty() {
            world.close(0);
            world.check();
        }
    }
}

/// A page that every hart has found, is unmapped: in a table with another page, or alone in it.
fn unmapped(machine: &Machine, alone: bool) -> (AddressSpace<&Machine>, Owed) {
    let mut space = AddressSpace::new(machine).unwrap();
    machine.start(space.root(), HARTS);
    let (page, other) = (pages(0, 1), pages(1, 2));
    let owed = space.map(page, FrameNumber(7), Rights::ReadWrite).unwrap();
    close_without_fence(&mut space, owed);
    if !alone {
        let owed = space.map(other, FrameNumber(8), Rights::ReadWrite).unwrap();
        close_without_fence(&mut space, owed);
    }
    (0..HARTS).for_each(|hart| machine.fence(hart, None));
    assert!((0..HARTS).all(|hart| finds(machine, hart, 7)));
    let owed = space.unmap(page).unwrap();
    (space, owed)
}

fn close_without_fence(space: &mut AddressSpace<&Machine>, owed: Owed) {
    let Ok(settled) = owed.settle(|_, _| Ok::<(), ()>(())) else { unreachable!() };
    space.close(settled, |_| ());
}

/// Whether the hart may find this frame at the first page.
fn finds(machine: &Machine, hart: usize, frame: usize) -> bool {
    machine.outcomes(hart, BASE).contains(&found(frame, Rights::ReadWrite))
}

#[test]
fn the_model_notices_a_hart_that_is_not_fenced() {
    let machine = Machine::new();
    let (mut space, owed) = unmapped(&machine, false);
    machine.fence(0, Some(BASE));
    machine.fence(2, Some(BASE));
    close_without_fence(&mut space, owed);
    assert_eq!([0, 1, 2].map(|hart| finds(&machine, hart, 7)), [false, true, false]);
}

#[test]
fn the_model_notices_a_fence_of_another_page() {
    let machine = Machine::new();
    let (mut space, owed) = unmapped(&machine, false);
    machine.fence(0, Some(BASE + PAGE));
    close_without_fence(&mut space, owed);
    assert!(finds(&machine, 0, 7));
}

#[test]
fn the_model_notices_a_fence_of_a_leaf_where_a_table_was_unlinked() {
    let machine = Machine::new();
    let (mut space, owed) = unmapped(&machine, true);
    machine.fence(0, Some(BASE));
    machine.fence(1, None);
    close_without_fence(&mut space, owed);
    // The leaf is forgotten, the way to the table that is free now is not.
    assert_eq!([0, 1].map(|hart| finds(&machine, hart, 7)), [false, false]);
    assert_eq!([0, 1].map(|hart| finds(&machine, hart, common::POISON_FRAME)), [true, false]);
}
