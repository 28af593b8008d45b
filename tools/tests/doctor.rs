//! `farcore doctor` on this machine: it reports all findings, whatever they are.

use std::process::Command;

use serde_json::Value;

#[test]
fn findings_are_json_and_decide_the_exit_status() {
    let output = Command::new(env!("CARGO_BIN_EXE_farcore"))
        .args(["doctor", "--json"])
        .output()
        .unwrap();
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let verdict = |what: &str| {
        let mut named = findings.iter().filter(|one| one["what"] == what);
        named
            .next()
            .unwrap_or_else(|| panic!("no {what}: {findings:?}"))["verdict"]
            .clone()
    };
    let broken = findings.iter().any(|one| one["verdict"] == "broken");
    assert_eq!(output.status.success(), !broken, "{findings:?}");
    // A machine that runs tests can open engines.
    assert_eq!(verdict("kernel"), "fine");
    assert_eq!(verdict("engine"), "fine");
    for finding in &findings {
        let silent = finding["why"] == "" && finding["verdict"] != "fine";
        assert!(!silent, "{finding}");
    }
}
