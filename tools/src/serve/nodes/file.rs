//! A file of nodes: a line names one as `--fabric` does; what follows a `#` is a comment.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use farcore_rdma::NodeAddress;

/// Bytes of a file, at most: 64 nodes with long names, and comments.
const BYTES_MAX: u64 = 64 << 10;

/// The nodes that a file names.
///
/// # Errors
/// It cannot be read, is too long, or has a line that is no node.
pub(super) fn read(path: &Path) -> Result<Vec<NodeAddress>> {
    let bytes = std::fs::metadata(path).context("cannot be read")?.len();
    ensure!(
        bytes <= BYTES_MAX,
        "the file has {bytes} bytes: at most {BYTES_MAX}"
    );
    let text = std::fs::read_to_string(path).context("cannot be read")?;
    parse(&text)
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
    fn a_file_that_is_long_or_not_there_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes");
        let said = format!("{:#}", read(&path).unwrap_err());
        assert!(said.contains("No such file"), "{said}");
        std::fs::write(&path, "#".repeat(70_000)).unwrap();
        let said = read(&path).unwrap_err().to_string();
        assert!(said.contains("70000 bytes: at most 65536"), "{said}");
    }
}
