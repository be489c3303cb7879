//! Random machines and calls against the oracle; small cases in full.

use core::ops::Range;
use std::vec;
use std::vec::Vec;

use bitmap_allocator::{BitAlloc, BitAlloc64K};
use proptest::collection::vec as vector;
use proptest::prelude::*;
use proptest::sample::Index;

use super::oracle::{Oracle, Told};
use super::{all_free, assert_summary_is_exact, range, storage};
use crate::bitmap::pieces;
use crate::{Cache, FRAME_BYTES, FrameNumber, FrameRange, FreeError, Setup, State};

/// A call, its parameters still to be fitted to what there is.
#[derive(Clone, Debug)]
enum Call {
    Allocate {
        cache: usize,
    },
    /// All frames in use, or some of them.
    AllocateMany {
        cache: usize,
        count: usize,
    },
    /// A frame that is in use.
    Free {
        cache: usize,
        which: Index,
    },
    FreeMany {
        cache: usize,
        which: Index,
        count: usize,
    },
    /// Any frame, in a bank or outside.
    FreeAny {
        cache: usize,
        which: Index,
    },
    FreeAddress {
        cache: usize,
        address: usize,
    },
    AllocateRun {
        count: usize,
        alignment: usize,
    },
    /// A part of memory, whatever is in it.
    FreeRun {
        which: Index,
        count: usize,
    },
    /// A part of memory without what cannot be freed.
    FreeRunInUse {
        which: Index,
        count: usize,
    },
}

const CACHES: usize = 3;

fn banks(count: Range<usize>, frames: usize) -> impl Strategy<Value = Vec<FrameRange>> {
    let bank = (
        prop_oneof![Just(0), 0..200usize, 0..20_000usize],
        prop_oneof![20 => 0..frames, 5 => Just(64), 1 => Just(14 * frames)],
    );
    (prop_oneof![Just(0), Just(0x80000), 0..0x100000usize], vector(bank, count)).prop_map(
        |(mut next, banks)| {
            let mut place = |(gap, size)| {
                let start = next + gap;
                next = start + size;
                range(start, next)
            };
            banks.into_iter().map(&mut place).collect()
        },
    )
}

/// Ranges that begin or end near a bank, or anywhere.
fn told(banks: &[FrameRange]) -> impl Strategy<Value = Vec<Told>> + use<> {
    let edges: Vec<usize> = banks.iter().flat_map(|bank| [bank.start.0, bank.end.0]).collect();
    let near = (proptest::sample::select(edges), 0..140usize)
        .prop_map(|(edge, more)| (edge + more).saturating_sub(70));
    let ranges = (near.clone(), prop_oneof![0..200usize, Just(10_000_000)])
        .prop_map(|(start, count)| range(start, start + count));
    let one = (0..5, ranges).prop_map(|(kind, range)| match kind {
        0..3 => Told::Release(range),
        3 => Told::Occupy(range),
        _ => Told::Reserve(range),
    });
    vector(one, 1..8)
}

