//! Where reports come from: the statistics socket at a path, or one found in the default folder.
//!
//! Without a path, the newest engine that answers is chosen, and kept while it answers. Errors are
//! text for people, because a view shows them and goes on.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use farcore::Report;
use farcore::statistics::{ReadError, find_sockets, read_report, sockets_folder};

/// The engine whose reports are read.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path given by the user.
    path: Option<PathBuf>,
    /// The socket found in the default folder, if no path was given.
    found: Option<PathBuf>,
}

/// Why there is no report, with a remedy.
fn why(error: &ReadError) -> String {
    match error {
        ReadError::Absent { path } => format!(
            "{error}: start one with `farcore serve --stats-socket {}`, or give another path",
            path.display()
        ),
        _ => error.to_string(),
    }
}

/// The path of a report, and the report or the reason that there is none.
pub(crate) type Sample = (String, Result<Report, String>);

/// An order to the thread that reads reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Change the interval.
    Interval(Duration),
    /// Switch to the next engine that answers.
    NextEngine,
}

impl Source {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, found: None }
    }

    /// Reads a report: of the given path, else of the last engine, else of the newest that answers.
    pub(crate) fn sample(&mut self) -> Sample {
        let known = self.path.as_ref().or(self.found.as_ref());
        let mut sample = match known {
            Some(path) => {
                let report = read_report(path).map_err(|error| why(&error));
                (path.display().to_string(), report)
            }
            None => Self::none(),
        };
        if sample.1.is_err() && self.path.is_none() {
            let found = find_sockets()
                .unwrap_or_default()
                .into_iter()
                .find_map(|path| {
                    let report = read_report(&path).ok()?;
                    Some((path, report))
                });
            if let Some((path, report)) = found {
                sample = (path.display().to_string(), Ok(report));
                self.found = Some(path);
            }
        }
        sample
    }

    fn none() -> Sample {
        let folder = sockets_folder();
        let why = match find_sockets() {
            Ok(_) => format!(
                "no engine has a statistics socket in {}: start one there \
                 (farcore serve --stats-socket), or give a path",
                folder.display()
            ),
            Err(error) => format!("{}: {error}", folder.display()),
        };
        (folder.display().to_string(), Err(why))
    }

    /// Switches to the next engine that answers. Without effect if a path was given.
    fn next(&mut self) {
        let sockets = find_sockets().unwrap_or_default();
        let at = sockets
            .iter()
            .position(|path| Some(path) == self.found.as_ref());
        let first = at.map_or(0, |at| at + 1);
        let following = sockets.iter().cycle().skip(first).take(sockets.len());
        if let Some(path) = following.into_iter().find(|path| read_report(path).is_ok()) {
            self.found = Some(path.clone());
        }
    }

    /// Sends a sample an interval until a channel closes.
    pub(crate) fn run(
        mut self,
        mut interval: Duration,
        orders: &Receiver<Order>,
        samples: &Sender<Sample>,
    ) {
        loop {
            let next = Instant::now() + interval;
            if samples.send(self.sample()).is_err() {
                return;
            }
            match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Order::Interval(other)) => interval = other,
                Ok(Order::NextEngine) => self.next(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
