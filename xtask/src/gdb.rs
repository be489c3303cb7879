//! `gdb`: boots the kernel stopped, and runs gdb on it.
//!
//! gdb and QEMU meet at a socket in a folder of their own, so that no port has to be free. gdb has the terminal to itself:
//! the kernel's console goes to a file, and to whoever connects to a second socket. gdb reads the image's symbols from a
//! copy in which they have the names that the kernel's reports show.

use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::offset_of;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use object::LittleEndian as LE;
use object::elf::{FileHeader64, SHT_SYMTAB, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, SectionHeader, Sym};

use crate::cli::Usage;
use crate::environment::{self, Environment, Gdb};
use crate::image;
use crate::options::BootOptions;
use crate::qemu::{Boot, quoted};
use crate::symbols::name;
use crate::{progress, style};

/// What gdb reads before it connects.
const SCRIPTS: [&str; 2] = ["xtask/gdb/16-os.gdb", "xtask/gdb/threads.py"];

/// What `--serve` says when a debugger can connect; .vscode/tasks.json waits for it.
const WAITS: &str = "the kernel waits for a debugger at ";

/// How to boot, and what to have gdb do.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "gdb begins at `kernel_main`, with paging on. Functions have the names that crash reports show: `break kernel::exit::crash`.
`backtrace` goes through traps into the code that they interrupted, also when a crash has ended the run. `kernel threads`
lists the kernel's own threads, `kernel backtrace 2` shows where one of them is, whether it runs or not. Statics have names
too: `set language c`, then `x/4gx &'kernel::hart::HARTS'`. The kernel's console goes to a file, whose path is shown, and to
a socket. With --command or --batch gdb asks nobody, and stops at the first command that fails; its exit code is this
command's.

Examples:
  cargo run -- gdb                                     at kernel_main, on one hart
  cargo run -- gdb --smp 4 --append crash=hartstack    and then `continue`, `info threads`, `backtrace`
  cargo run -- gdb --reset                             at the first instruction of the machine; the kernel's own first one
                                                       is at `hbreak *0x80200000`
  cargo run -- gdb --command 'break kernel::job::run' --command continue --command backtrace
  cargo run -- gdb --serve                             waits at port 1234 for an editor's debugger: .vscode/launch.json"
)]
pub struct Arguments {
    /// What to boot
    #[command(flatten)]
    pub boot: BootOptions,
    /// Begin at the machine's reset, before the firmware, instead of at `kernel_main`
    #[arg(long)]
    pub reset: bool,
    /// Starts no gdb: the machine waits, stopped, for whoever connects to this port of the local host
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "1234", conflicts_with_all = ["reset", "command", "batch"])]
    pub serve: Option<u16>,
    /// A command for gdb to run instead of asking on the terminal; may be given again
    #[arg(long, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// A file of commands for gdb to run instead, after those of --command
    #[arg(long, value_name = "FILE")]
    pub batch: Option<PathBuf>,
}

impl Arguments {
    /// Whether gdb runs commands and asks nobody.
    fn is_batch(&self) -> bool {
        self.batch.is_some() || !self.command.is_empty()
    }

    /// What gdb does once it is connected. A file of them ends at the first that fails.
    fn commands(&self) -> Vec<String> {
        let start = (!self.reset).then(|| "to_kernel_main".to_owned());
        let file = self.batch.as_ref().map(|file| format!("source {}", file.display()));
        start.into_iter().chain(self.command.iter().cloned()).chain(file).collect()
    }

    fn boot(&self, elf: &Path) -> Boot {
        // Not with `sleep=off`, as elsewhere: QEMU would hang when gdb lets it continue.
        let clock = if self.boot.icount { &["-icount", "shift=0"][..] } else { &[] };
        let extra = clock.iter().map(|&word| word.to_owned()).collect();
        Boot { icount: false, extra, ..self.boot.boot(elf) }
    }
}

/// Builds, boots and debugs. The exit code is gdb's.
///
/// # Errors
/// When the machine lacks something, the kernel cannot be built, or QEMU does not take the command line.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = environment::require()?;
    // An editor brings its own.
    let gdb = arguments.serve.is_none().then(environment::require_gdb).transpose()?;
    let image = image::build(&environment, &image::Options::new(arguments.boot.profile))?;
    let symbols = image.elf.with_extension("gdb.elf");
    write_with_readable_names(&image.elf, &symbols)?;
    let mut machine = Stopped::start(&environment, &arguments.boot(&image.elf), arguments.serve)?;
    let muted = style::MUTED;
    progress::say(&format!(
        "{muted}the kernel's console: tail -f {}\nto type to it as well: nc -U {}{muted:#}",
        quoted(&machine.log.display().to_string()),
        quoted(&machine.console().display().to_string()),
    ));
    let Some(gdb) = gdb else {
        anstream::println!("{WAITS}{}", machine.stub());
        machine.qemu.wait()?;
        return Ok(ExitCode::SUCCESS);
    };
    let folders = image::renamed_folders(&environment, &environment::workspace());
    let status = debug(&gdb, arguments, words(&symbols, &machine.stub(), &folders), &machine);
    machine.end()?;
    Ok(exit_code(status?))
}

