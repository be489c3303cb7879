//! Threads: spawning, running, preempting, stealing, ending.

use alloc::vec::Vec;
use core::arch::naked_asm;
use core::hint::{black_box, spin_loop};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use core::time::Duration;

use arrayvec::ArrayVec;

use super::{Ended, Outcome, ensure, ensure_eq, held, self_test, spawned};
use crate::hart::{self, CpuNumber, HARTS};
use crate::stack::{self, STACK_BYTES};
use crate::thread::{self, JoinHandle, SpawnError};
use crate::timer::Instant;
use crate::{interrupts, probe, sched, symbols, vm};

const HERE: CpuNumber = CpuNumber(0);

self_test!(claim 48, quick, a_thread_gives_its_result_to_who_joins_it);
fn a_thread_gives_its_result_to_who_joins_it() -> Outcome {
    let words = [3_usize, 4, 5];
    let sum = spawned(thread::spawn("sum", move || words.iter().sum::<usize>()))?;
    ensure_eq!(sum.join(), 12);
    Ok(())
}

self_test!(claim 48, a_thread_that_has_ended_can_still_be_joined);
fn a_thread_that_has_ended_can_still_be_joined() -> Outcome {
    let thread = spawned(thread::spawn_on(HERE, "short", || 7))?;
    // It runs as soon as this thread lets it, and is done when this thread runs again.
    sched::yield_now();
    ensure_eq!(thread.join(), 7);
    Ok(())
}

self_test!(claim 48, a_dropped_handle_waits_for_its_thread);
fn a_dropped_handle_waits_for_its_thread() -> Outcome {
    static DONE: AtomicBool = AtomicBool::new(false);
    DONE.store(false, Relaxed);
    drop(spawned(thread::spawn("waited for", || {
        for _ in 0..3 {
            sched::yield_now();
        }
        DONE.store(true, Relaxed);
    }))?);
    ensure!(DONE.load(Relaxed), "the handle was gone before the thread");
    Ok(())
}

self_test!(claim 48, harts 2, a_thread_runs_on_the_hart_it_was_spawned_for);
fn a_thread_runs_on_the_hart_it_was_spawned_for() -> Outcome {
    for hart in hart::all() {
        let cpu = hart.cpu();
        let seen = super::on_hart(cpu, || {
            let mut seen = Vec::new();
            for _ in 0..20 {
                if seen.try_reserve(1).is_ok() {
                    seen.push(interrupts::mask().hart().cpu());
                }
                sched::yield_now();
            }
            seen
        })?;
        ensure_eq!(seen.len(), 20);
        ensure!(seen.iter().all(|&seen| seen == cpu), "a thread of CPU {cpu} ran on {seen:?}");
    }
    Ok(())
}

self_test!(claim 48, quick, a_thread_for_a_hart_that_is_not_up_is_an_error);
fn a_thread_for_a_hart_that_is_not_up_is_an_error() -> Outcome {
    let nowhere = CpuNumber(hart::MAX_CPUS);
    let outcome = thread::spawn_on(nowhere, "nowhere", || ());
    ensure!(matches!(outcome, Err(SpawnError::NotUp(cpu)) if cpu == nowhere));
    Ok(())
}

self_test!(claim 48, every_thread_has_a_number_of_its_own);
fn every_thread_has_a_number_of_its_own() -> Outcome {
    let mut last = thread::current().id();
    for _ in 0..10 {
        let id = spawned(thread::spawn("numbered", || thread::current().id()))?.join();
        ensure!(id > last, "thread {id} came after thread {last}");
        last = id;
    }
    Ok(())
}

self_test!(claim 48, threads_that_are_spawned_at_once_have_numbers_of_their_own);
fn threads_that_are_spawned_at_once_have_numbers_of_their_own() -> Outcome {
    const SPAWNERS: usize = 4;
    const EACH: usize = 16;
    /// Which numbers were seen, from a first one on.
    static SEEN: [AtomicBool; 256] = [const { AtomicBool::new(false) }; 256];
    SEEN.iter().for_each(|seen| seen.store(false, Relaxed));
    let first = spawned(thread::spawn("numbered", || thread::current().id()))?.join();
    let spawn = move || {
        let number = || thread::spawn("numbered", || thread::current().id());
        let numbers = (0..EACH).map_while(|_| number().ok().map(JoinHandle::join));
        numbers.filter(|id| !SEEN[(id - first) % SEEN.len()].swap(true, Relaxed)).count()
    };
    let mut spawners = ArrayVec::<_, SPAWNERS>::new();
    for number in 0..SPAWNERS {
        let cpu = CpuNumber(number % hart::count());
        spawners.push(spawned(thread::spawn_on(cpu, "spawner", spawn))?);
    }
    let new: usize = spawners.into_iter().map(JoinHandle::join).sum();
    ensure_eq!(new, SPAWNERS * EACH);
    Ok(())
}

