//! What to do next about what is missing: a pure function of what is known about the machine.
//!
//! [`decide`] gives one [`Step`] at a time, because each changes the facts: a rustup that turns out not to download
//! makes way for packages, refreshed lists know other packages than old ones. [`plan`] is everything that lies ahead as
//! far as can be told now; it is what a person is shown who has to do it by hand.

use std::fmt::Write;

use crate::environment::{
    Compiler, GDBS, Need, OLDEST_LLD, OLDEST_QEMU, OLDEST_RUSTC, PREFERRED_QEMU, TARGET,
};
use crate::qemu::quoted;
use crate::setup::packages::{Packages, Sources};

/// The file that setup adds to the machine's package sources, where it needs one.
pub const SOURCE_FILE: &str = "/etc/apt/sources.list.d/16-os-backports.list";

/// The compiler, its sources, its lints and the formatter, under the two sets of names that they have. The first is
/// what Debian keeps fresh enough to build browsers with.
const COMPILERS: [[&str; 4]; 2] = [
    ["rustc-web", "rust-web-src", "rust-web-clippy", "rustfmt-web"],
    ["rustc", "rust-src", "rust-clippy", "rustfmt"],
];

/// The linker, the newest first.
const LINKERS: [&str; 7] = ["lld-22", "lld-21", "lld-20", "lld-19", "lld-18", "lld-17", "lld"];

/// QEMU alone, in newer releases; together with other rare machines, in older ones, which leave the firmware apart.
const QEMUS: [&[&str]; 2] = [&["qemu-system-riscv"], &["qemu-system-misc", "opensbi"]];

/// A gdb that knows every machine.
const GDB: &str = "gdb-multiarch";

/// The release of Debian whose own QEMU is older than [`PREFERRED_QEMU`], which is so even before its lists are fetched.
const WITH_OLD_QEMU: &str = "bookworm";

/// The operating system, as far as it matters to setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// Debian, with the name of the release: `bookworm`.
    Debian(String),
    /// Ubuntu, or something made from it or from Debian.
    DebianLike,
    /// Another Linux: the words of ID and ID_LIKE in its `os-release`.
    Linux(Vec<String>),
    /// macOS.
    MacOs,
    /// Anything else.
    Other,
}

impl System {
    /// From the name of the operating system, as Rust has it, and the text of `/etc/os-release`.
    pub fn new(os: &str, release: &str) -> System {
        let field = |name: &str| {
            let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        let (id, codename) = (field("ID"), field("VERSION_CODENAME"));
        let words: Vec<String> = [id.clone(), field("ID_LIKE")]
            .iter()
            .flat_map(|ids| ids.split_whitespace())
            .map(str::to_owned)
            .collect();
        match os {
            "macos" => System::MacOs,
            "linux" if id == "debian" && !codename.is_empty() => System::Debian(codename),
            "linux" if words.iter().any(|word| word == "debian" || word == "ubuntu") => {
                System::DebianLike
            }
            "linux" => System::Linux(words),
            _ => System::Other,
        }
    }
}

/// What this process may do to the machine without asking anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Everything.
    Root,
    /// Everything, through a sudo that asks for no password.
    Sudo,
    /// Only what the user may.
    None,
}

/// What is known of the package tool, where there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apt {
    /// What it could install.
    pub packages: Packages,
    /// Where from.
    pub sources: Sources,
    /// Whether its lists were brought up to date in this run.
    pub refreshed: bool,
}

