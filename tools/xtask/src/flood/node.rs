//! The memory node, a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result};

/// Bytes of a page of memory, as `/proc` counts them.
const PAGE_BYTES: u64 = 4096;

/// A running node, ended with this value.
pub(super) struct Node {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Node {
    /// Starts a node that lends `memory` and may use one core only. Without a binary, one is built.
    pub(super) fn start(binary: Option<&Path>, core: usize, memory: &str) -> Result<Self> {
        let binary = match binary {
            Some(binary) => binary.to_owned(),
            None => crate::build_published("farcore-tools", "farcore")?,
        };
        let mut child = Command::new("taskset")
            .args(["-c", &core.to_string()])
            .arg(binary)
            .arg("memnode")
            .args(["--listen", "tcp://127.0.0.1:0", "--memory", memory])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start `farcore memnode` by `taskset`")?;
        let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
        // From here on, a failure ends the process.
        let mut node = Self {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        let mut lines = lines.context("no output")?;
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("tcp://")?;
            rest.split_whitespace().next()?.parse().ok()
        });
        thread::spawn(move || lines.for_each(drop));
        node.address = address.context("the node did not start")?;
        Ok(node)
    }

    /// Memory of the node that is resident, in bytes.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/statm", self.child.id());
        let text = std::fs::read_to_string(path).context("the node has ended")?;
        let pages = text.split_whitespace().nth(1).context("no pages")?;
        Ok(pages.parse::<u64>()? * PAGE_BYTES)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
