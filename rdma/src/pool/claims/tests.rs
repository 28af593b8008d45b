use std::collections::HashSet;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::*;
use crate::pool::Audit;
use crate::testing::{EXTENT_BYTES, TestEndpoint, TestNode, block_on, initiator, owner};

fn claims(nodes: &[TestNode], id: u64) -> Claims<TestEndpoint> {
    let at = nodes.iter().enumerate().map(|(queue, node)| PoolNode {
        queue,
        owner: owner(id),
        map: node.map.clone(),
    });
    Claims::new(Rc::new(initiator(nodes)), at.collect(), id).expect("sound maps")
}

fn clean(node: &TestNode, owned: u32) {
    let free = node.table.extents() - owned;
    let wanted = Audit {
        owned,
        free,
        ..Audit::default()
    };
    assert_eq!(node.table.audit(), wanted);
}

#[test]
fn every_extent_can_be_claimed_once_and_freed() {
    let nodes = [TestNode::new(&[70, 3], 0), TestNode::new(&[5], 0)];
    let claims = claims(&nodes, 1);
    block_on(async {
        let mut held = Vec::new();
        let mut places = HashSet::new();
        while let Some(claim) = claims.claim(1).await.unwrap() {
            assert!(places.insert((claim.node(), claim.run().first())));
            assert_eq!(claim.bytes(), EXTENT_BYTES);
            held.push(claim);
        }
        assert_eq!((held.len(), claims.free_count()), (78, 0));
        clean(&nodes[0], 73);
        clean(&nodes[1], 5);
        for claim in held {
            claims.free(claim).await.unwrap();
        }
        assert_eq!(claims.free_count(), 78);
    });
    clean(&nodes[0], 0);
    clean(&nodes[1], 0);
}

#[test]
fn runs_lie_in_one_region() {
    let nodes = [TestNode::new(&[3, 5], 0)];
    let claims = claims(&nodes, 1);
    block_on(async {
        let first = claims.claim(3).await.unwrap().unwrap();
        let second = claims.claim(3).await.unwrap().unwrap();
        let mut firsts = [first.run().first(), second.run().first()];
        firsts.sort_unstable();
        assert_eq!(firsts, [0, 4]);
        assert_eq!(claims.claim(2).await.unwrap(), None);
        assert_eq!(claims.claim(65).await.unwrap(), None);
    });
}

#[test]
fn a_run_is_found_wherever_it_lies() {
    // No region begins where a run of its length would be aligned.
    let nodes = [TestNode::new(&[3, 5, 5, 40, 7], 0)];
    let claims = claims(&nodes, 1);
    block_on(async {
        let mut held = Vec::new();
        for count in [40, 7, 5, 5, 3] {
            let claim = claims.claim(count).await.unwrap();
            held.push(claim.expect("a region is as long"));
        }
        assert_eq!(claims.claim(1).await.unwrap(), None);
        for claim in held {
            claims.free(claim).await.unwrap();
        }
    });
    clean(&nodes[0], 0);
}

#[test]
fn a_claim_can_be_freed_in_parts() {
    let nodes = [TestNode::new(&[2, 8], 0)];
    let claims = claims(&nodes, 1);
    block_on(async {
        let mut claim = claims.claim(8).await.unwrap().unwrap();
        assert_eq!(claim.split_off(8), None);
        assert_eq!(claim.split_off(9), None);
        let rest = claim.split_off(3).unwrap();
        assert_eq!((claim.run().count(), rest.run().count()), (3, 5));
        assert_eq!(rest.run().first(), claim.run().first() + 3);
        assert_eq!(rest.slice().offset, claim.slice().offset + claim.bytes());
        assert_eq!(
            (claim.bytes(), rest.bytes()),
            (3 * EXTENT_BYTES, 5 * EXTENT_BYTES)
        );
        claims.free(rest).await.unwrap();
        clean(&nodes[0], 3);
        // It keeps at least one extent.
        let rest = claim.split_off(0).unwrap();
        assert_eq!((claim.run().count(), rest.run().count()), (1, 2));
        claims.free(rest).await.unwrap();
        claims.free(claim).await.unwrap();
    });
    clean(&nodes[0], 0);
}

#[test]
fn other_clients_claims_are_noticed() {
    let nodes = [TestNode::new(&[64], 0)];
    let (first, second) = (claims(&nodes, 1), claims(&nodes, 2));
    block_on(async {
        let held = first.claim(1).await.unwrap().unwrap();
        let all = second.claim(32).await.unwrap().unwrap();
        // The first client's view is stale; the word that its swap returns corrects it.
        let _next = first.claim(1).await.unwrap().unwrap();
        assert_eq!(first.free_count(), 30);
        second.free(all).await.unwrap();
        first.free(held).await.unwrap();
        first.refresh().await.unwrap();
        assert_eq!(first.free_count(), 63);
    });
    clean(&nodes[0], 1);
}

