//! The tests that need verbs. All of them run in one guest, because a boot takes seconds. A suite
//! that runs no test counts as failed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo;

/// A test target of this workspace, listed in [`SUITES`].
#[derive(Debug)]
struct Suite {
    /// The folder of its package.
    package: &'static str,
    /// Its name in the package's `tests/`.
    target: &'static str,
    /// Arguments of Rust's test harness, which select tests.
    tests: &'static [&'static str],
    /// Variables of its environment.
    environment: &'static [&'static str],
}

/// Tests that need a device are ignored by default.
const IGNORED: &[&str] = &["--ignored", "--test-threads=1"];

/// The suites, which run after the check of the guest itself.
const SUITES: [Suite; 10] = [
    // The contract of the fabric, over queue pairs connected by an exchange of facts and by
    // RDMA-CM.
    Suite {
        package: "rdma",
        target: "conformance",
        tests: IGNORED,
        environment: &[],
    },
    Suite {
        package: "rdma",
        target: "verbs_path",
        tests: &["--ignored", "--nocapture"],
        environment: &[],
    },
    // The guest has two NUMA nodes.
    Suite {
        package: "rdma",
        target: "numa",
        tests: IGNORED,
        environment: &[],
    },
    // Clients that claim by the device's compare-and-swap and are killed.
    Suite {
        package: "rdma",
        target: "crowd",
        tests: &["no_extent_has_two_owners"],
        environment: &["FARCORE_CROWD_LISTEN=rdma://10.77.0.1:0"],
    },
    // Clients that are stopped beyond their lease: their late writes must land nowhere.
    Suite {
        package: "rdma",
        target: "crowd",
        tests: &["late_writes_of_a_stopped_client", "--nocapture"],
        environment: &["FARCORE_CROWD_LISTEN=rdma+tcp://10.77.0.1:0"],
    },
    // Pools of many processes that are killed, on nodes that are killed too.
    Suite {
        package: "rdma/pool",
        target: "kills",
        tests: &["--nocapture"],
        environment: &[
            "FARCORE_KILLS_LISTEN=rdma+tcp://10.77.0.1:0",
            // The guest's processors are slow.
            "FARCORE_KILLS_SECONDS=40",
        ],
    },
    Suite {
        package: "engine",
        target: "verbs",
        tests: IGNORED,
        environment: &[],
    },
    // The native protocol of the server.
    Suite {
        package: "tools/client",
        target: "verbs",
        tests: IGNORED,
        environment: &[],
    },
    // Clients that only send: no message may find its receive missing.
    Suite {
        package: "tools/client",
        target: "receives",
        tests: &["--ignored", "--test-threads=1", "--nocapture"],
        environment: &[],
    },
    Suite {
        package: "bench",
        target: "verbs",
        tests: &["--ignored", "--test-threads=1", "--nocapture"],
        environment: &[],
    },
];

/// The suite of clients that only send.
pub(super) const RECEIVES: &str = "tools/client receives";

/// A line of a passing run that executed at least one test.
const EVIDENCE: &str = r"^test result: ok\. [1-9]";

/// The check of the guest itself, and a line that it prints for each passed check.
const SMOKE: &str = "guest";
const SMOKE_EVIDENCE: &str = "^ok: ";

impl Suite {
    fn name(&self) -> String {
        format!("{} {}", self.package, self.target)
    }

    /// The executable that cargo built for it.
    fn find(&self, workspace: &Path, built: &[Built]) -> Result<Built> {
        let directory = workspace.join(self.package);
        let is_it = |one: &&Built| one.directory == directory && one.target == self.target;
        let found = built.iter().find(is_it).cloned();
        found.with_context(|| format!("cargo built no test `{}`", self.name()))
    }
}

/// Arguments of cargo that build suites at once, as parts of the workspace, so that an existing
/// build of its tests with the same features is reused.
fn build_arguments<'a>(suites: &[&Suite], features: &'a str) -> Vec<&'a str> {
    let mut arguments = vec![
        "test",
        "--no-run",
        "--message-format=json-render-diagnostics",
        "--workspace",
        "--features",
        "verbs",
        "--features",
        features,
    ];
    let mut targets: Vec<_> = suites.iter().map(|suite| suite.target).collect();
    targets.sort_unstable();
    targets.dedup();
    for target in targets {
        arguments.extend(["--test", target]);
    }
    arguments
}

