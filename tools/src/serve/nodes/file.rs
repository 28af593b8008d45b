//! A file of nodes: a line names one as `--fabric` does; what follows a `#` is a comment.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use farcore_rdma::NodeAddress;

/// Bytes of a file, at most: 64 nodes with long names, and comments.
const BYTES_MAX: u64 = 64 << 10;

/// The nodes that a file names.
///
/// # Errors
/// It is no regular file, cannot be read, is too long, or has a line that is no node.
pub(super) fn read(path: &Path) -> Result<Vec<NodeAddress>> {
    let facts = fs::metadata(path).context("cannot be read")?;
    // A pipe could be waited for without end.
    ensure!(facts.is_file(), "it is no regular file");
    let mut text = String::new();
    let file = File::open(path).context("cannot be read")?;
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
    read.context("cannot be read")?;
    ensure!(
        text.len() as u64 <= BYTES_MAX,
        "the file has more than {BYTES_MAX} bytes"
    );
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
    fn a_file_that_is_long_or_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes");
        let said = format!("{:#}", read(&path).unwrap_err());
        assert!(said.contains("No such file"), "{said}");
        std::fs::write(&path, "#".repeat(70_000)).unwrap();
        let said = read(&path).unwrap_err().to_string();
        assert!(said.contains("more than 65536 bytes"), "{said}");
        let said = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(said.contains("no regular file"), "{said}");
        assert!(read(folder.path()).is_err());
    }
}
