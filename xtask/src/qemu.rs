//! Describes a boot and runs it: a [`Boot`] gives an [`Outcome`].
//!
//! QEMU never outlives xtask: each is started with the kernel's promise to kill it when its parent dies (Linux), and a
//! time-out ends in SIGKILL, because an idle guest can keep QEMU from heeding anything milder.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use wait_timeout::ChildExt;

use crate::environment::Environment;

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
            input: None,
        }
    }

    /// QEMU's arguments that say what is booted; those that say where input and output go are not among them.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["-machine".to_owned(), self.machine.clone()];
        if let Some(cpu) = &self.cpu {
            arguments.extend(["-cpu".to_owned(), cpu.clone()]);
        }
        arguments.extend([
            "-smp".to_owned(),
            self.harts.to_string(),
            "-m".to_owned(),
            self.memory.clone(),
        ]);
        if self.icount {
            arguments.extend(["-icount".to_owned(), "shift=0,sleep=off".to_owned()]);
        }
        arguments.extend(
            [
                "-bios",
                "default",
                "-display",
                "none",
                "-no-reboot",
                "-kernel",
            ]
            .map(str::to_owned),
        );
        arguments.push(self.image.display().to_string());
        if !self.append.is_empty() {
            arguments.extend(["-append".to_owned(), self.append.clone()]);
        }
        arguments.extend(self.extra.iter().cloned());
        arguments
    }

    /// A line to paste into a shell that boots the same, on the terminal.
    pub fn command_line(&self) -> String {
        let mut words = vec!["qemu-system-riscv64".to_owned()];
        words.extend(self.arguments());
        words.extend(["-serial", "mon:stdio"].map(str::to_owned));
        words
            .iter()
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Boots without a terminal and waits for the end. Gives what the console said and how QEMU ended.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn run(&self, environment: &Environment) -> Result<Outcome, Error> {
        self.run_watched(environment, |_| ())
    }

    /// Like [`run`](Boot::run), and calls `watch` with each piece of output as it comes.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn run_watched(
        &self,
        environment: &Environment,
        watch: impl FnMut(&[u8]) + Send,
    ) -> Result<Outcome, Error> {
        let folder = tempfile::Builder::new()
            .prefix("16-os-")
            .tempdir()
            .map_err(Error)?;
        let monitor = folder.path().join("monitor");
        let mut command = Command::new(&environment.qemu.program);
        command
            .args(self.arguments())
            .args(["-serial", "stdio", "-monitor"])
            .arg(format!("unix:{},server=on,wait=off", monitor.display()))
            .stdin(if self.input.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        die_with_parent(&mut command);
        let started = Instant::now();
        let mut child = command.spawn().map_err(Error)?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), &self.input) {
            // QEMU may end before it has read everything: no fault of the boot.
            let _ = stdin.write_all(input);
        }
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let (exit, output, messages) = std::thread::scope(|scope| {
            let output = scope.spawn(|| collect(stdout, watch));
            let messages = scope.spawn(|| collect(stderr, |_| ()));
            let exit = self.wait(&mut child, &monitor);
            (
                exit,
                output.join().expect("no panic in collect"),
                messages.join().expect("no panic in collect"),
            )
        });
        Ok(Outcome {
            output,
            messages,
            exit: exit.map_err(Error)?,
            duration: started.elapsed(),
        })
    }

    fn wait(&self, child: &mut Child, monitor: &Path) -> std::io::Result<Exit> {
        if let Some(status) = child.wait_timeout(self.timeout)? {
            return Ok(Exit::from(status));
        }
        let diagnosis = crate::hang::diagnose(monitor, &self.image);
        child.kill()?;
        child.wait()?;
        Ok(Exit::TimedOut { diagnosis })
    }
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

/// How QEMU ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
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
pub struct Error(std::io::Error);

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
