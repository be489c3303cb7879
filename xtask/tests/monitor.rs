//! The monitor, by scripts over the serial line.

mod common;

use std::time::{Duration, Instant};

use common::{bench, boot, run};
use object::{Object, ObjectSection};
use xtask::qemu::{Boot, Exit, Outcome};

/// Boots with these bytes typed at the console. An empty line goes first: the firmware may lose what is typed before it
/// has set up the line.
fn typed(harts: u32, bytes: &[u8]) -> Outcome {
    let input = [b"\r", bytes].concat();
    let append = "monitor".to_owned();
    run(&Boot { harts, append, input: Some(input), ..boot() })
}

/// Boots with these lines typed, and then `power off`; it must pass.
fn session(harts: u32, lines: &[&str]) -> Outcome {
    let mut input: Vec<u8> = lines.iter().flat_map(|line| line.bytes().chain([b'\r'])).collect();
    input.extend(b"power off\r");
    let outcome = typed(harts, &input);
    passes(&outcome);
    outcome
}

fn passes(outcome: &Outcome) {
    assert_eq!(outcome.exit, Exit::Code(0), "{}", outcome.output);
    assert_eq!(
        outcome.output.trim_end().lines().last(),
        Some("verdict: pass"),
        "{}",
        outcome.output
    );
}

/// What the first such command said: up to the next prompt.
fn answer<'a>(outcome: &'a Outcome, command: &str) -> &'a str {
    let output = &outcome.output;
    let prompt = format!("> {command}\r\n");
    let (_, after) = output
        .split_once(&prompt)
        .unwrap_or_else(|| panic!("'{command}' was not echoed:\n{output}"));
    after.split_once("> ").map_or(after, |(answer, _)| answer)
}

#[track_caller]
fn says(outcome: &Outcome, command: &str, texts: &[&str]) {
    let answer = answer(outcome, command);
    for text in texts {
        assert!(answer.contains(text), "'{command}' does not say '{text}':\n{answer}");
    }
}

#[test]
fn threads_harts_and_memory_are_shown() {
    let outcome = session(
        2,
        &[
            "threads",
            "backtrace 1",
            "backtrace 77",
            "backtrace idle 0",
            "backtrace idle 9",
            "memory",
            "heap",
            "map",
            "interrupts",
            "locks",
            "timers",
            "trace\r",
            "trace on",
            "trace off",
        ],
    );
    says(&outcome, "threads", &["idle ", "main ", "running", "preempted"]);
    says(&outcome, "backtrace 1", &["kernel::monitor::run", "kernel::thread::thread_main"]);
    says(&outcome, "backtrace 77", &["there is no thread 77"]);
    // CPU 0 runs the monitor, so that its idle thread does not run.
    says(&outcome, "backtrace idle 0", &["kernel::sched::idle", "kernel::boot::boot_hart_main"]);
    says(&outcome, "backtrace idle 9", &["no such CPU is up"]);
    says(&outcome, "memory", &["bank         0x0080000000..0x0088000000", "usable", "page tables"]);
    says(&outcome, "heap", &["block bytes", "2048"]);
    says(&outcome, "map", &["R-X", "kernel text", "the UART", "a stack", "16 KiB"]);
    says(&outcome, "interrupts", &["CPU 0", "CPU 1", "longest off"]);
    says(&outcome, "interrupts", &["the UART: "]);
    says(
        &outcome,
        "locks",
        &["0 spin locks are held", "0 mutexes are held", "run queue", "kernel/src/sched.rs:"],
    );
    says(
        &outcome,
        "trace",
        &["CPU 0: ", "CPU 1: ", "takes an interrupt: external", "has taken it"],
    );
    says(&outcome, "timers", &["CPU 0: fires in", "CPU 1"]);
    says(&outcome, "trace on", &["is printed"]);
    says(&outcome, "trace off", &["is not printed"]);
}

#[test]
fn text_that_is_read_is_the_files() {
    let outcome = session(1, &["peek 0xffffffff80200000 256"]);
    let file = std::fs::read(&bench().image.elf).expect("the image can be read");
    let file = object::File::parse(file.as_slice()).expect("the image is an ELF file");
    let text = file.section_by_name(".text").expect("the image has text");
    assert_eq!(text.address(), 0xffff_ffff_8020_0000);
    let expected = &text.data().expect("the text is in the file")[..256];
    let shown: Vec<u8> = answer(&outcome, "peek 0xffffffff80200000 256")
        .lines()
        .flat_map(|line| line.split_whitespace().skip(1).take(16))
        .map(|byte| u8::from_str_radix(byte, 16).expect("a byte has two digits"))
        .collect();
    assert_eq!(shown, expected);
}

