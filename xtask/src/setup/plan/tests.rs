//! The policy, machine by machine.

use std::path::PathBuf;

use super::*;
use crate::environment::{Core, Version};

const BOOKWORM: &str = "ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n";
const TRIXIE: &str = "ID=debian\nVERSION_ID=\"13\"\nVERSION_CODENAME=trixie\n";
const NOBLE: &str = "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\n";
const FEDORA: &str = "ID=fedora\nVERSION_ID=42\n";
const MANJARO: &str = "ID=manjaro\nID_LIKE=arch\n";

const BOOKWORM_SOURCES: &str = "Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
";

const EVERYTHING: [Need; 3] = [Need::Core, Need::Linker, Need::Qemu];

/// A root's machine that lacks `needs`, without rustup and without a package tool.
fn machine(release: &str, needs: &[Need]) -> Facts {
    Facts {
        needs: needs.to_vec(),
        system: System::new("linux", release),
        rustup: None,
        with_source: None,
        compiler: None,
        apt: None,
        privilege: Privilege::Root,
        forbidden: false,
        failed: Vec::new(),
    }
}

/// The package tool with these candidates, its lists as old as the machine.
fn apt(candidates: &[(&str, &str)], sources: &str) -> Option<Apt> {
    let policy = |(name, version): &(&str, &str)| {
        format!("{name}:\n  Installed: (none)\n  Candidate: {version}\n")
    };
    let packages = Packages::parse(&candidates.iter().map(policy).collect::<String>());
    Some(Apt { packages, sources: Sources::parse(sources), refreshed: false })
}

fn rustup() -> Option<String> {
    Some("stable-x86_64-unknown-linux-gnu".to_owned())
}

fn compiler_with_source() -> Compiler {
    Compiler {
        rustc: PathBuf::from("/usr/bin/rustc"),
        description: "rustc 1.96.0 (ac68faa20 2026-05-25)".to_owned(),
        version: Version::new(1, 96, 0),
        host: "x86_64-unknown-linux-gnu".to_owned(),
        sysroot: PathBuf::from("/usr"),
        core: Core::Absent,
    }
}

/// Bookworm with fresh lists: compilers in two ages, QEMU without backports.
fn bookworm(needs: &[Need]) -> Facts {
    let candidates = [
        ("rustc-web", "1.96.0+dfsg1-1~deb12u2"),
        ("rustc", "1.63.0+dfsg1-2"),
        ("lld", "1:14.0-55.7~deb12u1"),
        ("lld-19", "1:19.1.7-3~deb12u1"),
        ("qemu-system-misc", "1:7.2+dfsg-7+deb12u18+b3"),
    ];
    Facts { apt: apt(&candidates, BOOKWORM_SOURCES), ..machine(BOOKWORM, needs) }
}

const TARGET_BY_RUSTUP: &str =
    "rustup target add --toolchain stable-x86_64-unknown-linux-gnu riscv64imac-unknown-none-elf";
const COMPILER_OF_BOOKWORM: &str = "sudo apt-get install --no-install-recommends rustc-web rust-web-src rust-web-clippy rustfmt-web";
const COMPILER: &str =
    "sudo apt-get install --no-install-recommends rustc rust-src rust-clippy rustfmt";
const UPDATE: &str = "sudo apt-get update";
const BACKPORTS: &str = "echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
     http://mirror.example/debian bookworm-backports main' | sudo tee /etc/apt/sources.list.d/16-os-backports.list";
const QEMU_OF_BACKPORTS: &str = "sudo apt-get install --no-install-recommends --target-release bookworm-backports qemu-system-riscv";
const QEMU: &str = "sudo apt-get install --no-install-recommends qemu-system-riscv";
const QEMU_OF_UBUNTU: &str =
    "sudo apt-get install --no-install-recommends qemu-system-misc opensbi";

fn lines(facts: &Facts) -> Vec<String> {
    plan(facts).iter().filter_map(Step::for_people).collect()
}

