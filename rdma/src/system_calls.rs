//! Tries system calls where a refusal would be a panic later: of executors, which use io_uring, and
//! of limits.
//!
//! Source: io_uring_setup(2), io_uring_register(2), io_uring_enter(2), getrlimit(2).

#![allow(unsafe_code)] // plain system calls

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `IORING_REGISTER_PROBE`: the kernel reports the operations that it knows.
const REGISTER_PROBE: libc::c_uint = 8;
/// Operations that the kernel reports on.
const OPERATIONS: usize = 64;

/// A system call that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the system refuses {call} ({}): allow it in the container's seccomp profile", io::Error::from_raw_os_error(*errno))]
pub struct RefusedCall {
    /// Its name.
    pub call: &'static str,
    /// The number of the system's error.
    pub errno: i32,
}

/// Makes the smallest ring, uses it and closes it, to see whether the system allows that.
///
/// # Errors
/// The first call that is refused, also for lack of descriptors or memory.
pub fn try_io_uring() -> Result<(), RefusedCall> {
    // struct io_uring_params is 120 bytes; all zero is a plain ring.
    let mut parameters = [0u64; 15];
    // SAFETY: the kernel reads and fills in 120 bytes, the size of `parameters`.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    let ring = checked("io_uring_setup", ring)?;
    let ring = i32::try_from(ring).unwrap_or(-1);
    // SAFETY: the descriptor was just opened, and nothing else owns it.
    let ring = unsafe { OwnedFd::from_raw_fd(ring) };
    // struct io_uring_probe is 16 bytes, and 8 for each operation.
    let mut known = [0u64; 2 + OPERATIONS];
    // SAFETY: the kernel fills in at most `OPERATIONS` entries, which `known` has room for.
    let done = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            REGISTER_PROBE,
            known.as_mut_ptr(),
            OPERATIONS,
        )
    };
    checked("io_uring_register", done)?;
    // SAFETY: submits nothing and waits for nothing.
    let done = unsafe { libc::syscall(libc::SYS_io_uring_enter, ring.as_raw_fd(), 0, 0, 0, 0, 0) };
    checked("io_uring_enter", done).map(drop)
}

/// Reads a limit of this process.
///
/// # Errors
/// The call is refused.
pub fn try_resource_limits() -> Result<(), RefusedCall> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the struct that it receives.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    checked("prlimit64", done.into()).map(drop)
}

/// What a system call returned, or how it was refused.
fn checked(call: &'static str, returned: libc::c_long) -> Result<libc::c_long, RefusedCall> {
    if returned >= 0 {
        return Ok(returned);
    }
    let error = io::Error::last_os_error().raw_os_error();
    Err(RefusedCall {
        call,
        errno: error.unwrap_or(libc::EINVAL),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_refused_here_and_a_refusal_names_the_call() {
        assert_eq!(try_io_uring(), Ok(()));
        assert_eq!(try_resource_limits(), Ok(()));
        let refused = RefusedCall {
            call: "io_uring_enter",
            errno: libc::EPERM,
        };
        let text = refused.to_string();
        assert!(
            text.contains("io_uring_enter (Operation not permitted"),
            "{text}"
        );
    }
}
