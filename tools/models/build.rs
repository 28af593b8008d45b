//! Builds this package, and no other, with the atomics of loom.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cfg=farcore_loom");
}
