//! `doctor`: what was found on this machine, what is missing and how to get it. Changes nothing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::environment::{self, Core, Gdb, Need, PREFERRED_QEMU, Survey, TARGET};
use crate::{qemu, setup, style};

/// How to say it.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The exit code is 2 when something is missing that `cargo run` or `cargo test` needs.

Examples:
  cargo run -- doctor
  cargo run -- doctor --json"
)]
pub struct Arguments {
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// What the doctor found.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether nothing is missing that is needed.
    healthy: bool,
    findings: Vec<Finding>,
}

/// One thing that was looked for.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    state: State,
    /// What it says of itself, or what is to be said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    /// How to get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Found,
    Missing,
    /// Missing, and only a few commands want it.
    MissingOptional,
}

impl Finding {
    fn found(
        name: &'static str,
        description: impl Into<String>,
        path: impl Into<PathBuf>,
    ) -> Finding {
        let (description, path) = (Some(description.into()), Some(path.into()));
        Finding { name, state: State::Found, description, path, advice: None }
    }

    fn missing(name: &'static str, survey: &Survey, need: Need) -> Finding {
        let advice = setup::advice(survey, &[need]).trim_start().to_owned();
        Finding { name, state: State::Missing, description: None, path: None, advice: Some(advice) }
    }
}

/// Looks, and says what was found. The exit code is 2 when something is missing.
///
/// # Errors
/// When the report cannot be written as JSON.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let report = examine(&Survey::new());
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(ExitCode::from(if report.healthy { 0 } else { 2 }))
}

fn examine(survey: &Survey) -> Report {
    let mut findings = Vec::new();
    let version = |program: &Path| {
        let text = environment::output_of(std::process::Command::new(program).arg("--version"));
        text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
    };
    findings.push(Finding::found("cargo", version(&survey.cargo), &survey.cargo));
    match survey.compiler() {
        Some(compiler) => {
            findings.push(Finding::found("compiler", &compiler.description, &compiler.rustc));
            let (origin, sysroot) = match &compiler.core {
                Core::Private(sysroot) => ("core built from the compiler's sources", sysroot),
                Core::Own | Core::Absent => ("core that came with the compiler", &compiler.sysroot),
            };
            let libraries = environment::target_libraries(sysroot);
            findings.push(Finding::found("target", format!("{TARGET}, {origin}"), libraries));
        }
        None => findings.push(Finding::missing("target", survey, Need::Core)),
    }
    let own_linker = survey.compiler().and_then(environment::Compiler::own_linker);
    match own_linker.as_ref().or(survey.linker.as_ref()) {
        Some(linker) => {
            let description = environment::lld_version(linker).unwrap_or_default();
            let short = description.split(" (").next().unwrap_or_default();
            findings.push(Finding::found("linker", short, linker));
        }
        None => findings.push(Finding::missing("linker", survey, Need::Linker)),
    }
    match &survey.qemu {
        Some(found) if !survey.lacks(Need::Qemu) => {
            let old = if found.version < PREFERRED_QEMU {
                " (old: a firmware without DBCN; it works)"
            } else {
                ""
            };
            findings.push(Finding::found(
                "QEMU",
                format!("{}{old}", found.description),
                &found.program,
            ));
            let firmware = found.firmware.clone().unwrap_or_default();
            let description = qemu::firmware_version(found)
                .unwrap_or_else(|| "does not say its version".to_owned());
            findings.push(Finding::found("firmware", description, firmware));
        }
        found => {
            let mut finding = Finding::missing("QEMU", survey, Need::Qemu);
            finding.description = found.as_ref().map(|found| match found.firmware {
                Some(_) => format!("{} is too old", found.description),
                None => format!("{} has no firmware", found.description),
            });
            findings.push(finding);
        }
    }
    for (name, need, program) in
        [("formatter", Need::Rustfmt, survey.formatter()), ("lints", Need::Clippy, survey.lints())]
    {
        findings.push(match program {
            Some(program) => Finding::found(name, version(&program), program),
            None => Finding::missing(name, survey, need),
        });
    }
    findings.push(match Gdb::find() {
        Some(gdb) => Finding::found("gdb", gdb.description, gdb.program),
        None => Finding {
            state: State::MissingOptional,
            description: Some("optional: for `cargo run -- gdb` and its tests".to_owned()),
            ..Finding::missing("gdb", survey, Need::Gdb)
        },
    });
    let healthy = findings.iter().all(|finding| finding.state != State::Missing);
    Report { healthy, findings }
}

fn print(report: &Report) {
    let length = |finding: &Finding| finding.description.as_ref().map_or(0, String::len);
    let width = report.findings.iter().map(length).max().unwrap_or(0);
    for finding in &report.findings {
        let (style, state) = match finding.state {
            State::Found => (style::GOOD, "found"),
            State::Missing => (style::BAD, "missing"),
            State::MissingOptional => (style::NOTABLE, "missing"),
        };
        let path = finding.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let description = finding.description.as_deref().unwrap_or_default();
        let line =
            format!("{:10} {style}{state:8}{style:#} {description:width$}  {path}", finding.name);
        anstream::println!("{}", line.trim_end());
    }
    // What one command gets is one paragraph.
    let mut advice: Vec<(&str, Vec<&str>)> = Vec::new();
    for finding in &report.findings {
        let Some(text) = finding.advice.as_deref() else { continue };
        match advice.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(finding.name),
            None => advice.push((text, vec![finding.name])),
        }
    }
    for (text, names) in advice {
        anstream::println!("\n{}: {text}", names.join(", "));
    }
    if report.healthy {
        anstream::println!("\nNothing is missing: `cargo run` and `cargo test` work.");
    } else {
        anstream::println!(
            "\n`cargo run` and `cargo test` put in place what they can of this by themselves."
        );
    }
}
