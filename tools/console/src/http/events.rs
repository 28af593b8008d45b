//! Streams of server-sent events: their bound, and when they end.
//!
//! - I1: a stream ends when its client is gone, when the console stops, and when its session no
//!   longer holds, which is looked at every
//!   [`stream_check`](crate::options::Limits::stream_check).

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::access::Session;
use crate::error::{ApiError, ApiResult};
use crate::state::{AppState, stopped};

/// Events between the sender and the connection.
const WAITING: usize = 16;
/// A comment keeps proxies from ending a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The sending end of a stream.
pub(crate) struct Events {
    state: AppState,
    session: Session,
    sender: mpsc::Sender<Event>,
    stopping: watch::Receiver<bool>,
    next_check: Instant,
    _turn: OwnedSemaphorePermit,
}

/// Opens a stream of a session: its sending end, and the answer that carries it.
///
/// # Errors
/// There are too many streams.
pub(crate) fn open_events(
    state: &AppState,
    session: Session,
) -> ApiResult<(Events, impl IntoResponse + use<>)> {
    let turn = state.streams.clone().try_acquire_owned().map_err(|_| {
        let count = state.options.limits.streams_max;
        ApiError::busy(format!(
            "{count} pages follow something already: close some"
        ))
    })?;
    let (sender, mut received) = mpsc::channel(WAITING);
    let stream = futures_lite::stream::poll_fn(move |context| {
        let next = received.poll_recv(context);
        next.map(|event| event.map(Ok::<_, Infallible>))
    });
    let events = Events {
        sender,
        stopping: state.stopping.clone(),
        next_check: Instant::now() + state.options.limits.stream_check,
        state: state.clone(),
        session,
        _turn: turn,
    };
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok((events, Sse::new(stream).keep_alive(keep_alive)))
}

impl Events {
    /// Sends an event; false if the stream is to end.
    pub(crate) async fn send(&mut self, event: Event) -> bool {
        if !self.holds().await {
            return false;
        }
        tokio::select! {
            sent = self.sender.send(event) => sent.is_ok(),
            () = stopped(&mut self.stopping) => false,
        }
    }

    /// Waits for something; false if the stream is to end before.
    pub(crate) async fn wait<T>(&mut self, something: impl Future<Output = T>) -> bool {
        let mut something = std::pin::pin!(something);
        loop {
            let check = self.next_check;
            tokio::select! {
                _ = something.as_mut() => return self.holds().await,
                () = self.sender.closed() => return false,
                () = stopped(&mut self.stopping) => return false,
                () = sleep_until(check) => if !self.holds().await {
                    return false;
                },
            }
        }
    }

    /// Whether the session still holds; looks only now and then.
    async fn holds(&mut self) -> bool {
        if Instant::now() < self.next_check {
            return true;
        }
        self.next_check = Instant::now() + self.state.options.limits.stream_check;
        self.session.still_holds(&self.state).await.unwrap_or(false)
    }
}
