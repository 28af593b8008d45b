//! The run of a command, which is a process of its own, and waiting for the end of both.

use std::fs;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::Pid;

/// Longer than any end takes; a test that reaches it fails.
const LIMIT: Timespec = Timespec {
    tv_sec: 120,
    tv_nsec: 0,
};

/// The child of a process.
pub(crate) fn run_of(parent: u32) -> Pid {
    let parent = parent.to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let child = processes.filter_map(|process| {
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        // The name, in brackets, may hold blanks; then state and parent.
        let (_, fields) = stat.rsplit_once(") ")?;
        let is_ours = fields.split(' ').nth(1) == Some(&parent);
        let number = process.file_name().to_str()?.parse().ok()?;
        is_ours.then(|| Pid::from_raw(number)).flatten()
    });
    child.into_iter().next().expect("a command has a run")
}

/// Waits until a process has ended.
pub(crate) fn assert_ends(process: &OwnedFd, what: &str) {
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    assert_eq!(poll(&mut ended, Some(&LIMIT)), Ok(1), "{what} ends");
}
