//! Signals: how a command and the process of its run end early.
//!
//! SIGINT, SIGTERM and SIGHUP request an end. The command forwards them to the process of its run,
//! which ends its phase, closes the engine (its sockets and folders with it) and reports what it
//! measured. The command then publishes the figures, marked partial, and exits with 128 plus the
//! number of the signal.
//!
//! - I1: no run outlives its command. The kernel sends the run SIGTERM when the command has died,
//!   SIGKILL included. A command that died before the run subscribed to that is noticed by the
//!   parent's number.
//! - I2: a run that was signalled ends within [`GRACE`], also while an engine hangs, and removes
//!   its sockets and folders even then.
//! - I3: a second signal kills the run at once, and a third one ends the command. Where there is no
//!   run, as in commands without a process of their own for it, the second one ends the command.
//!   A signal that `timeout` sends twice, to the process and to its group, counts once.
//! - I4: a signal that was ignored when the process started stays ignored, as `nohup` and shells
//!   without job control want it.
//!
//! The run stays in the process group of the command, so that Ctrl-Z stops both and `timeout` and
//! shells signal both. A run that receives a signal twice, from the terminal and from the command,
//! counts it once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fd::OwnedFd;
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Time that a run has to end after a signal.
pub const GRACE: Duration = Duration::from_secs(5);
/// Equal signals within this time are one: `timeout` sends two at once, and no hand is that fast.
const REPEAT: Duration = Duration::from_millis(50);
/// Environment variable with the number of the command's process.
pub const PARENT: &str = "FARCORE_BENCH_PARENT";
/// What a shell adds to the number of the signal that ended a process.
const STATUS_OF_SIGNAL: i32 = 128;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Those of `signals` that this process does not ignore. To be called before any is handled, so
/// that a signal which the process inherited as ignored stays so.
#[must_use]
pub fn heeded(signals: &[i32]) -> Vec<i32> {
    // What cannot be read, on a system without /proc, ignores none.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    let is_heeded = |&signal: &i32| ignored >> (signal - 1) & 1 == 0;
    signals.iter().copied().filter(is_heeded).collect()
}

/// The ignored signals of a status of proc(5): bit n - 1 is signal n.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap_or(0))
}

/// The first signal, or 0.
static REQUESTED: AtomicI32 = AtomicI32::new(0);

/// Whether a signal has requested the end of this process.
#[must_use]
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed) != 0
}

/// The exit status of a process that ends because of a signal; `None` without one.
#[must_use]
pub fn status() -> Option<u8> {
    let signal = REQUESTED.load(Ordering::Relaxed);
    (signal != 0).then(|| status_of(signal))
}

fn named(signal: i32) -> Signal {
    Signal::from_named_raw(signal).unwrap_or(Signal::TERM)
}

fn status_of(signal: i32) -> u8 {
    u8::try_from(STATUS_OF_SIGNAL + signal).unwrap_or(u8::MAX)
}

/// Files and folders of this process that its end must remove.
static SCRAPS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Has a file or folder removed if a signal ends this process while it hangs; else its owner
/// removes it.
pub fn remove_if_hung(path: &Path) {
    let mut scraps = SCRAPS.lock().unwrap_or_else(PoisonError::into_inner);
    scraps.push(path.to_owned());
}

fn remove_scraps() {
    let scraps = SCRAPS.lock().unwrap_or_else(PoisonError::into_inner);
    for path in &*scraps {
        // Its owner may have removed it.
        let _ = match path.is_dir() {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path),
        };
    }
}

/// The process of the current run, which signals are forwarded to.
static RUN: Mutex<Option<OwnedFd>> = Mutex::new(None);

fn current_run() -> MutexGuard<'static, Option<OwnedFd>> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forwards signals to a process until it is dropped.
#[derive(Debug)]
pub struct Forwarding(());

impl Forwarding {
    /// Starts forwarding to a child that has not been waited for.
    ///
    /// # Errors
    /// The child cannot be opened.
    pub fn to(child: u32) -> io::Result<Self> {
        let number = i32::try_from(child).ok().and_then(Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        // It stays this process's even if the number is used again.
        let process = pidfd_open(number, PidfdFlags::empty())?;
        let mut run = current_run();
        if is_requested() {
            // The signal may have come before there was a run to forward it to. A run that has
            // ended needs none.
            let _ = pidfd_send_signal(&process, named(REQUESTED.load(Ordering::Relaxed)));
        }
        *run = Some(process);
        Ok(Self(()))
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        *current_run() = None;
    }
}

/// What a signal has the command do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing: it is a repeat.
    Ignore,
    /// Send the run this signal.
    Send(Signal),
    /// End at once.
    Exit,
}

