//! Many threads claim, free and die at random on several nodes, while the nodes sweep.
//!
//! Every claimed extent is stamped with the owner's id and checked before it is freed, so that a
//! second owner is noticed. In the end every owner word and every bit must match what the threads
//! hold.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::{Audit, Claim, Claims, PoolNode};
use crate::link::Random;
use crate::testing::{EXTENT_BYTES, TestEndpoint, TestNode, block_on, initiator, owner};
use crate::work::RemoteSlice;

const THREADS: u64 = 8;

/// The state that all threads share.
struct Crowd {
    nodes: Vec<TestNode>,
    lives: AtomicU64,
    lies: bool,
    rounds: u32,
    seed: u64,
}

/// Why a client's life ended early.
enum End {
    Died,
    Wrong(String),
}

impl From<super::ClaimsError> for End {
    fn from(error: super::ClaimsError) -> Self {
        match error {
            super::ClaimsError::Fabric(_) => Self::Died,
            other => Self::Wrong(other.to_string()),
        }
    }
}

fn stamps(claim: &Claim) -> impl Iterator<Item = RemoteSlice> {
    let RemoteSlice { key, offset } = claim.slice();
    (0..u64::from(claim.run().count())).map(move |step| RemoteSlice {
        key,
        offset: offset + step * EXTENT_BYTES,
    })
}

impl Crowd {
    fn new(seed: u64, lies: bool) -> Self {
        let nodes = [&[40][..], &[30, 37], &[9, 5, 5]];
        Self {
            nodes: nodes.map(|extents| TestNode::new(extents, 0)).into(),
            lives: AtomicU64::new(1),
            lies,
            rounds: 300,
            seed,
        }
    }

    /// One client's life, under an id of its own. Returns the claims that it holds in the end.
    async fn live(&self, id: u64, random: &mut Random, may_die: bool) -> Result<Vec<Claim>, End> {
        let at = self.nodes.iter().enumerate().map(|(queue, node)| PoolNode {
            queue,
            owner: owner(id),
            map: node.map.clone(),
        });
        let claims = Claims::new(Rc::new(initiator(&self.nodes)), at.collect(), id)
            .map_err(|error| End::Wrong(error.to_string()))?;
        let life = u32::try_from(random.below(400)).unwrap_or(0);
        claims.initiator().with_endpoint(|endpoint| {
            endpoint.lies = self.lies;
            endpoint.life = may_die.then_some(life);
        });
        let mut held: Vec<Claim> = Vec::new();
        for _ in 0..self.rounds {
            let count = 1 + u32::try_from(random.below(4)).unwrap_or(0);
            if random.below(5) < 3 {
                let Some(claim) = claims.claim(count).await? else {
                    continue;
                };
                for slice in stamps(&claim) {
                    let stamp = id.to_le_bytes();
                    let written = claims.initiator().write(claim.queue(), slice, &stamp);
                    written.await.map_err(|_| End::Died)?;
                }
                held.push(claim);
            } else if !held.is_empty() {
                let which = usize::try_from(random.below(held.len() as u64)).unwrap_or(0);
                let claim = held.swap_remove(which);
                self.look(&claims, id, &claim).await?;
                claims.free(claim).await?;
            }
        }
        for claim in &held {
            self.look(&claims, id, claim).await?;
        }
        Ok(held)
    }

    async fn look(&self, claims: &Claims<TestEndpoint>, id: u64, claim: &Claim) -> Result<(), End> {
        for slice in stamps(claim) {
            let mut stamp = [0; 8];
            let read = claims.initiator().read(claim.queue(), slice, &mut stamp);
            read.await.map_err(|_| End::Died)?;
            let stamp = u64::from_le_bytes(stamp);
            if stamp != id {
                return Err(End::Wrong(format!(
                    "{claim:?} of {id} has the stamp of {stamp}"
                )));
            }
        }
        Ok(())
    }

    /// One thread: some lives that may end early, each reclaimed by the nodes, and one that lasts.
    fn thread(&self, index: u64) -> Result<(u64, Vec<Claim>), String> {
        let mut random = Random::new(self.seed ^ index.wrapping_mul(0x9E37_79B9));
        for turn in 0..12 {
            let id = self.lives.fetch_add(1, Ordering::Relaxed);
            let last = turn == 11;
            match block_on(self.live(id, &mut random, !last)) {
                Ok(held) if last => return Ok((id, held)),
                Err(End::Wrong(what)) => return Err(what),
                Ok(_) | Err(End::Died) => {
                    for node in &self.nodes {
                        node.table.take_back(owner(id));
                    }
                }
            }
        }
        Ok((0, Vec::new()))
    }

    fn run(&self) -> Result<(), String> {
        let over = AtomicBool::new(false);
        let ends: Vec<Result<(u64, Vec<Claim>), String>> = thread::scope(|scope| {
            let sweeper = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for node in &self.nodes {
                        node.table.mend();
                    }
                    thread::yield_now();
                }
            });
            let threads: Vec<_> = (0..THREADS)
                .map(|index| scope.spawn(move || self.thread(index)))
                .collect();
            let ends = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".to_owned())))
                .collect();
            over.store(true, Ordering::Relaxed);
            sweeper
                .join()
                .map_or_else(|_| vec![Err("a panic".to_owned())], |()| ends)
        });
        let mut held = vec![Vec::new(); self.nodes.len()];
        for end in ends {
            let (id, claims) = end?;
            for claim in &claims {
                held[claim.node()].extend(claim.run().extents().map(|extent| (extent, id)));
            }
        }
        for (node, mut held) in self.nodes.iter().zip(held) {
            node.table.mend();
            node.table.mend();
            held.sort_unstable();
            let mut owned = Vec::new();
            for id in 1..self.lives.load(Ordering::Relaxed) {
                owned.extend(
                    node.table
                        .owned_by(owner(id))
                        .into_iter()
                        .map(|extent| (extent, id)),
                );
            }
            owned.sort_unstable();
            if owned != held {
                return Err(format!("held {held:?}, owned {owned:?}"));
            }
            let owned = u32::try_from(held.len()).unwrap_or(u32::MAX);
            let free = node.table.extents() - owned;
            let wanted = Audit {
                owned,
                free,
                ..Audit::default()
            };
            if node.table.audit() != wanted {
                return Err(format!("{:?}, not {wanted:?}", node.table.audit()));
            }
        }
        Ok(())
    }
}

#[test]
fn nothing_is_owned_twice_or_lost_in_a_crowd() {
    for seed in 0..4 {
        Crowd::new(seed, false)
            .run()
            .unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn a_claim_that_ignores_the_owner_word_is_noticed() {
    // A single run nearly always suffices, depending on how the threads are scheduled.
    assert!((0..100).any(|seed| Crowd::new(seed, true).run().is_err()));
}
