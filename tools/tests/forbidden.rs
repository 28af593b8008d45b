//! `farcore serve` where the system refuses a call: the error names it, and nothing is said to be
//! ready that does not serve.

#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)] // installs a seccomp filter in a child

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

/// Makes the kernel answer an error to a system call of this process, and of what it becomes.
fn forbid(call: u32, errno: u32) -> io::Result<()> {
    let instruction = |code: u32, yes: u8, no: u8, value: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(u16::MAX),
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
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program outlives the calls, which copy it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            + libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program)
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a server says that may not make a call.
fn said_without(call: libc::c_long, errno: i32) -> String {
    let call = u32::try_from(call).expect("a number of a call");
    let errno = errno.cast_unsigned();
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcore"));
    command
        .args([
            "serve", "--cores", "0", "--local", "32MiB", "--far", "16MiB",
        ])
        .args(["--resp", "127.0.0.1:0", "--client-memory", "16MiB"])
        .env("RUST_LOG", "error")
        .stdin(Stdio::null());
    // SAFETY: only makes system calls.
    unsafe { command.pre_exec(move || forbid(call, errno)) };
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the command runs");
    let text = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(1), "call {call}: {text}");
    assert!(stdout.is_empty(), "call {call} is said to be ready");
    assert_eq!(text.lines().count(), 1, "call {call}: {text}");
    text
}

#[test]
fn a_call_that_is_refused_is_named_and_nothing_is_ready() {
    for (call, name) in [
        (libc::SYS_accept4, "accept4"),
        (libc::SYS_bind, "bind"),
        (libc::SYS_epoll_create1, "epoll_create1"),
        (libc::SYS_epoll_ctl, "epoll_ctl"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        (libc::SYS_eventfd2, "eventfd2"),
        (libc::SYS_fcntl, "fcntl"),
        (libc::SYS_getsockname, "getsockname"),
        (libc::SYS_io_uring_enter, "io_uring_enter"),
        (libc::SYS_io_uring_register, "io_uring_register"),
        (libc::SYS_io_uring_setup, "io_uring_setup"),
        (libc::SYS_ioctl, "ioctl"),
        (libc::SYS_listen, "listen"),
        (libc::SYS_ppoll, "ppoll"),
        (libc::SYS_prlimit64, "prlimit64"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_sched_getaffinity, "sched_getaffinity"),
        (libc::SYS_sched_setaffinity, "sched_setaffinity"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_setsockopt, "setsockopt"),
        (libc::SYS_shutdown, "shutdown"),
        (libc::SYS_socket, "socket"),
        (libc::SYS_socketpair, "socketpair"),
        (libc::SYS_timerfd_create, "timerfd_create"),
        (libc::SYS_timerfd_settime, "timerfd_settime"),
    ] {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let text = said_without(call, errno);
            assert!(
                text.contains(name) && text.contains("allow"),
                "{name}: {text}"
            );
        }
    }
}

#[test]
fn no_thread_is_an_error_and_no_panic() {
    let text = said_without(libc::SYS_clone3, libc::EPERM);
    assert!(text.contains("no thread can be started"), "{text}");
}
