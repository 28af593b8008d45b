//! More memory than a control group may use is an error that names both, and no process is killed.
//! The test reports if no group can be made.

use std::path::{Path, PathBuf};
use std::process::Command;

use farcore::{Config, Engine, Error, Size};

/// The group's file that the process joins.
const GROUP: &str = "FARCORE_GROUP";
const LIMIT: u64 = 600 << 20;

/// A control group, removed when dropped.
struct Group(PathBuf);

impl Group {
    /// A group with a limit on memory; `None` if none can be made.
    fn new() -> Option<Self> {
        let name = format!("farcore-test-{}", std::process::id());
        let files = [("memory", "memory.limit_in_bytes"), ("", "memory.max")];
        files.into_iter().find_map(|(controller, limit)| {
            let parent = Path::new("/sys/fs/cgroup").join(controller);
            if !parent.join("cgroup.procs").exists() {
                return None;
            }
            let folder = parent.join(&name);
            std::fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            std::fs::write(group.0.join(limit), LIMIT.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn open(local_bytes: u64, far_bytes: u64, prefault: bool) -> farcore::Result<Engine> {
    Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes,
        far_bytes,
        prefault,
        ..Config::default()
    })
}

fn play(procs: &str) {
    let file = match procs.contains("/memory/") {
        true => "raise the group's `memory.limit_in_bytes`",
        false => "raise the group's `memory.max`",
    };
    std::fs::write(procs, std::process::id().to_string()).expect("the group takes this process");
    for (local_bytes, far_bytes) in [(1 << 30, 64 << 20), (64 << 20, 1 << 30)] {
        let error = open(local_bytes, far_bytes, true).expect_err("it is too much");
        assert!(matches!(error, Error::Memory { .. }), "{error:?}");
        let text = error.to_string();
        let limit = format!("may use {}", Size(LIMIT));
        for part in [
            &Size(local_bytes).to_string(),
            &Size(far_bytes).to_string(),
            &limit,
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(text.contains(file), "{text}");
    }
    // Far memory that is never touched does not count.
    drop(open(64 << 20, 1 << 30, false).expect("what is touched fits"));
    drop(open(64 << 20, 64 << 20, true).expect("both fit"));
}

#[test]
fn more_memory_than_a_group_may_use_is_refused() {
    if let Ok(procs) = std::env::var(GROUP) {
        return play(&procs);
    }
    let Some(group) = Group::new() else {
        println!("no control group can be made here: nothing is tested");
        return;
    };
    let program = std::env::current_exe().expect("a test knows its program");
    let output = Command::new(program)
        .args([
            "--exact",
            "more_memory_than_a_group_may_use_is_refused",
            "--nocapture",
        ])
        .env(GROUP, group.0.join("cgroup.procs"))
        .output()
        .expect("a process can be started");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
}
