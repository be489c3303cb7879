//! The rings of events.

use core::fmt::Write;
use core::sync::atomic::Ordering;

use arrayvec::ArrayString;

use super::{Outcome, ensure, ensure_eq, self_test};
use crate::trace::{self, Event, Ring, Which};
use crate::{hart, interrupts, sbi};

self_test!(claim 70, quick, a_ring_keeps_the_newest_events_in_order_and_counts_the_others);
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

self_test!(claim 70, quick, an_event_that_is_replaced_before_it_is_read_is_dropped);
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

self_test!(claim 70, quick, every_kind_of_event_is_told_apart);
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
        (Event::Spawn { thread: 6 }, "spawn 6 0"),
        (Event::Exit { thread: 7 }, "exit 7 0"),
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
    Ok(())
}

self_test!(claim 71, an_interrupt_is_recorded_where_rings_are_kept);
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

self_test!(claim 71, harts 2, a_wait_for_a_lock_is_recorded_and_one_that_is_free_is_not);
fn a_wait_for_a_lock_is_recorded_and_one_that_is_free_is_not() -> Outcome {
    use crate::sync::SpinLock;
    static CONTENDED: SpinLock<usize> = SpinLock::new(0);
    fn take(_: usize) {
        *CONTENDED.lock() += 1;
    }
    let lock = core::ptr::from_ref(&CONTENDED).addr();
    let of_lock = |cpu| {
        let is_ours = |event: &trace::Recorded| {
            event.is(Event::LockWait { lock }) || event.is(Event::LockTaken { lock })
        };
        trace::snapshot(cpu).into_iter().flatten().filter(is_ours).count()
    };
    let other = hart::CpuNumber(1);
    let before = of_lock(other);
    ensure!(hart::call(other, take, 0).is_ok(), "CPU 1 does not answer");
    ensure_eq!(of_lock(other), before);
    let held = CONTENDED.lock();
    let called = hart::call_while(other, take, 0, || {
        // Held until the other is seen to wait; where that does not come, for some time.
        let mut patience = 1_000_000;
        while patience > 0 && of_lock(other) == before {
            patience -= 1;
        }
        drop(held);
    });
    ensure!(called.is_ok(), "CPU 1 does not answer");
    ensure_eq!(of_lock(other), before + if trace::KEPT { 2 } else { 0 });
    Ok(())
}
