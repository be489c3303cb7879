//! Hands the linker its script. Everything else about the build is in xtask's `image`.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR")
        .expect("cargo sets CARGO_MANIFEST_DIR for build scripts");
    println!("cargo::rustc-link-arg-bins=-T{folder}/kernel.ld");
    println!("cargo::rerun-if-changed=kernel.ld");
    println!("cargo::rerun-if-changed=build.rs");
}
