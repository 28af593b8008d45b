//! Connecting by hand: both sides tell each other their queue pairs' facts over a TCP connection,
//! which stays open.
//!
//! ```text
//! client                                  server
//!   connect request (what for)      ->
//!                                   <-    taken, or refused with a reason
//!   its facts                       ->    makes a queue pair, ready to send
//!   ready to send                   <-    its facts
//!   ready                           ->    from here on both send
//! ```
//!
//! The end of the TCP connection is the end of the queue pair, for both.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::executor::Timer;

use super::context::Access;
use super::error::VerbsError;
use super::queue_pair::{QueuePair, QueuePairFacts};
use crate::fabric::VerbsOptions;
use crate::tcp::{self, ConnectError, ConnectRequest};
use crate::verbs::slot::{Adapter, Connected, Line};

const READY: [u8; 1] = [0x52];

/// # Errors
/// What the connection says; [`VerbsError`] as an error of input and output.
async fn introduce(
    line: &mut tcp::Connected,
    queue_pair: &QueuePair,
    adapter: &Adapter,
) -> io::Result<()> {
    let options = &adapter.options;
    line.write_all(&queue_pair.facts(options).encode()).await?;
    let peer = read_facts(line).await?;
    queue_pair
        .connect(adapter.access, &peer, options)
        .map_err(io::Error::other)?;
    line.write_all(&READY).await
}

async fn read_facts(line: &mut tcp::Connected) -> io::Result<QueuePairFacts> {
    let mut bytes = [0; QueuePairFacts::BYTES];
    line.read_exact(&mut bytes).await?;
    QueuePairFacts::decode(&bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Connects a queue pair for an endpoint's berth.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(
    adapter: &Rc<Adapter>,
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> Result<Connected, ConnectError> {
    let failed = |source| ConnectError::Io { address, source };
    let work = async {
        let mut line = tcp::connect_queue(address, request, limit).await?;
        // Dropped before the line if this is given up: the other side hears of the end when there
        // is nothing left.
        let queue_pair = adapter
            .queue_pair()
            .map_err(|error| failed(io::Error::other(error)))?;
        introduce(&mut line, &queue_pair, adapter)
            .await
            .map_err(failed)?;
        Ok(Connected {
            queue_pair,
            line: Rc::new(Line::Socket(line)),
        })
    };
    let late = async {
        Timer::new(limit).await;
        Err(ConnectError::TimedOut { address, limit })
    };
    futures_lite::future::or(work, late).await
}

/// The other side of [`connect`], on a connection that was taken: makes `queue_pair` ready to send.
///
/// # Errors
/// What the connection says; facts that make no sense.
pub(crate) async fn answer(
    line: &mut tcp::Connected,
    queue_pair: &QueuePair,
    access: Access,
    options: &VerbsOptions,
) -> io::Result<()> {
    let peer = read_facts(line).await?;
    queue_pair
        .connect(access, &peer, options)
        .map_err(io::Error::other)?;
    line.write_all(&queue_pair.facts(options).encode()).await?;
    let mut ready = [0; 1];
    line.read_exact(&mut ready).await?;
    if ready != READY {
        let what = VerbsError::Facts("it did not say that it is ready");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}

/// Takes a connection of an equal, for an endpoint's berth.
///
/// # Errors
/// As [`tcp::Incoming::accept_peer`], and as [`connect`].
pub async fn accept_peer(adapter: &Rc<Adapter>, incoming: tcp::Incoming) -> io::Result<Connected> {
    let mut line = incoming.accept_peer().await?;
    let queue_pair = adapter.queue_pair().map_err(io::Error::other)?;
    answer(&mut line, &queue_pair, adapter.access, &adapter.options).await?;
    Ok(Connected {
        queue_pair,
        line: Rc::new(Line::Socket(line)),
    })
}