self_test!(claim 49, quick, threads_that_never_yield_preempt_each_other);
fn threads_that_never_yield_preempt_each_other() -> Outcome {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    const TURNS: usize = 6;
    /// Waits for its turn without giving up the hart: only a preemption lets the other one take its own.
    fn take_turns(parity: usize) {
        loop {
            match TURN.load(Relaxed) {
                TURNS => break,
                turn if turn % 2 == parity => TURN.store(turn + 1, Relaxed),
                _ => spin_loop(),
            }
        }
    }
    TURN.store(0, Relaxed);
    let even = spawned(thread::spawn_on(HERE, "even", || take_turns(0)))?;
    let odd = spawned(thread::spawn_on(HERE, "odd", || {
        take_turns(1);
        thread::current().counts.preemptions.load(Relaxed)
    }))?;
    even.join();
    let preemptions = odd.join();
    ensure_eq!(TURN.load(Relaxed), TURNS);
    ensure!(preemptions > 0, "a thread that never yields was preempted {preemptions} times");
    Ok(())
}

self_test!(claim 50, each_of_n_threads_runs_within_n_ticks);
fn each_of_n_threads_runs_within_n_ticks() -> Outcome {
    const THREADS: usize = 5;
    const TICKS: usize = 25;
    /// How many ticks too long a thread had to wait, at the most.
    static TOO_LONG: AtomicUsize = AtomicUsize::new(0);
    static PREEMPTED: AtomicUsize = AtomicUsize::new(0);
    static BEGIN: AtomicBool = AtomicBool::new(false);
    /// Runs for so many ticks of its hart, and holds the ticks that passed against how often it came to run. It may be taken off again
    /// before it has looked: a late host lets two ticks come in a row.
    fn watch() {
        let counts = &thread::current().counts;
        let look = || {
            let masked = interrupts::mask();
            (masked.hart().timer.ticks.load(Relaxed), counts.switches.load(Relaxed))
        };
        while !BEGIN.load(Relaxed) {
            sched::yield_now();
        }
        let (begun, _) = look();
        let mut last = look();
        while last.0 < begun + TICKS {
            let now = look();
            let allowed = THREADS * (now.1 - last.1);
            TOO_LONG.fetch_max((now.0 - last.0).saturating_sub(allowed.max(1)), Relaxed);
            last = now;
        }
        PREEMPTED.fetch_add(counts.preemptions.load(Relaxed), Relaxed);
    }
    TOO_LONG.store(0, Relaxed);
    PREEMPTED.store(0, Relaxed);
    BEGIN.store(false, Relaxed);
    let mut threads = Vec::new();
    ensure!(threads.try_reserve(THREADS).is_ok());
    for _ in 0..THREADS {
        threads.push(spawned(thread::spawn_on(HERE, "fair", watch))?);
    }
    BEGIN.store(true, Relaxed);
    // From here on they share the hart with nobody: this thread sleeps.
    threads.into_iter().for_each(JoinHandle::join);
    ensure!(PREEMPTED.load(Relaxed) > THREADS, "nobody was preempted");
    ensure_eq!(TOO_LONG.load(Relaxed), 0);
    Ok(())
}

