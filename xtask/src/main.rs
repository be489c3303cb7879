//! The command `cargo run -- COMMAND`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::cli::main()
}
