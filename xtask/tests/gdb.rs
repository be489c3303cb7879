//! The `gdb` command, used as a person would without a terminal: commands in, what gdb says out.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use wait_timeout::ChildExt;
use xtask::environment;

/// Kills a hang. Setting gdb up and building the kernel may be a part of it.
const TIMEOUT: Duration = Duration::from_secs(1200);

/// What a session gave.
struct Session {
    code: Option<i32>,
    output: String,
    messages: String,
}

impl Session {
    /// Runs `xtask gdb` with these options, and has gdb run these commands.
    fn new(options: &[&str], commands: &[&str]) -> Session {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("gdb").args(options);
        for word in commands {
            command.args(["--command", word]);
        }
        Session::of(command)
    }

    fn of(mut command: Command) -> Session {
        let folder = tempfile::tempdir().expect("there is room");
        let [output, messages] = ["output", "messages"].map(|name| folder.path().join(name));
        let [stdout, stderr] =
            [&output, &messages].map(|path| File::create(path).expect("there is room"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .expect("xtask starts");
        let status = child.wait_timeout(TIMEOUT).expect("it can be waited for");
        if status.is_none() {
            child.kill().expect("it is there");
            child.wait().expect("it was killed");
        }
        let text = |path: &Path| {
            String::from_utf8_lossy(&fs::read(path).expect("it was made")).into_owned()
        };
        let session = Session {
            code: status.and_then(|status| status.code()),
            output: text(&output),
            messages: text(&messages),
        };
        assert!(status.is_some(), "it hangs: {session}");
        session
    }

    /// What follows a command `echo WORD\n`.
    fn after(&self, word: &str) -> &str {
        let found = self.output.split_once(&format!("{word}\n"));
        found.unwrap_or_else(|| panic!("gdb did not come to {word}: {self}")).1
    }

    /// The functions of the first backtrace in what gdb said, the innermost first.
    fn backtrace(&self) -> Vec<String> {
        let lines = self.output.lines().skip_while(|line| !line.starts_with("#0 "));
        let frames = lines.take_while(|line| line.starts_with('#'));
        let function = |line: &str| {
            let after_number = line.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
            let rest = line.split_once(" in ").map_or(after_number, |(_, rest)| rest);
            rest.split(" (").next().unwrap_or(rest).to_owned()
        };
        let functions: Vec<String> = frames.map(function).collect();
        assert!(!functions.is_empty(), "there is no backtrace: {self}");
        functions
    }

    /// Checks that the backtrace has these functions, in this order, perhaps with others between them.
    #[track_caller]
    fn goes_through(&self, functions: &[&str]) {
        let backtrace = self.backtrace();
        let mut rest = backtrace.iter();
        for function in functions {
            assert!(
                rest.any(|it| it == function),
                "{function} is not there in {backtrace:#?}: {self}"
            );
        }
    }
}

impl std::fmt::Display for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {:?}\n{}\n{}", self.code, self.output, self.messages)
    }
}

/// The first registers in `text`, as `info registers` shows them: name and hexadecimal value.
fn registers(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().skip_while(|line| !line.starts_with("ra "));
    let lines = lines.map(|line| {
        let mut words = line.split_whitespace();
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    });
    lines.take(32).collect()
}

#[test]
fn a_breakpoint_is_hit_by_the_name_that_reports_show() {
    let session = Session::new(&[], &["break kernel::job::run", "continue", "backtrace"]);
    session.goes_through(&["kernel::job::run", "kernel::thread::thread_main"]);
    assert_eq!(session.backtrace().last().unwrap(), "kernel::thread::thread_main", "{session}");
}

#[test]
fn it_begins_at_kernel_main_with_the_source() {
    let session = Session::new(&[], &["backtrace", "info source"]);
    assert_eq!(session.backtrace()[0], "kernel::kernel_main", "{session}");
    let source = environment::workspace().join("kernel/src/main.rs");
    assert!(session.output.contains(&format!("Located in {}", source.display())), "{session}");
}

