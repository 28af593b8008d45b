//! What a node's task does next.

use std::time::{Duration, Instant};

use async_channel::Receiver;
use futures_lite::future::or;

use crate::command::Command;

/// How often connections are looked at, and waiting requests are woken.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// What a node's task does next.
pub(super) enum Next {
    Command(Command),
    Tick,
    Close,
}

/// Waits for the next command, or until the tick is due.
pub(super) async fn next(commands: &Receiver<Command>, due: &mut Instant) -> Next {
    let now = Instant::now();
    let left = due.saturating_duration_since(now);
    if left.is_zero() && !commands.is_closed() {
        *due = now + TICK;
        return Next::Tick;
    }
    let command = async {
        match commands.recv().await {
            Ok(command) => Next::Command(command),
            Err(_) => Next::Close,
        }
    };
    let tick = async {
        farcore_rdma::pause(left).await;
        Next::Tick
    };
    let next = or(command, tick).await;
    if let Next::Tick = next {
        *due = Instant::now() + TICK;
    }
    next
}
