//! Where samples come from: the engine at a path, or whichever there is.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use farcore::Report;
use farcore::statistics::{find_sockets, read_report, sockets_folder};

/// The engine that is looked at.
#[derive(Debug)]
pub(super) struct Source {
    /// The path that was asked for.
    asked: Option<PathBuf>,
    /// The one that is attached to, among those that are found.
    found: Option<PathBuf>,
}

/// What a sample is of, and the sample.
pub(super) type Sample = (String, Result<Report, String>);

/// What the one who samples is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Interval(Duration),
    NextEngine,
}

impl Source {
    pub(super) fn new(asked: Option<PathBuf>) -> Self {
        Self { asked, found: None }
    }

    /// Asks the engine; without a path, the one that was asked last, else the newest that answers.
    pub(super) fn sample(&mut self) -> Sample {
        let known = self.asked.as_ref().or(self.found.as_ref());
        let mut sample = match known {
            Some(path) => {
                let report = read_report(path).map_err(|error| error.to_string());
                (path.display().to_string(), report)
            }
            None => self.none(),
        };
        if sample.1.is_err() && self.asked.is_none() {
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

    fn none(&self) -> Sample {
        let folder = sockets_folder();
        let why = match find_sockets() {
            Ok(_) => format!(
                "no engine shows its figures in {}: start one with a statistics socket there \
                 (farcore-bench --stats-socket), or give its path",
                folder.display()
            ),
            Err(error) => format!("{}: {error}", folder.display()),
        };
        (folder.display().to_string(), Err(why))
    }

    /// Goes on to the next engine that answers, if no path was asked for.
    fn next(&mut self) {
        let sockets = find_sockets().unwrap_or_default();
        let at = sockets
            .iter()
            .position(|path| Some(path) == self.found.as_ref());
        let first = at.map_or(0, |at| at + 1);
        let turned = sockets.iter().cycle().skip(first).take(sockets.len());
        if let Some(path) = turned.into_iter().find(|path| read_report(path).is_ok()) {
            self.found = Some(path.clone());
        }
    }

    /// Samples at an interval until nobody takes them.
    pub(super) fn run(
        mut self,
        mut interval: Duration,
        orders: &Receiver<Order>,
        take: &Sender<Sample>,
    ) {
        loop {
            let next = Instant::now() + interval;
            if take.send(self.sample()).is_err() {
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