#[test]
fn what_is_written_is_read_again_and_what_cannot_be_is_a_fault() {
    const PLACE: &str = "kernel::monitor::memory::PLAYGROUND";
    let [poke, poke_byte, peek] = [
        format!("poke {PLACE} 0x1122334455667788"),
        format!("poke {PLACE} 0xff 1"),
        format!("peek {PLACE} 16"),
    ];
    let lines = [
        &poke,
        &poke_byte,
        &peek,
        "peek 0 8",
        "poke 0 1",
        "poke 0xffffffff80200000 0",
        "walk 0x1000",
        "walk 0x8000000000000000",
        "walk 0xffffffff80200000",
        "symbol PLAYGROUND",
        "symbol 0xffffffff80200000",
    ];
    let outcome = session(1, &lines);
    says(&outcome, &poke, &["are 0x1122334455667788 now"]);
    says(&outcome, &peek, &["ff 77 66 55 44 33 22 11 00"]);
    says(&outcome, "peek 0 8", &["load page fault at 0x0: near null"]);
    says(&outcome, "poke 0 1", &["store page fault at 0x0: near null"]);
    says(&outcome, "poke 0xffffffff80200000 0", &["store page fault", "kernel text"]);
    says(&outcome, "walk 0x1000", &["level 2", "nothing", "0x1000 is not mapped"]);
    says(&outcome, "walk 0x8000000000000000", &["is not canonical"]);
    let walk = ["level 2", "level 1", "level 0", "page R-X at", "physical 0x80200000"];
    says(&outcome, "walk 0xffffffff80200000", &walk);
    says(&outcome, "symbol PLAYGROUND", &[PLACE, "64 bytes"]);
    says(&outcome, "symbol 0xffffffff80200000", &["in kernel text"]);
}

#[test]
fn a_wrong_argument_is_named() {
    let wrong = [
        ("frob", "no command is called 'frob'; `help` lists them"),
        ("help frob", "COMMAND is 'frob', not the name of a command"),
        ("peek", "ADDRESS is missing"),
        ("peek no_such_symbol", "ADDRESS is 'no_such_symbol', not a number or the name"),
        ("peek 0 5000", "BYTES is 5000, not between 1 and 4096"),
        ("peek 0 8 x", "'x' is one argument too many"),
        ("poke 0", "VALUE is missing"),
        ("poke 0 x", "VALUE is 'x', no number"),
        ("poke 0 256 1", "VALUE is 256, not between 0 and 255"),
        ("poke 4 1", "0x4 is not a multiple of 8"),
        ("poke 0 1 2", "SIZE is '2', not 1 or 8"),
        ("backtrace x", "THREAD is 'x', no number"),
        ("backtrace 0", "THREAD is '0', not above 0"),
        ("threads 1 2 3 4 5 6 7 8 9", "'9' is one argument too many"),
        ("threads -v", "no command has options"),
        ("test no::such", "no test is called 'no::such'"),
        ("crash boom", "crash=boom is no kind of crash; there are panic"),
        ("crash panic,cpu=7", "CPU 7 is not up"),
        ("crash panic,x", "OPTION is 'x', not cpu=N"),
        ("crash bootstack", "happens at boot"),
        ("power on", "argument is 'on', not off"),
        ("bench no", "no benchmark is called 'no'"),
        // Time does not go with the instructions here.
        ("bench spin_lock", "nothing can be measured: rdinstret counts something else"),
    ];
    let outcome = session(1, &wrong.map(|(line, _)| line));
    for (line, complaint) in wrong {
        says(&outcome, line, &[complaint]);
    }
}

#[test]
fn benchmarks_are_listed_and_measured_by_name() {
    let input = Some(b"\rbench\rbench trap*\rpower off\r".to_vec());
    let append = "monitor".to_owned();
    let boot = Boot { append, input, icount: true, ..Boot::new(&bench().image.elf) };
    let outcome = boot.run(&bench().environment).expect("QEMU starts");
    passes(&outcome);
    says(&outcome, "bench", &["spin_lock\n", "trap\n", "free_frames\n"]);
    let measured = answer(&outcome, "bench trap*").split_ascii_whitespace();
    let count: Vec<f64> = measured.filter_map(|word| word.parse().ok()).collect();
    let [mean, least, greatest] = count[..] else { panic!("{}", outcome.output) };
    assert!(0.0 < least && least <= mean && mean <= greatest, "{}", outcome.output);
}

#[test]
fn lines_are_edited_remembered_and_completed() {
    let lines = [
        "peek 0 8",
        "hexp\x7f\x7f\x08eap",
        "\x1b[A\x1b[A",
        "mem\t",
        "half a line\x03walk 0x1000",
        "thread\x1b[D\x1b[D\x1b[C\x1b[C\x1b[D\x1b[C\x1b[Cs 1",
    ];
    let outcome = session(1, &lines);
    let faults = outcome.output.matches("load page fault at 0x0").count();
    assert_eq!(faults, 2, "the arrow upwards brings no line back:\n{}", outcome.output);
    assert_eq!(outcome.output.matches("block bytes").count(), 1, "{}", outcome.output);
    says(&outcome, "memory ", &["usable"]);
    says(&outcome, "walk 0x1000", &["0x1000 is not mapped"]);
    assert!(outcome.output.contains("'1' is one argument too many"), "{}", outcome.output);
}

