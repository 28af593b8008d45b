//! Too few descriptors are an error that names the limit, and later engines are unaffected. A test
//! binary of its own, because the limit is the whole process's.

#![allow(unsafe_code)] // sets a limit of the process

use farcore::{Config, Engine, Error};

fn allow_descriptors(count: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the calls read and fill in the struct and nothing else.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = count.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

fn open() -> farcore::Result<()> {
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 32 << 20,
        prefault: false,
        ..Config::default()
    })?;
    let mut handle = engine.handle()?;
    handle.put(b"key", b"value").wait().map(drop)
}

#[test]
fn too_few_descriptors_are_named() {
    let open_now = std::fs::read_dir("/proc/self/fd")
        .expect("Linux has it")
        .count() as u64;
    let mut refused = 0;
    // From few or none to enough for all. Descriptors beyond a limit stay open and leave room below
    // it.
    for more in 0..64 {
        allow_descriptors(open_now + more);
        match open() {
            Ok(()) => break,
            Err(error) => {
                assert!(
                    matches!(error, Error::Descriptors { .. }),
                    "{more}: {error:?}"
                );
                let text = error.to_string();
                for part in [
                    &format!("RLIMIT_NOFILE is {}", open_now + more),
                    "ulimit -n",
                ] {
                    assert!(text.contains(part), "{text}");
                }
                refused += 1;
            }
        }
    }
    assert!((1..64).contains(&refused), "{refused}");
    allow_descriptors(u64::MAX);
    open().expect("with enough of them it opens");
}