fn call() -> impl Strategy<Value = Call> {
    let cache = 0..CACHES;
    let which = any::<Index>;
    let count = || prop_oneof![1..5usize, 1..70usize, 60..300usize];
    prop_oneof![
        4 => cache.clone().prop_map(|cache| Call::Allocate { cache }),
        2 => (cache.clone(), prop_oneof![1..200usize, Just(usize::MAX)]).prop_map(|(cache, count)| Call::AllocateMany { cache, count }),
        4 => (cache.clone(), which()).prop_map(|(cache, which)| Call::Free { cache, which }),
        2 => (cache.clone(), which(), 1..200usize).prop_map(|(cache, which, count)| Call::FreeMany { cache, which, count }),
        2 => (cache.clone(), which()).prop_map(|(cache, which)| Call::FreeAny { cache, which }),
        1 => (cache, any::<usize>()).prop_map(|(cache, address)| Call::FreeAddress { cache, address }),
        3 => (count(), 0..9u32).prop_map(|(count, shift)| Call::AllocateRun { count, alignment: 1 << shift }),
        2 => (which(), count()).prop_map(|(which, count)| Call::FreeRun { which, count }),
        2 => (which(), count()).prop_map(|(which, count)| Call::FreeRunInUse { which, count }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_the_oracle_does(
        (banks, told) in prop_oneof![8 => banks(1..6, 300), 1 => banks(64..65, 80)]
            .prop_filter("memory", |banks| banks.iter().any(|bank| !bank.is_empty()))
            .prop_flat_map(|banks| { let told = told(&banks); (Just(banks), told) }),
        calls in vector(call(), 1..60),
    ) {
        run(&banks, &told, &calls)?;
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whether there is a run, as an allocator that others wrote says.
    #[test]
    fn runs_are_found_where_another_allocator_finds_them(
        in_use in vector(0..65536usize, 0..3000),
        count in 1..2000usize,
        shift in 0..12u32,
    ) {
        let banks = [range(0, 65536)];
        let storage = storage(&banks);
        let mut other = BitAlloc64K::DEFAULT;
        other.insert(0..65536);
        let mut setup = Setup::new(&banks, &storage).unwrap();
        setup.release(banks[0]);
        for frame in in_use {
            setup.occupy(range(frame, frame + 1));
            other.remove(frame..frame + 1);
        }
        let frames = setup.finish();
        let theirs = other.alloc_contiguous(None, count, shift as usize);
        let ours = frames.allocate_run(count, 1 << shift);
        prop_assert_eq!(ours.is_some(), theirs.is_some());
        assert_summary_is_exact(&frames);
    }
}

fn run(banks: &[FrameRange], told: &[Told], calls: &[Call]) -> Result<(), TestCaseError> {
    let storage = storage(banks);
    let mut setup = Setup::new(banks, &storage).unwrap();
    for told in told {
        match *told {
            Told::Release(range) => setup.release(range),
            Told::Occupy(range) => setup.occupy(range),
            Told::Reserve(range) => setup.reserve(range),
        }
    }
    let frames = setup.finish();
    let mut oracle = Oracle::new(banks, told);
    let all: Vec<usize> = oracle.0.keys().copied().collect();
    let usable = all.len() - oracle.count(State::Reserved);
    let caches: Vec<Cache> = (0..CACHES).map(|_| Cache::new()).collect();

    let allocate = |oracle: &mut Oracle, cache: usize| {
        let frame = frames.allocate(&caches[cache]);
        match frame {
            Some(frame) => {
                prop_assert_eq!(
                    oracle.0.get(&frame.0),
                    Some(&State::Free),
                    "{} was given out",
                    frame
                );
                oracle.set(frame.0, 1, State::InUse);
            }
            None => prop_assert_eq!(oracle.count(State::Free), 0, "none was given out"),
        }
        Ok(frame)
    };
    for call in calls {
        match call {
            Call::Allocate { cache } => drop(allocate(&mut oracle, *cache)?),
            Call::AllocateMany { cache, count } => {
                for _ in 0..*count {
                    if allocate(&mut oracle, *cache)?.is_none() {
                        break;
                    }
                }
            }
            Call::Free { cache, which } => {
                let in_use = oracle.all(State::InUse);
                if !in_use.is_empty() {
                    let frame = *which.get(&in_use);
                    prop_assert_eq!(
                        frames.free(&caches[*cache], frame),
                        oracle.free_run(frame.0, 1)
                    );
                }
            }
            Call::FreeMany { cache, which, count } => {
                let in_use = oracle.all(State::InUse);
                let start = if in_use.is_empty() { 0 } else { which.index(in_use.len()) };
                for frame in in_use[start..].iter().take(*count) {
                    prop_assert_eq!(
                        frames.free(&caches[*cache], *frame),
                        oracle.free_run(frame.0, 1)
                    );
                }
            }
            Call::FreeAny { cache, which } => {
                let frame = near(&all, which);
                prop_assert_eq!(
                    frames.free(&caches[*cache], FrameNumber(frame)),
                    oracle.free_run(frame, 1)
                );
            }
            Call::FreeAddress { cache, address } => {
                let expected = if address % FRAME_BYTES == 0 {
                    oracle.free_run(address / FRAME_BYTES, 1)
                } else {
                    Err(FreeError::Unaligned(*address))
                };
                prop_assert_eq!(frames.free_address(&caches[*cache], *address), expected);
            }
            Call::AllocateRun { count, alignment } => match frames.allocate_run(*count, *alignment)
            {
                Some(first) => {
                    prop_assert!(
                        first.0.is_multiple_of(*alignment) && oracle.is_free_run(first.0, *count)
                    );
                    oracle.set(first.0, *count, State::InUse);
                }
                None => prop_assert!(
                    !oracle.has_run(*count, *alignment),
                    "{} frames aligned to {}",
                    count,
                    alignment
                ),
            },
            Call::FreeRun { which, count } => {
                let first = near(&all, which);
                prop_assert_eq!(
                    frames.free_run(FrameNumber(first), *count),
                    oracle.free_run(first, *count)
                );
            }
            Call::FreeRunInUse { which, count } => {
                let first = near(&all, which);
                let is_in_use = |index: &usize| {
                    oracle.0.get(&first.wrapping_add(*index)) == Some(&State::InUse)
                };
                let count = (0..*count).take_while(is_in_use).count();
                prop_assert_eq!(
                    frames.free_run(FrameNumber(first), count),
                    oracle.free_run(first, count)
                );
            }
        }
        let statistics = frames.statistics();
        let free = oracle.count(State::Free);
        prop_assert_eq!(
            (statistics.usable, statistics.free, statistics.in_use),
            (usable, free, usable - free)
        );
        assert_summary_is_exact(&frames);
    }
    for frame in all.iter().flat_map(|frame| [*frame, frame + 1]).chain([0]) {
        prop_assert_eq!(
            frames.state(FrameNumber(frame)),
            oracle.0.get(&frame).copied(),
            "frame {}",
            frame
        );
    }
    Ok(())
}

/// A frame of a bank, or one shortly before or behind.
fn near(all: &[usize], which: &Index) -> usize {
    let places: Vec<usize> = all.iter().copied().chain([0, usize::MAX, usize::MAX - 63]).collect();
    let place = *which.get(&places);
    match which.index(7) {
        0 => place.saturating_sub(1),
        1 => place.saturating_add(1),
        2 => place.saturating_sub(64),
        3 => place.saturating_add(65),
        _ => place,
    }
}

/// Every way in which six frames around the boundary of two words can be free, every run and every alignment.
#[test]
fn every_run_in_six_frames() {
    let banks = [range(61, 67)];
    for pattern in 0..64usize {
        for (count, alignment) in
            (1..8).flat_map(|count| [1, 2, 4, 8, 64, 128].map(|alignment| (count, alignment)))
        {
            let is_free =
                |frame: usize| (61..67).contains(&frame) && pattern >> (frame - 61) & 1 != 0;
            let expected = (61..67)
                .filter(|first| first % alignment == 0)
                .find(|first| (*first..first + count).all(is_free));
            let storage = storage(&banks);
            let mut setup = Setup::new(&banks, &storage).unwrap();
            (61..67)
                .filter(|frame| is_free(*frame))
                .for_each(|frame| setup.release(range(frame, frame + 1)));
            let frames = setup.finish();
            let found = frames.allocate_run(count, alignment);
            assert_eq!(
                found,
                expected.map(FrameNumber),
                "{count} aligned to {alignment} in {pattern:#08b}"
            );
            assert_summary_is_exact(&frames);
        }
    }
}

/// Every free pattern of five frames in two banks, every order of frees and double frees of three of them.
#[test]
fn every_order_of_frees_in_two_banks() {
    let banks = [range(63, 65), range(66, 69)];
    let numbers = [63, 64, 66, 67, 68];
    for order in 0..7 * 7 * 7 * 7 {
        let storage = storage(&banks);
        let frames = all_free(&banks, &storage);
        let cache = Cache::new();
        let mut free = vec![];
        while frames.allocate(&cache).is_some() {}
        for frame in
            [order % 7, order / 7 % 7, order / 49 % 7, order / 343].map(|choice| 63 + choice)
        {
            let expected = if !numbers.contains(&frame) {
                Err(FreeError::Foreign(FrameNumber(frame)))
            } else if free.contains(&frame) {
                Err(FreeError::Free(FrameNumber(frame)))
            } else {
                free.push(frame);
                Ok(())
            };
            assert_eq!(frames.free(&cache, FrameNumber(frame)), expected);
        }
        free.sort();
        // Another cache, so that they are found by search.
        let other = Cache::new();
        let mut found: Vec<usize> =
            core::iter::from_fn(|| frames.allocate(&other)).map(|frame| frame.0).collect();
        found.sort();
        assert_eq!(found, free);
    }
}

#[test]
fn ranges_of_bits_are_taken_apart() {
    for start in 0..140usize {
        for end in start..200 {
            let bits: Vec<usize> = pieces(start..end)
                .flat_map(|(word, mask)| {
                    (0..64).filter(move |bit| mask >> bit & 1 != 0).map(move |bit| word * 64 + bit)
                })
                .collect();
            assert_eq!(bits, (start..end).collect::<Vec<_>>());
        }
    }
}
