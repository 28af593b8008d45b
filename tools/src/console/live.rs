//! The figures of running engines, from their statistics sockets, for the console's page.
//!
//! - I1: a socket is read once for all pages that show it, and an engine is sent nothing else.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use farcore::Report;
use farcore::statistics::{ClientsReport, CoreReport, find_sockets, read_report};
use farcore_console::{LiveFigures, LiveKind, LiveSource};
use serde_json::Value;

use crate::watch::rates::Rates;

/// Most sockets that are read.
const SOCKETS_MAX: usize = 32;

/// Reads the sockets of given paths and those in the default folder.
#[derive(Debug)]
pub(super) struct Sockets {
    paths: Vec<PathBuf>,
    /// The last report of each socket, and its rates then.
    last: Mutex<HashMap<PathBuf, (Report, Value)>>,
}

/// Whether an engine has clients of a server.
fn kind(report: &Report) -> LiveKind {
    let none = ClientsReport::default();
    let serves = |core: &CoreReport| core.clients != none || core.native_clients != none;
    let is_server = report.cores.iter().any(serves);
    match is_server {
        true => LiveKind::Server,
        false => LiveKind::Engine,
    }
}

/// The memory nodes of an engine's rates.
fn nodes(engine: &str, rates: &Value) -> Vec<LiveFigures> {
    let nodes = rates.get("nodes").and_then(Value::as_array);
    let nodes = nodes.into_iter().flatten().map(|node| {
        let name = node.get("name").and_then(Value::as_str).unwrap_or("node");
        LiveFigures {
            name: format!("{name} of {engine}"),
            kind: LiveKind::Node,
            rates: node.clone(),
            error: None,
        }
    });
    nodes.collect()
}

impl Sockets {
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            last: Mutex::default(),
        }
    }

    fn read(last: &mut HashMap<PathBuf, (Report, Value)>, path: &Path) -> Vec<LiveFigures> {
        let name = path.display().to_string();
        let report = match read_report(path) {
            Ok(report) => report,
            Err(error) => {
                last.remove(path);
                return vec![LiveFigures {
                    name,
                    kind: LiveKind::Engine,
                    rates: Value::Null,
                    error: Some(error.to_string()),
                }];
            }
        };
        let rates = last.remove(path).map(|(earlier, shown)| {
            // Two pages may look at the same moment, between which an engine published nothing.
            if earlier.uptime_ns == report.uptime_ns && earlier.process == report.process {
                return shown;
            }
            let rates = Rates::between(&earlier, &report);
            rates.map_or(Value::Null, |rates| {
                serde_json::to_value(rates).unwrap_or(Value::Null)
            })
        });
        let rates = rates.unwrap_or(Value::Null);
        let mut all = nodes(&name, &rates);
        let engine = LiveFigures {
            name,
            kind: kind(&report),
            rates: rates.clone(),
            error: None,
        };
        last.insert(path.to_owned(), (report, rates));
        all.insert(0, engine);
        all
    }
}

impl LiveSource for Sockets {
    fn figures(&self) -> Vec<LiveFigures> {
        let mut paths = self.paths.clone();
        match find_sockets() {
            Ok(found) => paths.extend(found.into_iter().filter(|path| !self.paths.contains(path))),
            Err(error) => tracing::debug!(%error, "no sockets in the default folder"),
        }
        paths.truncate(SOCKETS_MAX);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|path, _| paths.contains(path));
        let given = self.paths.len();
        let each = paths.iter().enumerate().flat_map(|(place, path)| {
            let mut figures = Self::read(&mut last, path);
            // A found socket may have been left by an engine that was killed.
            figures.retain(|one| place < given || one.error.is_none());
            figures
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use farcore::statistics::{CoreReport, NodeReport, Reporter, StatisticsSocket};

    use super::*;

    #[derive(Debug, Default)]
    struct Counting(AtomicU64);

    impl Reporter for Counting {
        fn report(&self) -> Report {
            let second = self.0.fetch_add(1, Ordering::SeqCst);
            let mut core = CoreReport::default();
            core.counters.gets = second * 500;
            core.clients.commands = second;
            Report {
                format: Report::FORMAT,
                process: 7,
                uptime_ns: (second + 1) * 1_000_000_000,
                cores: vec![core],
                nodes: vec![NodeReport {
                    name: "tcp://near:7400".to_owned(),
                    ..NodeReport::default()
                }],
                ..Report::default()
            }
        }
    }

    #[test]
    fn rates_come_with_the_second_report_and_nodes_with_them() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("engine.sock");
        let socket = StatisticsSocket::bind(&path, Arc::new(Counting::default())).unwrap();
        let sockets = Sockets::new(vec![path.clone(), place.path().join("absent.sock")]);
        let of = |figures: Vec<LiveFigures>, kind| -> Vec<LiveFigures> {
            figures
                .into_iter()
                .filter(|one| one.kind == kind && one.name.contains("engine.sock"))
                .collect()
        };
        let first = sockets.figures();
        let absent = first
            .iter()
            .find(|one| one.name.contains("absent"))
            .unwrap();
        assert!(absent.error.is_some() && absent.rates.is_null());
        assert!(of(first, LiveKind::Engine)[0].rates.is_null());
        let second = sockets.figures();
        let engine = &of(second.clone(), LiveKind::Server)[0];
        assert_eq!(engine.rates["total"]["gets_per_second"], 500.0);
        let node = &of(second, LiveKind::Node)[0];
        assert_eq!(node.rates["name"], "tcp://near:7400");
        drop(socket);
    }
}
