//! The course of a run as server-sent events.
//!
//! ```text
//! event: state      data: {"state": "queued" | "running" | ...}
//! event: progress   data: {"started": N, "total": N, "point": [figures by column] | null}
//! ```
//!
//! An event with a point has the number of points up to it as its id. A browser that comes back
//! sends it as `Last-Event-ID` and gets the points after it. The stream ends with the state in
//! which the run ended.
//!
//! - I1: a stream ends soon after its session, and when the console stops.
//! - I2: there is a bound on streams, and a slow reader holds no memory beyond a few events.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::Event;
use rusqlite::Connection;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use super::run::{self, Run, RunState};
use super::series::Figures;
use super::watched::{Position, Watched};
use crate::access::Session;
use crate::error::ApiResult;
use crate::http::{Events, Id, open_events};
use crate::state::AppState;

/// Time between two looks at a run that is under way.
const STEP: Duration = Duration::from_millis(50);

/// One stream.
struct Stream {
    state: AppState,
    events: Events,
    id: i64,
    /// Points that the client has.
    seen: usize,
    /// The state that the client knows.
    told: Option<RunState>,
}

impl Stream {
    /// Sends a state that the client does not know; false if the client has gone.
    async fn tell(&mut self, state: RunState) -> bool {
        if self.told == Some(state) {
            return true;
        }
        self.told = Some(state);
        let data = json!({ "state": state }).to_string();
        self.events
            .send(Event::default().event("state").data(data))
            .await
    }

    async fn send_points(&mut self, points: Vec<Figures>, started: u64, total: u64) -> bool {
        for figures in points {
            self.seen += 1;
            let data = json!({ "started": started, "total": total, "point": figures });
            let event = Event::default().event("progress").id(self.seen.to_string());
            if !self.events.send(event.data(data.to_string())).await {
                return false;
            }
        }
        true
    }

    async fn send_progress(&mut self, position: Position) -> bool {
        let Position { started, total, .. } = position;
        let data = json!({ "started": started, "total": total, "point": null });
        let event = Event::default().event("progress").data(data.to_string());
        self.events.send(event).await
    }

    /// Follows a run that is under way to its end or that of the stream.
    async fn follow(&mut self, watched: &Arc<Watched>) {
        let mut positions = watched.position();
        if !self.tell(RunState::Running).await {
            return;
        }
        loop {
            let position = *positions.borrow_and_update();
            let points = watched.points_from(self.seen);
            let sent = match points.is_empty() {
                true => self.send_progress(position).await,
                false => {
                    self.send_points(points, position.started, position.total)
                        .await
                }
            };
            if !sent {
                return;
            }
            if let Some(ended) = position.ended {
                self.tell(ended).await;
                return;
            }
            sleep(STEP).await;
            if !self.events.wait(positions.changed()).await {
                return;
            }
        }
    }

    /// Sends what is stored of a run that has ended.
    async fn finish(&mut self) -> ApiResult<()> {
        let (id, seen) = (self.id, self.seen);
        let read = move |console: &Connection| {
            Ok((Run::find(console, id)?, run::points(console, id, seen)?))
        };
        let (run, points) = self.state.console.read(read).await?;
        if self
            .send_points(points, run.progress.started, run.progress.total)
            .await
        {
            self.tell(run.state).await;
        }
        Ok(())
    }

    async fn run(mut self, mut changes: watch::Receiver<u64>) -> ApiResult<()> {
        loop {
            changes.borrow_and_update();
            let id = self.id;
            if let Some(watched) = self.state.runner.watched(id) {
                self.follow(&watched).await;
                return Ok(());
            }
            let find = move |console: &Connection| Run::find(console, id);
            let run = self.state.console.read(find).await?;
            if run.state.has_ended() {
                return self.finish().await;
            }
            // A run that is claimed at this moment changes the count once it can be followed.
            if run.state == RunState::Queued && !self.tell(run.state).await {
                return Ok(());
            }
            if !self.events.wait(changes.changed()).await {
                return Ok(());
            }
        }
    }
}

/// `GET /api/runs/{id}/events`
pub(super) async fn events(
    State(state): State<AppState>,
    Id(id): Id,
    session: Session,
    headers: HeaderMap,
) -> ApiResult<impl IntoResponse> {
    let find = move |console: &Connection| Run::find(console, id);
    state.console.read(find).await?;
    let seen = headers
        .get("last-event-id")
        .and_then(|text| text.to_str().ok());
    let seen = seen.and_then(|text| text.parse().ok()).unwrap_or(0);
    let (events, response) = open_events(&state, session)?;
    let stream = Stream {
        events,
        id,
        seen,
        told: None,
        state: state.clone(),
    };
    let changes = state.runner.changes();
    tokio::spawn(async move {
        if let Err(error) = stream.run(changes).await {
            tracing::debug!(error = error.message(), "a stream ended");
        }
    });
    Ok(response)
}
