//! The client's thread: it connects, sends what callers submit, and sleeps when there is nothing to
//! do.
//!
//! ```text
//! connecting -> connected -> (lost) -> pause, twice as long each time -> connecting
//! ```
//!
//! - I1: it ends when the client is closed and nothing is under way any more.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use farcore_rdma::FabricAddress;
use farcore_tuning::Clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::error::Result;
use crate::options::ClientOptions;
use crate::port::Port;
use crate::session::{Backlog, Session};

/// The pause before the second attempt to connect, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often commands that wait for a connection are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The longest sleep while something is under way, and without.
const SLEEP: Duration = Duration::from_millis(20);
const IDLE_SLEEP: Duration = Duration::from_secs(1);
/// The longest sleep while acknowledgements wait to be sent.
const ACKNOWLEDGE_SLEEP: Duration = Duration::from_millis(1);
/// How often time limits are looked at.
const EXPIRE: Duration = Duration::from_millis(10);
/// Commands that are taken at once.
const COMMANDS: usize = 256;

/// Why a connection ended.
enum End {
    Closed,
    Lost(String),
}

pub(crate) struct Driver {
    address: FabricAddress,
    options: ClientOptions,
    port: Arc<Port>,
    backlog: Backlog,
    clock: Clock,
    expired: Instant,
}

impl Driver {
    pub(crate) fn new(address: FabricAddress, options: ClientOptions, port: Arc<Port>) -> Self {
        Self {
            address,
            options,
            port,
            backlog: Backlog::default(),
            clock: Clock::new(),
            expired: Instant::now(),
        }
    }

    /// Connects, says how that ended, and serves until the client is closed.
    pub(crate) async fn run(mut self, begun: Sender<Result<()>>) {
        let session = Session::connect(&self.address, &self.options, &self.port.counters).await;
        let mut session = match session {
            Ok(session) => {
                let _ = begun.send(Ok(()));
                session
            }
            Err(error) => {
                let _ = begun.send(Err(error));
                return;
            }
        };
        loop {
            match self.serve(session) {
                End::Closed => break,
                End::Lost(reason) => {
                    tracing::warn!(address = %self.address, reason, "the connection ended");
                }
            }
            match self.reconnect().await {
                Some(next) => session = next,
                None => break,
            }
        }
    }

    /// Serves a connection until it or the client ends.
    fn serve(&mut self, mut session: Session) -> End {
        let counters = &self.port.counters;
        let mut idle_since: Option<Instant> = None;
        let reason = loop {
            let mut is_busy = false;
            for _ in 0..COMMANDS {
                let Some(command) = self.port.receive() else {
                    break;
                };
                self.backlog.push(command);
                is_busy = true;
            }
            match session.turn(&mut self.backlog, self.clock.now_ns(), counters) {
                Ok(busy) => is_busy |= busy,
                Err(error) => break error.to_string(),
            }
            let has_work = session.has_callers() || !self.backlog.is_empty();
            if self.port.is_closed() && !has_work && !is_busy {
                return End::Closed;
            }
            if is_busy {
                idle_since = None;
            }
            if is_busy && !has_work {
                continue;
            }
            if has_work && self.expired.elapsed() >= EXPIRE {
                self.expired = Instant::now();
                self.backlog.expire(self.expired, self.options.timeout);
                session.expire(self.expired);
            }
            if is_busy {
                continue;
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            if since.elapsed() < self.options.spin || !self.port.fall_asleep() {
                continue;
            }
            match session.arm(self.clock.now_ns(), counters) {
                Ok(true) => sleep(&self.port, &mut session, has_work),
                Ok(false) => {}
                Err(error) => break error.to_string(),
            }
            self.port.wake_up();
        };
        session.end(&reason, &mut self.backlog);
        End::Lost(reason)
    }

    /// Connects again, with growing pauses; `None` if the client was closed.
    async fn reconnect(&mut self) -> Option<Session> {
        let mut pause = PAUSE_MIN;
        loop {
            if self.port.is_closed() {
                return None;
            }
            let session = Session::connect(&self.address, &self.options, &self.port.counters).await;
            match session {
                Ok(session) => return Some(session),
                Err(error) => tracing::warn!(%error, "cannot connect"),
            }
            let end = Instant::now() + pause;
            while Instant::now() < end && !self.port.is_closed() {
                while let Some(command) = self.port.receive() {
                    self.backlog.push(command);
                }
                self.backlog.expire(Instant::now(), self.options.timeout);
                farcore_rdma::pause(LOOK.min(pause)).await;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Waits for a command, or for the fabric.
fn sleep(port: &Port, session: &mut Session, has_work: bool) {
    let limit = match (session.owes_acknowledgement(), has_work) {
        (true, _) => ACKNOWLEDGE_SLEEP,
        (false, true) => SLEEP,
        (false, false) => IDLE_SLEEP,
    };
    let signalled = {
        let (descriptors, writes) = session.descriptors();
        let event = port.event();
        let mut waits = vec![PollFd::from_borrowed_fd(event, PollFlags::IN)];
        for descriptor in descriptors.into_iter().flatten() {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, writes && waits.len() == 1);
            waits.push(PollFd::from_borrowed_fd(descriptor, flags));
        }
        let limit = Timespec::try_from(limit).ok();
        let _ = poll(&mut waits, limit.as_ref());
        waits.iter().skip(1).any(|wait| !wait.revents().is_empty())
    };
    if signalled {
        session.acknowledge();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Also after a panic: callers must not wait for ever.
        self.port.close();
        self.port.end_all();
        self.backlog.end_all();
    }
}