fn build(workspace: &Path, suites: &[&Suite], features: &str) -> Result<Vec<Built>> {
    let mut command = cargo(&build_arguments(suites, features));
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

/// A test executable, and the directory of its package, in which it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Built {
    target: String,
    executable: PathBuf,
    directory: PathBuf,
}

/// The test executables in cargo's messages.
fn built(messages: &str) -> Result<Vec<Built>> {
    let mut found = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)?;
        let text = |pointer| message.pointer(pointer).and_then(Value::as_str);
        let is_test = message.pointer("/profile/test") == Some(&Value::Bool(true));
        if !is_test || text("/reason") != Some("compiler-artifact") {
            continue;
        }
        if let (Some(target), Some(executable), Some(manifest)) = (
            text("/target/name"),
            text("/executable"),
            text("/manifest_path"),
        ) {
            let directory = Path::new(manifest).parent().unwrap_or(Path::new("/"));
            found.push(Built {
                target: target.into(),
                executable: executable.into(),
                directory: directory.into(),
            });
        }
    }
    Ok(found)
}

/// Builds the suites whose name contains `only`, with `features` beside `verbs`. Returns the
/// command that runs them in the guest.
pub(super) fn command(only: &str, features: &str) -> Result<Vec<OsString>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .context("xtask is not in tools/xtask")?;
    // The guest has them at the same path.
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
            OsString::new(),
            script,
        ]);
    }
    let wanted: Vec<_> = SUITES
        .iter()
        .filter(|suite| suite.name().contains(only))
        .collect();
    let all = if wanted.is_empty() {
        Vec::new()
    } else {
        build(workspace, &wanted, features)?
    };
    for suite in wanted {
        let built = suite.find(workspace, &all)?;
        words.extend([suite.name().into(), built.directory.into(), EVIDENCE.into()]);
        words.push(suite.environment.join(" ").into());
        words.push(suite.tests.join(" ").into());
        words.push(built.executable.into());
    }
    ensure!(words.len() > fixed, "no suite's name contains `{only}`");
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_built_once() {
        let all: Vec<&Suite> = SUITES.iter().collect();
        assert!(all.iter().any(|suite| suite.name() == RECEIVES));
        let arguments = build_arguments(&all, "");
        for suite in &SUITES {
            let wanted = ["--test", suite.target];
            let named = arguments.windows(2).filter(|pair| **pair == wanted);
            assert_eq!(named.count(), 1, "{arguments:?}");
        }
    }

    const LIBRARY: &str = r#"{"reason":"compiler-artifact","manifest_path":"/w/p/Cargo.toml","target":{"name":"p"},"profile":{"test":false},"executable":null}"#;
    const TEST: &str = r#"{"reason":"compiler-artifact","manifest_path":"/w/p/Cargo.toml","target":{"name":"t"},"profile":{"test":true},"executable":"/w/target/debug/deps/t-1"}"#;
    const END: &str = r#"{"reason":"build-finished","success":true}"#;

    #[test]
    fn executables_are_found_among_the_messages() {
        let messages = [LIBRARY, TEST, END].join("\n");
        let expected = Built {
            target: "t".into(),
            executable: "/w/target/debug/deps/t-1".into(),
            directory: "/w/p".into(),
        };
        let all = built(&messages).unwrap();
        assert_eq!(all, std::slice::from_ref(&expected));
        assert!(built("no json").is_err());
        let suite = |package, target| Suite {
            package,
            target,
            tests: &[],
            environment: &[],
        };
        let workspace = Path::new("/w");
        assert_eq!(suite("p", "t").find(workspace, &all).unwrap(), expected);
        assert!(suite("q", "t").find(workspace, &all).is_err());
        assert!(suite("p", "u").find(workspace, &all).is_err());
    }

    /// Runs the guest's script on the host, over suites of one shell command each.
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
                .args(["/", EVIDENCE, "SUITE=1", "an argument"])
                .arg(&executable);
        }
        let output = runner.output().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said)
    }

    #[test]
    fn suites_that_fail_or_run_no_test_are_named() {
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
