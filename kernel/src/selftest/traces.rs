//! The rings of events.

use core::fmt::Write;
use core::sync::atomic::Ordering;

use arrayvec::ArrayString;

use super::{Outcome, ensure, ensure_eq, on_hart, self_test, spawned};
use crate::hart::{self, CpuNumber};
use crate::sync::SpinLock;
use crate::trace::{self, Event, Ring, Which};
use crate::{interrupts, sbi, thread};

self_test!(claim 86, quick, a_ring_keeps_the_newest_events_in_order_and_counts_the_others);
fn a_ring_keeps_the_newest_events_in_order_and_counts_the_others() -> Outcome {
    const ROOM: usize = 8;
    let ring = Ring::<ROOM>::new();
    ensure!(ring.snapshot().next().is_none(), "there is something in a new ring");
    for recorded in 1..=3 * ROOM {
        ring.push(Event::Point(recorded as u32));
        let kept = recorded.min(ROOM - 1);
        let snapshot = ring.snapshot();
        ensure_eq!(snapshot.dropped(), recorded - kept);
        let (mut expected, mut time) = (recorded - kept, 0);
        for event in snapshot {
            expected += 1;
            ensure!(event.is(Event::Point(expected as u32)), "{event} stands for {expected}");
            ensure!(time <= event.time, "time went back from {time} to {}", event.time);
            time = event.time;
        }
        ensure_eq!(expected, recorded);
    }
    ensure_eq!(ring.snapshot().newest(2).count(), 2);
    Ok(())
}

self_test!(claim 86, quick, an_event_that_is_replaced_before_it_is_read_is_dropped);
fn an_event_that_is_replaced_before_it_is_read_is_dropped() -> Outcome {
    const ROOM: u32 = 8;
    let ring = Ring::<{ ROOM as usize }>::new();
    (0..ROOM - 1).for_each(|point| ring.push(Event::Point(point)));
    let mut snapshot = ring.snapshot();
    ensure!(snapshot.next().is_some_and(|event| event.is(Event::Point(0))));
    // Two more: the second takes the place of the first, which was read, and a third might be on its way to the next place.
    (0..2).for_each(|point| ring.push(Event::Point(100 + point)));
    ensure!(snapshot.next().is_some_and(|event| event.is(Event::Point(2))), "1 was not dropped");
    ensure_eq!(snapshot.by_ref().count(), 4);
    ensure_eq!(snapshot.dropped(), 1);
    Ok(())
}

self_test!(claim 86, quick, every_kind_of_event_is_told_apart);
fn every_kind_of_event_is_told_apart() -> Outcome {
    let lock = 0xffff_ffff_8025_6000;
    let events = [
        (Event::Switch { from: 1, to: 2 }, "switch 1 2"),
        (Event::Wake { thread: u32::MAX, cpu: 3 }, "wake 4294967295 3"),
        (Event::Interrupt(Which::Ipi), "ipi 0 0"),
        (Event::Interrupt(Which::Timer), "timer 0 0"),
        (Event::Interrupt(Which::External), "external 0 0"),
        (Event::InterruptEnd, "interrupt-end 0 0"),
        (Event::Steal { thread: 4, from_cpu: 5 }, "steal 4 5"),
        (Event::Idle, "idle 0 0"),
        (Event::LockWait { lock }, "lock-wait 0 18446744071564517376"),
        (Event::LockTaken { lock }, "lock-taken 0 18446744071564517376"),
        (Event::Point(8), "point 8 0"),
    ];
    let ring = Ring::<16>::new();
    events.iter().for_each(|(event, _)| ring.push(*event));
    ensure_eq!(ring.snapshot().count(), events.len());
    for (recorded, (event, expected)) in ring.snapshot().zip(events) {
        ensure!(recorded.is(event), "{recorded} is not {expected}");
        let mut text = ArrayString::<80>::new();
        ensure!(write!(text, "{recorded}").is_ok());
        ensure_eq!(text.split_once(' ').map(|(_, what)| what), Some(expected));
    }
    let name = "worker";
    for (event, kind) in
        [(Event::Spawn { thread: 6, name }, "spawn 6"), (Event::Exit { thread: 7, name }, "exit 7")]
    {
        ring.push(event);
        let mut text = ArrayString::<80>::new();
        for recorded in ring.snapshot().newest(1) {
            ensure!(write!(text, "{recorded}").is_ok());
        }
        let address = name.as_ptr().addr() as u64 & 0xffff_ffff_ffff;
        let mut expected = ArrayString::<80>::new();
        ensure!(write!(expected, "{kind} {}", 6 << 48 | address).is_ok());
        ensure_eq!(text.split_once(' ').map(|(_, what)| what), Some(&*expected));
    }
    Ok(())
}

