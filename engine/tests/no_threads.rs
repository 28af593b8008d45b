//! Where no thread can be started, opening an engine is an error that says so. It never waits for a
//! thread that was not started.
//!
//! Each limit is tried in a process of its own. The limit does not bind root, so a process of root
//! becomes another user.

#![allow(unsafe_code)] // sets limits and the user of a process

use std::process::{Command, Output};

use farcore::{Config, Engine, Error};

/// The threads that a process may have beside those of its user.
const THREADS: &str = "FARCORE_THREADS";
/// A user without files and processes.
const USER: libc::uid_t = 54_321;
/// A process that would wait forever is killed after this time, in seconds.
const LIMIT: u32 = 60;

/// Threads of all processes of this user.
fn threads_of_this_user() -> u64 {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: only reads a number from the kernel.
    let user = unsafe { libc::getuid() };
    let processes = std::fs::read_dir("/proc")
        .expect("there are processes")
        .flatten();
    let theirs = processes.filter(|one| one.metadata().is_ok_and(|data| data.uid() == user));
    let threads = theirs.filter_map(|one| std::fs::read_dir(one.path().join("task")).ok());
    threads.map(|tasks| tasks.count() as u64).sum()
}

fn play(threads: u64) {
    // SAFETY: reads and sets limits and the user of this process, which does nothing else.
    unsafe {
        libc::alarm(LIMIT);
        let is_root = libc::getuid() == 0;
        let others = if is_root { 0 } else { threads_of_this_user() };
        let limit = libc::rlimit {
            rlim_cur: others + threads,
            rlim_max: others + threads,
        };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit), 0);
        if is_root {
            assert_eq!(libc::setresuid(USER, USER, USER), 0);
        }
    }
    let config = Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 32 << 20,
        prefault: false,
        ..Config::default()
    };
    match Engine::open(config) {
        Ok(engine) => {
            let mut handle = engine.handle().expect("there is a handle");
            handle.put(b"key", b"value").wait().expect("it is served");
            println!("opened");
        }
        Err(error) => {
            assert!(matches!(error, Error::Threads { .. }), "{error:?}");
            let text = error.to_string();
            assert!(
                text.contains("ulimit -u") && text.contains("pids.max"),
                "{text}"
            );
            println!("refused");
        }
    }
}

#[test]
fn too_few_threads_are_named() {
    if let Ok(threads) = std::env::var(THREADS) {
        return play(threads.parse().expect("a number"));
    }
    let program = std::env::current_exe().expect("a test knows its program");
    let outcome = |threads: u64| {
        let Output {
            status,
            stdout,
            stderr,
        } = Command::new(&program)
            .args(["--exact", "too_few_threads_are_named", "--nocapture"])
            .env(THREADS, threads.to_string())
            .output()
            .expect("a process can be started");
        let text = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{threads} threads: {status}: {text}");
        let said = String::from_utf8_lossy(&stdout);
        [said.contains("opened"), said.contains("refused")]
    };
    // From too few for any to enough for all: the test's own thread, the core's, glommio's and the
    // wake timer's.
    let outcomes: Vec<_> = (2..10).map(outcome).collect();
    assert!(outcomes.iter().all(|[opened, refused]| opened != refused));
    assert_eq!(outcomes.first(), Some(&[false, true]));
    assert_eq!(outcomes.last(), Some(&[true, false]));
}
