//! Set-up on machines made of stand-ins: a folder of programs that is all of PATH, with a log of what was called.
//!
//! What the policy decides on machines of many kinds is tested in `setup/plan/tests.rs`; this is about what then
//! happens. Nothing here touches the real machine: the stand-ins are what would.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use xtask::environment::{self, Core, Environment, TARGET};

/// A machine of stand-ins.
struct Machine {
    folder: tempfile::TempDir,
    environment: Environment,
}

impl Machine {
    /// A toolchain of rustup without the kernel's target, beside a rustup that does what `rustup` says, and QEMU.
    fn new(rustup: &str) -> Machine {
        let environment = environment::require().unwrap_or_else(|missing| panic!("{missing}"));
        let machine = Machine { folder: tempfile::tempdir().expect("there is room"), environment };
        for folder in ["bin", "home", "target/debug"] {
            fs::create_dir_all(machine.path(folder)).expect("a folder can be made");
        }
        // Where xtask keeps what it remembers: the real one's memory is not the stand-in's.
        fs::write(machine.path("target/CACHEDIR.TAG"), "").expect("a file can be written");
        shell(
            "cp \"$1\" \"$2\"",
            &[Path::new(env!("CARGO_BIN_EXE_xtask")), &machine.path("target/debug/xtask")],
        );

        let compiler = &machine.environment.compiler;
        let libraries = machine.toolchain().join("lib/rustlib");
        fs::create_dir_all(&libraries).expect("a folder can be made");
        symlink(
            compiler.sysroot.join("lib/rustlib").join(&compiler.host),
            libraries.join(&compiler.host),
        )
        .expect("a link can be made");
        let rustc = rustc(&compiler.rustc, &machine.toolchain());
        machine.program(&machine.toolchain().join("bin/rustc"), &machine.logged("rustc", &rustc));
        symlink(&machine.environment.cargo, machine.toolchain().join("bin/cargo"))
            .expect("a link can be made");

        machine.add("rustup", rustup);
        machine.link("qemu-system-riscv64", &machine.environment.qemu.program);
        for name in ["cc", "env", "sh", "ld", "as"] {
            if let Some(program) = environment::program(name) {
                machine.link(name, &program);
            }
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where rustup keeps the toolchain.
    fn toolchain(&self) -> PathBuf {
        self.path("home/.rustup/toolchains/stable-stand-in")
    }

    /// Adds a program to PATH that is a shell script. It logs each call.
    fn add(&self, name: &str, script: &str) {
        self.program(&self.path("bin").join(name), &self.logged(name, script));
    }

    fn logged(&self, name: &str, script: &str) -> String {
        format!("echo \"{name} $*\" >> '{}'\n{script}", self.path("log").display())
    }

    fn program(&self, path: &Path, script: &str) {
        fs::create_dir_all(path.parent().expect("a program lies in a folder"))
            .expect("a folder can be made");
        let script = format!("#!/bin/sh\n{script}\n");
        shell("printf %s \"$2\" > \"$1\"; chmod +x \"$1\"", &[path, Path::new(&script)]);
    }

    fn link(&self, name: &str, program: &Path) {
        symlink(program, self.path("bin").join(name)).expect("a link can be made");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path("bin").join(name)).expect("the program is there");
    }

    /// Runs xtask on this machine, as its cargo would.
    fn xtask(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(self.path("target/debug/xtask"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("HOME", self.path("home"));
        command.env("CARGO", self.toolchain().join("bin/cargo"));
        // Crates that were fetched once are not fetched again for a home of stand-ins.
        let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
        command.env("CARGO_HOME", cargo_home.expect("cargo has a home"));
        command.envs(variables.iter().copied()).output().expect("xtask starts")
    }

    /// Every call of a logged stand-in so far, a line each.
    fn calls(&self, name: &str) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().filter(|line| line.split(' ').next() == Some(name)).map(str::to_owned).collect()
    }
}

/// Runs a script with arguments. Programs are written by it and not by this process: a test in another thread that
/// starts a child at that moment would have it inherit the open file, and a file that is open for writing cannot be run.
fn shell(script: &str, arguments: &[&Path]) {
    let status = Command::new("sh").args(["-c", script, "sh"]).args(arguments).status();
    assert!(status.expect("there is a shell").success(), "{script} {arguments:?}");
}

/// A compiler that is the real one but for where its libraries lie.
fn rustc(real: &Path, toolchain: &Path) -> String {
    let (real, toolchain) = (real.display(), toolchain.display());
    format!(
        "if [ \"$*\" = '--print sysroot' ]; then echo '{toolchain}'; exit; fi
for argument in \"$@\"; do
    case \"$argument\" in
        *{TARGET}*) exec '{real}' --sysroot '{toolchain}' \"$@\" ;;
    esac
done
exec '{real}' \"$@\""
    )
}

/// A rustup that has no network.
const OFFLINE: &str = "echo 'error: could not download' >&2; exit 1";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_rustup_that_can_download_gets_the_target_and_the_kernel_boots() {
    let machine = Machine::new(OFFLINE);
    // This rustup installs what the real machine has.
    let sysroot = match &machine.environment.compiler.core {
        Core::Private(sysroot) => sysroot,
        Core::Own | Core::Absent => &machine.environment.compiler.sysroot,
    };
    let (from, to) = (
        sysroot.join("lib/rustlib").join(TARGET),
        machine.toolchain().join("lib/rustlib").join(TARGET),
    );
    machine.remove("rustup");
    machine.link("ln", &environment::program("ln").expect("there is ln"));
    machine.add("rustup", &format!("ln -s '{}' '{}'", from.display(), to.display()));

    let first = machine.xtask(&["run"], &[]);
    let said = text(&first.stderr);
    let command = format!("rustup target add --toolchain stable-stand-in {TARGET}");
    assert!(first.status.success(), "{}{said}", text(&first.stdout));
    assert!(said.contains(&format!("setup: {command}")), "the command was not shown: {said}");
    let console = text(&first.stdout);
    let last = console.lines().last().unwrap_or_default();
    assert!(last.starts_with("verdict: pass"), "{console}");
    assert_eq!(machine.calls("rustup"), [command]);

    let calls_of_rustc = machine.calls("rustc").len();
    let second = machine.xtask(&["run"], &[]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert_eq!(text(&second.stderr), "", "the second run has nothing to put in place or to build");
    assert_eq!(machine.calls("rustup").len(), 1);
    assert_eq!(machine.calls("rustc").len(), calls_of_rustc, "the second run knows the compiler");

    // What is remembered is not believed when it is gone.
    fs::remove_file(to).expect("rustup made the link");
    let third = machine.xtask(&["run"], &[("OS16_NO_INSTALL", "1")]);
    assert_eq!(third.status.code(), Some(2), "{}", text(&third.stderr));
}

#[test]
fn where_nothing_may_be_installed_one_message_says_what_would_help() {
    let machine = Machine::new(OFFLINE);
    let output = machine.xtask(&["run"], &[("OS16_NO_INSTALL", "1")]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let expected = format!(
        "error: this machine lacks a core library for {TARGET}.
Nothing was installed, because OS16_NO_INSTALL is set. This puts it in place:
    rustup target add --toolchain stable-stand-in {TARGET}
"
    );
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(text(&output.stdout), "");
    assert_eq!(machine.calls("rustup"), [""; 0], "nothing may be installed");
}

#[test]
fn without_any_way_one_message_says_what_to_do_by_hand() {
    let machine = Machine::new(OFFLINE);
    machine.remove("rustup");
    machine.remove("qemu-system-riscv64");
    let output = machine.xtask(&["run"], &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.matches("error:").count(), 1, "{said}");
    for part in [
        TARGET,
        "qemu-system-riscv64",
        &format!("Install rustup, then:\n    rustup target add {TARGET}"),
    ] {
        assert!(said.contains(part), "the message lacks `{part}`: {said}");
    }
}

#[test]
fn where_rustup_cannot_download_packages_bring_a_compiler_and_core_is_built() {
    let machine = Machine::new(OFFLINE);
    let compiler = machine.path("bin/rustc");
    machine.add(
        "apt-cache",
        "printf 'rustc-web:\\n  Candidate: 1.99.0-1\\nrustc:\\n  Candidate: 1.63.0-2\\nlld-19:\\n  Candidate: 1:19.1-1\\n'",
    );
    // The package: a compiler whose libraries lie beside it, with sources, too old to be in the way of the real one.
    let sysroot = machine.path("packaged");
    let packaged = format!(
        "case \"$*\" in
    -vV) echo 'rustc 1.99.0 (stand-in)'; echo 'host: stand-in-unknown-linux-gnu' ;;
    '--print sysroot') echo '{}' ;;
    *) exit 1 ;;
esac",
        sysroot.display()
    );
    machine.program(&sysroot.join("rustc"), &packaged);
    let source = sysroot.join("lib/rustlib/src/rust/library/core/src");
    fs::create_dir_all(&source).expect("a folder can be made");
    fs::write(source.join("lib.rs"), "").expect("a file can be written");
    machine.link("cp", &environment::program("cp").expect("there is cp"));
    let install = format!("cp '{}' '{}'", sysroot.join("rustc").display(), compiler.display());
    machine.add("apt-get", &format!("case \"$*\" in *install*rustc-web*) {install} ;; esac"));
    // Whoever is not root needs this one.
    machine.add("sudo", "[ \"$2\" = true ] || { shift; exec \"$@\"; }");
    // Cargo makes the three libraries, and refuses to build a kernel with them.
    fs::remove_file(machine.toolchain().join("bin/cargo")).expect("the link is there");
    machine.link("mkdir", &environment::program("mkdir").expect("there is mkdir"));
    machine.add(
        "cargo",
        &format!(
            "case \"$*\" in *-Zbuild-std=core,alloc*) ;; *) echo 'no kernel of stand-ins' >&2; exit 101 ;; esac
out=target/{TARGET}/release/deps
mkdir -p $out
for library in core alloc compiler_builtins; do echo > $out/lib$library-0123.rlib; done"
        ),
    );
    symlink(machine.path("bin/cargo"), machine.toolchain().join("bin/cargo"))
        .expect("a link can be made");

