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

/// Where the first two gigapages of pages begin: in the kernel's half.
const BASE: usize = SPACE - 2 * GIGAPAGE;

/// Where ranges may begin and end: two megapages in pages, and the edges of two gigapages.
const POINTS: [usize; 16] = [
    BASE,
    BASE + PAGE,
    BASE + 2 * PAGE,
    BASE + 70 * PAGE,
    BASE + MEGAPAGE - PAGE,
    BASE + MEGAPAGE,
    BASE + MEGAPAGE + PAGE,
    BASE + 2 * MEGAPAGE - PAGE,
    BASE + 2 * MEGAPAGE,
    BASE + 3 * MEGAPAGE,
    BASE + GIGAPAGE - MEGAPAGE,
    BASE + GIGAPAGE - PAGE,
    BASE + GIGAPAGE,
    BASE + GIGAPAGE + PAGE,
    BASE + GIGAPAGE + MEGAPAGE,
    BASE + 2 * GIGAPAGE,
];

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

/// Points, so few that changes meet, and actions at them.
fn points_and_actions() -> impl Strategy<Value = (Vec<usize>, Vec<Action>)> {
    prop::sample::subsequence(POINTS.to_vec(), 3..8).prop_flat_map(|points| {
        let actions = prop::collection::vec(action(points.len() - 1), 1..60);
        (Just(points), actions)
    })
}

fn action(last: usize) -> impl Strategy<Value = Action> {
    let range = move || {
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

/// Whether harts that are not told may find nothing where there is something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Map,
    Other,
}

/// A change whose fence is not done.
struct Debt {
    owed: Owed,
    fence: Fence,
    /// Harts that have yet to execute it.
    harts: BTreeSet<usize>,
    kind: Kind,
    /// The points of the pages that were changed, and which change it was.
    range: (usize, usize),
    change: usize,
}

struct World<'m> {
    machine: &'m Machine,
    space: AddressSpace<&'m Machine>,
    points: Vec<usize>,
    /// By the stretch from each point to the next: what a hart should find on its first page, after which change.
    history: Vec<Vec<(usize, Found)>>,
    /// By hart and stretch: the change since which the hart is fenced.
    fenced: Vec<Vec<usize>>,
    changes: usize,
    debts: Vec<Debt>,
    next_frame: usize,
}

