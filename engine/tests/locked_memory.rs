//! Too little locked memory is an error that says so. On its own, because the limit is the whole process's.

#![allow(unsafe_code)] // sets a limit of the process

use farcore::{Config, Engine, Error};

#[test]
fn too_little_locked_memory_is_named() {
    let limit = libc::rlimit {
        rlim_cur: 64 << 10,
        rlim_max: 64 << 10,
    };
    // SAFETY: the call reads the struct and nothing else.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    assert_eq!(set, 0);
    let error = Engine::open(Config::default()).unwrap_err();
    assert!(matches!(error, Error::Memory { .. }), "{error:?}");
    let text = error.to_string();
    for part in ["65536", "524288", "ulimit -l"] {
        assert!(text.contains(part), "{text}");
    }
}
