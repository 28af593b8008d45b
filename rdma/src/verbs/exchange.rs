//! Connects queue pairs by an exchange: both sides send their queue pairs' facts over a TCP
//! connection, which stays open. Owns no queue pair.
//!
//! ```text
//! client                                  server
//!   connect request (purpose)       ->
//!                                   <-    accepted, or refused with a reason
//!   its facts                       ->    creates a queue pair, ready to send
//!   ready to send                   <-    its facts
//!   ready                           ->    from here on both send
//! ```
//!
//! The end of the TCP connection ends the queue pair on both sides.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
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
/// The connection's error; [`VerbsError`] as an I/O error.
async fn introduce(
    line: &mut tcp::Exchange,
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

async fn read_facts(line: &mut tcp::Exchange) -> io::Result<QueuePairFacts> {
    let mut bytes = [0; QueuePairFacts::BYTES];
    line.read_exact(&mut bytes).await?;
    QueuePairFacts::decode(&bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Connects a queue pair for an endpoint's connection slot.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(
    adapter: &Arc<Adapter>,
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> Result<Connected, ConnectError> {
    let failed = |source| ConnectError::Io { address, source };
    let work = async {
        let mut line = tcp::connect_exchange(address, request, limit).await?;
        // Dropped before the line if this is cancelled: the peer sees the end only when no queue
        // pair is left.
        let queue_pair = adapter
            .queue_pair()
            .map_err(|error| failed(io::Error::other(error)))?;
        introduce(&mut line, &queue_pair, adapter)
            .await
            .map_err(failed)?;
        let line = line.connected().map_err(failed)?;
        Ok(Connected {
            queue_pair,
            line: Arc::new(Line::Socket(line)),
        })
    };
    let late = async {
        Timer::new(limit).await;
        Err(ConnectError::TimedOut { address, limit })
    };
    futures_lite::future::or(work, late).await
}

/// The other side of [`connect`], on an accepted connection: makes `queue_pair` ready to send.
///
/// # Errors
/// The connection's error, or that the facts are invalid.
pub(crate) async fn answer(
    line: &mut tcp::Exchange,
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
        let what = VerbsError::Facts("it did not report ready");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}

/// Accepts an equal peer's connection for an endpoint's connection slot.
///
/// # Errors
/// As [`tcp::Incoming::accept_peer`], and as [`connect`].
pub async fn accept_peer(adapter: &Arc<Adapter>, incoming: tcp::Incoming) -> io::Result<Connected> {
    let mut line = incoming.accept_exchange().await?;
    let queue_pair = adapter.queue_pair().map_err(io::Error::other)?;
    answer(&mut line, &queue_pair, adapter.access, &adapter.options).await?;
    let line = line.connected()?;
    Ok(Connected {
        queue_pair,
        line: Arc::new(Line::Socket(line)),
    })
}
