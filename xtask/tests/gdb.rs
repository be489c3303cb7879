//! The `gdb` command, used as a person would without a terminal: commands in, what gdb says out.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::Value;
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

    /// Checks that between two such commands gdb said all this, in this order. The second may be missing: up to the end.
    #[track_caller]
    fn says_in_order(&self, word: &str, end: &str, texts: &[&str]) {
        let said = self.after(word);
        let end = format!("\n{end}\n");
        let mut rest = said.split_once(&end).map_or(said, |(said, _)| said);
        for text in texts {
            let found = rest.split_once(text);
            rest = found.unwrap_or_else(|| panic!("`{text}` is not there after {word}: {self}")).1;
        }
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

/// The row of a thread in what `kernel threads` said: state, CPU, hart, and where it is.
fn row<'a>(session: &'a Session, id: &str, name: &str) -> [&'a str; 4] {
    let mut rows = session.output.lines().map(|line| {
        let mut words = line.split_whitespace();
        let words: [&str; 5] = std::array::from_fn(|_| words.next().unwrap_or_default());
        (words, line.rsplit("  ").next().unwrap_or_default())
    });
    let found = rows.find(|(words, _)| words[..2] == [id, name]);
    let Some(([_, _, state, cpu, hart], place)) = found else {
        panic!("thread {id} ({name}) is not listed: {session}")
    };
    [state, cpu, hart, place]
}

#[test]
fn the_kernel_s_threads_are_listed_and_each_has_a_backtrace() {
    let commands = [
        "break kernel::exit::crash",
        "continue",
        "kernel threads",
        "echo blocked\\n",
        "kernel backtrace 1",
        "echo running\\n",
        "kernel backtrace 2",
        "echo idle\\n",
        "kernel backtrace idle 0",
        "echo all\\n",
        "kernel backtrace all",
    ];
    let session = Session::new(&["--smp", "2", "--append", "crash=pagefault,cpu=1"], &commands);
    let [state, cpu, _, place] = row(&session, "1", "main");
    assert_eq!([state, cpu], ["blocked", "0"], "{session}");
    assert!(place.contains("kernel::sched::"), "{place}: {session}");
    assert_eq!(row(&session, "2", "crash")[..2], ["running", "1"], "{session}");
    let waits = ["kernel::crash::run", "kernel::job::run", "kernel::thread::thread_main"];
    session.says_in_order("blocked", "running", &waits);
    // Nothing here calls itself: a walk that begins a frame too early sees somebody twice.
    let said = session.after("blocked").lines().skip_while(|line| !line.starts_with('#'));
    let frames = said.take_while(|line| line.starts_with('#'));
    let functions: Vec<&str> =
        frames.filter_map(|frame| frame.split_once(" in ")?.1.split(" at ").next()).collect();
    let distinct: BTreeSet<&&str> = functions.iter().collect();
    assert!(functions.len() > 3 && distinct.len() == functions.len(), "{session}");
    let fault = ["kernel::exit::crash", "<trap> ", "kernel::crash::kinds::pagefault"];
    session.says_in_order("running", "idle", &fault);
    let idles = ["thread 0 (idle), ", "CPU 0", "kernel::sched::idle"];
    session.says_in_order("idle", "all", &idles);
    let all = ["thread 0 (idle)", "thread 0 (idle)", "thread 1 (main)", "thread 2 (crash)"];
    session.says_in_order("all", "", &all);
}

#[test]
fn a_thread_that_was_preempted_has_a_backtrace_through_the_trap() {
    let test = "test only=threads::threads_that_never_yield_preempt_each_other";
    let commands = [
        "break kernel::sched::preempt_for_another",
        "ignore 2 4",
        "continue",
        "kernel threads",
        "echo all\\n",
        "kernel backtrace all",
    ];
    let session = Session::new(&["--append", test], &commands);
    let ready = session.output.lines().any(|line| line.split_whitespace().nth(2) == Some("ready"));
    assert!(ready, "no thread is ready: {session}");
    let through = [", ready", "kernel::trap::handle", "<trap> ", "kernel::thread::thread_main"];
    session.says_in_order("all", "", &through);
}

