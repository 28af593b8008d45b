//! The examples run to their end.

use std::process::Command;

#[test]
fn jobs_are_done() {
    // Cargo builds the examples beside the tests.
    let tests = std::env::current_exe().expect("a path");
    let built = tests.parent().and_then(|deps| deps.parent());
    let example = built.expect("a folder").join("examples/jobs");
    let output = Command::new(&example).output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "{}: {error}: build it with `cargo test -p farcore-pool`",
            example.display()
        )
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{:?}", output.status);
    assert!(said.contains("1000 outcomes are stored"), "{said}");
}
