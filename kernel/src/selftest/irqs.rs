//! Interrupts of devices, and the console that lives by them. The UART's own loop leads what it sends back into its receiver: nothing
//! of it is seen outside.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use arrayvec::ArrayVec;

use super::{Ended, Outcome, ensure, ensure_eq, self_test, spawned};
use crate::console::{self, LINE, print, println};
use crate::hart::{self, CpuNumber};
use crate::irq::{self, probing};
use crate::thread;
use crate::uart::{self, Registers};
use crate::{interrupts, platform, sched, timer};

const NO_INTERRUPTS: Ended = Ended::Skipped("the UART does not interrupt");
const NO_LOOP: Ended = Ended::Skipped("the UART cannot loop back what it sends");

/// The UART's number at the interrupt controller.
fn source() -> Result<u16, Ended> {
    let interrupt = platform::machine().and_then(|machine| machine.uart?.interrupt);
    interrupt.map(|interrupt| interrupt.number).ok_or(NO_INTERRUPTS)
}

/// While it lives, what the UART sends comes back. Made when everything printed is out.
struct Looped(Registers);

impl Looped {
    fn begin() -> Result<Looped, Ended> {
        let uart = console::uart().ok_or(NO_INTERRUPTS)?;
        let _line = LINE.lock();
        console::drain();
        if uart.loop_back(true) { Ok(Looped(uart)) } else { Err(NO_LOOP) }
    }

    /// Sends one byte past the ring.
    fn send(&self, byte: u8) {
        let _line = LINE.lock();
        self.0.send(byte);
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        let _line = LINE.lock();
        console::drain();
        self.0.loop_back(false);
        self.0.set_interrupts(true);
    }
}

/// Waits until it holds; a test that waits in vain fails.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    for _ in 0..5_000 {
        if holds() {
            return true;
        }
        timer::sleep(Duration::from_millis(1));
    }
    holds()
}

/// Forgets what has been received.
fn forget_received() {
    while console::try_read().is_some() {}
}

self_test!(claim 90, every_hart_takes_interrupts_in_its_own_context);
fn every_hart_takes_interrupts_in_its_own_context() -> Outcome {
    let source = source()?;
    // With several controllers a hart may have its context in another.
    let takes_it = |cpu: &CpuNumber| irq::context(*cpu).is_some();
    for target in hart::all().map(|hart| hart.cpu()).filter(takes_it) {
        let looped = Looped::begin()?;
        ensure_eq!(irq::route(source, target), Ok(()));
        let others = || {
            let others = hart::all().map(|hart| hart.cpu()).filter(|cpu| *cpu != target);
            others.map(irq::taken).sum::<usize>()
        };
        let (before_others, counted) = (others(), irq::count(source));
        let mut came = true;
        for _ in 0..8 {
            let before = irq::taken(target);
            looped.send(b'x');
            came = came && until(|| irq::taken(target) > before);
        }
        let (by_others, counted) = (others() - before_others, irq::count(source) - counted);
        let routed = irq::route(source, CpuNumber(0));
        // The next interrupt comes when the last is done with, on whichever hart: the next test may do as it likes.
        let before = irq::taken(CpuNumber(0));
        looped.send(b'x');
        let done = until(|| irq::taken(CpuNumber(0)) > before);
        drop(looped);
        ensure_eq!(routed, Ok(()));
        ensure!(done, "the source does not come back to CPU 0");
        ensure!(came, "CPU {target} took no interrupt");
        ensure_eq!(by_others, 0);
        ensure!(counted > 0, "the source was not counted");
        ensure!(until(|| console::try_read() == Some(b'x')), "the byte was lost");
    }
    forget_received();
    Ok(())
}

self_test!(claim 91, a_claim_of_nothing_is_harmless);
fn a_claim_of_nothing_is_harmless() -> Outcome {
    let source = source()?;
    let looped = Looped::begin()?;
    let masked = interrupts::mask();
    // What is pending now, if anything.
    irq::handle(masked.hart());
    let before = irq::count(source);
    let claimed = probing::claim(masked.hart().cpu());
    irq::handle(masked.hart());
    let after = irq::count(source);
    drop(masked);
    looped.send(b'y');
    let came = until(|| irq::count(source) > before);
    drop(looped);
    forget_received();
    ensure_eq!(claimed, None);
    ensure_eq!(after, before);
    ensure!(came, "no interrupt came after that");
    Ok(())
}

