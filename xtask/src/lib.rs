//! The host's side of 16-os: what `cargo run -- COMMAND` and `cargo test` do. [`cli`] has the commands.

// The machine that everything runs on, and what is missing there.
pub mod doctor;
pub mod environment;
pub mod setup;

// From sources to an image that has its symbols and its proofs.
pub mod frames;
pub mod image;
pub mod size;
pub mod symbols;

// From an image to a debugger.
pub mod gdb;

// From an image to a verdict.
pub mod firmware;
pub mod hang;
pub mod lanes;
pub mod manifest;
pub mod matrix;
pub mod qemu;
pub mod report;
pub mod run;
pub mod verdict;

// Instruction counts.
pub mod bench;

// Timelines, and other pictures of what runs.
pub mod pictures;
pub mod svg;
pub mod trace;

// Tests, repetition, deliberate faults, and the claims that they check.
pub mod cases;
pub mod claims;
pub mod explore;
pub mod load;
pub mod mutants;
pub mod pool;
pub mod soak;
pub mod statistics;
pub mod test;

// The machine that a device tree describes.
pub mod machine;

// The command line and what it shows.
pub mod cli;
pub mod options;
pub mod progress;
pub mod style;
