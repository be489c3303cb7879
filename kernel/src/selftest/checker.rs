//! The lock checker: each rule as it gives what is wrong, and the kernel's own calls of it.

use arrayvec::ArrayString;
use core::fmt::{self, Write};
use core::panic::Location;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{Cut, Outcome, ensure, ensure_eq, self_test, spawned};
use crate::hart::CpuNumber;
use crate::sync::checker;
use crate::sync::order::{Act, Class, Holding, Lock, Order, ROOM, Violation};
use crate::sync::{Mutex, SpinLock};
use crate::thread::ThreadRef;
use crate::timer::Instant;
use crate::{interrupts, sched, thread};

/// What these tests make known. Each uses names of its own.
static ORDER: Order = Order::new();

/// A lock taken in the caller's line.
#[track_caller]
fn lock(name: &'static str, address: usize) -> Lock {
    Lock { address, class: ORDER.class(name), name, site: Some(Location::caller()) }
}

/// The line that took it.
fn line(lock: Lock) -> u32 {
    lock.site.map_or(0, Location::line)
}

/// Whether a violation's text is the expected one. This file's name is left out.
fn says(violation: &Violation, expected: fmt::Arguments<'_>) -> Outcome {
    let (mut text, mut wanted) = (Cut(ArrayString::new_const()), Cut(ArrayString::new_const()));
    // Cut's writes do not fail.
    let _ = write!(Short(&mut text), "{violation}");
    let _ = wanted.write_fmt(expected);
    ensure!(text.0 == wanted.0, "it says '{}', not '{}'", text.0, wanted.0);
    Ok(())
}

/// Writes on, without this file's name.
struct Short<'a>(&'a mut Cut);

impl Write for Short<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(if text == file!() { "" } else { text })
    }
}

/// The violation that a rule gave, which must have been broken.
fn broken<T>(rule: Result<T, Violation>) -> Result<Violation, super::Ended> {
    match rule {
        Ok(_) => {
            ensure!(false, "the rule is not broken");
            unreachable!("that ended the test");
        }
        Err(violation) => Ok(violation),
    }
}

self_test!(claim 60, locks_taken_in_both_orders_are_found_though_nobody_waits);
fn locks_taken_in_both_orders_are_found_though_nobody_waits() -> Outcome {
    let one = lock("order one", 1);
    let two = lock("order two", 2);
    ensure!(ORDER.admit(one, two).is_ok());
    ensure!(ORDER.admit(one, two).is_ok(), "an order that is known is refused");
    let two_later = lock("order two", 2);
    let one_later = lock("order one", 1);
    let violation = broken(ORDER.admit(two_later, one_later))?;
    says(
        &violation,
        format_args!(
            "deadlock: took 'order one' at :{} while 'order two', taken at :{}, was held; \
             before, took 'order two' at :{} while 'order one', taken at :{}, was held",
            line(one_later),
            line(two_later),
            line(two),
            line(one)
        ),
    )?;
    // It is not learnt: the order that came first still is the right one.
    ensure!(ORDER.admit(one, two).is_ok());
    broken(ORDER.admit(two_later, one_later)).map(drop)
}

self_test!(claim 60, unexplored, a_cycle_of_three_locks_is_found);
fn a_cycle_of_three_locks_is_found() -> Outcome {
    let one = lock("cycle one", 1);
    let two = lock("cycle two", 2);
    let three = lock("cycle three", 3);
    ensure!(ORDER.admit(one, two).is_ok());
    ensure!(ORDER.admit(two, three).is_ok());
    let violation = broken(ORDER.admit(three, one))?;
    says(
        &violation,
        format_args!(
            "deadlock: took 'cycle one' at :{one} while 'cycle three', taken at :{three}, was held; \
             before, took 'cycle three' at :{three} while 'cycle two', taken at :{two}, was held, and \
             'cycle two' at :{two} while 'cycle one', taken at :{one}, was held",
            one = line(one),
            two = line(two),
            three = line(three)
        ),
    )?;
    ensure!(ORDER.admit(one, three).is_ok(), "the way past the second is the same order");
    Ok(())
}

