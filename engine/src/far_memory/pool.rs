//! Claims extents of one node for one core.
//!
//! A claim is a compare-and-swap on the node's bitmap over a queue pair of the pool's own. Extents
//! that an error left in doubt are settled before the session ends.

use std::rc::Rc;

use farcore_rdma::{
    Claims, FabricEndpoint, FabricOptions, Initiator, InitiatorOptions, NodeConnections, PoolNode,
    RemoteSlice,
};

use crate::shard::QUEUES_PER_NODE;

/// Extents claimed at once, at most: a word of the bitmap.
const RUN_MAX: u32 = 64;

/// A node's extents, claimed over a queue pair of their own.
pub(super) struct Pool {
    claims: Claims<FabricEndpoint>,
    /// Extents that the node lends.
    extents: u64,
    extent_bytes: u64,
}

impl Pool {
    pub(super) async fn open(
        node: &mut NodeConnections,
        fabric: &FabricOptions,
    ) -> Result<Self, String> {
        let fabric = FabricOptions {
            queues: 1,
            ..fabric.clone()
        };
        let opened = FabricEndpoint::open(std::slice::from_ref(node.address()), &fabric).await;
        let endpoint = opened.map_err(|error| error.to_string())?;
        if let Some(connection_slot) = endpoint.connection_slot(0) {
            let joined = node.join(QUEUES_PER_NODE, &connection_slot).await;
            joined.map_err(|error| error.to_string())?;
        }
        let options = InitiatorOptions {
            lock: farcore_rdma::Lock::Off,
            ..InitiatorOptions::default()
        };
        let initiator = Initiator::new(endpoint, options).map_err(|error| error.to_string())?;
        initiator.renew(0);
        let session = node.session().ok_or("no session is open")?;
        let seed = session.owner().get();
        let map = session.map().clone();
        let extent_bytes = map.extent_bytes;
        let extents = u64::from(map.extents());
        let place = PoolNode {
            queue: 0,
            owner: session.owner(),
            map,
        };
        let claims = Claims::new(Rc::new(initiator), vec![place], seed);
        let claims = claims.map_err(|error| error.to_string())?;
        claims.refresh().await.map_err(|error| error.to_string())?;
        Ok(Self {
            claims,
            extents,
            extent_bytes,
        })
    }

    /// Frees the extents that an error left in doubt.
    pub(super) async fn settle(&self) -> Result<(), String> {
        let settled = self.claims.settle().await;
        settled.map(drop).map_err(|error| error.to_string())
    }

    /// All that the node lends.
    pub(super) fn lent_bytes(&self) -> u64 {
        self.extents * self.extent_bytes
    }

    /// Bytes of an extent of it.
    pub(super) fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.claims.free_count() * self.extent_bytes
    }

    /// Claims extents for about `pages` pages, at least one, and passes their pages to `add`, which
    /// returns how many it accepts from the first on. The rest is returned. Returns how many were
    /// accepted; `None` if the node has none left.
    pub(super) async fn claim(
        &self,
        pages: usize,
        page_bytes: u32,
        mut add: impl AsyncFnMut(Vec<RemoteSlice>) -> usize,
    ) -> Result<Option<usize>, String> {
        let page = u64::from(page_bytes);
        let least = page.div_ceil(self.extent_bytes);
        let Ok(least) = u32::try_from(least) else {
            return Ok(None);
        };
        let wanted = (pages as u64)
            .saturating_mul(page)
            .div_ceil(self.extent_bytes);
        let wanted = u32::try_from(wanted).unwrap_or(RUN_MAX).clamp(1, RUN_MAX);
        // No more than wanted: an extent that is claimed and not used helps no shard.
        let mut run = (1 << wanted.ilog2()).max(least);
        while run >= least && run > 0 && run <= RUN_MAX {
            let claim = self.claims.claim(run).await;
            match claim.map_err(|error| error.to_string())? {
                Some(mut claim) => {
                    let start = claim.slice();
                    let piece = |place: u64| RemoteSlice {
                        key: start.key,
                        offset: start.offset + place * page,
                    };
                    let pieces = (0..claim.bytes() / page).map(piece).collect();
                    let added = add(pieces).await;
                    let used = (added as u64 * page).div_ceil(self.extent_bytes);
                    let rest = match u32::try_from(used) {
                        Ok(0) => Some(claim),
                        Ok(used) => claim.split_off(used),
                        Err(_) => None,
                    };
                    if let Some(rest) = rest {
                        let freed = self.claims.free(rest).await;
                        freed.map_err(|error| error.to_string())?;
                    }
                    return Ok(Some(added));
                }
                None => run /= 2,
            }
        }
        Ok(None)
    }
}
