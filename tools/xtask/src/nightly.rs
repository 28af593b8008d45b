//! Checks that need a nightly compiler: Miri, and the engine's tests under `AddressSanitizer`.

use std::process::Command;

use anyhow::{Context, Result};

use super::run;

/// Tests of what owns memory by pointers, calls nothing that Miri lacks, and takes few steps.
const INTERPRETED: [&str; 11] = [
    "bytes::",
    "index::segment::tests::both_ways",
    "index::slot::",
    "index::tests::behaves_as_a_map",
    "index::tests::every_slot_of_a_hash",
    "log::page::",
    "log::record::",
    "transport::queue::tests::requests_come_out",
    "transport::ring::tests::messages_come_out",
    "tree::head::",
    "tree::node::",
];
/// The target of this machine: with it, build scripts and macros are built without a sanitizer.
const TARGET: &str = "x86_64-unknown-linux-gnu";

fn nightly(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly").args(arguments);
    command
}

fn install(components: &[&str]) -> Result<()> {
    let mut command = Command::new("rustup");
    command
        .args(["component", "add", "--toolchain", "nightly"])
        .args(components);
    run(&mut command).context("a nightly toolchain is needed: rustup toolchain install nightly")
}

/// Interprets the engine's index, records, pages, rings, queues and nodes.
pub(crate) fn miri() -> Result<()> {
    install(&["miri", "rust-src"])?;
    let mut command = nightly(&[
        "miri",
        "test",
        "--locked",
        "--package",
        "farcore",
        "--lib",
        "--",
    ]);
    command
        .args(INTERPRETED)
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("PROPTEST_CASES", "2")
        .env("CARGO_TARGET_DIR", "target/miri");
    run(&mut command)
}

/// Runs unit tests of a package under `AddressSanitizer`.
pub(crate) fn sanitize(package: &str, filters: &[String]) -> Result<()> {
    let mut command = nightly(&["test", "--locked", "--lib", "--target", TARGET]);
    command
        .args([
            "--package",
            package,
            "--target-dir",
            "target/sanitize",
            "--",
        ])
        .args(filters)
        .env("RUSTFLAGS", "-Zsanitizer=address")
        // Its log of leaks needs ptrace, which containers forbid.
        .env("ASAN_OPTIONS", "detect_leaks=0");
    run(&mut command)
}
