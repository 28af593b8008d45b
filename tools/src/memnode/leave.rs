//! A node that leaves, because of SIGUSR1: it serves until no session holds an extent.
//!
//! - I1: it has left only after nothing was held for [`SETTLE`]: a claim that was under way when
//!   its client heard of it is seen. It ends right after that: its key in etcd, which may take
//!   seconds, is removed before.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farcore_rdma::node::NodeHandle;
use signal_hook::consts::SIGUSR1;
use tracing::info;

use super::Event;
use super::registration::Registration;

/// How often it is looked whether the node has left.
const TICK: Duration = Duration::from_millis(50);
/// How often the log says how far it is.
const REPORT: Duration = Duration::from_secs(5);
/// For so long nothing must have been held.
const SETTLE: Duration = Duration::from_secs(1);

/// How far a node is that leaves.
#[derive(Debug)]
struct Leave {
    reported: Instant,
    /// Since when nothing has been held.
    empty: Option<Instant>,
}

impl Leave {
    fn begin(handle: &NodeHandle) -> Self {
        let leave = Self {
            reported: Instant::now(),
            empty: None,
        };
        leave.report(
            handle,
            "leaving: the node ends when no session holds an extent",
        );
        leave
    }

    fn report(&self, handle: &NodeHandle, what: &'static str) {
        if let Some(progress) = handle.metrics().leave_progress() {
            let (sessions, extents) = (progress.sessions, progress.extents);
            info!(sessions, extents, "{what}");
        }
    }

    /// Whether the node has left.
    fn look(&mut self, handle: &NodeHandle) -> bool {
        let progress = handle.metrics().leave_progress();
        if !progress.is_some_and(|progress| progress.has_left) {
            self.empty = None;
        } else if self.empty.get_or_insert_with(Instant::now).elapsed() >= SETTLE {
            return true;
        }
        if self.reported.elapsed() >= REPORT {
            self.reported = Instant::now();
            self.report(handle, "leaving");
        }
        false
    }
}

/// Waits until a signal ends the node, or it has left because of SIGUSR1. Where it is registered,
/// it says that it leaves: a server that has no session there does not add it. Its key is removed
/// before it ends.
///
/// # Errors
/// The thread that waits for signals has ended.
pub(super) fn wait_for_end(
    events: &Receiver<Event>,
    handle: &NodeHandle,
    mut registration: Option<Registration>,
) -> Result<()> {
    let mut leave: Option<Leave> = None;
    loop {
        let event = match &mut leave {
            None => events.recv().context("signals were lost")?,
            Some(leave) => match events.recv_timeout(TICK) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) if leave.look(handle) => {
                    if let Some(registration) = registration.take() {
                        registration.end();
                        // Meanwhile a client may have come.
                        leave.empty = None;
                        continue;
                    }
                    info!("left: no session holds an extent");
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => bail!("signals were lost"),
            },
        };
        match event {
            Event::Signal(SIGUSR1) => {
                if handle.leave() {
                    if let Some(registration) = &registration {
                        registration.drains();
                    }
                    leave = Some(Leave::begin(handle));
                }
            }
            Event::Signal(signal) => {
                info!(signal, "stopping");
                // Before the node ends, so that it is not added any more.
                if let Some(registration) = registration {
                    registration.end();
                }
                return Ok(());
            }
            Event::Started(_) => {}
        }
    }
}