#[test]
fn each_machine_has_its_plan() {
    let trixie = [
        ("rustc", "1.97.0+dfsg1-1"),
        ("lld", "1:19.0-63"),
        ("qemu-system-riscv", "1:10.0.2+ds-2+deb13u1"),
    ];
    let noble = [
        ("rustc", "1.75.0+dfsg0ubuntu1"),
        ("lld", "1:18.0-59"),
        ("qemu-system-misc", "1:8.2.2+ds-0ubuntu1"),
    ];
    let failed = vec![Step::AddTarget { toolchain: rustup().expect("there is one") }];
    let table: [(&str, Facts, &[&str]); 13] = [
        (
            "a rustup that may download, on a machine with QEMU",
            Facts { rustup: rustup(), ..machine(FEDORA, &[Need::Core]) },
            &[TARGET_BY_RUSTUP],
        ),
        (
            "the same on macOS",
            Facts {
                rustup: rustup(),
                system: System::new("macos", ""),
                ..machine("", &[Need::Core])
            },
            &[TARGET_BY_RUSTUP],
        ),
        (
            "Debian 12 with a rustup, where QEMU is missing too",
            Facts { rustup: rustup(), ..bookworm(&[Need::Core, Need::Qemu]) },
            &[TARGET_BY_RUSTUP, BACKPORTS, UPDATE, QEMU_OF_BACKPORTS],
        ),
        (
            "Debian 12 with a rustup that could not download",
            Facts { rustup: rustup(), failed: failed.clone(), ..bookworm(&[Need::Core]) },
            &[COMPILER_OF_BOOKWORM],
        ),
        (
            "Debian 12 with nothing",
            bookworm(&EVERYTHING),
            &[
                BACKPORTS,
                UPDATE,
                COMPILER_OF_BOOKWORM,
                "sudo apt-get install --no-install-recommends lld-19",
                QEMU_OF_BACKPORTS,
            ],
        ),
        (
            "Debian 12 with nothing, not even package lists",
            Facts {
                apt: apt(&[], BOOKWORM_SOURCES),
                ..machine(BOOKWORM, &[Need::Core, Need::Qemu])
            },
            &[BACKPORTS, UPDATE, COMPILER_OF_BOOKWORM, QEMU_OF_BACKPORTS],
        ),
        (
            "Debian 12 whose sources have backports, with old lists",
            Facts {
                apt: apt(
                    &[("qemu-system-misc", "1:7.2+dfsg-7")],
                    "deb http://mirror.example/debian bookworm-backports main",
                ),
                ..machine(BOOKWORM, &[Need::Qemu])
            },
            &[UPDATE, QEMU_OF_BACKPORTS],
        ),
        (
            "Debian 12 whose lists have backports",
            Facts {
                apt: apt(
                    &[
                        ("qemu-system-riscv", "1:10.0.2+ds-2+deb13u1~bpo12+1"),
                        ("qemu-system-misc", "1:7.2+dfsg-7"),
                    ],
                    BOOKWORM_SOURCES,
                ),
                ..machine(BOOKWORM, &[Need::Qemu])
            },
            &[QEMU_OF_BACKPORTS],
        ),
        (
            "Debian 13",
            Facts { apt: apt(&trixie, ""), ..machine(TRIXIE, &EVERYTHING) },
            &[COMPILER, "sudo apt-get install --no-install-recommends lld", QEMU],
        ),
        (
            "Ubuntu with a rustup",
            Facts {
                rustup: rustup(),
                apt: apt(&noble, ""),
                ..machine(NOBLE, &[Need::Core, Need::Qemu])
            },
            &[TARGET_BY_RUSTUP, QEMU_OF_UBUNTU],
        ),
        (
            "Ubuntu with a rustup that could not download, whose own compiler is too old: newer lists may know another",
            Facts {
                rustup: rustup(),
                failed,
                apt: apt(&noble, ""),
                ..machine(NOBLE, &[Need::Core])
            },
            &[UPDATE, COMPILER],
        ),
        ("another Linux without a rustup", machine(FEDORA, &EVERYTHING), &[]),
        (
            "rustup without the formatter and the lints",
            Facts { rustup: rustup(), compiler: None, ..machine(FEDORA, &[Need::Rustfmt]) },
            &["rustup component add --toolchain stable-x86_64-unknown-linux-gnu rustfmt clippy"],
        ),
    ];
    for (name, facts, expected) in &table {
        assert_eq!(lines(facts), *expected, "{name}");
    }
}