#[test]
fn who_sleeps_is_said_to_and_what_is_no_thread_is_an_error() {
    let test = "test only=time::nobody_wakes_before_the_deadline";
    let commands = [
        "break kernel::timer::handle_unusual",
        "continue",
        "kernel threads",
        "kernel backtrace 77",
        "echo still here\\n",
    ];
    let session = Session::new(&["--icount", "--append", test], &commands);
    assert_eq!(row(&session, "1", "main")[0], "sleeping", "{session}");
    assert!(session.messages.contains("there is no thread `77`"), "{session}");
    assert!(!session.output.contains("still here"), "{session}");
}

/// The members of a JSON file of the editor's, as text with its variables replaced.
fn editors(file: &str, port: u16) -> Value {
    let workspace = environment::workspace();
    let text = fs::read_to_string(workspace.join(".vscode").join(file)).expect("it is there");
    let target = environment::target_dir().display().to_string();
    let text = text.replace("${workspaceFolder}/target", &target);
    let text = text.replace("${workspaceFolder}", &workspace.display().to_string());
    serde_json::from_str(&text.replace("1234", &port.to_string())).expect("it is JSON")
}

fn texts(commands: &Value) -> Vec<String> {
    let commands = commands.as_array().expect("there are commands");
    commands.iter().map(|it| it["text"].as_str().expect("each is a text").to_owned()).collect()
}

/// What the editor does: its task starts the machine, its debugger connects, does what the configuration says, and goes on.
#[test]
fn the_editor_s_configuration_stops_at_kernel_main_and_knows_the_threads() {
    // One that is free now. The configuration has the usual one.
    let listener = TcpListener::bind("localhost:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    drop(listener);
    let (launch, tasks) = (editors("launch.json", port), editors("tasks.json", port));
    let configuration = &launch["configurations"][0];
    let tasks = tasks["tasks"].as_array().expect("there are tasks");
    let task = tasks.iter().find(|task| task["label"] == configuration["preLaunchTask"]);
    let task = task.expect("the task that comes first is there");
    let words = task["args"].as_array().expect("it has arguments").iter();
    let words: Vec<&str> = words.map(|word| word.as_str().expect("each is a text")).collect();
    assert_eq!((&task["command"], &words[..3]), (&"cargo".into(), &["run", "--quiet", "--"][..]));
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(&words[3..]).arg(port.to_string());
    let mut machine = Dialog::begin(command);
    let matcher = &task["problemMatcher"]["background"];
    let pattern = matcher["endsPattern"].as_str().expect("it has an end").trim_start_matches('^');
    machine.until(|line| line.starts_with(pattern));

    let debugger = configuration["miDebuggerPath"].as_str().expect("it names a debugger");
    let mut command = Command::new(debugger);
    command.args(["--interpreter=mi", "-nx"]);
    let mut gdb = Dialog::begin(command);
    let setup = texts(&configuration["setupCommands"]);
    let program = configuration["program"].as_str().expect("it names the image");
    let server = configuration["miDebuggerServerAddress"].as_str().expect("it names a port");
    let load =
        [format!("-file-exec-and-symbols {program}"), format!("-target-select remote {server}")];
    let after = texts(&configuration["postRemoteConnectCommands"]);
    for command in setup.iter().chain(&load).chain(&after) {
        gdb.say(command);
        let answer = gdb.until(|line| line.starts_with('^'));
        assert!(!answer.starts_with("^error"), "{command}: {answer}");
    }
    gdb.say("-exec-continue");
    let stopped = gdb.until(|line| line.starts_with("*stopped"));
    assert!(stopped.contains("func=\"kernel_main\""), "{stopped}");
    // With the source, where this machine has it.
    let source = environment::workspace().join("kernel/src/main.rs");
    assert!(stopped.contains(&format!("fullname=\"{}\"", source.display())), "{stopped}");
    gdb.say("kernel threads");
    gdb.until(|line| line.contains("idle") && line.contains("running"));
}

/// A program that is talked to, line by line. Ended when it is dropped.
struct Dialog {
    child: Child,
    lines: Receiver<String>,
    heard: String,
}

impl Dialog {
    fn begin(mut command: Command) -> Dialog {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let output = child.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Until nobody listens any more.
            for line in lines {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Dialog { child, lines, heard: String::new() }
    }

    fn say(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        writeln!(stdin, "{line}").expect("it listens");
    }

    /// The next line for which this holds.
    fn until(&mut self, holds: impl Fn(&str) -> bool) -> String {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|error| panic!("{error}; it said:\n{}", self.heard));
            self.heard += &format!("{line}\n");
            if holds(&line) {
                return line;
            }
        }
    }
}

impl Drop for Dialog {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
