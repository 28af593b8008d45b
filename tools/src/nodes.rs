//! `farcore nodes`: the memory nodes of a running `farcore serve`, which are added, drained and
//! removed while it serves.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use farcore_command::outputs::print;
use farcore_rdma::{FabricAddress, NodeAddress};
use farcore_tuning::Size;

use crate::cluster::server::{Credentials, Server};
use crate::text::table;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the memory nodes: state, memory, pages that are left.
    List(ListArguments),
    /// Add a memory node, or keep one that is being drained.
    Add(AddArguments),
    /// Have the pages of a memory node copied to others; then it is gone and may be stopped.
    Drain(NodeArguments),
    /// Drop a memory node at once, if nothing lies there alone.
    Remove(RemoveArguments),
}

/// The server whose far memory it is.
#[derive(Debug, Args)]
struct Access {
    /// The server, at its address for Redis clients
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    server: String,
    #[command(flatten)]
    credentials: Credentials,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// The node, e.g. tcp://host:7400, or ZONE=tcp://host:7400
    #[arg(value_name = "ADDRESS")]
    node: NodeAddress,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    /// The node, e.g. tcp://host:7400
    #[arg(value_name = "ADDRESS")]
    node: FabricAddress,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    #[command(flatten)]
    node: NodeArguments,
    /// Remove it although keys are lost with it
    #[arg(long)]
    force: bool,
}

impl Command {
    /// The words that name the command, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::List(_) => "nodes list",
            Self::Add(_) => "nodes add",
            Self::Drain(_) => "nodes drain",
            Self::Remove(_) => "nodes remove",
        }
    }
}

impl Access {
    fn ask(&self, words: &[&str]) -> Result<String> {
        Server::connect(&self.server, &self.credentials)?.ask(words)
    }
}

/// Runs the command.
///
/// # Errors
/// The server is not reached, or refuses.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List(arguments) => {
            let lines = arguments.access.ask(&["MEMNODES", "LIST"])?;
            print(format_args!("{}", shown(&lines)))?;
        }
        Command::Add(arguments) => {
            let node = arguments.node.to_string();
            arguments.access.ask(&["MEMNODES", "ADD", &node])?;
        }
        Command::Drain(arguments) => {
            let node = arguments.node.to_string();
            arguments.access.ask(&["MEMNODES", "DRAIN", &node])?;
        }
        Command::Remove(arguments) => {
            let NodeArguments { node, access } = &arguments.node;
            let node = node.to_string();
            let mut words = vec!["MEMNODES", "REMOVE", &node];
            words.extend(arguments.force.then_some("FORCE"));
            access.ask(&words)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The value of a pair in a line; the last one may have spaces.
fn value<'a>(line: &'a str, name: &str) -> &'a str {
    let pair = format!("{name}=");
    let start = if line.starts_with(&pair) {
        Some(0)
    } else {
        line.find(&format!(" {pair}")).map(|at| at + 1)
    };
    let rest = start.map_or("", |start| &line[start + pair.len()..]);
    match name {
        "reason" => rest,
        _ => rest.split(' ').next().unwrap_or_default(),
    }
}

/// The table of the nodes that a server has listed.
fn shown(lines: &str) -> String {
    let size = |text: &str| match text.parse() {
        Ok(bytes) => Size(bytes).to_string(),
        Err(_) => text.to_owned(),
    };
    let row = |line: &str| {
        let of = |name| value(line, name).to_owned();
        vec![
            of("address"),
            of("zone"),
            of("state"),
            of("reason"),
            size(&of("total-bytes")),
            size(&of("free-bytes")),
            Some(of("pages-left"))
                .filter(|left| !left.is_empty())
                .unwrap_or_else(|| "?".to_owned()),
        ]
    };
    let columns = ["node", "zone", "state", "reason", "memory", "free", "left"];
    table(&columns, 4, lines.lines().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_lists_is_shown_as_a_table() {
        let lines = "address=tcp://a:1 zone=r1 state=serving total-bytes=1048576 free-bytes=524288 pages-left=0 reason=\n\
                     address=tcp://b:1 zone= state=joining total-bytes=0 free-bytes=0 pages-left=0 reason=it was refused\n";
        let shown = shown(lines);
        let rows: Vec<_> = shown.lines().collect();
        assert_eq!(rows.len(), 3, "{shown}");
        assert!(
            rows[1].contains("r1") && rows[1].contains("1 MiB"),
            "{shown}"
        );
        assert!(rows[2].contains("joining"), "{shown}");
        assert!(rows[2].contains("it was refused"), "{shown}");
    }
}