self_test!(claim 50, unexplored, threads_that_yield_take_turns);
fn threads_that_yield_take_turns() -> Outcome {
    const THREADS: usize = 3;
    const ROUNDS: usize = 30;
    static ORDER: AtomicUsize = AtomicUsize::new(0);
    static READY: AtomicUsize = AtomicUsize::new(0);
    static BEGIN: AtomicBool = AtomicBool::new(false);
    /// Counts the rounds in which others than the two came in between.
    fn take_turns() -> usize {
        // No tick may come in between: the order is that of the yields.
        interrupts::disable();
        READY.fetch_add(1, Relaxed);
        while !BEGIN.load(Relaxed) {
            sched::yield_now();
        }
        let mut wrong = 0;
        let mut last = None;
        for _ in 0..ROUNDS {
            let place = ORDER.fetch_add(1, Relaxed);
            wrong += usize::from(last.is_some_and(|last| place != last + THREADS));
            last = Some(place);
            sched::yield_now();
        }
        interrupts::enable();
        wrong
    }
    ORDER.store(0, Relaxed);
    READY.store(0, Relaxed);
    BEGIN.store(false, Relaxed);
    let mut threads = Vec::new();
    ensure!(threads.try_reserve(THREADS).is_ok());
    for _ in 0..THREADS {
        threads.push(spawned(thread::spawn_on(HERE, "in turn", take_turns))?);
    }
    while READY.load(Relaxed) < THREADS {
        sched::yield_now();
    }
    BEGIN.store(true, Relaxed);
    let wrong: usize = threads.into_iter().map(JoinHandle::join).sum();
    ensure_eq!(ORDER.load(Relaxed), THREADS * ROUNDS);
    ensure_eq!(wrong, 0);
    Ok(())
}

self_test!(claim 51, harts 2, an_idle_hart_takes_a_thread_that_waits_elsewhere);
fn an_idle_hart_takes_a_thread_that_waits_elsewhere() -> Outcome {
    static RAN_ON: AtomicUsize = AtomicUsize::new(0);
    for _ in 0..20 {
        RAN_ON.store(usize::MAX, Relaxed);
        let thread = spawned(thread::spawn("to be stolen", || {
            RAN_ON.store(interrupts::mask().hart().cpu().0, Relaxed);
        }))?;
        // This hart stays busy: it neither yields nor sleeps until the thread has run.
        let masked = interrupts::mask();
        while RAN_ON.load(Relaxed) == usize::MAX {
            spin_loop();
        }
        drop(masked);
        thread.join();
        ensure!(RAN_ON.load(Relaxed) != 0, "the thread ran on the hart that was busy");
    }
    Ok(())
}

self_test!(claim 51, harts 2, threads_spread_over_the_harts);
fn threads_spread_over_the_harts() -> Outcome {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    let harts = hart::all().count();
    RUNNING.store(0, Relaxed);
    let mut threads = Vec::new();
    ensure!(threads.try_reserve(harts).is_ok());
    for _ in 0..harts - 1 {
        threads.push(spawned(thread::spawn("spread", move || {
            RUNNING.fetch_add(1, Relaxed);
            // All of them run at the same time, or none comes to an end.
            while RUNNING.load(Relaxed) < harts - 1 {
                spin_loop();
            }
            interrupts::mask().hart().cpu().0
        }))?);
    }
    let mut seen = 0;
    for thread in threads {
        seen |= 1_usize << thread.join();
    }
    ensure!(seen.count_ones() as usize >= (harts - 1).min(2), "they ran on the CPUs {seen:#b}");
    Ok(())
}

self_test!(claim 51, harts 2, a_thread_that_must_stay_is_not_stolen);
fn a_thread_that_must_stay_is_not_stolen() -> Outcome {
    static RAN: AtomicBool = AtomicBool::new(false);
    RAN.store(false, Relaxed);
    // Before it is spawned: it must not run here either.
    let masked = interrupts::mask();
    let thread = spawned(thread::spawn_on(HERE, "stays", || {
        RAN.store(true, Relaxed);
        interrupts::mask().hart().cpu()
    }))?;
    let end = Instant::now().after(Duration::from_millis(20));
    while Instant::now() < end {
        spin_loop();
    }
    let ran_elsewhere = RAN.load(Relaxed);
    drop(masked);
    ensure_eq!(thread.join(), HERE);
    ensure!(!ran_elsewhere, "it ran while its hart was busy");
    Ok(())
}

