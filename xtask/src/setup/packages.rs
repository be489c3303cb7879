//! What Debian's package tool knows: which versions it could install, and where it gets packages from.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::environment::{self, Version};

/// Every package that setup may ask for.
pub const ALL: [&str; 18] = [
    "rustc-web",
    "rust-web-src",
    "rust-web-clippy",
    "rustfmt-web",
    "rustc",
    "rust-src",
    "rust-clippy",
    "rustfmt",
    "lld",
    "lld-17",
    "lld-18",
    "lld-19",
    "lld-20",
    "lld-21",
    "lld-22",
    "qemu-system-riscv",
    "qemu-system-misc",
    "gdb-multiarch",
];

/// The version that would be installed of each package, in Debian's notation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packages(BTreeMap<String, String>);

impl Packages {
    /// Asks `apt-cache`. Nothing is known where it cannot be asked.
    pub fn of_this_machine() -> Packages {
        let mut command = Command::new("apt-cache");
        // Another language has other words for `Candidate`.
        command.env("LC_ALL", "C").arg("policy").args(ALL);
        Packages::parse(&environment::output_of(&mut command).unwrap_or_default())
    }

    /// Reads what `apt-cache policy NAME...` prints in English.
    pub fn parse(policy: &str) -> Packages {
        let mut candidates = BTreeMap::new();
        let mut name = "";
        for line in policy.lines() {
            if let Some(package) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
                name = package;
            } else if let Some(candidate) =
                line.trim_start().strip_prefix("Candidate: ").filter(|text| *text != "(none)")
            {
                candidates.insert(name.to_owned(), candidate.to_owned());
            }
        }
        Packages(candidates)
    }

    /// The upstream version of the candidate: of `1:10.0.2+ds-2+deb13u1~bpo12+1` it is 10.0.2.
    pub fn version(&self, name: &str) -> Option<Version> {
        let candidate = self.0.get(name)?;
        Version::within(candidate.split_once(':').map_or(candidate, |(_epoch, version)| version))
    }

    /// Whether the candidate comes from a backports suite, by Debian's rule for such versions.
    pub fn is_backport(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|candidate| candidate.contains("~bpo"))
    }
}

/// One place that packages come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The mirror, as written in the machine's own sources.
    pub mirror: String,
    /// The suites taken from it: `bookworm`, `bookworm-updates`.
    pub suites: Vec<String>,
    /// The parts of each suite: `main`.
    pub components: Vec<String>,
    /// The keys that its signature is checked with, when it names a file or a fingerprint.
    pub signed_by: Option<String>,
}

/// All places that packages come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources(pub Vec<Source>);

impl Sources {
    /// Reads `/etc/apt`. A file that cannot be read counts as empty.
    pub fn of_this_machine() -> Sources {
        let mut files = vec![Path::new("/etc/apt/sources.list").to_owned()];
        let folder = Path::new("/etc/apt/sources.list.d").read_dir();
        let mut parts: Vec<_> =
            folder.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        parts.sort();
        files.extend(parts);
        let mut sources = Sources::default();
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("list") => sources.0.extend(text.lines().filter_map(one_line)),
                Some("sources") => {
                    sources.0.extend(stanzas(&text).filter_map(|fields| stanza(&fields)))
                }
                _ => {}
            }
        }
        sources
    }

    /// Reads one file of either notation: lines (`deb …`), or stanzas of fields (`Types: deb`).
    pub fn parse(text: &str) -> Sources {
        let lines = text.lines().filter_map(one_line);
        Sources(lines.chain(stanzas(text).filter_map(|fields| stanza(&fields))).collect())
    }

    /// Whether some source has this suite.
    pub fn have(&self, suite: &str) -> bool {
        self.0.iter().any(|source| source.suites.iter().any(|name| name == suite))
    }

    /// A line for a new `.list` file: the suite `CODENAME-backports` from the mirror, and checked with the keys, of the
    /// source that has the suite `CODENAME`.
    pub fn backports(&self, codename: &str) -> Option<String> {
        let is_release = |source: &&Source| {
            source.suites.iter().any(|suite| suite == codename)
                && source.components.iter().any(|part| part == "main")
        };
        let Source { mirror, signed_by, .. } = self.0.iter().find(is_release)?;
        let keys =
            signed_by.as_ref().map(|keys| format!("[signed-by={keys}] ")).unwrap_or_default();
        Some(format!("deb {keys}{mirror} {codename}-backports main"))
    }
}

/// `deb [signed-by=KEYS] MIRROR SUITE COMPONENT...`
fn one_line(line: &str) -> Option<Source> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split('#').next()?.split_whitespace().map(str::to_owned);
    let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    Some(Source {
        mirror: words.next()?,
        suites: vec![words.next()?],
        components: words.collect(),
        signed_by: signed_by.map(str::to_owned),
    })
}

