//! Running engines, nodes and servers, as the program around this library sees them.
//!
//! - I1: the source is read at most once in [`FRESH`], however many pages look, and not at all
//!   while none does.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::response::sse::Event;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::access::{Access, Session};
use crate::error::{ApiError, ApiResult};
use crate::http::{Routes, open_events};
use crate::state::AppState;

/// Time between two events of a stream.
const EVERY: Duration = Duration::from_secs(1);
/// How long figures are shown to others.
const FRESH: Duration = Duration::from_millis(900);

/// What a source is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveKind {
    /// An engine inside a program.
    Engine,
    /// A memory node.
    Node,
    /// A server on an engine's cores.
    Server,
}

/// The latest figures of a source.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LiveFigures {
    /// The name, for example the path of a socket.
    pub name: String,
    /// What it is.
    pub kind: LiveKind,
    /// Rates and states, as `farcore top --json` has them; null until two reports were read.
    pub rates: Value,
    /// Why there are no figures, with a remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Where figures of running engines come from.
pub trait LiveSource: fmt::Debug + Send + Sync + 'static {
    /// The figures of all sources that are found. Called on a thread for blocking calls, about once
    /// a second while a page shows them, and never by two threads at once.
    fn figures(&self) -> Vec<LiveFigures>;
}

/// No sources.
#[derive(Clone, Copy, Debug)]
pub struct NoLiveSource;

impl LiveSource for NoLiveSource {
    fn figures(&self) -> Vec<LiveFigures> {
        Vec::new()
    }
}

/// The answer of both routes.
#[derive(Serialize)]
struct Shown {
    sources: Vec<LiveFigures>,
}

/// The figures that were read last, as JSON.
#[derive(Debug)]
pub(crate) struct Live {
    source: Arc<dyn LiveSource>,
    last: Mutex<Option<(Instant, Arc<str>)>>,
}

impl Live {
    /// Nothing was read yet.
    pub(crate) fn new(source: Arc<dyn LiveSource>) -> Self {
        Self {
            source,
            last: Mutex::new(None),
        }
    }

    /// The figures, read anew if they are not fresh.
    ///
    /// # Errors
    /// The source ended by a fault.
    async fn figures(&self) -> ApiResult<Arc<str>> {
        let mut last = self.last.lock().await;
        if let Some((at, text)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(text));
        }
        let source = Arc::clone(&self.source);
        let read = tokio::task::spawn_blocking(move || source.figures()).await;
        let sources = read.map_err(ApiError::internal)?;
        let text: Arc<str> = serde_json::to_string(&Shown { sources })?.into();
        *last = Some((Instant::now(), Arc::clone(&text)));
        Ok(text)
    }
}

/// `GET /api/live`
async fn show(State(state): State<AppState>) -> ApiResult<impl IntoResponse> {
    let text = state.live.figures().await?;
    let headers = [(header::CONTENT_TYPE, "application/json")];
    Ok((headers, text.to_string()))
}

/// `GET /api/live/events`: events `live` with the answer of `/api/live`.
async fn events(State(state): State<AppState>, session: Session) -> ApiResult<impl IntoResponse> {
    let (mut events, response) = open_events(&state, session)?;
    tokio::spawn(async move {
        loop {
            let text = match state.live.figures().await {
                Ok(text) => text,
                Err(error) => {
                    tracing::debug!(error = error.message(), "a stream ended");
                    return;
                }
            };
            let event = Event::default().event("live").data(&*text);
            if !events.send(event).await || !events.wait(sleep(EVERY)).await {
                return;
            }
        }
    });
    Ok(response)
}

/// Adds the routes of live figures.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .get("/api/live", Access::Viewer, show)
        .get("/api/live/events", Access::Viewer, events)
}