self_test!(claim 52, whether_interrupts_are_on_belongs_to_the_thread);
fn whether_interrupts_are_on_belongs_to_the_thread() -> Outcome {
    let off = spawned(thread::spawn_on(HERE, "off", || {
        interrupts::disable();
        let mut on = 0;
        for _ in 0..50 {
            sched::yield_now();
            on += usize::from(interrupts::are_enabled());
        }
        interrupts::enable();
        on
    }))?;
    let mut off_here = 0;
    for _ in 0..60 {
        sched::yield_now();
        off_here += usize::from(!interrupts::are_enabled());
    }
    ensure_eq!(off.join(), 0);
    ensure_eq!(off_here, 0);
    Ok(())
}

self_test!(claim 53, a_switch_keeps_the_registers_of_both);
fn a_switch_keeps_the_registers_of_both() -> Outcome {
    fn differences(seed: u64) -> usize {
        let mut before = [0_u64; 12];
        let mut wrong = 0;
        for round in 0..20 {
            for (number, value) in before.iter_mut().enumerate() {
                *value = seed * 0x1_0001 + (round * 100 + number) as u64;
            }
            let mut after = [0_u64; 12];
            yield_with_registers(&before, &mut after);
            // s0 is the frame pointer.
            wrong += (1..12).filter(|&number| after[number] != before[number]).count();
        }
        wrong
    }
    let other = spawned(thread::spawn_on(HERE, "registers", || differences(0x5555)))?;
    let here = differences(0xaaaa);
    ensure_eq!(here, 0);
    ensure_eq!(other.join(), 0);
    Ok(())
}

extern "C" fn yield_here() {
    sched::yield_now();
}

/// Loads s1 to s11 from `before`, yields, and stores them to `after`.
#[unsafe(naked)]
extern "C" fn yield_with_registers(before: &[u64; 12], after: &mut [u64; 12]) {
    naked_asm!(
        "
        addi    sp, sp, -128
        sd      ra, 120(sp)
        sd      s0, 112(sp)
        addi    s0, sp, 128
        .irp    number, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        sd      s\\number, 8*\\number(sp)
        .endr
        sd      a1, 104(sp)
        .irp    number, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        ld      s\\number, 8*\\number(a0)
        .endr
        call    {yield_here}
        ld      a1, 104(sp)
        .irp    number, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        sd      s\\number, 8*\\number(a1)
        .endr
        .irp    number, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        ld      s\\number, 8*\\number(sp)
        .endr
        ld      ra, 120(sp)
        ld      s0, 112(sp)
        addi    sp, sp, 128
        ret
        ",
        yield_here = sym yield_here,
    )
}

self_test!(claim 18, the_switch_has_an_instruction_that_breaks_reservations);
fn the_switch_has_an_instruction_that_breaks_reservations() -> Outcome {
    // What surrounds a switch breaks them anyway (locks are taken and released), so the effect of this one cannot be seen alone.
    const STORE_CONDITIONAL: u32 = 0b00011 << 27 | 10 << 15 | 3 << 12 | 0x2f; // sc.d zero, zero, (a0)
    let Some(switch) = symbols::by_name("kernel::switch::switch") else {
        return Err(Ended::Skipped("the image has no symbols"));
    };
    let mut words = (0..switch.size as usize)
        .step_by(2)
        .map(|offset| probe::read(switch.address as usize + offset).map_or(0, |word| word as u32));
    ensure!(words.any(|word| word == STORE_CONDITIONAL), "the switch keeps a reservation");
    Ok(())
}

self_test!(claim 54, a_thread_that_was_joined_has_left_nothing);
fn a_thread_that_was_joined_has_left_nothing() -> Outcome {
    let thread = spawned(thread::spawn("gone", || thread::current().stack()))?;
    let stack = thread.join();
    ensure!(vm::STACKS.contains(&stack.start));
    for address in stack.step_by(vm::PAGE) {
        ensure!(probe::read(address).is_err(), "{address:#x} of its stack is still mapped");
    }
    Ok(())
}

