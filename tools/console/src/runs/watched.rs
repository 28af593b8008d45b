//! A run that is under way: its points so far, its progress, and the order to end it.
//!
//! One thread, that of the simulation, writes; any number of streams read.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::run::RunState;
use super::series::Figures;

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    /// Messages that were started.
    pub(super) started: u64,
    /// Messages that will be.
    pub(super) total: u64,
    /// Points so far.
    pub(super) points: usize,
    /// How it ended; `None` while it is under way.
    pub(super) ended: Option<RunState>,
}

/// A run that is under way.
#[derive(Debug)]
pub(super) struct Watched {
    points: Mutex<Vec<Figures>>,
    position: watch::Sender<Position>,
    is_cancelled: AtomicBool,
}

impl Watched {
    /// A run that begins.
    pub(super) fn new(total: u64) -> Self {
        let position = Position {
            started: 0,
            total,
            points: 0,
            ended: None,
        };
        Self {
            points: Mutex::default(),
            position: watch::Sender::new(position),
            is_cancelled: AtomicBool::new(false),
        }
    }

    /// Notes progress, and a point if there is a new one.
    pub(super) fn advance(&self, started: u64, total: u64, point: Option<Figures>) {
        let points = {
            let mut points = self.points.lock();
            points.extend(point);
            points.len()
        };
        self.position.send_modify(|position| {
            position.started = started;
            position.total = total;
            position.points = points;
        });
    }

    /// Notes the end.
    pub(super) fn end(&self, state: RunState) {
        self.position
            .send_modify(|position| position.ended = Some(state));
    }

    /// The points from one on.
    pub(super) fn points_from(&self, first: usize) -> Vec<Figures> {
        let points = self.points.lock();
        points.get(first..).unwrap_or_default().to_vec()
    }

    /// The position, and its changes.
    pub(super) fn position(&self) -> watch::Receiver<Position> {
        self.position.subscribe()
    }

    /// Orders the end.
    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
    }

    /// Whether the end was ordered.
    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }
}
