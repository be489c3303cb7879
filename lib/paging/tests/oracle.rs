//! Random changes against a simple oracle, with memory for tables running out at every point.

mod common;

use std::convert::Infallible;

use common::{
    Found, GIGAPAGE, MEGAPAGE, Machine, NoFrame, PAGE, SPACE, address, cases_divided_by, points,
    span,
};
use paging::{AddressSpace, Error, FrameNumber, Mapping, Owed, Pages, Rights};
use proptest::prelude::*;

/// What the oracle knows of the pages between two neighbouring points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Empty,
    /// With the frame of the first page.
    Mapped(usize, Rights),
    /// Unmapped, not closed.
    Retired(usize, Rights),
}

#[derive(Clone, Debug)]
enum Action {
    /// From a point to a point, to frames that fit leaves of this level.
    Map(usize, usize, usize, Rights),
    Unmap(usize, usize),
    Protect(usize, usize, Rights),
    /// One of the changes that are not closed.
    Close(usize),
}

fn rights() -> impl Strategy<Value = Rights> {
    prop_oneof![Just(Rights::Read), Just(Rights::ReadWrite), Just(Rights::ReadExecute)]
}

/// Points, so few that changes meet, and actions at them.
fn points_and_actions() -> impl Strategy<Value = (Vec<usize>, Vec<Action>)> {
    prop::sample::subsequence(points(), 3..24).prop_flat_map(|points| {
        let actions = prop::collection::vec(action(points.len() - 1), 1..30);
        (Just(points), actions)
    })
}

fn action(last: usize) -> impl Strategy<Value = Action> {
    let range = move || {
        (0..last, 1..6usize).prop_map(move |(from, further)| (from, (from + further).min(last)))
    };
    prop_oneof![
        4 => (range(), 0..3usize, rights()).prop_map(|((a, b), l, r)| Action::Map(a, b, l, r)),
        2 => range().prop_map(|(a, b)| Action::Unmap(a, b)),
        2 => (range(), rights()).prop_map(|((a, b), r)| Action::Protect(a, b, r)),
        2 => any::<usize>().prop_map(Action::Close),
    ]
}

struct World<'m> {
    machine: &'m Machine,
    space: AddressSpace<&'m Machine>,
    points: Vec<usize>,
    /// One for the pages from each point to the next.
    states: Vec<State>,
    /// Changes that are not closed, with the points of the pages that they unmapped.
    owed: Vec<(Owed, Option<(usize, usize)>)>,
}

impl<'m> World<'m> {
    fn new(machine: &'m Machine, points: Vec<usize>) -> Self {
        let space = AddressSpace::new(machine).unwrap();
        let states = vec![State::Empty; points.len() - 1];
        World { machine, space, points, states, owed: Vec::new() }
    }

