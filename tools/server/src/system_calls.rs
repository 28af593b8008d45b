//! Tries the system calls that serving needs, so that a system which refuses one is named at the
//! start, and not by clients that find no answer.
//!
//! Source: socket(7), epoll(7), seccomp(2).

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use farcore_rdma::RefusedCall;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind,
    getsockname, listen, recv, send, shutdown, socket_with, socketpair, sockopt,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// The outcome of a call: an error if the system refuses the call itself. What else may fail, fails
/// where it matters.
fn tried<T>(call: &'static str, outcome: rustix::io::Result<T>) -> Result<Option<T>, RefusedCall> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(errno @ (Errno::PERM | Errno::NOSYS | Errno::ACCESS)) => Err(RefusedCall {
            call,
            errno: errno.raw_os_error(),
        }),
        Err(_) => Ok(None),
    }
}

/// Tries what serving needs, without effect.
///
/// # Errors
/// The first call that the system refuses.
pub fn try_system_calls() -> Result<(), RefusedCall> {
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    if let Some((one, other)) = tried("socketpair", pair)? {
        try_sockets(&one, &other)?;
    }
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    if let Some(socket) = tried("socket", socket)? {
        try_listener(&socket)?;
    }
    let clock = TimerfdClockId::Monotonic;
    let timer = timerfd_create(clock, TimerfdFlags::CLOEXEC);
    if let Some(timer) = tried("timerfd_create", timer)? {
        let never = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::default(),
        };
        let set = timerfd_settime(&timer, TimerfdTimerFlags::empty(), &never);
        tried("timerfd_settime", set)?;
    }
    Ok(())
}

fn try_sockets(one: &OwnedFd, other: &OwnedFd) -> Result<(), RefusedCall> {
    tried("fcntl", fcntl_setfd(one, FdFlags::CLOEXEC))?;
    tried("ioctl", ioctl_fionbio(one, true))?;
    tried("sendto", send(other, b"x", SendFlags::NOSIGNAL))?;
    let mut bytes = [0; 1];
    tried("recvfrom", recv(one, &mut bytes, RecvFlags::DONTWAIT))?;
    let mut polled = [PollFd::new(one, PollFlags::IN)];
    tried("ppoll", poll(&mut polled, Some(&Timespec::default())))?;
    let created = epoll::create(epoll::CreateFlags::CLOEXEC);
    if let Some(set) = tried("epoll_create1", created)? {
        let data = epoll::EventData::new_u64(0);
        tried(
            "epoll_ctl",
            epoll::add(&set, one, data, epoll::EventFlags::IN),
        )?;
        let mut events = Vec::with_capacity(1);
        let room = rustix::buffer::spare_capacity(&mut events);
        tried(
            "epoll_pwait",
            epoll::wait(&set, room, Some(&Timespec::default())),
        )?;
    }
    tried("shutdown", shutdown(one, Shutdown::Both)).map(drop)
}

fn try_listener(socket: &OwnedFd) -> Result<(), RefusedCall> {
    let reused = sockopt::set_socket_reuseaddr(socket, true);
    tried("setsockopt", reused)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    if tried("bind", bind(socket, &address))?.is_none() {
        return Ok(());
    }
    tried("getsockname", getsockname(socket))?;
    tried("ioctl", ioctl_fionbio(socket, true))?;
    if tried("listen", listen(socket, 1))?.is_some() {
        tried("accept4", accept_with(socket, SocketFlags::CLOEXEC))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_refused_here_and_other_errors_are_left() {
        assert_eq!(try_system_calls(), Ok(()));
        assert_eq!(tried("bind", Err::<(), _>(Errno::ADDRINUSE)), Ok(None));
        let refused = tried("bind", Err::<(), _>(Errno::NOSYS)).unwrap_err();
        assert_eq!(refused.call, "bind");
    }
}