impl<'m> World<'m> {
    fn new(machine: &'m Machine, points: Vec<usize>) -> Self {
        let space = AddressSpace::new(machine).unwrap();
        machine.start(space.root(), HARTS);
        let stretches = points.len() - 1;
        World {
            machine,
            space,
            points,
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
                let start = self.points[from];
                let frame = self.next_frame + start / PAGE;
                self.next_frame += SPACE / PAGE;
                if let Ok(owed) = self.space.map(self.pages(from, to), FrameNumber(frame), rights) {
                    let now = |_, position| found(frame + (position - start) / PAGE, rights);
                    self.changed(from, to, owed, Kind::Map, now);
                }
            }
            Action::Protect(from, to, rights) => {
                if let Ok(owed) = self.space.protect(self.pages(from, to), rights) {
                    let now = |old, _| match old {
                        Found::Page { frame, .. } => found(frame, rights),
                        Found::Fault => panic!("what is not mapped was given rights"),
                    };
                    self.changed(from, to, owed, Kind::Other, now);
                }
            }
            Action::Unmap(from, to) => {
                if let Ok(owed) = self.space.unmap(self.pages(from, to)) {
                    self.changed(from, to, owed, Kind::Other, |_, _| Found::Fault);
                }
            }
            Action::Fence(debt, hart) => {
                if !self.debts.is_empty() {
                    let debt = debt % self.debts.len();
                    let harts = &self.debts[debt].harts;
                    if let Some(&hart) = harts.iter().nth(hart % HARTS) {
                        self.fence(debt, hart);
                    }
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

    fn pages(&self, from: usize, to: usize) -> Pages {
        let (start, end) = (self.points[from], self.points[to]);
        Pages::new(address(start), end - start).unwrap()
    }

    /// A change of the pages between two points was made: `now` says what is there, by what was, and the position.
    fn changed(
        &mut self,
        from: usize,
        to: usize,
        owed: Owed,
        kind: Kind,
        now: impl Fn(Found, usize) -> Found,
    ) {
        self.changes += 1;
        for stretch in from..to {
            let (_, old) = *self.history[stretch].last().unwrap();
            self.history[stretch].push((self.changes, now(old, self.points[stretch])));
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
        self.debts.push(Debt { owed, fence, harts, kind, range: (from, to), change: self.changes });
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
        let Debt { owed, kind, range, change, .. } = self.debts.swap_remove(debt);
        if kind == Kind::Other {
            // That is what was promised, on whichever harts the fence was executed.
            for fenced in &mut self.fenced {
                for change_fenced in &mut fenced[range.0..range.1] {
                    *change_fenced = (*change_fenced).max(change);
                }
            }
        }
        let Ok(settled) = owed.settle(|_, _| Ok::<(), ()>(())) else { unreachable!() };
        let mut given = Vec::new();
        self.space.close(settled, |mapping| given.push(mapping));
        // The frames are used again from here on: nobody may find them.
        for mapping in given {
            let frames = mapping.frame.0..mapping.frame.0 + mapping.pages.count();
            for (hart, stretch) in self.harts_and_stretches() {
                for found in self.machine.outcomes(hart, self.points[stretch]) {
                    if let Found::Page { frame, .. } = found {
                        assert!(!frames.contains(&frame), "hart {hart} uses a frame that is free");
                    }
                }
            }
        }
    }

    fn harts_and_stretches(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let stretches = self.points.len() - 1;
        (0..HARTS).flat_map(move |hart| (0..stretches).map(move |stretch| (hart, stretch)))
    }

    /// No hart can find anything but what was there since it was fenced.
    fn check(&self) {
        for (hart, stretch) in self.harts_and_stretches() {
            let history = &self.history[stretch];
            let fenced = self.fenced[hart][stretch];
            let begin = history.iter().rposition(|&(change, _)| change <= fenced).unwrap();
            let allowed: BTreeSet<Found> =
                history[begin..].iter().map(|&(_, found)| found).collect();
            let outcomes = self.machine.outcomes(hart, self.points[stretch]);
            assert!(
                outcomes.is_subset(&allowed),
                "hart {hart} at {:#x} may find {outcomes:x?}, and should only {allowed:x?}",
                self.points[stretch],
            );
        }
    }
}

fn found(frame: usize, rights: Rights) -> Found {
    let write = rights == Rights::ReadWrite;
    Found::Page { frame, write, execute: rights == Rights::ReadExecute }
}

proptest! {
    #![proptest_config(cases_divided_by(2))]

    #[test]
    fn no_hart_finds_what_it_was_fenced_from((points, actions) in points_and_actions()) {
        let machine = Machine::new();
        let mut world = World::new(&machine, points);
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
    let (page, other) = (page(BASE), page(BASE + PAGE));
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

fn page(position: usize) -> Pages {
    Pages::new(address(position), PAGE).unwrap()
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

#[test]
fn a_table_that_is_linked_again_owes_a_fence_of_everything() {
    let machine = Machine::new();
    let (mut space, first) = unmapped(&machine, false);
    // The second page goes: the table is unlinked, but the first is not closed, so the table stays.
    let owed = space.unmap(page(BASE + PAGE)).unwrap();
    (0..HARTS).for_each(|hart| machine.fence(hart, None));
    close_without_fence(&mut space, owed);
    let owed = space.map(page(BASE + PAGE), FrameNumber(9), Rights::Read).unwrap();
    let (owed, fence) = owed.settle(|fence, harts| Err((fence, harts))).unwrap_err();
    assert_eq!(fence, (Fence::Everything, Harts::All));
    (0..HARTS).for_each(|hart| machine.fence(hart, None));
    close_without_fence(&mut space, owed);
    close_without_fence(&mut space, first);
    let expected = BTreeSet::from([found(9, Rights::Read)]);
    assert!((0..HARTS).all(|hart| machine.outcomes(hart, BASE + PAGE) == expected));
}