self_test!(claim 60, locks_of_one_name_are_taken_by_ascending_address);
fn locks_of_one_name_are_taken_by_ascending_address() -> Outcome {
    let low = lock("array", 8);
    let high = lock("array", 16);
    ensure!(ORDER.admit(low, high).is_ok());
    let violation = broken(ORDER.admit(high, low))?;
    says(
        &violation,
        format_args!(
            "of two locks 'array' the lower (0x8, at :{}) is taken after the higher (0x10, at :{})",
            line(low),
            line(high)
        ),
    )
}

self_test!(claim 60, try_lock_waits_for_nobody_and_may_break_the_order);
fn try_lock_waits_for_nobody_and_may_break_the_order() -> Outcome {
    static ONE: SpinLock<()> = SpinLock::new("tried one", ());
    static TWO: SpinLock<()> = SpinLock::new("tried two", ());
    for _ in 0..2 {
        let first = ONE.lock();
        drop((TWO.lock(), first));
        let second = TWO.lock();
        let tried = ONE.try_lock();
        ensure!(tried.is_some(), "nobody holds the lock");
        drop((tried, second));
    }
    Ok(())
}

self_test!(claim 60, unexplored, a_checker_without_room_says_so_and_admits);
fn a_checker_without_room_says_so_and_admits() -> Outcome {
    /// As many names as it is long, by length.
    const NAMES: &str = "                                                                 ";
    static FULL: Order = Order::new();
    ensure!(NAMES.len() > 64);
    let mut classes = (1..=NAMES.len()).map(|length| FULL.class(&NAMES[..length]));
    ensure!(classes.by_ref().take(64).all(|class| class != Class::NONE), "there is room for 64");
    ensure!(!FULL.is_full());
    ensure!(classes.all(|class| class == Class::NONE));
    ensure!(FULL.is_full());
    let left_over = Lock { class: Class::NONE, ..lock("left over", 1) };
    let other = Lock { address: 2, ..left_over };
    ensure!(FULL.admit(left_over, other).is_ok());
    ensure!(FULL.admit(other, left_over).is_ok());
    Ok(())
}

self_test!(claim 62, a_lock_is_not_waited_for_by_its_holder);
fn a_lock_is_not_waited_for_by_its_holder() -> Outcome {
    let holding = Holding::new();
    let held = lock("held", 1);
    let again = lock("held", 1);
    ensure!(holding.admit(&ORDER, again).is_ok());
    ensure!(holding.add(held, 0).is_ok());
    let violation = broken(holding.admit(&ORDER, again))?;
    says(
        &violation,
        format_args!(
            "'held' is taken again at :{} by the hart that holds it, since :{}",
            line(again),
            line(held)
        ),
    )
}

self_test!(claim 62, what_is_not_held_is_not_released);
fn what_is_not_held_is_not_released() -> Outcome {
    let holding = Holding::new();
    ensure!(holding.add(lock("kept", 1), 0).is_ok());
    let violation = broken(holding.remove(&ORDER, 2, "dropped", false))?;
    says(&violation, format_args!("'dropped' is released by a hart that does not hold it"))?;
    ensure_eq!(holding.locks(&ORDER).count(), 1);
    ensure!(holding.remove(&ORDER, 1, "kept", false).is_ok());
    broken(holding.remove(&ORDER, 1, "kept", false)).map(drop)
}

self_test!(claim 62, locks_are_released_in_any_order);
fn locks_are_released_in_any_order() -> Outcome {
    let holding = Holding::new();
    let names = ["any one", "any two", "any three"];
    for (index, name) in names.into_iter().enumerate() {
        ensure!(holding.add(lock(name, index), 0).is_ok());
    }
    ensure!(holding.remove(&ORDER, 1, names[1], false).is_ok());
    let mut left = holding.locks(&ORDER).map(|lock| (lock.name, lock.address));
    ensure_eq!([left.next(), left.next()], [Some((names[0], 0)), Some((names[2], 2))]);
    ensure!(left.next().is_none());
    ensure!(holding.remove(&ORDER, 0, names[0], false).is_ok());
    ensure!(holding.remove(&ORDER, 2, names[2], false).is_ok());
    ensure_eq!(holding.locks(&ORDER).count(), 0);
    Ok(())
}