#[test]
fn a_backtrace_goes_through_a_trap() {
    let commands = ["break kernel::exit::crash", "continue", "backtrace"];
    let session = Session::new(&["--append", "crash=pagefault"], &commands);
    session.goes_through(&[
        "kernel::exit::crash",
        "<trap> kernel::trap::trap_vector",
        "kernel::crash::kinds::pagefault",
        "kernel::crash::run",
        "kernel::job::run",
        "kernel::thread::thread_main",
    ]);
}

#[test]
fn a_machine_that_is_off_can_be_looked_at_and_not_run() {
    let commands = ["continue", "backtrace", "continue", "echo still here\\n"];
    let session = Session::new(&["--append", "crash=pagefault"], &commands);
    session.goes_through(&["kernel::exit::crash", "kernel::crash::kinds::pagefault"]);
    assert!(session.output.contains("has switched the machine off"), "{session}");
    assert!(session.messages.contains("The machine is off."), "{session}");
    assert!(!session.output.contains("still here"), "{session}");
    assert_eq!(session.code, Some(1), "{session}");
}

#[test]
fn a_backtrace_goes_through_a_trap_from_the_emergency_stack() {
    let commands = ["break kernel::exit::crash", "continue", "backtrace"];
    let session = Session::new(&["--append", "crash=bootstack"], &commands);
    session.goes_through(&[
        "<trap> kernel::trap::trap_vector",
        "kernel::crash::kinds::overflow",
        "kernel::crash::kinds::overflow",
        "kernel::crash::kinds::bootstack",
        "kernel::kernel_main",
        "kernel::boot::boot_hart_main",
    ]);
}

/// At the vector's first instruction nothing has been saved yet; nine later sp and t0 are new, and what they were is in
/// other registers; in the report everything is in memory, and the registers are used for something else.
#[test]
fn every_register_of_the_interrupted_code_is_known_throughout_a_trap() {
    let commands = [
        "thbreak kernel::crash::kinds::pagefault",
        "continue",
        "thbreak kernel::trap::trap_vector",
        "continue",
        "echo live\\n",
        "info registers",
        "up",
        "echo at the vector\\n",
        "info registers",
        "stepi 9",
        "up",
        "echo on the new frame\\n",
        "info registers",
        "break kernel::exit::crash",
        "continue",
        "frame function pagefault",
        "echo in the report\\n",
        "info registers",
    ];
    // With interrupts off: the next trap is the fault, and no tick.
    let session = Session::new(&["--append", "crash=pagefault,masked"], &commands);
    let [live, at_the_vector, on_the_new_frame, in_the_report] =
        ["live", "at the vector", "on the new frame", "in the report"]
            .map(|word| registers(session.after(word)));
    assert_eq!(live.len(), 32, "{session}");
    assert_eq!((live[0].0, live[31].0), ("ra", "pc"), "{session}");
    assert_eq!(live[..31], at_the_vector[..31], "{session}");
    assert_ne!(live[31], at_the_vector[31], "{session}");
    assert_eq!(at_the_vector, on_the_new_frame, "{session}");
    assert_eq!(at_the_vector, in_the_report, "{session}");
}

#[test]
fn gdb_sees_every_hart() {
    let commands =
        ["break kernel::job::run", "continue", "info threads", "thread apply all backtrace"];
    let session = Session::new(&["--smp", "2"], &commands);
    for hart in ["(CPU#0 ", "(CPU#1 "] {
        assert!(session.output.contains(hart), "{session}");
    }
    // Both are in the kernel, and gdb knows from where.
    assert!(session.output.contains("kernel::hart::other_hart_main ()"), "{session}");
    assert!(session.output.contains("kernel::thread::thread_main ()"), "{session}");
}

