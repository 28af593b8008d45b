//! What threads that read a server's data and changes have in common: they load its file, pass
//! commands on, wait, and end when they are to stop.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::error::LinkError;
use super::inlet::Inlet;
use super::load::{End, Load};
use super::source::Source;
use super::stop::Stop;
use crate::cores::shared::Shared;

/// How often the source hears the position; as Redis.
pub(super) const ACKNOWLEDGE: Duration = Duration::from_secs(1);
/// How long commands that were passed on may take when a link ends.
const DRAIN: Duration = Duration::from_secs(30);

/// A thread that reads a server's data and changes.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) stop: Arc<Stop>,
}

impl Session {
    /// Connects to a server, encrypted if the settings of this one say so.
    pub(super) fn connect(&self, host: (&str, u16), limit: Duration) -> Result<Source, LinkError> {
        let tls = self.shared.source_tls.as_ref();
        let config = tls.map(|(config, _)| config);
        Source::connect(host, config, limit, &self.stop)
    }

    /// The port that this server says is its own.
    pub(super) fn own_port(&self) -> u16 {
        let tls = self.shared.source_tls.as_ref();
        tls.map_or(self.shared.port, |(_, port)| *port)
    }

    /// Waits for the line before the data, which comes once the source has made them.
    pub(super) fn data_end(&self, source: &mut Source) -> Result<End, LinkError> {
        let mut said = Instant::now();
        loop {
            if let Some(end) = End::take(&mut source.input)? {
                return Ok(end);
            }
            if said.elapsed() >= ACKNOWLEDGE {
                said = Instant::now();
                source.send_nothing();
            }
            source.flush()?;
            if source.receive()? == 0 {
                self.stop.wait(&[source.interest(true)], ACKNOWLEDGE);
            }
            self.check_stop()?;
        }
    }

    /// Loads a file; returns the database that the stream begins in. `note` hears how far it is.
    pub(super) fn load_file(
        &self,
        (source, inlet): (&mut Source, &mut Inlet),
        mut load: Load,
        note: impl Fn(&Load),
    ) -> Result<u64, LinkError> {
        let (mut said, mut is_whole) = (Instant::now(), false);
        while !is_whole || !inlet.is_idle() {
            inlet.exchange()?;
            if let Some((_, reply)) = inlet.take_failed().into_iter().next() {
                return Err(LinkError::NotStored(reply));
            }
            let mut is_busy = false;
            while !is_whole && !inlet.is_full() {
                let before = (load.read_bytes(), inlet.out.commands());
                is_whole = load.step(&mut source.input, &mut inlet.out)?;
                is_busy = true;
                let has_gone_on = before != (load.read_bytes(), inlet.out.commands());
                if is_whole || !has_gone_on && source.receive()? == 0 {
                    is_busy = has_gone_on;
                    break;
                }
            }
            if inlet.is_full() || is_whole {
                source.rest();
            }
            note(&load);
            if said.elapsed() >= ACKNOWLEDGE {
                said = Instant::now();
                source.send_nothing();
            }
            source.flush()?;
            self.check_stop()?;
            // The last replies may be among those that came above: nothing wakes it after them.
            let is_done = is_whole && inlet.is_idle();
            if !is_busy && !is_done {
                let receives = !is_whole && !inlet.is_full();
                let sockets = [source.interest(receives), inlet.interest()];
                self.wait(&sockets, ACKNOWLEDGE);
            }
        }
        Ok(load.database())
    }

    /// Waits until all that was passed on is replied to.
    pub(super) fn drain(&self, inlet: &mut Inlet) -> Result<(), LinkError> {
        let until = Instant::now() + DRAIN;
        while !inlet.is_idle() && Instant::now() < until {
            inlet.exchange()?;
            if !inlet.is_idle() {
                // Not by `Stop`, which may be what ends the link.
                let (socket, flags) = inlet.interest();
                let mut sockets = [rustix::event::PollFd::from_borrowed_fd(socket, flags)];
                let limit = rustix::time::Timespec::try_from(ACKNOWLEDGE).ok();
                let _ = rustix::event::poll(&mut sockets, limit.as_ref());
            }
        }
        inlet.is_idle().then_some(()).ok_or(LinkError::Inlet)
    }

    /// # Errors
    /// The session is to end.
    pub(super) fn check_stop(&self) -> Result<(), LinkError> {
        if self.stop.is_set() {
            return Err(LinkError::Stopped);
        }
        if self.stop.take_cut() {
            return Err(LinkError::Cut);
        }
        Ok(())
    }

    pub(super) fn wait(&self, sockets: &[(BorrowedFd<'_>, PollFlags)], limit: Duration) {
        self.stop.wait(sockets, limit);
    }
}
