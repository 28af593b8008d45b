//! A kernel that refuses io_uring is an error that says so. A test binary of its own, because the
//! filter applies to the whole process.

#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)] // installs a seccomp filter

use farcore::{Config, Engine, Error};

/// Makes the kernel answer `EPERM` to io_uring_setup, as container profiles do.
fn forbid_io_uring() {
    let instruction = |code: u32, yes: u8, no: u8, value: u32| libc::sock_filter {
        code: u16::try_from(code).expect("codes have 16 bits"),
        jt: yes,
        jf: no,
        k: value,
    };
    let setup =
        u32::try_from(libc::SYS_io_uring_setup).expect("a system call's number is positive");
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, setup),
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

#[test]
fn a_kernel_without_io_uring_is_named() {
    forbid_io_uring();
    let error = Engine::open(Config::default()).unwrap_err();
    assert!(matches!(error, Error::IoUring { .. }), "{error:?}");
    let text = error.to_string();
    for part in ["io_uring", "not permitted", "5.8"] {
        assert!(text.contains(part), "{text}");
    }
}