#[test]
fn a_long_answer_waits_for_a_key_after_each_screen() {
    // One key goes on, the other is enough.
    let outcome = session(1, &["symbol kernel::\r\rq", "heap"]);
    assert_eq!(outcome.output.matches("-- more --").count(), 2, "{}", outcome.output);
    let symbols = answer(&outcome, "symbol kernel::");
    let shown = symbols.lines().filter(|line| line.contains(" bytes  ")).count();
    assert_eq!(shown, 2 * 23, "{symbols}");
    says(&outcome, "heap", &["block bytes"]);
}

#[test]
fn a_test_by_name_gives_its_result_and_the_prompt_again() {
    let name = "test boot::every_hart_has_the_entry_state";
    let outcome = session(2, &[name, "test heap::*", "threads"]);
    says(&outcome, name, &["... ok", "1 passed, 0 failed"]);
    says(&outcome, "test heap::*", &[" 0 failed"]);
    says(&outcome, "threads", &["main"]);
}

#[test]
fn a_self_test_that_failed_here_makes_the_run_fail() {
    // The kernel has room for 8 harts, and a test finds that out.
    let outcome = typed(9, b"test boot::every_hart_of_the_tree_is_up\rpower off\r");
    assert_eq!(outcome.exit, Exit::Code(1), "{}", outcome.output);
    let end = outcome.output.trim_end();
    assert!(
        end.ends_with("verdict: fail: 1 self-tests or benchmarks in the monitor"),
        "{}",
        outcome.output
    );
}

#[test]
fn what_is_typed_while_the_kernel_boots_is_all_read() {
    // More than the kernel has room for: the rest waits in the UART.
    let addresses: Vec<String> = (1..200).map(|page| format!("{:#x}", page * 0x1000)).collect();
    let lines: Vec<String> = addresses.iter().map(|address| format!("walk {address}")).collect();
    let outcome = session(1, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let answers = outcome.output.lines().filter_map(|line| line.strip_suffix(" is not mapped"));
    assert_eq!(answers.collect::<Vec<_>>(), addresses);
}

#[test]
fn a_crash_by_name_is_one() {
    let outcome = typed(1, b"crash panic\r");
    assert_eq!(outcome.exit, Exit::Code(3), "{}", outcome.output);
    assert!(outcome.output.contains("kernel::monitor::run"), "{}", outcome.output);
    assert!(outcome.output.trim_end().lines().last().unwrap().starts_with("verdict: crash: "));
}

#[test]
fn a_reboot_leaves_the_machine() {
    let outcome = typed(1, b"reboot\r");
    assert_eq!(outcome.exit, Exit::Code(0), "{}", outcome.output);
    assert!(outcome.output.trim_end().ends_with("verdict: pass: reboot"), "{}", outcome.output);
}

/// Bytes of each round of [`no_bytes_crash_it_or_hang_it`].
const ROUND: usize = 100_000;

/// Any bytes at all, and then keys that edit and commands that harm nobody; the same for the same seed.
fn typed_blindly(seed: u64) -> Vec<u8> {
    const KEYS: &[u8] = b"\x1b[ABCD\x08\x7f\t\r\rmhepai \"\\\xc3";
    let mut state = seed;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as usize
    };
    let mut input: Vec<u8> = (0..ROUND / 2).map(|_| next() as u8).collect();
    input.extend((0..ROUND / 2).map(|_| KEYS[next() % KEYS.len()]));
    input
}

/// Three rounds; for more: `OS16_FUZZ_SECONDS=60 cargo test -p xtask --test monitor no_bytes`.
#[test]
fn no_bytes_crash_it_or_hang_it() {
    let seconds = std::env::var("OS16_FUZZ_SECONDS").ok().and_then(|word| word.parse().ok());
    let begun = Instant::now();
    let more = |round| match seconds {
        Some(seconds) => begun.elapsed() < Duration::from_secs(seconds),
        None => round < 3,
    };
    for round in (0..).take_while(|round| more(*round)) {
        let seed = 0x16_0516 + round;
        let mut input = typed_blindly(seed);
        // A question at the end of a screen takes the first.
        input.extend(b"\x03\x03a line that is given up\x03peek 0 8\rpower off\r");
        let outcome = typed(1 + round as u32 % 2, &input);
        eprintln!("seed {seed:#x}: {} bytes answered", outcome.output.len());
        passes(&outcome);
        assert_eq!(answer(&outcome, "peek 0 8"), "load page fault at 0x0: near null\n");
    }
}
