//! Names the shared library as programs look for it: by major and minor version, because a minor
//! version may change the interface before 1.0.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let part = |name| std::env::var(name).unwrap_or_default();
    let (major, minor) = (
        part("CARGO_PKG_VERSION_MAJOR"),
        part("CARGO_PKG_VERSION_MINOR"),
    );
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfarcore.so.{major}.{minor}");
}