    let output = machine.xtask(&["run"], &[]);
    let said = text(&output.stderr);
    // The set-up is complete; what it made is no library, and so there is no kernel.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no kernel of stand-ins"), "{said}");
    let order = [
        format!("setup: rustup target add --toolchain stable-stand-in {TARGET}"),
        "setup: that failed: exit status: 1: error: could not download".to_owned(),
        "install --yes --no-install-recommends --no-remove rustc-web rust-web-src rust-web-clippy rustfmt-web".to_owned(),
        format!("setup: building core and alloc for {TARGET} with "),
        "no kernel of stand-ins".to_owned(),
    ];
    let places: Vec<Option<usize>> = order.iter().map(|part| said.find(part.as_str())).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {said}");
    let library = machine.path("home/.cache/16-os/rustc-1.99.0-stand-in-recipe-1/lib/rustlib");
    for name in ["libcore-0123.rlib", "liballoc-0123.rlib", "libcompiler_builtins-0123.rlib"] {
        assert!(library.join(TARGET).join("lib").join(name).is_file(), "{name} is not in place");
    }
    let left: Vec<_> =
        machine.path("home/.cache/16-os").read_dir().expect("the cache is there").collect();
    assert_eq!(left.len(), 1, "the folder it was built in is still there: {left:?}");
}

/// Takes half a minute, and a compiler whose core library comes in source, as Debian packs it.
#[test]
#[ignore = "half a minute, and only with a compiler that came with sources: `cargo test --test setup -- --ignored`"]
fn core_is_the_same_wherever_it_was_built() {
    let survey = environment::Survey::new();
    let with_source = survey.compilers.iter().find(|compiler| compiler.library_source().is_some());
    let compiler = with_source.expect("a compiler in PATH came with sources");
    let [one, other] = ["one", "another-and-longer"].map(|name| {
        let folder = tempfile::Builder::new().prefix(name).tempdir().expect("there is room");
        let sysroot = folder.path().join("sysroot");
        xtask::setup::core_library::build_in(compiler, &sysroot)
            .unwrap_or_else(|error| panic!("{error}"));
        let files = sysroot
            .join("lib/rustlib")
            .join(TARGET)
            .join("lib")
            .read_dir()
            .expect("the libraries are there");
        let mut files: Vec<PathBuf> =
            files.map(|entry| entry.expect("a library is there").path()).collect();
        files.sort();
        files.iter().map(|file| fs::read(file).expect("a library can be read")).collect::<Vec<_>>()
    });
    assert_eq!(one.len(), 3);
    assert!(one == other, "the libraries differ");
}