#[test]
fn with_icount_the_kernel_runs_on() {
    let options = ["--icount", "--append", "crash=panic"];
    let commands = ["break kernel::exit::crash", "continue", "backtrace"];
    Session::new(&options, &commands)
        .goes_through(&["kernel::crash::kinds::panic", "kernel::thread::thread_main"]);
}

#[test]
fn the_exit_code_is_gdbs_the_console_is_in_a_file_and_qemu_is_gone() {
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("commands");
    fs::write(&file, "echo from the file\\n\nquit 7\n").expect("there is room");
    let file = file.display().to_string();
    // The guest would go on for ever.
    let commands = ["break kernel::crash::kinds::hang", "continue"];
    let session = Session::new(&["--append", "crash=hang", "--batch", &file], &commands);
    assert_eq!(session.code, Some(7), "{session}");
    session.after("from the file");

    let place = |command: &str| {
        let line = session.messages.lines().find_map(|line| line.split_once(command));
        PathBuf::from(line.unwrap_or_else(|| panic!("`{command}` is not there: {session}")).1)
    };
    let console = fs::read_to_string(place("tail -f ")).expect("the console's file is there");
    assert!(console.contains("\n16-os "), "{console}");

    let sockets =
        place("nc -U ").parent().expect("a socket lies in a folder").display().to_string();
    let processes = Path::new("/proc").read_dir().into_iter().flatten().flatten();
    for process in processes {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(
            !String::from_utf8_lossy(&line).contains(&sockets),
            "QEMU is still there: {process:?}"
        );
    }
    assert!(!Path::new(&sockets).exists(), "{sockets} is still there");
}

#[test]
fn a_command_that_fails_is_the_last() {
    let session = Session::new(&[], &["break no_such_function", "echo still here\\n"]);
    assert_eq!(session.code, Some(1), "{session}");
    assert!(session.messages.contains("\"no_such_function\" not defined"), "{session}");
    assert!(!session.output.contains("still here"), "{session}");
}

#[test]
fn what_qemu_does_not_take_is_a_wrong_command_line() {
    let session = Session::new(&["--cpu", "no-such-cpu"], &["continue"]);
    assert_eq!(session.code, Some(2), "{session}");
    assert!(session.messages.contains("no-such-cpu"), "{session}");
}

/// On a machine with everything but gdb, where nothing may be installed.
#[test]
fn without_gdb_one_message_says_how_to_get_it() {
    let environment = environment::require().unwrap_or_else(|missing| panic!("{missing}"));
    let folder = tempfile::tempdir().expect("there is room");
    let [bin, target] = ["bin", "target/debug"].map(|name| folder.path().join(name));
    [&bin, &target].iter().for_each(|folder| fs::create_dir_all(folder).expect("there is room"));
    // A target directory of its own: what xtask remembers there is not the real machine's.
    fs::write(folder.path().join("target/CACHEDIR.TAG"), "").expect("there is room");
    let xtask = target.join("xtask");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_xtask")).arg(&xtask).status();
    assert!(copied.expect("there is cp").success());
    let compiler = &environment.compiler;
    let programs = [
        ("qemu-system-riscv64", Some(&environment.qemu.program)),
        ("rustc", Some(&compiler.rustc)),
        ("ld.lld", environment.linker.as_ref()),
    ];
    for (name, program) in programs {
        if let Some(program) = program {
            symlink(program, bin.join(name)).expect("a link can be made");
        }
    }
    let mut command = Command::new(&xtask);
    command.args(["gdb", "--command", "quit"]);
    command.env("PATH", &bin).env("OS16_NO_INSTALL", "1").env("CARGO", &environment.cargo);
    let session = Session::of(command);
    assert_eq!(session.code, Some(2), "{session}");
    assert_eq!(session.messages.matches("error:").count(), 1, "{session}");
    assert!(session.messages.contains("this machine lacks a gdb that knows RISC-V."), "{session}");
    // The command for this system, or the names of the programs that would do.
    assert!(session.messages.matches("gdb").count() > 1, "{session}");
    assert_eq!(session.output, "");
}
