//! Sets `cfg(shuttle)` for this package.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=shuttle");
    // None of the crate's features is declared here.
    println!("cargo::rustc-check-cfg=cfg(feature, values(any()))");
}