self_test!(claim 91, a_source_without_a_handler_is_switched_off);
fn a_source_without_a_handler_is_switched_off() -> Outcome {
    let source = source()?;
    let looped = Looped::begin()?;
    // Another hart, to which the source went before, may not have completed it yet: nothing can be claimed until then.
    let before = irq::count(source);
    looped.send(b'y');
    let came = until(|| irq::count(source) > before);
    let masked = interrupts::mask();
    irq::handle(masked.hart());
    let handler = probing::forget(source).ok_or(NO_INTERRUPTS)?;
    let before = irq::count(source);
    looped.send(b'z');
    irq::handle(masked.hart());
    let first = irq::count(source) - before;
    for byte in *b"zz" {
        looped.send(byte);
        irq::handle(masked.hart());
    }
    let all = irq::count(source) - before;
    let registered = irq::register(source, handler);
    drop(masked);
    drop(looped);
    forget_received();
    ensure!(came, "no interrupt came before that");
    ensure_eq!(registered, Ok(()));
    ensure_eq!(first, 1);
    ensure_eq!(all, 1);
    Ok(())
}

self_test!(claim 92, the_uart_asks_for_nothing_when_everything_is_done);
fn the_uart_asks_for_nothing_when_everything_is_done() -> Outcome {
    let source = source()?;
    let looped = Looped::begin()?;
    let before = irq::count(source);
    looped.send(b'x');
    let came = until(|| irq::count(source) > before);
    let asks = {
        let _line = LINE.lock();
        looped.0.acknowledge()
    };
    drop(looped);
    forget_received();
    ensure!(came, "no interrupt came");
    ensure!(!asks, "the UART asks for something that was done");
    Ok(())
}

/// Text that gives the other threads their turn while it is written.
struct Long(usize);

/// The byte at a place of it.
fn byte_at(place: usize) -> u8 {
    b'!' + (place * 7 + place / 90) as u8 % 90
}

impl fmt::Display for Long {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for start in (0..self.0).step_by(200) {
            let bytes: [u8; 200] = core::array::from_fn(|offset| byte_at(start + offset));
            f.write_str(core::str::from_utf8(&bytes).unwrap_or_default())?;
            sched::yield_now();
        }
        Ok(())
    }
}

self_test!(claim 93, unexplored, a_long_message_goes_out_whole_and_in_order);
fn a_long_message_goes_out_whole_and_in_order() -> Outcome {
    const BYTES: usize = 10_000;
    forget_received();
    let looped = Looped::begin()?;
    let overruns = uart::overruns();
    let reader = spawned(thread::spawn_on(CpuNumber(0), "reads", || {
        (0..BYTES).find(|place| console::read() != byte_at(*place))
    }))?;
    print!("{}", Long(BYTES));
    let wrong = reader.join();
    drop(looped);
    ensure_eq!(uart::overruns() - overruns, 0);
    ensure_eq!(wrong, None);
    Ok(())
}

self_test!(claim 93, who_prints_sleeps_while_the_ring_is_full);
fn who_prints_sleeps_while_the_ring_is_full() -> Outcome {
    let looped = Looped::begin()?;
    looped.0.set_interrupts(false);
    static IS_PRINTED: AtomicBool = AtomicBool::new(false);
    IS_PRINTED.store(false, Relaxed);
    let printer = spawned(thread::spawn_on(CpuNumber(0), "prints", || {
        print!("{}", Long(10_000));
        IS_PRINTED.store(true, Relaxed);
    }))?;
    // The thread runs until there is no room, and this one goes on all the same.
    let filled = until(|| console::unsent() >= 2_000);
    timer::sleep(Duration::from_millis(50));
    let waits = !IS_PRINTED.load(Relaxed);
    looped.0.set_interrupts(true);
    printer.join();
    let left = until(|| console::unsent() == 0);
    drop(looped);
    forget_received();
    ensure!(filled, "the ring did not fill");
    ensure!(waits, "who printed did not wait for room");
    ensure!(left, "the ring did not empty");
    Ok(())
}

self_test!(claim 103, who_prints_amid_another_s_text_begins_a_line);
fn who_prints_amid_another_s_text_begins_a_line() -> Outcome {
    const EXPECTED: &[u8] = b"first half\nverdict\nsecond half\n";
    /// Text in whose middle somebody prints who does not wait for a turn.
    struct Interrupted;
    impl fmt::Display for Interrupted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("first half")?;
            let masked = interrupts::mask();
            println!("verdict");
            drop(masked);
            f.write_str("second half")
        }
    }
    forget_received();
    let looped = Looped::begin()?;
    println!("{Interrupted}");
    let mut found = ArrayVec::<u8, 64>::new();
    let whole = until(|| {
        while let Some(byte) = console::try_read() {
            found.push(byte);
        }
        found.len() >= EXPECTED.len()
    });
    drop(looped);
    forget_received();
    ensure!(whole, "only {} bytes came", found.len());
    ensure_eq!(found.as_slice(), EXPECTED);
    Ok(())
}

