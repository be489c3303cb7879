//! Describes a boot and runs it: a [`Boot`] gives an [`Outcome`].
//!
//! QEMU does not outlive xtask. On Linux each is started with the operating system's promise to kill it when the thread
//! that started it ends, however it ends; elsewhere Ctrl-C reaches it as a member of the terminal's foreground group.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use wait_timeout::ChildExt;

use crate::environment::{Environment, Qemu};

/// One boot of the kernel in QEMU.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The kernel's ELF file.
    pub image: PathBuf,
    /// QEMU's machine, with its options: `virt`, `virt,aclint=on`.
    pub machine: String,
    /// QEMU's CPU, with its options; `None` for the machine's own choice.
    pub cpu: Option<String>,
    /// How many harts.
    pub harts: u32,
    /// How much memory, in QEMU's notation: `128M`.
    pub memory: String,
    /// The kernel's command line.
    pub append: String,
    /// One instruction is one nanosecond of guest time: the same boot is then the same run.
    pub icount: bool,
    /// After how long without an end the boot counts as hung.
    pub timeout: Duration,
    /// More arguments for QEMU.
    pub extra: Vec<String>,
    /// What QEMU loads as firmware instead of its own.
    pub firmware: Option<PathBuf>,
    /// Whether the machine can end QEMU. If it cannot, QEMU is ended when the verdict is out.
    pub ends_itself: bool,
    /// What is typed at the console, at once, from the start.
    pub input: Option<Vec<u8>>,
}

impl Boot {
    /// The time-out of a boot that says nothing else: generous, because the host may be busy.
    pub const TIMEOUT: Duration = Duration::from_secs(120);

    /// A boot of `image` on `virt` with 1 hart and 128 MiB.
    pub fn new(image: impl Into<PathBuf>) -> Boot {
        Boot {
            image: image.into(),
            machine: "virt".to_owned(),
            cpu: None,
            harts: 1,
            memory: "128M".to_owned(),
            append: String::new(),
            icount: false,
            timeout: Boot::TIMEOUT,
            extra: Vec::new(),
            firmware: None,
            ends_itself: true,
            input: None,
        }
    }

    /// QEMU's arguments that say what is booted; those that say where input and output go are not among them.
    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));
        add(&["-machine", &self.machine]);
        if let Some(cpu) = &self.cpu {
            add(&["-cpu", cpu]);
        }
        add(&["-smp", &self.harts.to_string(), "-m", &self.memory]);
        if self.icount {
            add(&["-icount", "shift=0,sleep=off"]);
        }
        let firmware = self.firmware.as_ref().map(|file| file.display().to_string());
        let firmware = firmware.as_deref().unwrap_or("default");
        add(&["-display", "none", "-no-reboot", "-bios", firmware]);
        add(&["-kernel", &self.image.display().to_string()]);
        if !self.append.is_empty() {
            add(&["-append", &self.append]);
        }
        arguments.extend(self.extra.iter().cloned());
        arguments
    }

    /// A line for a shell that boots the same, with the console on the terminal.
    pub fn command_line(&self) -> String {
        let program = "qemu-system-riscv64".to_owned();
        let console = ["-serial", "mon:stdio"].map(str::to_owned);
        let words = [program].into_iter().chain(self.arguments()).chain(console);
        words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
    }

    /// Boots and waits for the end; where that does not come in time, finds out where every hart is and kills QEMU.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn run(&self, environment: &Environment) -> Result<Outcome, Error> {
        self.run_watched(environment, |_| ControlFlow::Continue(()))
    }

    /// Like [`run`](Boot::run), and calls `watch` with each piece of output as it comes. Once that breaks, the time is
    /// up: it is for boots that are to hang.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn run_watched(
        &self,
        environment: &Environment,
        mut watch: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    ) -> Result<Outcome, Error> {
        let mut has_verdict = until_verdict();
        let watch = |piece: &[u8]| {
            let flow = watch(piece);
            let is_over = !self.ends_itself && has_verdict(piece).is_break();
            if is_over { ControlFlow::Break(()) } else { flow }
        };
        // In a folder of its own, that nobody else may enter; its path has to be short.
        let folder = tempfile::Builder::new().prefix("16-os-").tempdir()?;
        let monitor = folder.path().join("monitor");
        let mut command = self.command(environment);
        command
            .args(["-serial", "stdio", "-monitor"])
            .arg(format!("unix:{},server=on,wait=off", monitor.display()))
            .stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() });
        finish(command, self.input.as_deref(), watch, |child, signs| {
            self.wait(child, signs, &monitor)
        })
    }

    /// Boots with the user's terminal as the console, for as long as the user likes. Ctrl-A X leaves QEMU, and Ctrl-A C
    /// goes to its monitor. `show` is called with each piece of output.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn run_on_terminal(
        &self,
        environment: &Environment,
        mut show: impl FnMut(&[u8]) + Send,
    ) -> Result<Outcome, Error> {
        let mut command = self.command(environment);
        command.args(["-serial", "mon:stdio"]).stdin(Stdio::inherit());
        let watch = |piece: &[u8]| {
            show(piece);
            ControlFlow::Continue(())
        };
        finish(command, None, watch, |child, _| child.wait().map(Exit::from))
    }

    /// QEMU's program with [`arguments`](Boot::arguments). What it says is piped.
    pub(crate) fn command(&self, environment: &Environment) -> Command {
        let mut command = Command::new(&environment.qemu.program);
        command.args(self.arguments()).stdout(Stdio::piped()).stderr(Stdio::piped());
        die_with_parent(&mut command);
        command
    }

    /// Waits for the end, or until somebody has seen enough, or until the time is up.
    fn wait(
        &self,
        child: &mut Child,
        signs: &Receiver<SeenEnough>,
        monitor: &Path,
    ) -> std::io::Result<Exit> {
        let mut sign = signs.recv_timeout(self.timeout);
        if sign == Err(RecvTimeoutError::Timeout) && host_is_overloaded() {
            sign = signs.recv_timeout(self.timeout);
        }
        // The output has ended: QEMU is about to.
        if sign == Err(RecvTimeoutError::Disconnected)
            && let Some(status) = child.wait_timeout(self.timeout)?
        {
            return Ok(Exit::from(status));
        }
        if sign == Ok(SeenEnough) && !self.ends_itself {
            child.kill()?;
            child.wait()?;
            return Ok(Exit::AtVerdict);
        }
        let diagnosis = crate::hang::diagnose(monitor, &self.image);
        // SIGKILL: an idle guest can keep QEMU from heeding anything milder.
        child.kill()?;
        child.wait()?;
        Ok(Exit::TimedOut { diagnosis })
    }
}