/// The stanzas of a file in the notation of `.sources`: the fields of each, a value's further lines joined to it.
fn stanzas(text: &str) -> impl Iterator<Item = BTreeMap<String, String>> {
    let mut all = vec![BTreeMap::new()];
    let mut last = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields = all.last_mut().expect("never empty");
        if line.trim().is_empty() {
            all.push(BTreeMap::new());
        } else if line.starts_with([' ', '\t']) {
            let value: &mut String = fields.entry(last.clone()).or_default();
            value.push('\n');
            value.push_str(line.trim());
        } else if let Some((name, value)) = line.split_once(':') {
            last = name.to_ascii_lowercase();
            fields.insert(last.clone(), value.trim().to_owned());
        }
    }
    all.into_iter()
}

/// A stanza with packages in it that is not switched off.
fn stanza(fields: &BTreeMap<String, String>) -> Option<Source> {
    let words = |name: &str| {
        fields
            .get(name)
            .map(|value| value.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let on = fields.get("enabled").is_none_or(|value| value != "no");
    if !on || !words("types")?.iter().any(|kind| kind == "deb") {
        return None;
    }
    // A key that is written out, over several lines, cannot be repeated on one line: then the machine's own keyring must do.
    let signed_by = fields
        .get("signed-by")
        .filter(|keys| !keys.is_empty() && !keys.contains(char::is_whitespace));
    Some(Source {
        mirror: words("uris")?.first()?.clone(),
        suites: words("suites")?,
        components: words("components").unwrap_or_default(),
        signed_by: signed_by.cloned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_read_with_their_upstream_versions() {
        let policy = "rustc-web:
  Installed: (none)
  Candidate: 1.96.0+dfsg1-1~deb12u2
  Version table:
     1.96.0+dfsg1-1~deb12u2 500
        500 http://mirror.example/debian-security bookworm-security/main amd64 Packages
qemu-system-riscv:
  Installed: 1:10.0.2+ds-2+deb13u1~bpo12+1
  Candidate: 1:10.0.2+ds-2+deb13u1~bpo12+1
  Version table:
 *** 1:10.0.2+ds-2+deb13u1~bpo12+1 100
qemu-system-misc:
  Installed: (none)
  Candidate: 1:7.2+dfsg-7+deb12u18+b3
rustc:
  Installed: (none)
  Candidate: (none)
";
        let packages = Packages::parse(policy);
        assert_eq!(packages.version("rustc-web"), Some(Version::new(1, 96, 0)));
        assert_eq!(packages.version("qemu-system-riscv"), Some(Version::new(10, 0, 2)));
        assert_eq!(packages.version("qemu-system-misc"), Some(Version::new(7, 2, 0)));
        assert_eq!(packages.version("rustc"), None);
        assert!(packages.is_backport("qemu-system-riscv"));
        assert!(!packages.is_backport("rustc-web"));
    }

    #[test]
    fn backports_come_from_the_releases_own_mirror_with_its_keys() {
        let stanzas = "# a comment
Types: deb deb-src
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /keys/debian.gpg
";
        let line =
            "deb [signed-by=/keys/debian.gpg] http://mirror.example/debian bookworm-backports main";
        assert_eq!(Sources::parse(stanzas).backports("bookworm").as_deref(), Some(line));

        let lines = "# deb cdrom:[a disc] bookworm main
deb [arch=amd64 signed-by=/keys/debian.gpg] http://mirror.example/debian bookworm main # comment
deb http://mirror.example/debian bookworm-updates main
";
        assert_eq!(Sources::parse(lines).backports("bookworm").as_deref(), Some(line));
        assert_eq!(Sources::parse(lines).backports("trixie"), None);
    }

    #[test]
    fn keys_written_into_the_file_are_left_to_the_machines_own_keyring() {
        let stanza = "Types: deb
URIs: http://mirror.example/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEZ
 -----END PGP PUBLIC KEY BLOCK-----
";
        let line = "deb http://mirror.example/debian bookworm-backports main";
        assert_eq!(Sources::parse(stanza).backports("bookworm").as_deref(), Some(line));
    }

    #[test]
    fn sources_that_are_switched_off_do_not_count() {
        let off = "Enabled: no\nTypes: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\n";
        assert_eq!(Sources::parse(off), Sources::default());
        let source_code = "Types: deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\n";
        assert_eq!(Sources::parse(source_code), Sources::default());
        let backports = "deb http://mirror.example/debian bookworm-backports main\n";
        assert!(Sources::parse(backports).have("bookworm-backports"));
        assert!(!Sources::parse(backports).have("bookworm"));
    }
}
