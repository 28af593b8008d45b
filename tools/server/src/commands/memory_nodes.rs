//! `MEMNODES`: the memory nodes of the server's far memory, which come and go while it serves.

use farcore::{Error, FabricAddress, MemoryNodes, NodeAddress, NodeStatus};

use super::arguments::is_option;
use super::command::Subcommand;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::resp::Writer;

type Result<T = Flow> = std::result::Result<T, Refusal>;

const NONE: &str = "ERR This server has no memory nodes: its far memory lies in its process";

/// What `MEMNODES` does.
pub(super) const MEMNODES: &[Subcommand] = &[
    Subcommand::new("add", 3, add),
    Subcommand::new("drain", 3, drain),
    Subcommand::new("list", 2, list),
    Subcommand::new("remove", -3, remove),
];

fn nodes(call: &Call<'_>) -> Result<MemoryNodes> {
    let nodes = call.serving.shared.memory_nodes.clone();
    let is_any = |nodes: &MemoryNodes| !nodes.list().is_empty();
    nodes.filter(is_any).ok_or_else(|| NONE.into())
}

/// The node that the third word names.
fn named(call: &Call<'_>) -> Result<NodeAddress> {
    let text = String::from_utf8_lossy(call.argument(2));
    let address = text.parse::<NodeAddress>();
    address.map_err(|error| Refusal(format!("ERR {error}")))
}

/// The address that the third word is.
fn address(call: &Call<'_>) -> Result<FabricAddress> {
    match named(call)? {
        NodeAddress {
            zone: None,
            address,
        } => Ok(address),
        _ => Err("ERR Only MEMNODES ADD gives a node a zone: give its address alone".into()),
    }
}

/// Why the engine refuses, in terms of the server.
fn refusal(error: &Error) -> String {
    match error {
        Error::NodesMax { limit } => format!(
            "ERR All {limit} positions for memory nodes are taken: drain one, or start the server with a higher --nodes-max"
        ),
        Error::NodeUnknown { node } => {
            format!("ERR {node} is no memory node of this server: MEMNODES LIST has those that are")
        }
        Error::Config { value, limit, .. } => format!("ERR {value}: {limit}"),
        error => format!("ERR {error}"),
    }
}

fn done(call: &mut Call<'_>, outcome: farcore::Result<()>) -> Result {
    match outcome {
        Ok(()) => Ok(call.ok()),
        Err(error) => Err(Refusal(refusal(&error))),
    }
}

fn add(call: &mut Call<'_>) -> Result {
    let node = named(call)?;
    let outcome = nodes(call)?.add(&node.address, node.zone.as_deref());
    done(call, outcome)
}

fn drain(call: &mut Call<'_>) -> Result {
    let address = address(call)?;
    let outcome = nodes(call)?.drain(&address);
    done(call, outcome)
}

/// Replies once all cores have counted what would be lost.
fn remove(call: &mut Call<'_>) -> Result {
    let is_forced = match call.count() {
        3 => false,
        4 if is_option(call.argument(3), "force") => true,
        _ => return Err(SYNTAX.into()),
    };
    let (nodes, address) = (nodes(call)?, address(call)?);
    Ok(call.task(move |core, output, protocol| async move {
        let outcome = match nodes.begin_removal(&address, is_forced) {
            Err(error) => Err(error),
            Ok(removal) => loop {
                match nodes.removal(removal) {
                    Some(outcome) => break outcome,
                    None => core.yield_now().await,
                }
            },
        };
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match outcome {
                Ok(()) => writer.simple("OK"),
                Err(error) => writer.error(&refusal(&error)),
            }
        });
        core
    }))
}

/// Replies a line a node, of pairs as those of `CLIENT LIST`.
fn list(call: &mut Call<'_>) -> Result {
    let lines: String = nodes(call)?.list().iter().map(line).collect();
    Ok(call.reply(|writer| writer.verbatim(*b"txt", lines.as_bytes())))
}

fn line(node: &NodeStatus) -> String {
    let NodeStatus {
        address,
        zone,
        state,
        total_bytes,
        free_bytes,
        pages_left,
        reason,
        ..
    } = node;
    // The last pair alone has spaces.
    let reason = reason.as_deref().unwrap_or_default().replace('\n', " ");
    let zone = zone.as_deref().unwrap_or_default();
    let pages_left = pages_left.map_or_else(String::new, |left| left.to_string());
    format!(
        "address={address} zone={zone} state={state} total-bytes={total_bytes} free-bytes={free_bytes} pages-left={pages_left} reason={reason}\n"
    )
}
