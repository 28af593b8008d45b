//! Running engines, nodes and servers, as the program around this library sees them.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::http::Routes;

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

/// Adds the routes of live figures.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
}