/// The signals so far.
#[derive(Debug, Default)]
struct Heard {
    count: u32,
    last: Option<(i32, Instant)>,
}

impl Heard {
    /// What a signal has the command do.
    fn step(&mut self, signal: i32, at: Instant, has_run: bool) -> Step {
        let is_repeat = self.last.is_some_and(|(last, before)| {
            last == signal && at.saturating_duration_since(before) < REPEAT
        });
        if is_repeat {
            return Step::Ignore;
        }
        self.last = Some((signal, at));
        self.count = self.count.saturating_add(1);
        match (self.count, has_run) {
            (1, _) => Step::Send(named(signal)),
            (2, true) => Step::Send(Signal::KILL),
            _ => Step::Exit,
        }
    }
}

/// Has this command end early on a signal: the first one is forwarded to the run, the second kills
/// it, the third ends the command. Where there is no run, the second ends the command.
///
/// # Errors
/// The handlers or their thread cannot be installed.
pub fn forward_signals() -> io::Result<()> {
    let mut signals = Signals::new(heeded(&SIGNALS))?;
    let body = move || {
        let mut heard = Heard::default();
        for signal in signals.forever() {
            // The first one stays. A run that starts from now on receives it.
            let _ = REQUESTED.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
            let run = current_run();
            match (heard.step(signal, Instant::now(), run.is_some()), &*run) {
                (Step::Send(forwarded), Some(run)) => {
                    // It may have ended by itself.
                    let _ = pidfd_send_signal(run, forwarded);
                }
                (Step::Send(_), None) | (Step::Ignore, _) => {}
                (Step::Exit, _) => {
                    remove_scraps();
                    std::process::exit(i32::from(status_of(signal)));
                }
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(body)?;
    Ok(())
}

/// Has the process of a run end when its command has died, and early on a signal. `parent` is the
/// number of the command's process.
///
/// # Errors
/// The command has died already, or a handler cannot be installed.
pub fn follow_parent(parent: Option<&str>) -> anyhow::Result<()> {
    let heeded = heeded(&SIGNALS);
    // A run that ignores SIGTERM must end with its command, too.
    let end = match heeded.contains(&SIGTERM) {
        true => Signal::TERM,
        false => Signal::KILL,
    };
    let mut signals = Signals::new(heeded).context("signals cannot be handled")?;
    let body = move || {
        let Some(signal) = signals.forever().next() else {
            return;
        };
        REQUESTED.store(signal, Ordering::Relaxed);
        thread::sleep(GRACE);
        remove_scraps();
        std::process::exit(i32::from(status_of(signal)));
    };
    let thread = thread::Builder::new().name("signals".into()).spawn(body);
    thread.context("the thread that handles signals could not be started")?;
    set_parent_process_death_signal(Some(end))
        .context("the process of a run cannot follow its command")?;
    let Some(parent) = parent else {
        return Ok(());
    };
    let now = getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    if now.to_string() != parent {
        bail!("the command of this run has ended");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_not_heeded() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored(status), 1 << (SIGHUP - 1) | 1 << (13 - 1));
        assert_eq!(ignored(""), 0);
    }

    #[test]
    fn the_second_signal_ends_a_command_without_a_run() {
        let start = Instant::now();
        let at = |number: u32| start + REPEAT * number;
        let mut heard = Heard::default();
        let first = heard.step(SIGINT, start, false);
        assert_eq!(first, Step::Send(Signal::INT));
        assert_eq!(heard.step(SIGINT, at(1), false), Step::Exit);

        let mut heard = Heard::default();
        let steps = [1, 2, 3].map(|number| heard.step(SIGTERM, at(number), true));
        let expected = [
            Step::Send(Signal::TERM),
            Step::Send(Signal::KILL),
            Step::Exit,
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn a_signal_that_is_sent_twice_at_once_counts_once() {
        let start = Instant::now();
        let mut heard = Heard::default();
        assert_eq!(heard.step(SIGTERM, start, false), Step::Send(Signal::TERM));
        assert_eq!(heard.step(SIGTERM, start, false), Step::Ignore);
        // Another signal is another wish.
        assert_eq!(heard.step(SIGINT, start, false), Step::Exit);
    }

    #[test]
    fn a_hung_run_removes_its_files_and_folders() {
        let place = tempfile::tempdir().unwrap();
        let (file, folder) = (place.path().join("socket"), place.path().join("store"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("table"), "").unwrap();
        for path in [&file, &folder, &place.path().join("gone")] {
            remove_if_hung(path);
        }
        remove_scraps();
        assert!(!file.exists() && !folder.exists());
    }
}