#[test]
fn a_lost_node_does_not_stop_the_others() {
    let nodes = [TestNode::new(&[8], 0), TestNode::new(&[8], 0)];
    let claims = claims(&nodes, 1);
    block_on(async {
        claims.refresh().await.unwrap();
        nodes[0].node.lose();
        for _ in 0..8 {
            assert_eq!(claims.claim(1).await.unwrap().unwrap().node(), 1);
        }
        assert!(matches!(
            claims.claim(1).await,
            Err(ClaimsError::Fabric(InitiatorError::Down { queue: 0, .. }))
        ));
        nodes[0].node.restore();
        claims.initiator().renew(0);
        assert_eq!(claims.claim(1).await.unwrap().unwrap().node(), 0);
    });
}

#[test]
fn a_reclaimed_run_cannot_be_freed() {
    let nodes = [TestNode::new(&[8], 0)];
    let (mine, other) = (claims(&nodes, 1), claims(&nodes, 2));
    block_on(async {
        let claim = mine.claim(8).await.unwrap().unwrap();
        assert_eq!(nodes[0].table.take_back(owner(1)), 8);
        let _held = other.claim(8).await.unwrap().unwrap();
        assert!(matches!(
            mine.free(claim).await,
            Err(ClaimsError::NotOwned(NotOwned { count: 8, .. }))
        ));
    });
    clean(&nodes[0], 8);
}

/// The client dies after each possible number of requests in the middle of a claim or free.
#[test]
fn a_client_may_die_at_every_step() {
    for count in [1, 3] {
        for freeing in [false, true] {
            for stale in [false, true] {
                let mut steps = 0;
                loop {
                    let nodes = [TestNode::new(&[4], 0)];
                    if stale {
                        // An owner whose bit is clear, so that the claim is refused half-way.
                        nodes[0].table.plant(2, 9);
                    }
                    let claims = claims(&nodes, 1);
                    let done = block_on(async {
                        claims.refresh().await.unwrap();
                        let claim = if freeing {
                            claims.claim(count).await.unwrap()
                        } else {
                            None
                        };
                        claims
                            .initiator()
                            .with_endpoint(|endpoint| endpoint.life = Some(steps));
                        match claim {
                            Some(claim) => claims.free(claim).await.is_ok(),
                            None => claims.claim(count).await.is_ok(),
                        }
                    });
                    nodes[0].table.take_back(owner(1));
                    nodes[0].table.mend();
                    nodes[0].table.mend();
                    clean(&nodes[0], u32::from(stale));
                    if done {
                        break;
                    }
                    steps += 1;
                }
                // The stale owner leaves no run of three, which takes one request to learn.
                assert!(steps >= 2 || (freeing && stale && count == 3));
            }
        }
    }
}

/// A step of a schedule of concurrent calls.
#[derive(Clone, Copy, Debug)]
enum Act {
    Claim(u32),
    Free,
    /// Polls one of the calls in flight this many times.
    Poll(prop::sample::Index, u32),
    Drop(prop::sample::Index),
}

fn act() -> impl Strategy<Value = Act> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        3 => (1u32..4).prop_map(Act::Claim),
        2 => Just(Act::Free),
        6 => (index(), 1u32..60).prop_map(|(which, times)| Act::Poll(which, times)),
        1 => index().prop_map(Act::Drop),
    ]
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<Option<Claim>, ClaimsError>> + 'a>>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// Concurrent calls, dropped anywhere: later calls free the runs that they left, and no run
    /// that is held.
    #[test]
    fn dropped_calls_lose_nothing(acts in prop::collection::vec(act(), 1..200)) {
        // So few extents that calls often want the same.
        let nodes = [TestNode::new(&[4], 3000), TestNode::new(&[1], 3000)];
        let claims = &claims(&nodes, 1);
        let mut context = Context::from_waker(Waker::noop());
        let mut calls: Vec<Call<'_>> = Vec::new();
        let mut held: Vec<Claim> = Vec::new();
        for act in acts {
            match act {
                Act::Claim(count) => calls.push(Box::pin(claims.claim(count))),
                Act::Free => if let Some(claim) = held.pop() {
                    let free = claims.free(claim);
                    calls.push(Box::pin(async { free.await.map(|()| None) }));
                },
                Act::Poll(which, times) if !calls.is_empty() => {
                    let which = which.index(calls.len());
                    for _ in 0..times {
                        if let Poll::Ready(done) = calls[which].as_mut().poll(&mut context) {
                            held.extend(done.expect("no faults, and it owns the run"));
                            drop(calls.swap_remove(which));
                            break;
                        }
                    }
                }
                Act::Drop(which) if !calls.is_empty() => drop(calls.swap_remove(which.index(calls.len()))),
                Act::Poll(..) | Act::Drop(_) => {}
            }
            for claim in &held {
                let owned = nodes[claim.node()].table.owned_by(owner(1));
                prop_assert!(claim.run().extents().all(|extent| owned.contains(&extent)));
            }
        }
        calls.clear();
        prop_assert_eq!(block_on(claims.settle()), Ok(()));
        for (index, node) in nodes.iter().enumerate() {
            node.table.mend();
            node.table.mend();
            let owned = held.iter().filter(|claim| claim.node() == index).map(|claim| claim.run().count()).sum();
            clean(node, owned);
        }
    }
}
