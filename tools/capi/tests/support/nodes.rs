//! Memory nodes in this process, which programs have stopped and started again.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use farcore_client::Token;
use farcore_pool::Plain;
use farcore_pool::procedures::{ProcedureCall, Procedures, procedure};
use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};

use super::TOKEN;

const EXTENT_BYTES: u64 = 64 << 10;
const EXTENTS: u64 = 16;

/// What the procedure `sum` is given.
#[derive(Clone, Copy, Plain)]
struct Range {
    first: u64,
    last: u64,
}

/// Adds its argument to each byte of its target.
fn add(call: &ProcedureCall, argument: &[u8]) -> Result<Vec<u8>, String> {
    let &[addend] = argument else {
        return Err(format!("{} bytes, 1 is expected", argument.len()));
    };
    let mut bytes = vec![0; call.target_bytes()];
    call.read(0, &mut bytes)?;
    for byte in &mut bytes {
        *byte = byte.wrapping_add(addend);
    }
    call.write(0, &bytes)?;
    Ok(Vec::new())
}

/// What the nodes' host does for programs.
fn procedures() -> Procedures {
    let sum = procedure(|range: &Range| Ok((range.first..=range.last).sum::<u64>()));
    Procedures::new()
        .with("sum", sum)
        .with("echo", |_, argument| Ok(argument.to_vec()))
        .with("add", add)
}

/// A node that can be stopped, and started again at its address.
pub(crate) struct Node {
    address: SocketAddr,
    has_token: bool,
    handle: Option<NodeHandle>,
}

fn start(address: SocketAddr, has_token: bool) -> NodeHandle {
    let memory = MemoryOptions {
        region_bytes: EXTENTS * EXTENT_BYTES / 2,
        extent_bytes: EXTENT_BYTES,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(EXTENTS * EXTENT_BYTES)
    };
    let options = NodeOptions {
        // Procedures have an eighth of it, 2 s at most.
        lease: Duration::from_secs(16),
        keep: Duration::ZERO,
        procedures: procedures(),
        token: has_token.then(|| Token::new(TOKEN.as_bytes()).expect("a token")),
        ..NodeOptions::new(address, memory)
    };
    MemoryNode::start(options).expect("a node")
}

impl Node {
    /// A node at a free port.
    pub(crate) fn start(has_token: bool) -> Self {
        let handle = start(([127, 0, 0, 1], 0).into(), has_token);
        Self {
            address: handle.address(),
            has_token,
            handle: Some(handle),
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("tcp://{}", self.address)
    }

    fn stop(&mut self) {
        self.handle.take().expect("it runs").stop();
    }

    fn start_again(&mut self) {
        assert!(self.handle.is_none(), "it runs");
        self.handle = Some(start(self.address, self.has_token));
    }
}

/// Runs a program, which may have nodes stopped and started: on a line `stop 0` or `start 0` of its
/// output, this does that to the node with that index, and answers with a line. Returns its other
/// lines.
pub(crate) fn conduct(program: &mut Command, nodes: &mut [Node]) -> (ExitStatus, String) {
    let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().expect("it was compiled");
    let mut answers = child.stdin.take().expect("it is piped");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut printed = String::new();
    for line in output.lines() {
        let line = line.expect("UTF-8");
        let node = |text: &str| text.parse::<usize>().expect("an index");
        if let Some(index) = line.strip_prefix("stop ") {
            nodes[node(index)].stop();
        } else if let Some(index) = line.strip_prefix("start ") {
            nodes[node(index)].start_again();
        } else {
            printed.push_str(&line);
            printed.push('\n');
            continue;
        }
        answers.write_all(b"done\n").expect("it waits for this");
    }
    (child.wait().expect("it ended"), printed)
}
