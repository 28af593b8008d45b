//! Requests of a repair, which a job sends from a core and whose answers it waits for.
//!
//! - I1: requests of one key are sent in their order, by one client, and so are carried out in it.

use crate::client::core::Core;
use crate::client::long::Routed;
use crate::error::{Error, Result};
use crate::journal::{EntryKind, probe_parts, repair_nodes_parts, repair_parts};
use crate::message::operation::Version;
use crate::message::outcome::Answer;
use crate::tree::TreeRoot;

/// Requests between two looks at their answers.
const SENDS_A_POLL: usize = 32;

/// One request about a key.
#[derive(Debug)]
pub(super) enum RepairRequest {
    /// Whether it may be lost.
    Probe { key: Box<[u8]> },
    /// If it is lost, it has this.
    Entry {
        kind: EntryKind,
        key: Box<[u8]>,
        version: Version,
        /// Of a tree.
        root: Option<TreeRoot>,
        body: Vec<u8>,
    },
    /// If its tree has lost nodes, they are these, as a tree step has them.
    Nodes {
        key: Box<[u8]>,
        version: Version,
        step: Vec<u8>,
        /// The root is among them, and the others were sent.
        is_last: bool,
    },
    /// If it is lost, or a piece of its long value is, it has this one.
    Long {
        key: Box<[u8]>,
        version: Version,
        bytes: Vec<u8>,
        expiry_ms: Option<u64>,
    },
}

impl RepairRequest {
    /// Bytes that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Probe { key } => key.len(),
            Self::Entry { key, body, .. } => key.len() + body.len(),
            Self::Nodes { key, step, .. } => key.len() + step.len(),
            Self::Long { key, bytes, .. } => key.len() + bytes.len(),
        }
    }
}

/// Sends requests from a core. Returns which were answered with yes, or changed something.
///
/// # Errors
/// Something was lost since the repair was begun, or a shard has no room.
pub(super) async fn send(mut core: Core, items: Vec<RepairRequest>) -> Result<Vec<bool>> {
    let (hasher, shards) = core.hasher_and_shards();
    let (mut answers, mut scratch) = (Answers::of(items.len()), Vec::new());
    for (at, item) in items.iter().enumerate() {
        let (key, parts) = match item {
            RepairRequest::Probe { key } => (key, probe_parts(key)),
            RepairRequest::Entry {
                kind,
                key,
                version,
                root,
                body,
            } => {
                let entry = (*kind, &**key, *version);
                (key, repair_parts(entry, (*root, body), &mut scratch))
            }
            RepairRequest::Nodes {
                key, version, step, ..
            } => (key, repair_nodes_parts(key, *version, step, &mut scratch)),
            RepairRequest::Long {
                key,
                version,
                bytes,
                expiry_ms,
            } => {
                answers.settle(&mut core).await?;
                let value = (&bytes[..], *expiry_ms);
                answers.yes[at] = send_long(&mut core, (key, *version), value).await?;
                continue;
            }
        };
        let routed = Routed::new(key, hasher, shards);
        while !core.submit_parts(routed, at as u64, &parts) {
            answers.poll(&mut core);
            core.yield_now().await;
        }
        if at % SENDS_A_POLL == 0 {
            answers.poll(&mut core);
        }
    }
    answers.settle(&mut core).await?;
    Ok(answers.yes)
}

/// Writes a long value and gives it to its key, if that is lost. True if it was.
async fn send_long(
    core: &mut Core,
    (key, version): (&[u8], Version),
    (bytes, expiry_ms): (&[u8], Option<u64>),
) -> Result<bool> {
    let (hasher, shards) = core.hasher_and_shards();
    let written = core.write_long(key, bytes.len() as u64, [bytes]).await?;
    let mut body = written.pieces.id().to_le_bytes().to_vec();
    body.extend(expiry_ms.iter().flat_map(|at_ms| at_ms.to_le_bytes()));
    let mut scratch = Vec::new();
    let entry = (EntryKind::LongPut, key, version);
    let parts = repair_parts(entry, (None, &body), &mut scratch);
    let is_stored = core
        .ask_whether(Routed::new(key, hasher, shards), parts)
        .await?;
    if !is_stored {
        core.discard_long(written).await?;
    }
    Ok(is_stored)
}

/// The answers so far.
struct Answers {
    yes: Vec<bool>,
    failed: Option<Error>,
}

impl Answers {
    fn of(count: usize) -> Self {
        Self {
            yes: vec![false; count],
            failed: None,
        }
    }

    fn poll(&mut self, core: &mut Core) {
        core.poll(|token, answer| match answer {
            Answer::Stored { .. } => {
                let place = usize::try_from(token).ok();
                if let Some(yes) = place.and_then(|place| self.yes.get_mut(place)) {
                    *yes = true;
                }
            }
            Answer::Failed(error) => {
                self.failed.get_or_insert_with(|| error.clone());
            }
            _ => {}
        });
    }

    /// Waits until all that was sent is answered.
    async fn settle(&mut self, core: &mut Core) -> Result<()> {
        while core.in_flight() > 0 {
            self.poll(core);
            core.yield_now().await;
        }
        self.failed.take().map_or(Ok(()), Err)
    }
}