/// Runs gdb to its end.
fn debug(
    gdb: &Gdb,
    arguments: &Arguments,
    words: Vec<String>,
    machine: &Stopped,
) -> io::Result<ExitStatus> {
    leave_interrupts_to_gdb()?;
    let mut command = Command::new(&gdb.program);
    command.args(words);
    if arguments.is_batch() {
        let file = machine.folder.path().join("commands");
        fs::write(&file, arguments.commands().join("\n"))?;
        // The same for everybody: without the user's own settings.
        command.args(["-nx", "-batch", "-x"]).arg(file);
    } else {
        command.args(arguments.commands().iter().flat_map(|command| ["-ex", command]));
    }
    // Nothing about this program is to be had from elsewhere, and gdb would ask first.
    command.env_remove("DEBUGINFOD_URLS");
    // SAFETY: between fork and exec the closure makes one system call; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(|| set_interrupt(libc::SIG_DFL)) };
    command.status()
}

/// gdb's arguments, up to where it is connected. `folders` are those of the sources, and what the image calls them.
fn words(symbols: &Path, stub: &str, folders: &[(PathBuf, &str)]) -> Vec<String> {
    let path = |path: &Path| path.display().to_string();
    let mut words = vec!["-quiet".to_owned(), path(symbols)];
    let mut add = |option: &str, value| words.extend([option.to_owned(), value]);
    for script in SCRIPTS {
        add("-x", path(&environment::workspace().join(script)));
    }
    for (folder, name) in folders {
        let folder = path(folder).replace('\\', r"\\").replace('"', "\\\"");
        add("-ex", format!("set substitute-path {name} \"{folder}\""));
    }
    add("-ex", format!("target remote {stub}"));
    words
}

/// The exit code that tells how gdb ended.
fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Ctrl-C stops the kernel, in gdb: it must not end this process, which has to end QEMU later.
fn leave_interrupts_to_gdb() -> io::Result<()> {
    set_interrupt(libc::SIG_IGN)
}

