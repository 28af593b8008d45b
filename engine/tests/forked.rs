//! A forked child has none of its parent's threads: neither the watchdog of its executors nor the
//! kept executors. It starts its own. A test binary of its own, because no other thread may hold a
//! lock at the fork.

#![allow(unsafe_code)] // forks

use farcore::{Config, Engine};

/// A child that would wait forever is killed after this time, in seconds.
const LIMIT: u32 = 60;

fn open() -> Engine {
    let config = Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 32 << 20,
        prefault: false,
        ..Config::default()
    };
    Engine::open(config).expect("an engine opens")
}

fn is_served(engine: &Engine) -> bool {
    let mut handle = engine.handle().expect("there is a handle");
    handle.put(b"key", b"value").wait().expect("it is served");
    handle.get(b"key").wait().is_ok_and(|value| value.is_some())
}

/// True if a thread of this process has the name.
fn has_thread(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let names = tasks
        .flatten()
        .map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.flatten().any(|found| found.trim() == name)
}

#[test]
fn a_forked_child_opens_an_engine_of_its_own() {
    // One engine that is open during the fork, and the thread of a closed one.
    drop(open());
    let (parents, closed) = (open(), open());
    drop(closed);
    assert!(is_served(&parents));
    // SAFETY: the child has only the thread that forks. The other threads sleep and hold no lock
    // that it needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: kills this process after a while.
        unsafe { libc::alarm(LIMIT) };
        std::mem::drop(std::panic::catch_unwind(|| {
            let engine = open();
            let fine = is_served(&engine) && has_thread("farcore-wake");
            drop(engine);
            // SAFETY: ends this process at once, without the parent's exit handlers.
            unsafe { libc::_exit(if fine { 7 } else { 8 }) }
        }));
        // SAFETY: as above.
        unsafe { libc::_exit(9) }
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: waits for the child, and fills in the number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status}");
    assert_eq!(libc::WEXITSTATUS(status), 7);
    assert!(is_served(&parents));
}