/// Everything that a decision depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What is missing now.
    pub needs: Vec<Need>,
    /// The operating system.
    pub system: System,
    /// The toolchain that rustup manages and cargo runs from.
    pub rustup: Option<String>,
    /// A compiler that came with the sources of its core library.
    pub with_source: Option<Compiler>,
    /// The compiler that builds the kernel, once there is one.
    pub compiler: Option<Compiler>,
    /// The package tool.
    pub apt: Option<Apt>,
    /// What this process may do.
    pub privilege: Privilege,
    /// Whether the user forbade every installation.
    pub forbidden: bool,
    /// What was tried in this run, to no avail.
    pub failed: Vec<Step>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Have rustup download the target's library.
    AddTarget {
        /// For this toolchain.
        toolchain: String,
    },
    /// Have rustup download the formatter and the lints.
    AddComponents {
        /// For this toolchain.
        toolchain: String,
    },
    /// Build the core library.
    BuildCore {
        /// From this compiler's sources.
        compiler: Compiler,
    },
    /// Add a place to get packages from.
    AddSource {
        /// The suite that it has.
        suite: String,
        /// What the new file says.
        line: String,
    },
    /// Bring the package tool's lists up to date.
    UpdateLists,
    /// Install packages.
    Install {
        /// Their names.
        packages: Vec<&'static str>,
        /// The suite to take them from, when it is not the ordinary one.
        suite: Option<String>,
    },
}

impl Step {
    /// Whether it changes more than the user's own cache directory.
    fn installs(&self) -> bool {
        !matches!(self, Step::BuildCore { .. })
    }

    /// Whether only root may do it.
    fn takes_root(&self) -> bool {
        matches!(self, Step::AddSource { .. } | Step::UpdateLists | Step::Install { .. })
    }

    /// When it is its turn among others: sources are complete before lists are fetched, once, and lists are fetched
    /// before packages.
    fn turn(&self) -> u32 {
        match self {
            Step::AddTarget { .. } | Step::AddComponents { .. } => 0,
            Step::AddSource { .. } => 1,
            Step::UpdateLists => 2,
            Step::Install { .. } => 3,
            Step::BuildCore { .. } => 4,
        }
    }

    /// What it is for, in words, such as `building the core library`.
    pub fn purpose(&self) -> String {
        match self {
            Step::AddTarget { .. } => format!("downloading the core library for {TARGET}"),
            Step::AddComponents { .. } => "downloading the formatter and the lints".to_owned(),
            Step::BuildCore { .. } => {
                "building the core library, once; it takes about half a minute".to_owned()
            }
            Step::AddSource { suite, .. } => format!("adding {suite} to the package sources"),
            Step::UpdateLists => "bringing the package lists up to date".to_owned(),
            Step::Install { packages, .. } => format!("installing {}", packages.join(", ")),
        }
    }