self_test!(claim 54, threads_in_waves_lose_nothing);
fn threads_in_waves_lose_nothing() -> Outcome {
    const WAVES: usize = 100;
    const IN_A_WAVE: usize = 100;
    static RAN: AtomicUsize = AtomicUsize::new(0);
    RAN.store(0, Relaxed);
    let mut sum = 0;
    let mut threads = Vec::new();
    ensure!(threads.try_reserve(IN_A_WAVE).is_ok());
    for wave in 0..WAVES {
        for number in 0..IN_A_WAVE {
            threads.push(spawned(thread::spawn("in a wave", move || {
                RAN.fetch_add(1, Relaxed);
                wave * IN_A_WAVE + number
            }))?);
        }
        sum += threads.drain(..).map(JoinHandle::join).sum::<usize>();
    }
    ensure_eq!(RAN.load(Relaxed), WAVES * IN_A_WAVE);
    ensure_eq!(sum, (0..WAVES * IN_A_WAVE).sum::<usize>());
    Ok(())
}

self_test!(claim 55, a_thread_without_memory_is_an_error_and_loses_nothing);
fn a_thread_without_memory_is_an_error_and_loses_nothing() -> Outcome {
    let _held = held::all_but_a_sample()?;
    let most = held::nearly_all()?;
    let mut threads = Vec::new();
    let mut refused = None;
    while refused.is_none() && threads.try_reserve(1).is_ok() {
        match thread::spawn_on(HERE, "many", || 1) {
            Ok(thread) => threads.push(thread),
            Err(error) => refused = Some(error),
        }
    }
    let count = threads.len();
    let ran: usize = threads.into_iter().map(JoinHandle::join).sum();
    drop(most);
    ensure_eq!(ran, count);
    ensure!(count > 10, "only {count} threads could be spawned");
    ensure!(matches!(refused, None | Some(SpawnError::NoStack | SpawnError::OutOfMemory)));
    ensure_eq!(spawned(thread::spawn("again", || 5))?.join(), 5);
    Ok(())
}

self_test!(claim 56, what_a_thread_did_is_counted);
fn what_a_thread_did_is_counted() -> Outcome {
    let thread = spawned(thread::spawn_on(HERE, "counted", || {
        let ticks = || HARTS[0].timer.ticks.load(Relaxed);
        let begun = ticks();
        while ticks() < begun + 3 {
            spin_loop();
        }
        for _ in 0..5 {
            sched::yield_now();
        }
        black_box(thread::current())
    }))?;
    // Keeps the hart from being its alone, so that its yields are switches.
    for _ in 0..200 {
        sched::yield_now();
    }
    let counts = &thread.thread().counts;
    let (switches, run_time) = (counts.switches.load(Relaxed), counts.run_time.load(Relaxed));
    let used = stack::most_used(thread.thread().stack());
    thread.join();
    ensure!(switches >= 2, "it came onto a hart {switches} times");
    ensure!(run_time > 0, "it ran for {run_time} ticks of the timebase");
    ensure!((200..STACK_BYTES).contains(&used), "it used {used} bytes of its stack");
    Ok(())
}

self_test!(claim 56, the_time_of_a_thread_never_goes_back);
fn the_time_of_a_thread_never_goes_back() -> Outcome {
    /// Looks at its own time again and again: how often it was less than before.
    fn look() -> usize {
        let this = thread::current();
        let mut last = 0;
        let times = (0..1000).map(|_| {
            let before = last;
            last = this.run_time();
            last < before
        });
        times.filter(|&went_back| went_back).count()
    }
    let first = spawned(thread::spawn_on(HERE, "looks", look))?;
    let second = spawned(thread::spawn_on(HERE, "looks", look))?;
    ensure_eq!(first.join() + second.join(), 0);
    Ok(())
}

self_test!(claim 57, harts 2, joins_across_harts_lose_no_wakeup);
fn joins_across_harts_lose_no_wakeup() -> Outcome {
    const ROUNDS: usize = 50;
    let harts = hart::all().count();
    let mut joiners = Vec::new();
    ensure!(joiners.try_reserve(harts).is_ok());
    for hart in hart::all() {
        let cpu = hart.cpu();
        joiners.push(spawned(thread::spawn_on(cpu, "joiner", move || {
            let mut sum = 0;
            for round in 0..ROUNDS {
                let there = CpuNumber((cpu.0 + 1 + round) % harts);
                let Ok(thread) = thread::spawn_on(there, "joined", move || round) else {
                    return Err(round);
                };
                sum += thread.join();
            }
            Ok(sum)
        }))?);
    }
    for joiner in joiners {
        ensure_eq!(joiner.join(), Ok((0..ROUNDS).sum()));
    }
    Ok(())
}
