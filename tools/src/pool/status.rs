//! `farcore pool status`: the memory nodes of a pool.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use farcore_command::origin::Origin;
use farcore_command::outputs::{OutputFile, print};
use farcore_pool::NodeFigures;
use farcore_tuning::Size;
use serde::Serialize;

use super::target::TargetArguments;
use crate::text::table;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Also write the list to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Node {
    address: String,
    zone: Option<String>,
    is_up: bool,
    is_leaving: bool,
    reason: Option<String>,
    extent_bytes: u64,
    lent_bytes: u64,
    free_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    origin: Origin,
    nodes: Vec<Node>,
}

impl From<NodeFigures> for Node {
    fn from(figures: NodeFigures) -> Self {
        let address = figures.address.as_ref();
        Self {
            address: address.map_or_else(String::new, |node| node.address.to_string()),
            zone: address.and_then(|node| node.zone.clone()),
            is_up: figures.is_up,
            is_leaving: figures.is_leaving,
            reason: figures.reason,
            extent_bytes: figures.extent_bytes,
            lent_bytes: figures.lent_bytes,
            free_bytes: figures.free_bytes,
        }
    }
}

fn render(nodes: &[Node]) -> String {
    let columns = ["node", "zone", "state", "lends", "free", "extent"];
    let rows = nodes.iter().map(|node| {
        let state = match &node.reason {
            _ if node.is_up && node.is_leaving => "leaving".to_owned(),
            _ if node.is_up => "up".to_owned(),
            Some(reason) => format!("down: {reason}"),
            None => "down".to_owned(),
        };
        let size = |bytes: u64| match node.lent_bytes {
            0 => "-".to_owned(),
            _ => Size::at_most(bytes).to_string(),
        };
        vec![
            node.address.clone(),
            node.zone.clone().unwrap_or_else(|| "-".to_owned()),
            state,
            size(node.lent_bytes),
            size(node.free_bytes),
            size(node.extent_bytes),
        ]
    });
    table(&columns, 3, rows.collect())
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.target.is_remote(),
        "--nodes is missing: name the memory nodes, for example --nodes tcp://127.0.0.1:7400"
    );
    let mut options = arguments.target.options()?;
    // A node that does not answer is listed too.
    options.nodes_min = Some(1);
    let json = OutputFile::open_if("--json", arguments.json.as_deref())?;
    let pool = arguments.target.connect(options)?;
    let nodes: Vec<_> = pool.nodes().into_iter().map(Node::from).collect();
    let report = Report {
        origin: Origin::here(),
        nodes,
    };
    if let Some(json) = json {
        json.write_json(&report)?;
    }
    print(render(&report.nodes))
}