fn set_interrupt(handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: the two handlers that it is called with, to ignore and to die, run no code of this process.
    let before = unsafe { libc::signal(libc::SIGINT, handler) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// QEMU with a machine that has not run its first instruction. Dropping it ends QEMU.
struct Stopped {
    qemu: Child,
    /// Where the sockets are; nobody else may enter, and their paths have to be short.
    folder: tempfile::TempDir,
    /// All that the console says.
    log: PathBuf,
    /// Where gdb connects, if not to a socket.
    port: Option<u16>,
}

impl Stopped {
    /// How long QEMU may take to begin. A hang of QEMU itself must not become one of ours.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// How many consoles of earlier sessions are kept.
    const LOGS: usize = 50;

    /// gdb's stub is at a port, or at a socket.
    fn start(environment: &Environment, boot: &Boot, port: Option<u16>) -> anyhow::Result<Stopped> {
        let folder = tempfile::Builder::new().prefix("16-os-").tempdir()?;
        let logs = environment::target_dir().join("gdb");
        fs::create_dir_all(&logs)?;
        keep_newest(&logs, Stopped::LOGS);
        let (_, log) = tempfile::Builder::new()
            .prefix("console-")
            .suffix(".log")
            .tempfile_in(&logs)?
            .keep()?;
        let (complaints, monitor) =
            (folder.path().join("complaints"), folder.path().join("monitor"));
        let mut command = boot.command(environment);
        let socket =
            |name: &str| format!("unix:{},server=on,wait=off", escaped(&folder.path().join(name)));
        let stub = port.map_or(socket("gdb"), |port| format!("tcp:{}", at_port(port)));
        command.args(["-monitor", &socket("monitor"), "-gdb", &stub]);
        let (console, logged) = (escaped(&folder.path().join("console")), escaped(&log));
        command
            // A machine that is switched off stays to be looked at, as one that has crashed.
            .args(["-S", "-no-shutdown", "-serial", "chardev:console", "-chardev"])
            .arg(format!("socket,id=console,path={console},server=on,wait=off,logfile={logged}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&complaints)?)
            // Out of the terminal's foreground: Ctrl-C is for gdb.
            .process_group(0);
        let mut stopped = Stopped { qemu: command.spawn()?, folder, log, port };
        stopped.wait_for(&monitor, &complaints)?;
        Ok(stopped)
    }

    /// Waits until the monitor greets: it does once everything else is there, gdb's socket too.
    fn wait_for(&mut self, monitor: &Path, complaints: &Path) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            if greets(monitor) {
                return Ok(());
            }
            let ended = self.qemu.try_wait()?;
            let late = began.elapsed() > Stopped::PATIENCE;
            if ended.is_some() || late {
                let said = fs::read_to_string(complaints).unwrap_or_default();
                anyhow::ensure!(ended.is_some(), "QEMU does not begin: {}", said.trim_end());
                return Err(Usage(format!("QEMU ended at once: {}", said.trim_end())).into());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Where gdb connects, as it calls that.
    fn stub(&self) -> String {
        let socket = || self.folder.path().join("gdb").display().to_string();
        self.port.map_or_else(socket, at_port)
    }

    /// The socket of the console.
    fn console(&self) -> PathBuf {
        self.folder.path().join("console")
    }

    fn end(&mut self) -> io::Result<()> {
        // SIGKILL: an idle guest can keep QEMU from heeding anything milder.
        self.qemu.kill()?;
        self.qemu.wait().map(drop)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended before: then there is nothing to do.
        let _ = self.end();
    }
}

/// Removes the oldest files of a folder. One that cannot be removed is in nobody's way.
fn keep_newest(folder: &Path, count: usize) {
    let files = folder.read_dir().into_iter().flatten().flatten();
    let dated = |file: fs::DirEntry| Some((file.metadata().ok()?.modified().ok()?, file.path()));
    let mut files: Vec<_> = files.filter_map(dated).collect();
    files.sort();
    let old = files.len().saturating_sub(count);
    files.drain(..old).for_each(|(_, file)| drop(fs::remove_file(file)));
}

/// Whether somebody at the socket says something.
fn greets(socket: &Path) -> bool {
    let greeting = || -> io::Result<usize> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Stopped::PATIENCE))?;
        stream.read(&mut [0])
    };
    greeting().is_ok_and(|length| length > 0)
}

/// A port of the local host, as gdb and QEMU call it.
fn at_port(port: u16) -> String {
    format!("localhost:{port}")
}

/// A path as the value of one of QEMU's options, which commas part.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Why gdb's copy of the image could not be made.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The image is no ELF file with symbols.
    #[error("the image cannot be read: {0}")]
    Elf(#[from] object::Error),
    /// A place in the file, or a number to write there, is larger than it can be.
    #[error("the image's symbol table or its names do not lie within the file: {0:#x}")]
    Place(usize),
}

/// Copies an image, with each symbol named as the kernel's reports name it.
fn write_with_readable_names(image: &Path, copy: &Path) -> Result<(), CopyError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| CopyError::File { path, error }
    };
    let named = with_readable_names(&fs::read(image).map_err(file(image))?)?;
    // Two may begin at once: neither gdb is to read half a copy.
    let new = copy.with_added_extension(std::process::id().to_string());
    fs::write(&new, named).and_then(|()| fs::rename(&new, copy)).map_err(file(copy))
}

/// The ELF file with its symbols renamed. Their names are a new string table, at the end of the file.
fn with_readable_names(elf: &[u8]) -> Result<Vec<u8>, CopyError> {
    let file = FileHeader64::<LE>::parse(elf)?;
    let sections = file.sections(LE, elf)?;
    let symbols = sections.symbols(LE, elf, SHT_SYMTAB)?;
    let place = |offset: u64| usize::try_from(offset).map_err(|_| CopyError::Place(usize::MAX));
    let table = place(sections.section(symbols.section())?.sh_offset(LE))?;
    let (mut named, mut names) = (elf.to_vec(), vec![0]);
    for (index, symbol) in symbols.enumerate() {
        let name = symbol.name(LE, symbols.strings())?;
        // The empty name stays where every string table has it: at the start.
        let readable = name::readable(&String::from_utf8_lossy(name));
        let start = if readable.is_empty() { 0 } else { names.len() };
        let start = u32::try_from(start).map_err(|_| CopyError::Place(names.len()))?;
        let entry = table + index.0 * size_of::<Sym64<LE>>();
        put(&mut named, entry + offset_of!(Sym64<LE>, st_name), &start.to_le_bytes())?;
        if start > 0 {
            names.extend(readable.into_bytes());
            names.push(0);
        }
    }
    let (offset, size) = (named.len() as u64, names.len() as u64);
    let header =
        place(file.e_shoff(LE))? + symbols.string_section().0 * size_of::<SectionHeader64<LE>>();
    let field = offset_of!(SectionHeader64<LE>, sh_offset);
    put(&mut named, header + field, &offset.to_le_bytes())?;
    let field = offset_of!(SectionHeader64<LE>, sh_size);
    put(&mut named, header + field, &size.to_le_bytes())?;
    named.extend(names);
    Ok(named)
}

