//! A system that refuses a call is an error that names it, or does without. A test binary of its
//! own: a filter applies to a whole process, so each is tried in a child.

#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)] // installs a seccomp filter

use std::process::Command;

use farcore::{Config, Engine};

/// The variable that makes a child of this binary: the call, the error and what is expected.
const CHILD: &str = "FARCORE_FORBIDDEN_CALL";

/// Makes the kernel answer an error to a system call, as container profiles do.
fn forbid(call: u32, errno: u32) {
    let instruction = |code: u32, yes: u8, no: u8, value: u32| libc::sock_filter {
        code: u16::try_from(code).expect("codes have 16 bits"),
        jt: yes,
        jf: no,
        k: value,
    };
    let refuse = libc::SECCOMP_RET_ERRNO | errno;
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).expect("four instructions"),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program outlives the calls, which copy it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

fn config() -> Config {
    Config {
        cores: vec![0],
        local_bytes: 32 << 20,
        far_bytes: 32 << 20,
        keys_expected: 1_000,
        ..Config::default()
    }
}

/// What an engine says under a filter: nothing if it serves.
fn opened(config: Config) -> String {
    let engine = match Engine::open(config) {
        Ok(engine) => engine,
        Err(error) => return error.to_string(),
    };
    let mut handle = engine.handle().expect("a handle");
    handle.put(b"key", b"value").wait().expect("stored");
    let value = handle.get(b"key").wait().expect("an answer");
    assert_eq!(value.as_deref(), Some(&b"value"[..]));
    String::new()
}

/// In a child: tries an engine without a call.
fn try_without(wanted: &str) {
    let mut words = wanted.split(' ');
    let mut number = || words.next().and_then(|word| word.parse().ok());
    let (call, errno) = (number().expect("a call"), number().expect("an error"));
    // Chosen before, as a program does that knows its machine.
    let config = config();
    forbid(call, errno);
    println!("opened: {}", opened(config));
}

/// What an engine without a call says; the child that tried it has not aborted.
fn said_without(call: libc::c_long, errno: i32) -> String {
    let out = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "--nocapture", "a_call_that_is_refused_is_named"])
        .env(CHILD, format!("{call} {errno}"))
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "call {call}: {text}{errors}");
    assert!(!errors.contains("panicked"), "call {call}: {errors}");
    let (_, said) = text.split_once("opened: ").expect("it says what it found");
    said.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_call_that_is_refused_is_named() {
    if let Ok(wanted) = std::env::var(CHILD) {
        return try_without(&wanted);
    }
    for (call, name) in [
        (libc::SYS_io_uring_setup, "io_uring_setup"),
        (libc::SYS_io_uring_register, "io_uring_register"),
        (libc::SYS_io_uring_enter, "io_uring_enter"),
        (libc::SYS_eventfd2, "eventfd2"),
        (libc::SYS_sched_setaffinity, "sched_setaffinity"),
    ] {
        for (errno, reason) in [
            (libc::EPERM, "not permitted"),
            (libc::ENOSYS, "not implemented"),
        ] {
            let said = said_without(call, errno);
            assert!(
                said.contains(name) && said.contains(reason),
                "{name}: {said}"
            );
            assert!(said.contains("allow"), "{name} has no remedy: {said}");
        }
    }
}

#[test]
fn what_an_engine_can_do_without_is_not_needed() {
    for (call, name) in [
        (libc::SYS_membarrier, "membarrier"),
        (libc::SYS_mbind, "mbind"),
        (libc::SYS_mlock2, "mlock2"),
        (libc::SYS_madvise, "madvise"),
        (libc::SYS_perf_event_open, "perf_event_open"),
        (libc::SYS_getrandom, "getrandom"),
    ] {
        for errno in [libc::EPERM, libc::ENOSYS] {
            assert_eq!(said_without(call, errno), "", "{name}");
        }
    }
}
