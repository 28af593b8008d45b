//! Nodes that have registered themselves in etcd, each with a key under `PREFIX/nodes/`.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use farcore_etcd::{Entry, Etcd, EtcdOptions};
use farcore_rdma::FabricAddress;
use tracing::warn;

use super::said::Said;
use super::{LOOK, Wanted, pause};
use crate::registered::{FOLDER, RegisteredNode};

/// How long an endpoint may take for an answer.
pub(in crate::serve) const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Keys under the prefix, at most: an engine has 64 nodes, and others may wait for their places.
const ENTRIES_MAX: usize = 256;
/// Bytes of an answer, at most: that many keys with their values in base 64, and as much beside.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Characters of a key that a warning shows.
const SHOWN_MAX: usize = 100;
/// Time between two answers, at least, however often keys change.
const APART_LEAST: Duration = Duration::from_millis(100);

/// The keys of nodes in etcd.
#[derive(Debug)]
pub(super) struct EtcdNodes {
    etcd: Etcd,
    prefix: String,
    /// The revision of the last answer; none if the last call has failed.
    seen: Option<i64>,
    said: Said,
}

/// What keys say, and what is wrong with others: the key and the reason.
fn judged(prefix: &str, entries: &[Entry]) -> (Wanted, Vec<(String, String)>) {
    let (mut wanted, mut wrong) = (Wanted::default(), Vec::new());
    for entry in entries {
        let name = entry.key.strip_prefix(prefix).unwrap_or(&entry.key);
        let address: FabricAddress = match name.parse() {
            Ok(address) => address,
            Err(error) => {
                wrong.push((
                    entry.key.clone(),
                    format!("it is the key of no node: {error}"),
                ));
                continue;
            }
        };
        // One address may be written in several ways.
        if wanted.has(&address) {
            continue;
        }
        match RegisteredNode::decode(&address, &entry.value) {
            Ok(node) if node.drains => wanted.draining.push(address),
            Ok(node) => wanted.nodes.push(node.node),
            Err(error) => {
                wrong.push((entry.key.clone(), error));
                wanted.unclear.push(address);
            }
        }
    }
    (wanted, wrong)
}

impl EtcdNodes {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// A file for encrypted connections cannot be used.
    pub(super) fn new(mut options: EtcdOptions) -> Result<Self> {
        options.answer_bytes_max = ANSWER_BYTES_MAX;
        let etcd = Etcd::new(options).map_err(|error| anyhow!("{error}"))?;
        Ok(Self {
            prefix: etcd.key(FOLDER),
            etcd,
            seen: None,
            said: Said::default(),
        })
    }

    /// The nodes that are registered now.
    ///
    /// # Errors
    /// etcd is not reached, or has too many keys there.
    pub(super) fn read(&mut self) -> Result<Wanted> {
        self.seen = None;
        let found = self.etcd.list(&self.prefix);
        let found = found.map_err(|error| anyhow!("{error}"))?;
        let (entries, prefix) = (&found.entries, &self.prefix);
        ensure!(
            entries.len() <= ENTRIES_MAX,
            "{} keys lie under {prefix}: at most {ENTRIES_MAX}; delete those that are none of nodes",
            entries.len()
        );
        self.seen = Some(found.revision);
        let (wanted, wrong) = judged(prefix, entries);
        self.said
            .keep(|key| wrong.iter().any(|(other, _)| other == key));
        for (key, reason) in wrong {
            if self.said.is_new(&key, &reason) {
                let key: String = key.chars().take(SHOWN_MAX).collect();
                warn!(key, "a key of etcd is left out: {reason}");
            }
        }
        Ok(wanted)
    }

    /// Waits for a change, but not long; false if the server ends.
    pub(super) fn pause(&self, ended: &Receiver<()>) -> bool {
        let Some(seen) = self.seen else {
            return pause(ended, LOOK);
        };
        // What has failed is seen by the next call, too.
        if self.etcd.wait(&self.prefix, seen, LOOK).is_err() {
            return pause(ended, LOOK);
        }
        !matches!(
            ended.recv_timeout(APART_LEAST),
            Err(RecvTimeoutError::Disconnected)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &str) -> Entry {
        Entry {
            key: key.to_owned(),
            value: value.as_bytes().to_vec(),
            revision: 1,
        }
    }

    #[test]
    fn a_wrong_key_hides_no_other_one_and_its_node_stays() {
        let long = "x".repeat(5_000);
        let entries = [
            entry("p/nodes/", "{}"),
            entry("p/nodes/none", "{}"),
            entry("p/nodes/tcp://a:1", r#"{"address":"tcp://a:1","zone":"z"}"#),
            entry(
                "p/nodes/tcp://b:1",
                r#"{"address":"tcp://b:1","drains":true}"#,
            ),
            entry("p/nodes/tcp://c:1", "nonsense"),
            entry("p/nodes/tcp://d:1", r#"{"address":"tcp://a:1"}"#),
            entry("p/nodes/tcp://e:1", &long),
            entry("p/nodes/tcp://a", r#"{"address":"tcp://a"}"#),
            entry("p/nodes/tcp://a:7400", r#"{"address":"tcp://a"}"#),
        ];
        let (wanted, wrong) = judged("p/nodes/", &entries);
        let shown: Vec<_> = wanted.nodes.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["z=tcp://a:1", "tcp://a:7400"]);
        let shown =
            |all: &[FabricAddress]| -> Vec<_> { all.iter().map(ToString::to_string).collect() };
        assert_eq!(shown(&wanted.draining), ["tcp://b:1"]);
        assert_eq!(
            shown(&wanted.unclear),
            ["tcp://c:1", "tcp://d:1", "tcp://e:1"]
        );
        assert_eq!(wrong.len(), 5, "{wrong:?}");
    }
}