#[test]
fn gdb_is_a_package_where_one_is_known_and_else_a_command_for_its_user() {
    let install = "sudo apt-get install --no-install-recommends gdb-multiarch";
    let known = apt(&[("gdb-multiarch", "16.3-1")], "");
    let trixie = Facts { apt: known, ..machine(TRIXIE, &[Need::Gdb]) };
    assert_eq!(lines(&trixie), [install]);
    let old_lists = Facts { apt: apt(&[], ""), ..machine(NOBLE, &[Need::Gdb]) };
    assert_eq!(lines(&old_lists), [UPDATE, install]);
    let arch = machine(MANJARO, &[Need::Gdb]);
    assert_eq!(advice(&arch), "\nGet gdb with:\n    sudo pacman -S riscv64-elf-gdb");
    let other = Facts { system: System::Other, ..machine("", &[Need::Gdb]) };
    assert!(
        advice(&other).contains("gdb-multiarch, riscv64-unknown-elf-gdb"),
        "{}",
        advice(&other)
    );
}

#[test]
fn a_compiler_with_sources_makes_its_own_core_and_installs_nothing() {
    let facts = Facts {
        with_source: Some(compiler_with_source()),
        forbidden: true,
        privilege: Privilege::None,
        ..bookworm(&[Need::Core])
    };
    let build = Step::BuildCore { compiler: compiler_with_source() };
    assert_eq!(decide(&facts), Decision::Take(build.clone()));
    // A compiler that cannot build its own library is not mended by installing it again.
    let broken =
        Facts { failed: vec![build], forbidden: false, privilege: Privilege::Root, ..facts };
    assert!(matches!(decide(&broken), Decision::Stop(_)), "{:?}", decide(&broken));
}

#[test]
fn rustup_comes_before_building() {
    let facts = Facts {
        rustup: rustup(),
        with_source: Some(compiler_with_source()),
        ..machine(BOOKWORM, &[Need::Core])
    };
    assert!(matches!(decide(&facts), Decision::Take(Step::AddTarget { .. })));
}

#[test]
fn lints_come_from_where_the_kernels_compiler_came_from() {
    let debian = Facts {
        rustup: rustup(),
        compiler: Some(compiler_with_source()),
        ..bookworm(&[Need::Clippy])
    };
    assert_eq!(lines(&debian), [COMPILER_OF_BOOKWORM]);
    let sysroot = PathBuf::from("/home/user/.rustup/toolchains/stable-x86_64-unknown-linux-gnu");
    let compiler = Compiler { sysroot, core: Core::Own, ..compiler_with_source() };
    let of_rustup = Facts { compiler: Some(compiler), ..debian };
    assert!(matches!(plan(&of_rustup)[..], [Step::AddComponents { .. }]), "{:?}", plan(&of_rustup));
}

#[test]
fn what_old_lists_cannot_install_is_tried_again_with_new_ones() {
    let mut facts = bookworm(&[Need::Core]);
    let install = plan(&facts).remove(0);
    facts.failed.push(install.clone());
    assert_eq!(decide(&facts), Decision::Take(Step::UpdateLists));
    // The lists are new now, and the package fails once more.
    facts.apt.as_mut().expect("there is one").refreshed = true;
    assert!(matches!(decide(&facts), Decision::Stop(_)));
}

