//! Checks that the packages of the feature `verbs` are installed, before the bindings are built.
//!
//! Runs `pkg-config` and searches the usual folders of libclang. Without the feature it does
//! nothing.

use std::path::Path;
use std::process::Command;

const PACKAGES: &str = "libibverbs-dev librdmacm-dev libclang-dev pkg-config";

fn has_library(name: &str) -> bool {
    let found = Command::new("pkg-config").args(["--exists", name]).status();
    found.is_ok_and(|status| status.success())
}

/// Searches the folders of Debian and similar systems. `LIBCLANG_PATH`, which the bindings read
/// too, names any other.
fn has_libclang() -> bool {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    let entries = |folder: &Path| {
        let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
        listed.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut folders: Vec<_> = ["/usr/lib", "/usr/lib64", "/usr/local/lib"]
        .iter()
        .map(|folder| Path::new(folder).to_owned())
        .collect();
    for folder in entries(Path::new("/usr/lib")) {
        folders.push(folder.join("lib"));
        folders.push(folder);
    }
    let is_it = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libclang") && name.contains(".so"))
    };
    folders
        .iter()
        .any(|folder| entries(folder).iter().any(|path| is_it(path)))
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
    if std::env::var_os("CARGO_FEATURE_VERBS").is_none() {
        return;
    }
    let mut missing = Vec::new();
    for library in ["libibverbs", "librdmacm"] {
        if !has_library(library) {
            missing.push(library);
        }
    }
    if !has_libclang() {
        missing.push("libclang");
    }
    if !missing.is_empty() {
        println!(
            "cargo::error=the feature `verbs` needs {}: apt-get install {PACKAGES}",
            missing.join(", ")
        );
    }
}
