//! Sets `cfg(simulation)` for this package only.

fn main() {
    println!("cargo::rerun-if-changed=Cargo.toml");
    println!("cargo::rustc-cfg=simulation");
    // This package declares none of the crate's features, so any name is allowed.
    println!("cargo::rustc-check-cfg=cfg(feature, values(any()))");
}
