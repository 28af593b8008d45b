//! `--nodes-file`: a file that says which memory nodes the server has, read again every second.
//!
//! A line names a node as `--fabric` does; what follows a `#` is a comment. A node that is new in
//! the file is added, and one that is not there is drained. A file that cannot be read, or names no
//! node, changes nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use farcore::{MemoryNodes, NodeState};
use farcore_rdma::NodeAddress;
use tracing::{info, warn};

/// Time between two looks at the file.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of a file, at most: 64 nodes with long names, and comments.
const BYTES_MAX: u64 = 64 << 10;

/// The nodes that a file names.
///
/// # Errors
/// It cannot be read, is too long, has a line that is no node, or none that is one.
pub(super) fn read(path: &Path) -> Result<Vec<NodeAddress>> {
    let shown = path.display();
    let failed = || format!("--nodes-file {shown}");
    let bytes = std::fs::metadata(path).with_context(failed)?.len();
    ensure!(
        bytes <= BYTES_MAX,
        "--nodes-file {shown} has {bytes} bytes: at most {BYTES_MAX}"
    );
    let text = std::fs::read_to_string(path).with_context(failed)?;
    let nodes = parse(&text).map_err(|error| anyhow!("--nodes-file {shown}: {error}"))?;
    ensure!(
        !nodes.is_empty(),
        "--nodes-file {shown} names no node: write one a line, e.g. tcp://10.0.0.1:7400"
    );
    Ok(nodes)
}

fn parse(text: &str) -> Result<Vec<NodeAddress>> {
    let mut nodes = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let node: NodeAddress = text
            .parse()
            .map_err(|error| anyhow!("line {line}: {error}"))?;
        ensure!(
            nodes
                .iter()
                .all(|known: &NodeAddress| known.address != node.address),
            "line {line} names {} twice",
            node.address
        );
        nodes.push(node);
    }
    Ok(nodes)
}

/// A file of nodes, and the engine's nodes that follow it.
#[derive(Debug)]
pub(super) struct NodesFile {
    path: PathBuf,
    nodes: MemoryNodes,
    looked: Instant,
    /// What was logged last of the file and of each node, so that it is logged once.
    said: HashMap<String, String>,
}

impl NodesFile {
    pub(super) fn new(path: PathBuf, nodes: MemoryNodes) -> Self {
        Self {
            path,
            nodes,
            looked: Instant::now(),
            said: HashMap::new(),
        }
    }

    /// Has the nodes be those of the file, if a second has passed.
    pub(super) fn look(&mut self) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        match read(&self.path) {
            Ok(wanted) => {
                self.said.remove("");
                self.follow(&wanted);
            }
            Err(error) => self.say("", format!("{error:#}: the nodes stay as they are")),
        }
    }

    fn follow(&mut self, wanted: &[NodeAddress]) {
        let there = self.nodes.list();
        for node in wanted {
            let known = there.iter().find(|known| known.address == node.address);
            let is_to_stay = known.is_some_and(|known| {
                !matches!(known.state, NodeState::Draining | NodeState::Removing)
            });
            if !is_to_stay {
                let added = self.nodes.add(&node.address, node.zone.as_deref());
                self.note(&node.address.to_string(), "was added", added);
            }
        }
        for known in there {
            let is_wanted = wanted.iter().any(|node| node.address == known.address);
            let leaves = matches!(known.state, NodeState::Draining | NodeState::Removing);
            if !is_wanted && !leaves {
                let drained = self.nodes.drain(&known.address);
                self.note(&known.address.to_string(), "is being drained", drained);
            }
        }
    }

    fn note(&mut self, node: &str, what: &str, outcome: farcore::Result<()>) {
        match outcome {
            Ok(()) => {
                self.said.remove(node);
                info!(node, "a memory node {what}, as --nodes-file says");
            }
            Err(error) => self.say(node, error.to_string()),
        }
    }

    /// Warns of something, unless it was said last.
    fn say(&mut self, subject: &str, what: String) {
        if self.said.get(subject) != Some(&what) {
            let path = self.path.display();
            warn!(node = subject, file = %path, "{what}");
            self.said.insert(subject.to_owned(), what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_nodes_with_their_zones() {
        let text =
            "# the first rack\nrack-1=tcp://10.0.0.1:7400\n\n tcp://10.0.0.2:7400 # another\n";
        let nodes: Vec<_> = parse(text)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(nodes, ["rack-1=tcp://10.0.0.1:7400", "tcp://10.0.0.2:7400"]);
    }

    #[test]
    fn a_line_that_is_no_node_is_refused_by_its_number() {
        let said = |text| parse(text).unwrap_err().to_string();
        assert!(said("tcp://a:1\nnonsense").starts_with("line 2: "));
        let twice = said("tcp://a:1\nb=tcp://a:1");
        assert!(twice.contains("line 2 names tcp://a:1 twice"), "{twice}");
    }

    #[test]
    fn a_file_without_nodes_or_that_is_not_there_is_refused() {
        let path = std::env::temp_dir().join(format!("farcore-nodes-{}", std::process::id()));
        std::fs::write(&path, "# none\n").unwrap();
        let said = read(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(said.contains("names no node"), "{said}");
        assert!(read(&path).is_err());
    }
}