/// Writes over what is at `place`.
fn put(file: &mut [u8], place: usize, bytes: &[u8]) -> Result<(), CopyError> {
    let there = file.get_mut(place..).and_then(|rest| rest.get_mut(..bytes.len()));
    there.ok_or(CopyError::Place(place))?.copy_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(words: &[&str]) -> Arguments {
        Line::parse_from([&["gdb"], words].concat()).arguments
    }

    #[test]
    fn gdb_knows_where_the_sources_are_before_it_connects() {
        let (symbols, stub) = (Path::new("/image.elf"), "/socket");
        let folders = [(PathBuf::from("/a \"place\""), "/16-os"), (PathBuf::from("/b"), "/crates")];
        let words = words(symbols, stub, &folders);
        assert_eq!(words[..2], ["-quiet", "/image.elf"]);
        for script in [&words[2..4], &words[4..6]] {
            assert_eq!(script[0], "-x");
            assert!(Path::new(&script[1]).is_file(), "{} is not there", script[1]);
        }
        assert_eq!(
            words[6..].join(" "),
            "-ex set substitute-path /16-os \"/a \\\"place\\\"\" -ex set substitute-path /crates \"/b\" \
             -ex target remote /socket"
        );
    }

    #[test]
    fn gdb_goes_to_kernel_main_and_then_does_as_told() {
        let told = arguments(&["--batch", "file", "--command", "one", "--command", "two"]);
        assert_eq!(told.commands(), ["to_kernel_main", "one", "two", "source file"]);
        assert_eq!(arguments(&[]).commands(), ["to_kernel_main"]);
        assert_eq!(arguments(&["--reset", "--command", "one"]).commands(), ["one"]);
    }

    #[test]
    fn whoever_says_what_to_do_is_not_asked() {
        assert!(!arguments(&["--smp", "4"]).is_batch());
        assert!(arguments(&["--command", "quit"]).is_batch());
        assert!(arguments(&["--batch", "file"]).is_batch());
    }

    #[test]
    fn an_editor_s_port_is_the_usual_one() {
        assert_eq!(arguments(&["--serve"]).serve, Some(1234));
        assert_eq!(arguments(&["--serve", "4321"]).serve, Some(4321));
        assert_eq!(at_port(1234), "localhost:1234");
    }

    #[test]
    fn icount_is_without_the_option_that_makes_qemu_hang() {
        let line = arguments(&["--icount"]).boot(Path::new("/image.elf")).command_line();
        assert!(line.contains("-icount shift=0 "), "{line}");
        assert!(!line.contains("sleep"), "{line}");
    }

    #[test]
    fn a_path_with_a_comma_is_one_value_of_an_option() {
        assert_eq!(escaped(Path::new("/a,b/c")), "/a,,b/c");
    }

    #[test]
    fn only_the_newest_logs_are_kept() {
        let folder = tempfile::tempdir().expect("there is room");
        for age in [2, 0, 3, 1] {
            let file = File::create(folder.path().join(age.to_string())).expect("there is room");
            let time = std::time::SystemTime::now() - Duration::from_secs(age);
            file.set_modified(time).expect("a file's time can be set");
        }
        keep_newest(folder.path(), 2);
        let there = |age: u64| folder.path().join(age.to_string()).exists();
        assert_eq!([0, 1, 2, 3].map(there), [true, true, false, false]);
        keep_newest(folder.path(), 2);
        keep_newest(&folder.path().join("none"), 2);
        assert!(there(0) && there(1));
    }

    #[test]
    fn what_is_no_image_is_named_as_such() {
        let folder = tempfile::tempdir().expect("there is room");
        let (image, copy) = (folder.path().join("image"), folder.path().join("copy"));
        let absent = write_with_readable_names(&image, &copy).expect_err("it is not there");
        assert!(absent.to_string().starts_with(&image.display().to_string()), "{absent}");
        fs::write(&image, "no ELF file").expect("there is room");
        let wrong = write_with_readable_names(&image, &copy).expect_err("it is no image");
        assert!(matches!(wrong, CopyError::Elf(_)), "{wrong}");
        assert!(!copy.exists());
    }
}
