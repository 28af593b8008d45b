//! Too little locked memory is an error that names the limit, unless the process may raise it. A
//! test binary of its own, because the limit is the whole process's.

#![allow(unsafe_code)] // sets a limit and the user of the process

use farcore::{Config, Engine, Error, Lock};

/// A user without files and processes.
const USER: libc::uid_t = 54_321;
const LIMIT_BYTES: u64 = 64 << 10;

/// Sets the limit for good, as far as it binds this process.
fn limit_locked_memory() {
    let limit = libc::rlimit {
        rlim_cur: LIMIT_BYTES,
        rlim_max: LIMIT_BYTES,
    };
    // SAFETY: the call reads the struct and nothing else.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    assert_eq!(set, 0);
}

/// True if the process may raise its limits.
fn may_raise() -> bool {
    let limit = libc::rlimit {
        rlim_cur: LIMIT_BYTES,
        rlim_max: LIMIT_BYTES + 1,
    };
    // SAFETY: as above.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) } == 0;
    limit_locked_memory();
    raised
}

fn locked_memory_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills in the struct and nothing else.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    limit.rlim_cur
}

fn config() -> Config {
    Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 32 << 20,
        prefault: false,
        lock: Lock::Off,
        ..Config::default()
    }
}

#[test]
fn too_little_locked_memory_is_named() {
    limit_locked_memory();
    if may_raise() {
        let engine = Engine::open(config()).expect("a process that may raise the limit needs none");
        let mut handle = engine.handle().expect("there is a handle");
        handle.put(b"key", b"value").wait().expect("it is served");
        drop((handle, engine));
        assert_eq!(locked_memory_limit(), LIMIT_BYTES, "it is as it was");
        // SAFETY: changes the user of this process, which does nothing else.
        assert_eq!(unsafe { libc::setresuid(USER, USER, USER) }, 0);
        limit_locked_memory();
    } else {
        println!("this process may not raise its limits: raising is not tested");
    }
    let error = Engine::open(Config {
        // Not on a thread that the engine before has kept.
        cores: Config::default().cores.into_iter().rev().take(1).collect(),
        ..config()
    });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Memory { .. }), "{error:?}");
    let text = error.to_string();
    for part in ["65536", "524288", "ulimit -l"] {
        assert!(text.contains(part), "{text}");
    }
}
