//! The tests that need verbs. All of them run in one guest, since a boot takes seconds.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cargo;

/// A test target of this workspace; to be added to [`SUITES`].
#[derive(Debug)]
struct Suite {
    package: &'static str,
    /// Separated by commas.
    features: &'static str,
    /// What of the package: `--lib`, or `--test` and a name in its `tests/`.
    target: &'static [&'static str],
    /// Variables of its environment.
    environment: &'static [&'static str],
}

/// What runs in the guest, after the smoke check of the guest itself.
const SUITES: [Suite; 6] = [
    Suite {
        package: "farcore-rdma",
        features: "verbs",
        target: &["--lib"],
        environment: &[],
    },
    // The rules of the fabric, over sockets, by an exchange of facts, and by RDMA-CM.
    Suite {
        package: "farcore-rdma",
        features: "verbs",
        target: &["--test", "conformance"],
        environment: &[],
    },
    Suite {
        package: "farcore-rdma",
        features: "verbs",
        target: &["--test", "verbs_path"],
        environment: &[],
    },
    // Clients that claim by the device's compare-and-swap, and are killed.
    Suite {
        package: "farcore-rdma",
        features: "verbs",
        target: &["--test", "crowd"],
        environment: &["FARCORE_CROWD_LISTEN=rdma://10.77.0.1:0"],
    },
    Suite {
        package: "farcore",
        features: "verbs",
        target: &["--test", "verbs"],
        environment: &[],
    },
    Suite {
        package: "farcore-bench",
        features: "verbs",
        target: &["--test", "verbs"],
        environment: &[],
    },
];

/// What a passing run of Rust's test harness prints unless it ran nothing.
const EVIDENCE: &str = r"^test result: ok\. [1-9]";

/// The check of the guest itself, and what it prints for each thing that is right.
const SMOKE: &str = "guest";
const SMOKE_EVIDENCE: &str = "^ok: ";

impl Suite {
    fn name(&self) -> String {
        format!("{} {}", self.package, self.target.join(" "))
    }

    /// What cargo is asked for.
    fn build_arguments(&self) -> Vec<&'static str> {
        let mut arguments = vec![
            "test",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ];
        arguments.extend(["--package", self.package]);
        if !self.features.is_empty() {
            arguments.extend(["--features", self.features]);
        }
        arguments.extend(self.target);
        arguments
    }

    fn build(&self, workspace: &Path) -> Result<Built> {
        let mut command = cargo(&self.build_arguments());
        let output = command
            .current_dir(workspace)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start {command:?}"))?;
        ensure!(
            output.status.success(),
            "{command:?} ended with {}",
            output.status
        );
        built(&String::from_utf8(output.stdout)?).with_context(|| format!("{command:?}"))
    }
}

/// A test executable, and the directory of its package, where cargo would run it.
#[derive(Debug, PartialEq, Eq)]
struct Built {
    executable: PathBuf,
    directory: PathBuf,
}

/// Finds it in cargo's messages.
fn built(messages: &str) -> Result<Built> {
    let mut found = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)?;
        let text = |pointer| message.pointer(pointer).and_then(Value::as_str);
        let is_test = message.pointer("/profile/test") == Some(&Value::Bool(true));
        if !is_test || text("/reason") != Some("compiler-artifact") {
            continue;
        }
        if let (Some(executable), Some(manifest)) = (text("/executable"), text("/manifest_path")) {
            let directory = Path::new(manifest).parent().unwrap_or(Path::new("/"));
            found.push(Built {
                executable: executable.into(),
                directory: directory.into(),
            });
        }
    }
    match found.pop() {
        Some(built) if found.is_empty() => Ok(built),
        Some(_) => bail!(
            "it built {} test executables, expected one",
            found.len() + 1
        ),
        None => bail!("it built no test executable"),
    }
}