/// Whether one of QEMU's machines, given with its options, can end QEMU: it has an exit device that the kernel knows.
pub fn ends_itself(machine: &str) -> bool {
    let name = machine.split(',').next().unwrap_or_default();
    !["sifive_u", "spike"].contains(&name)
}

/// Breaks once a whole line with a verdict was said. Lines may come in pieces.
fn until_verdict() -> impl FnMut(&[u8]) -> ControlFlow<()> {
    let mut line = Vec::new();
    move |piece| {
        for byte in piece {
            match byte {
                b'\n' if line.starts_with(b"verdict: ") => return ControlFlow::Break(()),
                b'\n' => line.clear(),
                byte => line.push(*byte),
            }
        }
        ControlFlow::Continue(())
    }
}

/// The sign of who watches the output that the rest of it does not matter.
#[derive(Debug, PartialEq, Eq)]
struct SeenEnough;

/// Starts QEMU, gives it its input, collects what it says and has `wait` wait for its end. The signs that `wait` gets
/// are disconnected when the output ends.
fn finish(
    mut command: Command,
    input: Option<&[u8]>,
    mut watch: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    wait: impl FnOnce(&mut Child, &Receiver<SeenEnough>) -> std::io::Result<Exit>,
) -> Result<Outcome, Error> {
    let started = Instant::now();
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take().expect("stdout is piped");
    let stderr = child.stderr.take().expect("stderr is piped");
    let (sender, signs) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // QEMU may end before it has read everything: no fault of the boot.
                let _ = stdin.write_all(input);
            }
        });
        let output = scope.spawn(move || {
            collect(stdout, |piece| {
                if watch(piece).is_break() {
                    // Nobody waits for it any more when the boot is over.
                    let _ = sender.send(SeenEnough);
                }
            })
        });
        let messages = scope.spawn(|| collect(stderr, |_| ()));
        let exit = wait(&mut child, &signs);
        if exit.is_err() {
            // The threads wait for the end of the output.
            let _ = child.kill();
        }
        let [output, messages] = [output, messages]
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        Ok(Outcome { output, messages, exit: exit?, duration: started.elapsed() })
    })
}

/// Whether more work waits for the host's processors than they can do: then a boot may be slow, and get as much time
/// again. Not known on systems other than Linux.
fn host_is_overloaded() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    load > processors as f64
}