#[test]
fn a_release_without_backports_makes_do_with_its_own_qemu() {
    let mut facts = bookworm(&[Need::Qemu]);
    let add = plan(&facts).remove(0);
    facts.failed.extend([add, Step::UpdateLists]);
    assert_eq!(lines(&facts), [QEMU_OF_UBUNTU]);
}

#[test]
fn nothing_is_installed_where_that_is_forbidden() {
    let machines = [
        Facts { rustup: rustup(), ..machine(FEDORA, &EVERYTHING) },
        Facts { rustup: rustup(), ..bookworm(&EVERYTHING) },
        bookworm(&EVERYTHING),
        machine(TRIXIE, &EVERYTHING),
    ];
    for facts in machines {
        let facts = Facts { forbidden: true, ..facts };
        assert!(matches!(decide(&facts), Decision::Stop(_)), "{facts:?}");
    }
}

#[test]
fn nobody_but_root_installs_packages() {
    let facts = bookworm(&[Need::Core]);
    for (privilege, start) in [
        (Privilege::Root, "env DEBIAN_FRONTEND=noninteractive apt-get "),
        (Privilege::Sudo, "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get "),
    ] {
        let facts = Facts { privilege, ..facts.clone() };
        let Decision::Take(step) = decide(&facts) else { panic!("{privilege:?} may") };
        assert!(step.show(privilege).starts_with(start), "{}", step.show(privilege));
        assert!(step.show(privilege).contains(" --no-remove "), "{}", step.show(privilege));
    }
    assert!(matches!(decide(&Facts { privilege: Privilege::None, ..facts }), Decision::Stop(_)));
    // Rustup is the user's own.
    let own =
        Facts { rustup: rustup(), privilege: Privilege::None, ..machine(FEDORA, &[Need::Core]) };
    assert!(matches!(decide(&own), Decision::Take(Step::AddTarget { .. })));
}

#[test]
fn the_advice_is_the_commands() {
    let forbidden =
        Facts { rustup: rustup(), forbidden: true, ..bookworm(&[Need::Core, Need::Qemu]) };
    let expected = format!(
        "\nNothing was installed, because OS16_NO_INSTALL is set. This puts it in place:\n    {TARGET_BY_RUSTUP}\n    \
         {BACKPORTS}\n    {UPDATE}\n    {QEMU_OF_BACKPORTS}\nWhere rustup cannot download, this does instead:\n    \
         {BACKPORTS}\n    {UPDATE}\n    {COMPILER_OF_BOOKWORM}\n    {QEMU_OF_BACKPORTS}"
    );
    assert_eq!(advice(&forbidden), expected);

    let password = Facts { privilege: Privilege::None, ..bookworm(&[Need::Core]) };
    let expected = format!(
        "\nIt takes root to install it, and sudo would ask for a password. This puts it in place:\n    {COMPILER_OF_BOOKWORM}"
    );
    assert_eq!(advice(&password), expected);
}

#[test]
fn every_need_has_advice_on_every_machine() {
    let all = [Need::Core, Need::Linker, Need::Qemu, Need::Rustfmt, Need::Clippy, Need::Gdb];
    let machines = [
        machine(FEDORA, &all),
        machine(MANJARO, &all),
        machine(NOBLE, &all),
        Facts { system: System::new("macos", ""), ..machine("", &all) },
        Facts { system: System::new("freebsd", ""), ..machine("", &all) },
    ];
    for facts in machines {
        let text = advice(&facts);
        for word in ["rustup target add", "lld", "rustfmt", "clippy", "gdb"] {
            assert!(text.contains(word), "{:?} has no advice with {word}: {text}", facts.system);
        }
        assert!(
            text.to_lowercase().contains("qemu"),
            "{:?} has no advice on QEMU: {text}",
            facts.system
        );
    }
    let arch = advice(&machine(MANJARO, &[Need::Qemu]));
    assert!(arch.contains("pacman"), "{arch}");
}