/// Builds the suites whose name contains `only`: the command that runs them in the guest.
pub(super) fn command(only: &str) -> Result<Vec<OsString>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .context("xtask does not lie in tools/xtask")?;
    // The guest sees them where they lie here.
    let scripts = workspace.join("tools/lab");
    let mut words = vec![
        "bash".into(),
        scripts.join("guest-suites.sh").into_os_string(),
    ];
    let fixed = words.len();
    if SMOKE.contains(only) {
        let script = scripts.join("guest-smoke.sh").into_os_string();
        words.extend([
            SMOKE.into(),
            workspace.into(),
            SMOKE_EVIDENCE.into(),
            OsString::new(),
            script,
        ]);
    }
    for suite in SUITES.iter().filter(|suite| suite.name().contains(only)) {
        eprintln!("lab: building {}", suite.name());
        let built = suite.build(workspace)?;
        words.extend([suite.name().into(), built.directory.into(), EVIDENCE.into()]);
        words.push(suite.environment.join(" ").into());
        words.push(built.executable.into());
    }
    ensure!(words.len() > fixed, "no suite's name contains `{only}`");
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_becomes_arguments_of_cargo() {
        let suite = |features, target: &'static [_]| Suite {
            package: "p",
            features,
            target,
            environment: &[],
        };
        let common = [
            "test",
            "--no-run",
            "--message-format=json-render-diagnostics",
            "--package",
            "p",
        ];
        let library = suite("", &["--lib"]);
        assert_eq!(library.name(), "p --lib");
        assert_eq!(
            library.build_arguments(),
            [&common[..], &["--lib"]].concat()
        );
        let test = suite("verbs,x", &["--test", "t"]);
        assert_eq!(test.name(), "p --test t");
        let rest = ["--features", "verbs,x", "--test", "t"];
        assert_eq!(test.build_arguments(), [&common[..], &rest].concat());
    }

    const LIBRARY: &str = r#"{"reason":"compiler-artifact","manifest_path":"/w/p/Cargo.toml","profile":{"test":false},"executable":null}"#;
    const TEST: &str = r#"{"reason":"compiler-artifact","manifest_path":"/w/p/Cargo.toml","profile":{"test":true},"executable":"/w/target/debug/deps/t-1"}"#;
    const END: &str = r#"{"reason":"build-finished","success":true}"#;

    #[test]
    fn the_executable_is_found_among_the_messages() {
        let messages = [LIBRARY, TEST, END].join("\n");
        let expected = Built {
            executable: "/w/target/debug/deps/t-1".into(),
            directory: "/w/p".into(),
        };
        assert_eq!(built(&messages).unwrap(), expected);
    }

    #[test]
    fn none_and_several_executables_are_refused() {
        assert!(built(&[LIBRARY, END].join("\n")).is_err());
        assert!(built(&[TEST, TEST, END].join("\n")).is_err());
        assert!(built("no json").is_err());
    }

    /// Runs the guest's runner here, over suites of one shell command each.
    fn run_suites(commands: &[&str]) -> (bool, String) {
        use std::os::unix::fs::PermissionsExt;
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab");
        let unique = format!("farcore-suites-{}-{}", std::process::id(), commands.len());
        let directory = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&directory).unwrap();
        let mut runner = std::process::Command::new("bash");
        runner.arg(scripts.join("guest-suites.sh"));
        for (i, command) in commands.iter().enumerate() {
            let executable = directory.join(format!("suite{i}"));
            std::fs::write(&executable, format!("#!/bin/sh\n{command}\n")).unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&executable, mode).unwrap();
            runner
                .arg(format!("suite{i}"))
                .args(["/", EVIDENCE, "SUITE=1"])
                .arg(&executable);
        }
        let output = runner.output().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said)
    }

    #[test]
    fn suites_that_fail_or_run_nothing_are_named() {
        let passes = "echo 'test result: ok. 3 passed; 0 failed'";
        let (fine, said) = run_suites(&[passes]);
        assert!(fine, "{said}");
        let fails = "echo 'test result: ok. 3 passed'; exit 101";
        let empty = "echo 'test result: ok. 0 passed; 0 failed'";
        let (fine, said) = run_suites(&[fails, passes, empty]);
        assert!(!fine);
        assert!(
            said.contains("suite0 FAILED with exit status 101"),
            "{said}"
        );
        assert!(said.contains("suite2 FAILED: it passed without"), "{said}");
        assert!(said.contains("== lab: FAILED: suite0 suite2\n"), "{said}");
    }
}