#[cfg(feature = "interrupts_off")]
self_test!(claim 94, icount, a_long_message_holds_interrupts_off_for_a_piece_at_a_time);
#[cfg(feature = "interrupts_off")]
fn a_long_message_holds_interrupts_off_for_a_piece_at_a_time() -> Outcome {
    // 3,100 in this build, 8,100 where it is compiled in pieces (faults are); far more where one handler sends it all.
    const MOST: u64 = 10_000;
    let looped = Looped::begin()?;
    let text = [b'-'; 1_000];
    let text = core::str::from_utf8(&text).unwrap_or_default();
    interrupts::forget_longest_off();
    let begun = riscv::register::instret::read64();
    print!("{text}{text}{text}{text}{text}{text}{text}{text}{text}{text}");
    let ended = riscv::register::instret::read64();
    let longest = interrupts::longest_off();
    drop(looped);
    forget_received();
    let Some((_, longest)) = longest else {
        ensure!(false, "nothing was measured");
        return Ok(());
    };
    super::note(format_args!(
        "10000 bytes in {} instructions, interrupts off for {} at the most, {}",
        ended - begun,
        longest.instructions,
        longest.site
    ));
    ensure!(
        longest.instructions <= MOST,
        "interrupts were off for {} instructions: {:?}",
        longest.instructions,
        longest.site
    );
    Ok(())
}

self_test!(claim 95, what_is_received_is_read_in_order_and_waits_in_the_uart_for_room);
fn what_is_received_is_read_in_order_and_waits_in_the_uart_for_room() -> Outcome {
    const ROOM: usize = 1024;
    /// What the UART itself has room for.
    const MORE: usize = 16;
    forget_received();
    let looped = Looped::begin()?;
    let before = uart::overruns();
    for place in 0..ROOM + MORE {
        let came = irq::count(source()?);
        looped.send(byte_at(place));
        if !until(|| irq::count(source().unwrap_or(0)) > came) {
            break;
        }
    }
    let overruns = uart::overruns() - before;
    let wrong = (0..ROOM + MORE).find(|place| console::try_read() != Some(byte_at(*place)));
    // The UART interrupts again for what it receives.
    looped.send(b'x');
    let came = until(|| console::try_read() == Some(b'x'));
    drop(looped);
    forget_received();
    ensure_eq!(overruns, 0);
    ensure_eq!(wrong, None);
    ensure!(came, "nothing is received after the ring was full");
    Ok(())
}

self_test!(claim 95, what_was_typed_before_the_uart_interrupts_is_kept);
fn what_was_typed_before_the_uart_interrupts_is_kept() -> Outcome {
    forget_received();
    let looped = Looped::begin()?;
    let masked = interrupts::mask();
    looped.0.set_interrupts(false);
    for byte in *b"typed early" {
        looped.send(byte);
    }
    let mut kept = ArrayVec::<u8, 16>::new();
    looped.0.begin_interrupts(|byte| kept.push(byte));
    drop(masked);
    drop(looped);
    ensure_eq!(kept.as_slice(), b"typed early");
    Ok(())
}

self_test!(claim 95, an_overrun_of_the_uart_is_counted);
fn an_overrun_of_the_uart_is_counted() -> Outcome {
    forget_received();
    let looped = Looped::begin()?;
    let before = uart::overruns();
    let masked = interrupts::mask();
    // More than any FIFO of this family has room for, and no handler between.
    for place in 0..300 {
        looped.send(byte_at(place));
    }
    drop(masked);
    drop(looped);
    let counted = until(|| uart::overruns() > before);
    let first = console::try_read();
    forget_received();
    ensure!(counted, "an overrun was not counted");
    ensure_eq!(first, Some(byte_at(0)));
    Ok(())
}

self_test!(claim 96, a_uart_that_takes_nothing_does_not_hang_the_kernel);
fn a_uart_that_takes_nothing_does_not_hang_the_kernel() -> Outcome {
    // Memory in place of its registers: they say that there is no room, whichever kind it is.
    const FULL: u64 = 0x8000_0000_8000_0000;
    static REGISTERS: [AtomicU64; 16] = [const { AtomicU64::new(FULL) }; 16];
    let described = platform::machine().and_then(|machine| machine.uart).ok_or(NO_INTERRUPTS)?;
    let stuck = Registers::new((&raw const REGISTERS).addr(), &described).ok_or(NO_INTERRUPTS)?;
    let before = uart::given_up();
    for byte in *b"abc" {
        stuck.send(byte);
    }
    let given_up = uart::given_up() - before;
    // The one that works is waited for again.
    console::drain();
    ensure_eq!(given_up, 3);
    ensure_eq!(REGISTERS[0].load(Relaxed), FULL);
    Ok(())
}