self_test!(claim 62, a_lock_too_many_is_an_error);
fn a_lock_too_many_is_an_error() -> Outcome {
    let holding = Holding::new();
    for address in 0..ROOM {
        ensure!(holding.add(lock("many", address), 0).is_ok());
    }
    let last = lock("many", ROOM);
    let violation = broken(holding.add(last, 0))?;
    let line = line(last);
    says(&violation, format_args!("'many' at :{line} is one too many: {ROOM} can be held at once"))
}

self_test!(claim 63, interrupts_that_are_on_while_a_lock_is_held_are_noticed);
fn interrupts_that_are_on_while_a_lock_is_held_are_noticed() -> Outcome {
    let holding = Holding::new();
    ensure!(holding.interrupted(&ORDER).is_ok(), "an interrupt without a lock is refused");
    let open = lock("open", 1);
    ensure!(holding.add(open, 0).is_ok());
    let line = line(open);
    for violation in
        [holding.remove(&ORDER, 1, "open", true).map(drop), holding.interrupted(&ORDER)]
    {
        let violation = broken(violation)?;
        says(
            &violation,
            format_args!("interrupts are on while 'open', taken at :{line}, is held"),
        )?;
    }
    Ok(())
}

self_test!(claim 61, nobody_sleeps_with_a_lock_held);
fn nobody_sleeps_with_a_lock_held() -> Outcome {
    let holding = Holding::new();
    ensure!(holding.allows(&ORDER, Act::Sleep, 0).is_ok());
    ensure!(holding.add(lock("queue", 1), 0).is_ok());
    ensure!(holding.allows(&ORDER, Act::Sleep, 1).is_ok(), "the lock that is allowed is refused");
    let data = lock("data", 2);
    ensure!(holding.add(data, 0).is_ok());
    let line = line(data);
    let violation = broken(holding.allows(&ORDER, Act::Sleep, 1))?;
    says(
        &violation,
        format_args!("a thread sleeps while its hart holds 'data', taken at :{line}"),
    )?;
    let violation = broken(holding.allows(&ORDER, Act::Sleep, 0))?;
    ensure!(matches!(violation, Violation::HeldWhile { more: 1, .. }), "{violation} of two locks");
    Ok(())
}

self_test!(claim 61, a_thread_leaves_its_hart_with_one_lock_and_no_other);
fn a_thread_leaves_its_hart_with_one_lock_and_no_other() -> Outcome {
    let holding = Holding::new();
    for act in [Act::Switch, Act::Exit] {
        let violation = broken(holding.allows(&ORDER, act, 1))?;
        ensure!(matches!(violation, Violation::NothingToHandOver), "no lock is held: {violation}");
    }
    let data = lock("data", 2);
    ensure!(holding.add(data, 0).is_ok());
    let line = line(data);
    ensure!(holding.add(lock("queue", 1), 0).is_ok());
    for (act, words) in [(Act::Switch, "leaves its hart"), (Act::Exit, "ends")] {
        let violation = broken(holding.allows(&ORDER, act, 1))?;
        says(
            &violation,
            format_args!("a thread {words} while its hart holds 'data', taken at :{line}"),
        )?;
    }
    ensure!(holding.remove(&ORDER, 2, "data", false).is_ok());
    ensure!(holding.allows(&ORDER, Act::Switch, 1).is_ok());
    ensure!(holding.allows(&ORDER, Act::Exit, 1).is_ok());
    Ok(())
}

self_test!(claim 61, an_interrupt_handler_does_not_sleep);
fn an_interrupt_handler_does_not_sleep() -> Outcome {
    let holding = Holding::new();
    ensure!(holding.interrupted(&ORDER).is_ok());
    let violation = broken(holding.allows(&ORDER, Act::Sleep, 0))?;
    says(&violation, format_args!("an interrupt handler sleeps"))?;
    holding.handles_interrupt.store(false, Ordering::Relaxed);
    ensure!(holding.allows(&ORDER, Act::Sleep, 0).is_ok());
    Ok(())
}

self_test!(claim 46, a_held_lock_is_listed_with_its_name_hart_and_line);
fn a_held_lock_is_listed_with_its_name_hart_and_line() -> Outcome {
    let lock = SpinLock::new("listed", ());
    let find = || checker::held().find(|held| held.name == "listed").and_then(|held| held.holder);
    ensure!(find().is_none());
    let (guard, line) = (lock.lock(), line!());
    let found = find();
    let here = interrupts::mask().hart().cpu();
    drop(guard);
    ensure!(find().is_none(), "it is still listed after its release");
    let Some((cpu, site)) = found else {
        ensure!(false, "it is not listed");
        return Ok(());
    };
    ensure!(cpu == here, "it is listed for CPU {cpu}, not {here}");
    ensure_eq!((site.file(), site.line()), (file!(), line));
    Ok(())
}