self_test!(claim 87, an_interrupt_is_recorded_where_rings_are_kept);
fn an_interrupt_is_recorded_where_rings_are_kept() -> Outcome {
    let masked = interrupts::mask();
    let hart = masked.hart();
    trace::record(Event::Point(1));
    ensure!(sbi::send_ipi(hart.id()).is_ok(), "the firmware sends no IPI");
    let before = hart.ipis.load(Ordering::Relaxed);
    drop(masked);
    let were_on = interrupts::are_enabled();
    interrupts::enable();
    interrupts::disable();
    ensure_eq!(hart.ipis.load(Ordering::Relaxed), before + 1);
    if were_on {
        interrupts::enable();
    }
    let events = || trace::snapshot(hart.cpu()).into_iter().flatten();
    let mut after = events().skip_while(|event| !event.is(Event::Point(1)));
    if !trace::KEPT {
        ensure_eq!(events().count(), 0);
        return Ok(());
    }
    ensure!(after.any(|event| event.is(Event::Interrupt(Which::Ipi))), "no interrupt is recorded");
    ensure!(after.any(|event| event.is(Event::InterruptEnd)), "the interrupt has no end");
    Ok(())
}

self_test!(claim 87, harts 2, a_wait_for_a_lock_is_recorded_and_one_that_is_free_is_not);
fn a_wait_for_a_lock_is_recorded_and_one_that_is_free_is_not() -> Outcome {
    static CONTENDED: SpinLock<usize> = SpinLock::new("a lock that is waited for", 0);
    fn take() {
        *CONTENDED.lock() += 1;
    }
    let lock = core::ptr::from_ref(&CONTENDED).addr();
    let is_ours = |event: &trace::Recorded| {
        event.is(Event::LockWait { lock }) || event.is(Event::LockTaken { lock })
    };
    let recorded = || {
        let cpus = hart::all().map(|hart| hart.cpu());
        cpus.flat_map(trace::snapshot).flatten().filter(is_ours).count()
    };
    let before = recorded();
    on_hart(CpuNumber(1), take)?;
    ensure_eq!(recorded(), before);
    let held = CONTENDED.lock();
    let here = interrupts::mask().hart().cpu();
    let other = if here == CpuNumber(0) { CpuNumber(1) } else { CpuNumber(0) };
    let there = spawned(thread::spawn_on(other, "waits for a lock", take))?;
    // Held until the other is seen to wait; where that does not come, for some time.
    let mut patience = 1_000_000;
    while patience > 0 && recorded() == before {
        patience -= 1;
    }
    drop(held);
    there.join();
    ensure_eq!(recorded(), before + if trace::KEPT { 2 } else { 0 });
    Ok(())
}

self_test!(claim 88, what_becomes_of_a_thread_is_recorded);
fn what_becomes_of_a_thread_is_recorded() -> Outcome {
    const NAME: &str = "is traced";
    let thread = spawned(thread::spawn(NAME, || ()))?;
    let id = thread.thread().id() as u32;
    thread.join();
    let events = || hart::all().map(|hart| hart.cpu()).flat_map(trace::snapshot).flatten();
    let expected =
        [Event::Spawn { thread: id, name: NAME }, Event::Exit { thread: id, name: NAME }];
    for event in expected {
        ensure_eq!(
            events().filter(|recorded| recorded.is(event)).count(),
            usize::from(trace::KEPT)
        );
    }
    let is_wakeup = |event: &trace::Recorded| {
        hart::all().any(|hart| {
            let cpu = hart.cpu().0 as u32;
            event.is(Event::Wake { thread: id, cpu })
        })
    };
    ensure_eq!(events().filter(is_wakeup).count(), usize::from(trace::KEPT));
    // From whom, and to whom, depends.
    let is_about = |event: &trace::Recorded, words: [&str; 2]| {
        let mut text = ArrayString::<80>::new();
        let _ = write!(text, "{event} ");
        let [from, to] = words;
        text.split_once(' ').is_some_and(|(_, what)| what.starts_with(from) && what.ends_with(to))
    };
    let mut number = ArrayString::<12>::new();
    let _ = write!(number, " {id} ");
    let arrivals = events().filter(|event| is_about(event, ["switch ", &number])).count();
    ensure_eq!(arrivals > 0, trace::KEPT);
    Ok(())
}
