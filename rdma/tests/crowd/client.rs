//! A client process: claims, stamps and frees at random until it is ordered to leave.
//!
//! A stamp is the owner's session id in the extent's first word; a wrong stamp is a second owner.

use std::sync::mpsc;

use farcore_rdma::{Claim, Claims, ClaimsError, FabricEndpoint, NodeMap, RemoteSlice};

use crate::EXTENT;
use crate::role::{news, random};

/// Limit on the extents that one client holds, chosen so that the crowd wants about all of them.
const HELD_MAX: u64 = 28;

/// Why a client's life ended early.
pub(crate) enum End {
    Lost(String),
    Wrong(String),
}

impl From<ClaimsError> for End {
    fn from(error: ClaimsError) -> Self {
        match error {
            ClaimsError::Fabric(_) => Self::Lost(error.to_string()),
            // No extent of a live session is reclaimed.
            other => Self::Wrong(other.to_string()),
        }
    }
}

impl From<farcore_rdma::InitiatorError> for End {
    fn from(error: farcore_rdma::InitiatorError) -> Self {
        Self::Lost(error.to_string())
    }
}

pub(crate) fn stamps(claim: &Claim) -> impl Iterator<Item = RemoteSlice> + use<> {
    let RemoteSlice { key, offset } = claim.slice();
    (0..u64::from(claim.run().count())).map(move |step| RemoteSlice {
        key,
        offset: offset + step * EXTENT,
    })
}

pub(crate) struct Client {
    pub(crate) claims: Claims<FabricEndpoint>,
    pub(crate) owners: Vec<u64>,
    pub(crate) maps: Vec<NodeMap>,
    pub(crate) held: Vec<Claim>,
}

impl Client {
    pub(crate) async fn swap(
        &self,
        queue: usize,
        word: RemoteSlice,
        from: u64,
        to: u64,
    ) -> Result<u64, End> {
        let initiator = self.claims.initiator();
        Ok(initiator.compare_and_swap(queue, word, from, to).await?)
    }

    pub(crate) async fn word(&self, queue: usize, word: RemoteSlice) -> Result<u64, End> {
        let mut bytes = [0; 8];
        self.claims
            .initiator()
            .read(queue, word, &mut bytes)
            .await?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) async fn claim(&mut self, count: u32) -> Result<(), End> {
        let Some(claim) = self.claims.claim(count).await? else {
            return Ok(());
        };
        let own = self.owners[claim.node()];
        for slice in stamps(&claim) {
            // 0, or the stamp of a client that was killed.
            let mut seen = self.word(claim.queue(), slice).await?;
            loop {
                let old = self.swap(claim.queue(), slice, seen, own).await?;
                if old == seen {
                    break;
                }
                seen = old;
            }
        }
        self.held.push(claim);
        Ok(())
    }

    pub(crate) async fn free(&mut self) -> Result<(), End> {
        if self.held.is_empty() {
            return Ok(());
        }
        let which = usize::try_from(random(self.held.len() as u64)).unwrap_or(0);
        let claim = self.held.swap_remove(which);
        let own = self.owners[claim.node()];
        for slice in stamps(&claim) {
            let old = self.swap(claim.queue(), slice, own, 0).await?;
            if old != own {
                let what = format!("{claim:?} of session {own} bears the stamp of {old}");
                return Err(End::Wrong(what));
            }
        }
        Ok(self.claims.free(claim).await?)
    }

    /// The planted fault: frees an extent regardless of its owner.
    pub(crate) async fn steal(&self) -> Result<(), End> {
        let node = usize::try_from(random(self.maps.len() as u64)).unwrap_or(0);
        let map = &self.maps[node];
        let extent = u32::try_from(random(u64::from(map.extents()))).unwrap_or(0);
        let owner = self.word(node, map.owner_slice(extent)).await?;
        if owner != 0 && owner != self.owners[node] {
            self.swap(node, map.owner_slice(extent), owner, 0).await?;
            let bitmap = map.bitmap_slice(extent / 64);
            let word = self.word(node, bitmap).await?;
            self.swap(node, bitmap, word, word & !(1 << (extent % 64)))
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn live(
        &mut self,
        orders: &mpsc::Receiver<String>,
        steals: bool,
    ) -> Result<(), End> {
        let (mut reported, mut rounds) = (0, 0u64);
        while orders.try_recv().is_err() {
            rounds += 1;
            if rounds.is_multiple_of(32) {
                let conflicts = self.claims.conflicts();
                news(&format!("did 32 {}", conflicts - reported));
                reported = conflicts;
            }
            let held: u64 = self
                .held
                .iter()
                .map(|claim| u64::from(claim.run().count()))
                .sum();
            let count = 1 + u32::try_from(random(8)).unwrap_or(0);
            match random(5) {
                0 if steals => self.steal().await?,
                0..3 if held < HELD_MAX => self.claim(count).await?,
                _ => self.free().await?,
            }
            // Lets heartbeats and reconnects run.
            glommio::executor().yield_if_needed().await;
        }
        while !self.held.is_empty() {
            self.free().await?;
        }
        Ok(self.claims.settle().await?)
    }
}