    /// The command, word by word, as this process runs it. `None` for what setup does itself.
    pub fn words(&self, privilege: Privilege) -> Option<Vec<String>> {
        let mut words = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(|&word| word.to_owned()));
        if self.takes_root() && privilege == Privilege::Sudo {
            add(&["sudo", "-n"]);
        }
        let apt =
            ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300"];
        match self {
            Step::BuildCore { .. } => return None,
            Step::AddTarget { toolchain } => {
                add(&["rustup", "target", "add", "--toolchain", toolchain, TARGET])
            }
            Step::AddComponents { toolchain } => {
                add(&["rustup", "component", "add", "--toolchain", toolchain, "rustfmt", "clippy"]);
            }
            Step::AddSource { .. } => add(&["tee", SOURCE_FILE]),
            Step::UpdateLists => {
                add(&apt);
                add(&["update"]);
            }
            Step::Install { packages, suite } => {
                add(&apt);
                // Never at the price of a package that the user has.
                add(&["install", "--yes", "--no-install-recommends", "--no-remove"]);
                if let Some(suite) = suite {
                    add(&["--target-release", suite]);
                }
                add(packages);
            }
        }
        Some(words)
    }

    /// What is shown before it is done: the command as a line for a shell, as this process runs it.
    pub fn show(&self, privilege: Privilege) -> String {
        match (self, self.words(privilege)) {
            (Step::BuildCore { compiler }, _) => {
                format!("building core and alloc for {TARGET} with {}", compiler.rustc.display())
            }
            (_, words) => self.line(&words.unwrap_or_default()),
        }
    }

    /// The command as a line for a person to paste. `None` for what setup does itself.
    fn for_people(&self) -> Option<String> {
        let mut words: Vec<String> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(|&word| word.to_owned()));
        match self {
            Step::UpdateLists => add(&["sudo", "apt-get", "update"]),
            Step::AddSource { .. } => add(&["sudo", "tee", SOURCE_FILE]),
            Step::Install { packages, suite } => {
                add(&["sudo", "apt-get", "install", "--no-install-recommends"]);
                if let Some(suite) = suite {
                    add(&["--target-release", suite]);
                }
                add(packages);
            }
            Step::AddTarget { .. } | Step::AddComponents { .. } | Step::BuildCore { .. } => {
                words = self.words(Privilege::None)?;
            }
        }
        Some(self.line(&words))
    }

    fn line(&self, words: &[String]) -> String {
        let command = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        match self {
            Step::AddSource { line, .. } => format!("echo {} | {command}", quoted(line)),
            _ => command,
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This.
    Take(Step),
    /// Nothing: setup cannot go on. The text says why, and which commands would help.
    Stop(String),
}

/// Decides what to do next, when something is missing.
pub fn decide(facts: &Facts) -> Decision {
    let barred = |step: &Step| {
        step.installs() && facts.forbidden
            || step.takes_root() && facts.privilege == Privilege::None
    };
    match plan(facts).into_iter().next() {
        Some(step) if !barred(&step) => Decision::Take(step),
        _ => Decision::Stop(advice(facts)),
    }
}

/// All steps ahead, as far as can be told now. A need that no step would meet has none.
pub fn plan(facts: &Facts) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for need in &facts.needs {
        for step in way(facts, *need).unwrap_or_default() {
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
    }
    steps.sort_by_key(Step::turn);
    steps
}

/// Why setup stops and what a person can do: lines that follow the list of what is missing, each after a line break.
pub fn advice(facts: &Facts) -> String {
    let mut text = String::new();
    let steps = plan(facts);
    let people = |steps: &[Step]| {
        let lines = steps.iter().filter_map(Step::for_people);
        lines.map(|line| format!("\n    {line}")).collect::<String>()
    };
    if !steps.is_empty() {
        text.push_str(match () {
            () if facts.forbidden => "\nNothing was installed, because OS16_NO_INSTALL is set. This puts it in place:",
            () if facts.privilege == Privilege::None && steps.iter().any(Step::takes_root) => {
                "\nIt takes root to install it, and sudo would ask for a password. This puts it in place:"
            }
            () => "\nThis puts it in place:",
        });
        text.push_str(&people(&steps));
        let mut offline = facts.clone();
        offline
            .failed
            .extend(steps.iter().filter(|step| matches!(step, Step::AddTarget { .. })).cloned());
        let instead = plan(&offline);
        if offline.failed.len() > facts.failed.len()
            && !people(&instead).is_empty()
            && covers(&offline)
        {
            let _ = write!(
                text,
                "\nWhere rustup cannot download, this does instead:{}",
                people(&instead)
            );
        }
    }
    for need in facts.needs.iter().filter(|need| way(facts, **need).is_none()) {
        let _ = write!(text, "\n{}", by_hand(facts, *need));
    }
    text
}

/// Whether each need has a way.
fn covers(facts: &Facts) -> bool {
    facts.needs.iter().all(|need| way(facts, *need).is_some())
}

/// The steps that meet one need; `None` when nothing is left to try.
fn way(facts: &Facts, need: Need) -> Option<Vec<Step>> {
    let untried = |step: &Step| !facts.failed.contains(step);
    match need {
        Need::Core => {
            let download =
                facts.rustup.clone().map(|toolchain| Step::AddTarget { toolchain }).filter(untried);
            let build = facts
                .with_source
                .clone()
                .map(|compiler| Step::BuildCore { compiler })
                .filter(untried);
            // A compiler with sources whose library would not build is not mended by installing it again.
            let broken = facts.failed.iter().any(|step| matches!(step, Step::BuildCore { .. }));
            let packages = || {
                if broken {
                    None
                } else {
                    install(facts, compiler_packages, guessed_compiler(facts))
                }
            };
            download.or(build).map(|step| vec![step]).or_else(packages)
        }
        Need::Linker => install(facts, linker_packages, install_step(&["lld"])),
        Need::Qemu => qemu(facts),
        Need::Gdb => install(facts, gdb_packages, install_step(&[GDB])),
        Need::Rustfmt | Need::Clippy => {
            let of_rustup = facts.rustup.clone().filter(|toolchain| {
                facts
                    .compiler
                    .as_ref()
                    .is_some_and(|compiler| compiler.sysroot.ends_with(toolchain))
                    || need == Need::Rustfmt
            });
            let download =
                of_rustup.map(|toolchain| Step::AddComponents { toolchain }).filter(untried);
            let packages = || install(facts, compiler_packages, guessed_compiler(facts));
            download.map(|step| vec![step]).or_else(packages)
        }
    }
}

/// Installs what `choose` takes from the known packages. Where it takes none, or that could not be installed, the lists
/// may be too old: then they are brought up to date first, and `guess` says what will probably be installed after that.
fn install(facts: &Facts, choose: fn(&Packages) -> Option<Step>, guess: Step) -> Option<Vec<Step>> {
    let apt = facts.apt.as_ref()?;
    let choice = choose(&apt.packages).filter(|step| !facts.failed.contains(step));
    let refresh = !apt.refreshed && !facts.failed.contains(&Step::UpdateLists);
    choice.map(|step| vec![step]).or_else(|| refresh.then(|| vec![Step::UpdateLists, guess]))
}

fn install_step(packages: &[&'static str]) -> Step {
    Step::Install { packages: packages.to_vec(), suite: None }
}

fn compiler_packages(packages: &Packages) -> Option<Step> {
    let new_enough = |names: &&[&'static str; 4]| {
        packages.version(names[0]).is_some_and(|version| version >= OLDEST_RUSTC)
    };
    COMPILERS.iter().find(new_enough).map(|names| install_step(names))
}

fn guessed_compiler(facts: &Facts) -> Step {
    install_step(if matches!(facts.system, System::Debian(_)) {
        &COMPILERS[0]
    } else {
        &COMPILERS[1]
    })
}

fn linker_packages(packages: &Packages) -> Option<Step> {
    let new_enough =
        |name: &&&'static str| packages.version(name).is_some_and(|version| version >= OLDEST_LLD);
    LINKERS.iter().find(new_enough).map(|name| install_step(&[name]))
}

fn gdb_packages(packages: &Packages) -> Option<Step> {
    packages.version(GDB).map(|_any| install_step(&[GDB]))
}

/// QEMU's ways: a good one from the packages; else one from Debian's backports, which may have to be added; else one
/// that is old but will do.
fn qemu(facts: &Facts) -> Option<Vec<Step>> {
    let apt = facts.apt.as_ref()?;
    let untried = |step: &Step| !facts.failed.contains(step);
    let suite = match &facts.system {
        System::Debian(codename) => Some(format!("{codename}-backports")),
        _ => None,
    };
    let newer_than = |oldest| {
        let fits = move |names: &&&[&'static str]| {
            apt.packages.version(names[0]).is_some_and(|version| version >= oldest)
        };
        QEMUS.iter().filter(fits).map(|names| Step::Install {
            packages: names.to_vec(),
            suite: suite.clone().filter(|_| apt.packages.is_backport(names[0])),
        })
    };
    if let Some(step) = newer_than(PREFERRED_QEMU).find(untried) {
        return Some(vec![step]);
    }
    let refresh = !apt.refreshed && untried(&Step::UpdateLists);
    if let (Some(suite), System::Debian(codename)) = (&suite, &facts.system) {
        let install = Step::Install { packages: QEMUS[0].to_vec(), suite: Some(suite.clone()) };
        let line = apt.sources.backports(codename);
        let too_old = codename == WITH_OLD_QEMU || newer_than(OLDEST_QEMU).next().is_some();
        if apt.sources.have(suite) {
            if refresh {
                return Some(vec![Step::UpdateLists, install]);
            }
        } else if let Some(line) = line.filter(|_| too_old || !refresh) {
            let add = Step::AddSource { suite: suite.clone(), line };
            if untried(&add) {
                return Some(vec![add, Step::UpdateLists, install]);
            }
        }
    }
    if let Some(step) = newer_than(OLDEST_QEMU).find(untried) {
        return Some(vec![step]);
    }
    let guess = if suite.is_some() { QEMUS[0] } else { QEMUS[1] };
    refresh.then(|| vec![Step::UpdateLists, install_step(guess)])
}

/// What to do about a need that setup has no way to meet.
fn by_hand(facts: &Facts, need: Need) -> String {
    let packages = facts.apt.as_ref().map(|apt| &apt.packages);
    match need {
        Need::Core => {
            let mut text = match &facts.rustup {
                Some(toolchain) if !facts.failed.is_empty() => {
                    format!(
                        "rustup could not download it; with a network that lets it:\n    rustup target add --toolchain {toolchain} {TARGET}"
                    )
                }
                Some(toolchain) => {
                    format!("Get it with:\n    rustup target add --toolchain {toolchain} {TARGET}")
                }
                None => format!("Install rustup, then:\n    rustup target add {TARGET}"),
            };
            let newest = packages.and_then(|packages| {
                COMPILERS.iter().filter_map(|names| packages.version(names[0])).max()
            });
            if let Some(newest) = newest.filter(|newest| *newest < OLDEST_RUSTC) {
                let _ = write!(
                    text,
                    "\n(The newest compiler among this machine's packages is {newest}; it takes {OLDEST_RUSTC}.)"
                );
            }
            text
        }
        Need::Linker => {
            format!("Install lld, {} or newer, so that `ld.lld` is in PATH.", OLDEST_LLD.major)
        }
        Need::Qemu => match qemu_command(&facts.system) {
            Some(command) => format!("Get QEMU with:\n    {command}"),
            None => format!(
                "Install QEMU {OLDEST_QEMU} or newer, so that `qemu-system-riscv64` is in PATH."
            ),
        },
        Need::Rustfmt => "Get the formatter with:\n    rustup component add rustfmt".to_owned(),
        Need::Clippy => "Get the lints with:\n    rustup component add clippy".to_owned(),
        Need::Gdb => match gdb_command(&facts.system) {
            Some(command) => format!("Get gdb with:\n    {command}"),
            None => format!(
                "Install a gdb that knows RISC-V, so that one of these is in PATH: {}.",
                GDBS.join(", ")
            ),
        },
    }
}

/// How other systems install QEMU.
fn qemu_command(system: &System) -> Option<&'static str> {
    match system {
        System::MacOs => Some("brew install qemu"),
        System::Debian(_) | System::DebianLike => {
            Some("sudo apt-get update && sudo apt-get install qemu-system-misc opensbi")
        }
        System::Linux(words) => words.iter().find_map(|word| match word.as_str() {
            "fedora" | "rhel" => Some("sudo dnf install qemu-system-riscv"),
            "arch" => Some("sudo pacman -S qemu-system-riscv qemu-system-riscv-firmware"),
            "alpine" => Some("sudo apk add qemu-system-riscv64"),
            "suse" | "opensuse" => Some("sudo zypper install qemu-extra"),
            "gentoo" => Some("sudo QEMU_SOFTMMU_TARGETS=riscv64 emerge app-emulation/qemu"),
            "nixos" => Some("nix-shell -p qemu"),
            _ => None,
        }),
        System::Other => None,
    }
}

/// How systems install a gdb that knows RISC-V.
pub fn gdb_command(system: &System) -> Option<&'static str> {
    match system {
        System::MacOs => Some("brew install riscv64-elf-gdb"),
        System::Debian(_) | System::DebianLike => Some("sudo apt-get install gdb-multiarch"),
        System::Linux(words) => words.iter().find_map(|word| match word.as_str() {
            "fedora" | "rhel" => Some("sudo dnf install gdb"),
            "arch" => Some("sudo pacman -S riscv64-elf-gdb"),
            "alpine" => Some("sudo apk add gdb-multiarch"),
            _ => None,
        }),
        System::Other => None,
    }
}

#[cfg(test)]
mod tests;