/// Spins for so many ticks of the timebase.
fn spin_for(ticks: u64) {
    let begun = Instant::now().0;
    while Instant::now().0 - begun < ticks {
        core::hint::spin_loop();
    }
}

self_test!(claim 98, icount, the_longest_hold_of_a_lock_is_known_with_its_line);
fn the_longest_hold_of_a_lock_is_known_with_its_line() -> Outcome {
    static HELD: [SpinLock<()>; 2] = [const { SpinLock::new("held for long", ()) }; 2];
    let longest = || checker::longest().find(|hold| hold.name == "held for long");
    let before = longest().map_or(0, |hold| hold.ticks);
    // The longest is the one in the middle, of either lock. Another round of this test must beat the last.
    let ticks = before + 2_000;
    let held = HELD[0].lock();
    spin_for(ticks / 2);
    drop(held);
    let held = HELD[1].lock();
    let line = line!() - 1;
    spin_for(ticks);
    drop(held);
    drop(HELD[0].lock());
    let found = longest().map(|hold| (hold.site.line(), hold.ticks >= ticks));
    ensure_eq!(found, Some((line, true)));
    Ok(())
}

self_test!(claim 98, harts 2, who_waits_for_a_lock_is_known_with_its_line);
fn who_waits_for_a_lock_is_known_with_its_line() -> Outcome {
    static WANTED: SpinLock<()> = SpinLock::new("waited for", ());
    let waiting = || checker::waiting().find(|waiting| waiting.name == "waited for");
    static IS_HELD: AtomicBool = AtomicBool::new(false);
    IS_HELD.store(false, Ordering::Relaxed);
    let waiter = spawned(thread::spawn_on(CpuNumber(1), "waits", || {
        while !IS_HELD.load(Ordering::Relaxed) {
            sched::yield_now();
        }
        drop(WANTED.lock());
    }))?;
    let line = line!() - 2;
    let held = WANTED.lock();
    IS_HELD.store(true, Ordering::Relaxed);
    let begun = Instant::now().0;
    let mut found = None;
    while found.is_none() && Instant::now().0 - begun < 300_000_000 {
        found = waiting().map(|waiting| (waiting.cpu, waiting.site.line()));
    }
    drop(held);
    waiter.join();
    ensure_eq!(found, Some((CpuNumber(1), line)));
    ensure!(waiting().is_none(), "it waits still");
    Ok(())
}

self_test!(claim 98, a_mutex_is_listed_for_who_holds_it_and_who_waits);
fn a_mutex_is_listed_for_who_holds_it_and_who_waits() -> Outcome {
    static LISTED: Mutex<()> = Mutex::new("listed mutex", ());
    static LINE: AtomicU32 = AtomicU32::new(0);
    let of = |thread: ThreadRef| {
        let found = thread.mutexes.all().into_iter().find(|mutex| mutex.name == "listed mutex");
        found.map(|mutex| (mutex.is_held, mutex.site.line()))
    };
    let here = thread::current();
    ensure_eq!(of(here), None);
    let (guard, line) = (LISTED.lock(), line!());
    ensure_eq!(of(here), Some((true, line)));
    let waiter = spawned(thread::spawn("waits", move || {
        LINE.store(line!() + 1, Ordering::Relaxed);
        let guard = LISTED.lock();
        let held = of(thread::current());
        drop(guard);
        (held, of(thread::current()))
    }))?;
    while LISTED.waiters() == 0 {
        sched::yield_now();
    }
    let waited = of(waiter.thread());
    drop(guard);
    let left = of(here);
    let (held, given_up) = waiter.join();
    let line = LINE.load(Ordering::Relaxed);
    ensure_eq!(waited, Some((false, line)));
    ensure_eq!(left, None);
    ensure_eq!(held, Some((true, line)));
    ensure_eq!(given_up, None);
    let longest = checker::longest().find(|hold| hold.name == "listed mutex");
    ensure!(longest.is_some(), "for how long it was held is not known");
    Ok(())
}