/// What a boot gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All that the console said, the firmware's banner first.
    pub output: String,
    /// What QEMU itself had to say.
    pub messages: String,
    /// How it ended.
    pub exit: Exit,
    /// From start to end.
    pub duration: Duration,
}

impl Outcome {
    /// Of a boot that was not tried.
    pub fn none() -> Outcome {
        let (output, messages) = (String::new(), String::new());
        Outcome { output, messages, exit: Exit::Code(0), duration: Duration::ZERO }
    }
}

/// How QEMU ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// Killed by xtask when the verdict was out, on a machine that has nothing to end QEMU with.
    AtVerdict,
    /// Killed by this signal, and not by xtask.
    Signal(i32),
    /// Killed by xtask, because it would not end.
    TimedOut {
        /// What every hart was at, as far as it could be found out.
        diagnosis: String,
    },
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Exit {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or_default()),
        }
    }
}

/// QEMU could not be started.
#[derive(Debug, thiserror::Error)]
#[error("QEMU cannot be started: {0}")]
pub struct Error(#[from] std::io::Error);

/// What the firmware that QEMU loads calls itself: `OpenSBI v1.5.1`. Boots it, and kills QEMU once it has said so.
pub fn firmware_version(qemu: &Qemu) -> Option<String> {
    let mut command = Command::new(&qemu.program);
    command.args([
        "-machine", "virt", "-display", "none", "-serial", "stdio", "-monitor", "none", "-bios",
        "default",
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    die_with_parent(&mut command);
    let mut child = command.spawn().ok()?;
    let lines = BufReader::new(child.stdout.take()?).lines().map_while(Result::ok);
    // Its banner is some twenty lines; what says nothing in as many says nothing.
    let version = lines.take(20).find(|line| line.starts_with("OpenSBI "));
    let _ = child.kill();
    let _ = child.wait();
    version
}

/// Reads to the end, giving each piece to `watch`. A broken pipe is an end too.
fn collect(mut pipe: impl Read, mut watch: impl FnMut(&[u8])) -> String {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(length) = pipe.read(&mut piece)
        && length > 0
    {
        watch(&piece[..length]);
        all.extend_from_slice(&piece[..length]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// A word as a shell takes it back.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Has the operating system kill the child when the thread that starts it ends, however that happens.
pub(crate) fn die_with_parent(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::process::CommandExt;

        let parent = rustix::process::getpid();
        let ask = move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The parent may have died before the call: then nobody would send the signal.
            if rustix::process::getppid() == Some(parent) {
                Ok(())
            } else {
                Err(std::io::ErrorKind::Interrupted.into())
            }
        };
        // SAFETY: between fork and exec the closure makes two system calls; it neither allocates nor takes a lock.
        unsafe { command.pre_exec(ask) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{Compiler, Core, Version};
    use std::fs;

    /// An environment whose QEMU is a shell script, and the folder that it lies in.
    fn stand_in(script: &str) -> (Environment, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("there is room");
        let program = folder.path().join("qemu");
        // Written by a process of its own: a child that another test starts at that moment would otherwise inherit the
        // open file, and a file that is open for writing cannot be run.
        let write = "printf '#!/bin/sh\n%s\n' \"$1\" > \"$0\" && chmod +x \"$0\"";
        let status = Command::new("sh").args(["-c", write]).arg(&program).arg(script).status();
        assert!(status.expect("there is a shell").success());
        let version = Version::new(1, 0, 0);
        let compiler = Compiler {
            rustc: PathBuf::new(),
            description: String::new(),
            version,
            host: String::new(),
            sysroot: PathBuf::new(),
            core: Core::Absent,
        };
        let qemu = Qemu { program, description: String::new(), version, firmware: None };
        (Environment { cargo: PathBuf::new(), compiler, linker: None, qemu }, folder)
    }

    fn boot() -> Boot {
        Boot { timeout: Duration::from_millis(200), ..Boot::new("/nowhere/kernel") }
    }

    #[test]
    fn an_outcome_is_all_that_was_said_and_how_it_ended() {
        let (environment, _folder) = stand_in("echo console; echo complaint >&2; exit 3");
        let mut seen = Vec::new();
        let outcome = boot().run_watched(&environment, |piece| {
            seen.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
        let outcome = outcome.expect("it starts");
        assert_eq!(
            (outcome.output.as_str(), outcome.messages.as_str()),
            ("console\n", "complaint\n")
        );
        assert_eq!(outcome.exit, Exit::Code(3));
        assert_eq!(seen, b"console\n");
    }

    #[test]
    fn input_is_typed_at_once() {
        let (environment, _folder) = stand_in("cat");
        // More than a pipe holds, so that reading and writing have to go on side by side.
        let input = vec![b'x'; 1 << 20];
        let boot = Boot { input: Some(input.clone()), timeout: Boot::TIMEOUT, ..boot() };
        let outcome = boot.run(&environment).expect("it starts");
        assert!(outcome.output.as_bytes() == input, "{} bytes came back", outcome.output.len());
    }

    #[test]
    fn a_signal_is_not_an_exit_code() {
        let (environment, _folder) = stand_in("kill -9 $$");
        assert_eq!(boot().run(&environment).expect("it starts").exit, Exit::Signal(9));
    }

    #[test]
    fn what_does_not_end_is_killed_however_deaf_it_is() {
        let (environment, folder) = stand_in(
            "echo begun; echo $$ > \"${0%/*}/pid\"; trap '' TERM INT; while :; do :; done",
        );
        let outcome = boot().run(&environment).expect("it starts");
        assert!(matches!(outcome.exit, Exit::TimedOut { .. }), "{:?}", outcome.exit);
        assert_eq!(outcome.output, "begun\n");
        let pid = fs::read_to_string(folder.path().join("pid")).expect("it said its id");
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "process {pid} is still there");
    }

    #[test]
    fn a_watcher_that_has_seen_enough_ends_the_waiting() {
        let (environment, _folder) = stand_in("echo 'this boot never ends'; exec sleep 1000");
        let boot = Boot { timeout: Duration::from_secs(1000), ..boot() };
        let outcome =
            boot.run_watched(&environment, |_| ControlFlow::Break(())).expect("it starts");
        assert!(matches!(outcome.exit, Exit::TimedOut { .. }), "{:?}", outcome.exit);
        assert!(outcome.duration < boot.timeout, "{:?}", outcome.duration);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn qemu_dies_with_xtask() {
        const FOLDER: &str = "OS16_TEST_QEMU_DIES";
        if let Some(folder) = std::env::var_os(FOLDER) {
            // This is the process that is going to be killed.
            let (mut environment, _unused) = stand_in("");
            environment.qemu.program = Path::new(&folder).join("qemu");
            let boot = Boot { timeout: Boot::TIMEOUT, ..boot() };
            panic!("it ended by itself: {:?}", boot.run(&environment));
        }
        let (_, folder) = stand_in(
            "echo $$ > \"${0%/*}/new\"; mv \"${0%/*}/new\" \"${0%/*}/pid\"; exec sleep 1000",
        );
        let this_test = ["--exact", "qemu::tests::qemu_dies_with_xtask", "--nocapture"];
        let mut xtask = Command::new(std::env::current_exe().expect("tests are a program"));
        xtask
            .args(this_test)
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut xtask = xtask.spawn().expect("it starts");
        let pid = loop {
            match fs::read_to_string(folder.path().join("pid")) {
                Ok(pid) => break pid,
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
            assert_eq!(
                xtask.try_wait().expect("it is a child"),
                None,
                "xtask ended before QEMU began"
            );
        };
        xtask.kill().expect("it can be killed");
        xtask.wait().expect("it is a child");
        let qemu = Path::new("/proc").join(pid.trim()).join("cmdline");
        // A process that is dead and not yet reaped has no command line.
        let lives = || fs::read(&qemu).is_ok_and(|line| !line.is_empty());
        let end = Instant::now() + Boot::TIMEOUT;
        while lives() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!lives(), "process {pid} is still there");
    }

    #[test]
    fn a_command_line_can_be_pasted() {
        let boot = Boot {
            append: "test only=frame::*".to_owned(),
            icount: true,
            harts: 4,
            cpu: Some("rv64,sstc=off".to_owned()),
            ..Boot::new("/with space/kernel")
        };
        assert_eq!(
            boot.command_line(),
            "qemu-system-riscv64 -machine virt -cpu rv64,sstc=off -smp 4 -m 128M -icount shift=0,sleep=off \
             -display none -no-reboot -bios default -kernel '/with space/kernel' -append 'test only=frame::*' \
             -serial mon:stdio"
        );
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_read_it_otherwise() {
        for (word, expected) in
            [("plain", "plain"), ("", "''"), ("two words", "'two words'"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(quoted(word), expected);
        }
    }
}