    fn pages(&self, from: usize, to: usize) -> Result<Pages, paging::NotPages> {
        let (start, end) = (self.points[from], self.points[to]);
        Pages::new(address(start), end - start)
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Map(from, to, level, rights) => {
                let Ok(pages) = self.pages(from, to) else {
                    return self.is_in_both_halves(from, to);
                };
                // Small leaves only where they are not too many.
                let smallest = match pages.size() {
                    size if size > 4 * GIGAPAGE => 2,
                    size if size > 16 * MEGAPAGE => 1,
                    _ => 0,
                };
                let level = level.max(smallest);
                // Frames lie where nothing else does: far up, congruent to the pages, but for one of the level below.
                let odd = if level == 2 { 0 } else { span(level) / PAGE };
                let frame = (1 << 40) + self.points[from] / PAGE + odd;
                let expected = match self.first(from, to, |state| state != State::Empty) {
                    Some(occupied) => Err(occupied),
                    None => Ok(()),
                };
                let change =
                    |space: &mut AddressSpace<_>| space.map(pages, FrameNumber(frame), rights);
                self.check_result(expected, change, None);
                if expected.is_ok() {
                    for stretch in from..to {
                        let offset = (self.points[stretch] - self.points[from]) / PAGE;
                        self.states[stretch] = State::Mapped(frame + offset, rights);
                    }
                }
            }
            Action::Protect(from, to, rights) => {
                let Ok(pages) = self.pages(from, to) else {
                    return self.is_in_both_halves(from, to);
                };
                let expected = self.all_mapped(from, to);
                self.check_result(expected, |space| space.protect(pages, rights), None);
                for stretch in from..to {
                    if let (Ok(()), State::Mapped(frame, _)) = (expected, self.states[stretch]) {
                        self.states[stretch] = State::Mapped(frame, rights);
                    }
                }
            }
            Action::Unmap(from, to) => {
                let Ok(pages) = self.pages(from, to) else {
                    return self.is_in_both_halves(from, to);
                };
                let expected = self.all_mapped(from, to);
                self.check_result(expected, |space| space.unmap(pages), Some((from, to)));
                for stretch in from..to {
                    if let (Ok(()), State::Mapped(frame, rights)) = (expected, self.states[stretch])
                    {
                        self.states[stretch] = State::Retired(frame, rights);
                    }
                }
            }
            Action::Close(number) => {
                if !self.owed.is_empty() {
                    self.close(number % self.owed.len());
                }
            }
        }
    }

    fn is_in_both_halves(&self, from: usize, to: usize) {
        assert!(self.points[from] < SPACE / 2 && self.points[to] > SPACE / 2);
    }

    /// The position of the first stretch of which this is true.
    fn first(&self, from: usize, to: usize, is: impl Fn(State) -> bool) -> Option<usize> {
        (from..to).find(|&stretch| is(self.states[stretch])).map(|stretch| self.points[stretch])
    }

    fn all_mapped(&self, from: usize, to: usize) -> Result<(), usize> {
        match self.first(from, to, |state| !matches!(state, State::Mapped(..))) {
            Some(hole) => Err(hole),
            None => Ok(()),
        }
    }

    /// Makes a change with 0, 1, 2, ... frames for tables until they suffice. A failure changes nothing.
    fn check_result(
        &mut self,
        expected: Result<(), usize>,
        mut change: impl FnMut(&mut AddressSpace<&'m Machine>) -> Result<Owed, Error<NoFrame>>,
        unmapped: Option<(usize, usize)>,
    ) {
        let before = self.machine.snapshot();
        for budget in 0.. {
            self.machine.set_budget(Some(budget));
            let result = change(&mut self.space);
            self.machine.set_budget(None);
            if result.is_err() {
                assert!(self.machine.snapshot() == before, "a failure changed something");
            }
            match result {
                Err(Error::NoTable(NoFrame)) => {
                    assert!(expected.is_ok(), "frames are asked for before all is looked at");
                }
                Ok(owed) => {
                    assert_eq!(expected, Ok(()));
                    let needed = self.machine.used() - before.1;
                    assert_eq!(needed, budget, "as many frames as are needed suffice");
                    return self.owed.push((owed, unmapped));
                }
                Err(Error::Occupied(step)) => {
                    return assert_eq!(expected.map_err(address), Err(step.address));
                }
                Err(Error::Hole(hole)) => return assert_eq!(expected.map_err(address), Err(hole)),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    fn close(&mut self, number: usize) {
        let (owed, unmapped) = self.owed.swap_remove(number);
        let settled = owed.settle(|_, _| Ok::<(), Infallible>(())).unwrap();
        let mut given: Vec<Mapping> = Vec::new();
        self.space.close(settled, |mapping| given.push(mapping));
        let Some((from, to)) = unmapped else { return assert_eq!(given, []) };
        // Every page comes back once, in order, with its frame.
        let mut position = self.points[from];
        let mut stretch = from;
        for mapping in given {
            assert_eq!(mapping.pages.start(), address(position));
            while position >= self.points[stretch + 1] {
                stretch += 1;
            }
            let State::Retired(frame, rights) = self.states[stretch] else {
                panic!("not unmapped")
            };
            let frame = frame + (position - self.points[stretch]) / PAGE;
            assert_eq!((mapping.frame, mapping.rights), (FrameNumber(frame), rights));
            position += mapping.pages.size();
        }
        assert_eq!(position, self.points[to]);
        self.states[from..to].fill(State::Empty);
    }

    fn check(&self) {
        self.check_translations();
        let (tables, _, _) = self.check_table(self.space.root().0, 2, true);
        assert_eq!(tables, self.space.table_pages());
        assert_eq!(tables, self.machine.used(), "a table is lost");
        let expected: Vec<Mapping> = self.expected_mappings();
        assert_eq!(self.space.view().mappings().collect::<Vec<_>>(), expected);
    }

    fn check_translations(&self) {
        for (stretch, state) in self.states.iter().enumerate() {
            let (start, end) = (self.points[stretch], self.points[stretch + 1]);
            for position in [start, end - PAGE, start + (end - start) / 2 / PAGE * PAGE] {
                let offset = (position - start) / PAGE;
                let step = self.space.view().lookup(address(position));
                assert_eq!(step.address, address(position));
                let found = self.machine.translate(self.space.root(), position);
                match *state {
                    State::Mapped(frame, rights) => {
                        let frame = frame + offset;
                        assert_eq!(found, found_by(frame, rights));
                        let mapping = step.mapping().unwrap();
                        let into = address(position).value() - mapping.pages.start().value();
                        assert_eq!(mapping.frame.0 + into / PAGE, frame);
                        assert_eq!(mapping.rights, rights);
                    }
                    _ => {
                        assert_eq!(found, Found::Fault);
                        assert_eq!(step.mapping(), None);
                    }
                }
            }
        }
    }

    /// The rules that every table keeps. Gives how many there are from this one on, how many of its entries are live, and
    /// how many are not empty.
    fn check_table(&self, frame: usize, level: usize, live: bool) -> (usize, usize, usize) {
        let (mut tables, mut lives, mut present) = (1, 0, 0);
        for index in 0..512 {
            let bits = self.machine.peek(frame, index);
            if bits == 0 {
                continue;
            }
            present += 1;
            let bit = |n: usize| bits >> n & 1 == 1;
            let valid = bit(0);
            lives += usize::from(valid);
            assert!(live || !valid, "a retired table has a live entry");
            assert_eq!(bit(8), !valid, "the software's bit marks the retired");
            assert!(!bit(9) && bits >> 54 == 0, "reserved bits are zero: {bits:#x}");
            assert!(!bit(4) && !bit(5), "neither the user's nor global");
            let next = bits >> 10 & ((1 << 44) - 1);
            if bits & 0b1110 == 0 {
                assert!(level > 0 && !bit(6) && !bit(7), "a pointer has neither A nor D");
                let (more, lives, present) = self.check_table(next, level - 1, valid);
                tables += more;
                assert!(present > 0, "an empty table");
                assert_eq!(
                    lives > 0,
                    valid,
                    "a table without live entries is retired, and no other"
                );
            } else {
                assert!(bit(1) && !(bit(2) && bit(3)), "readable, and not writable and executable");
                assert!(bit(6) && bit(7) == bit(2), "A, and D where writable");
                assert!((next * PAGE).is_multiple_of(span(level)), "a large leaf is aligned");
            }
        }
        (tables, lives, present)
    }

    fn expected_mappings(&self) -> Vec<Mapping> {
        let mut stretches: Vec<(usize, usize, usize, Rights)> = Vec::new();
        for (stretch, state) in self.states.iter().enumerate() {
            let State::Mapped(frame, rights) = *state else { continue };
            let (start, end) = (self.points[stretch], self.points[stretch + 1]);
            match stretches.last_mut() {
                Some(last)
                    if last.1 == start
                        && start != SPACE / 2
                        && last.2 + (start - last.0) / PAGE == frame
                        && last.3 == rights =>
                {
                    last.1 = end;
                }
                _ => stretches.push((start, end, frame, rights)),
            }
        }
        let mapping = |(start, end, frame, rights): (usize, usize, usize, Rights)| Mapping {
            pages: Pages::new(address(start), end - start).unwrap(),
            frame: FrameNumber(frame),
            rights,
        };
        stretches.into_iter().map(mapping).collect()
    }
}

fn found_by(frame: usize, rights: Rights) -> Found {
    let write = rights == Rights::ReadWrite;
    Found::Page { frame, write, execute: rights == Rights::ReadExecute }
}

proptest! {
    #![proptest_config(cases_divided_by(8))]

    #[test]
    fn changes_do_what_the_oracle_says((points, actions) in points_and_actions()) {
        let machine = Machine::new();
        let mut world = World::new(&machine, points);
        for action in &actions {
            world.act(action);
            world.check();
        }
        // In the end everything comes back.
        for stretch in 0..world.states.len() {
            world.act(&Action::Unmap(stretch, stretch + 1));
        }
        world.check();
        while !world.owed.is_empty() {
            world.close(0);
        }
        world.check();
        prop_assert_eq!(machine.used(), 1);
    }
}

#[test]
fn points_are_of_every_kind() {
    assert!(points().iter().all(|point| point.is_multiple_of(PAGE)));
    assert!(points().contains(&SPACE) && points().contains(&(SPACE / 2)));
    assert!(points().iter().filter(|point| point.is_multiple_of(GIGAPAGE)).count() >= 6);
}
