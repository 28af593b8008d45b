//! Extents that sessions share: who may access them, and who inherits them.

use super::*;
use crate::control::Grant;
use crate::pool::ExtentRun;

fn node(isolate: bool) -> NodeHandle {
    MemoryNode::start(NodeOptions {
        isolate,
        ..options()
    })
    .unwrap()
}

/// A session's requests about shares.
trait Sharing {
    async fn share(&mut self, grant: Grant) -> Result<(), SessionError>;
    async fn unshare(&mut self, run: ExtentRun) -> Result<(), SessionError>;
    async fn attach(&mut self, run: ExtentRun, anchor: u32) -> Result<(), SessionError>;
}

impl Sharing for NodeSession {
    async fn share(&mut self, grant: Grant) -> Result<(), SessionError> {
        let reply = self.ask(&Request::Share(grant)).await?;
        assert_eq!(reply, Reply::Shared);
        Ok(())
    }

    async fn unshare(&mut self, run: ExtentRun) -> Result<(), SessionError> {
        let reply = self.ask(&Request::Unshare(run.into())).await?;
        assert_eq!(reply, Reply::Unshared);
        Ok(())
    }

    async fn attach(&mut self, run: ExtentRun, anchor: u32) -> Result<(), SessionError> {
        let chunk = run.into();
        let reply = self.ask(&Request::Attach { chunk, anchor }).await?;
        assert_eq!(reply, Reply::Attached);
        Ok(())
    }
}

fn is(error: &SessionError, wanted: Refused) -> bool {
    matches!(error, SessionError::Refused(refused) if *refused == wanted)
}

#[test]
fn a_shared_extent_outlives_its_owner() {
    for isolate in [false, true] {
        let node = node(isolate);
        run(async {
            let mut owner = session(&node).await;
            let (mut first, mut second) = (session(&node).await, session(&node).await);
            let chunk = owner.allocate_chunk(2 * EXTENT).await.unwrap();
            let grant = owner.facts().grant(chunk, true);
            first.share(grant).await.unwrap();
            first.share(grant).await.unwrap();
            second.share(grant).await.unwrap();
            // One extent is given up, and then the session ends.
            let one = ExtentRun::new(chunk.first(), 1).unwrap();
            owner.free_chunk(one).await.unwrap();
            owner.bye().await.unwrap();
            let free = || node.metrics().statistics().extents_free;
            assert_eq!(free(), EXTENTS - 2);
            let remote = first.map().slice(chunk.first(), 64).unwrap();
            for session in [&first, &second] {
                let (mut mine, local) = endpoint(&node, &session.memory_request(0)).await;
                let status = perform(&mut mine, Work::Write { local, remote }).await;
                assert_eq!(status, Status::Success);
            }
            // The eldest inherited both; its second grant keeps them.
            first.unshare(chunk).await.unwrap();
            second.unshare(chunk).await.unwrap();
            assert_eq!(free(), EXTENTS - 2);
            first.unshare(chunk).await.unwrap();
            assert_eq!(free(), EXTENTS);
            let error = first.unshare(chunk).await.unwrap_err();
            assert!(is(&error, Refused::NotOwned { count: 2 }), "{error}");
            // What was shared is a chunk as any other.
            let again = second.allocate_chunk(5 * EXTENT).await.unwrap();
            second.free_chunk(again).await.unwrap();
        });
        node.stop();
    }
}

#[test]
fn an_ended_heir_passes_on_what_it_inherited() {
    let node = node(false);
    run(async {
        let mut owner = session(&node).await;
        let (mut first, mut second) = (session(&node).await, session(&node).await);
        let chunk = owner.allocate_chunk(EXTENT).await.unwrap();
        let grant = owner.facts().grant(chunk, false);
        first.share(grant).await.unwrap();
        second.share(grant).await.unwrap();
        owner.bye().await.unwrap();
        first.bye().await.unwrap();
        let free = || node.metrics().statistics().extents_free;
        assert_eq!(free(), EXTENTS - 1);
        // The grantor has gone: nothing more is shared by its grant.
        let mut late = session(&node).await;
        let error = late.share(grant).await.unwrap_err();
        assert!(is(&error, Refused::GrantOver), "{error}");
        // The heir may grant what it has.
        let grant = second.facts().grant(chunk, false);
        late.share(grant).await.unwrap();
        second.bye().await.unwrap();
        assert_eq!(free(), EXTENTS - 1);
        late.bye().await.unwrap();
        assert_eq!(free(), EXTENTS);
    });
    node.stop();
}

#[test]
fn a_grant_is_the_work_of_its_owner() {
    let node = node(false);
    run(async {
        let (mut owner, mut other) = (session(&node).await, session(&node).await);
        let chunk = owner.allocate_chunk(EXTENT).await.unwrap();
        let grant = owner.facts().grant(chunk, false);
        let mut wider = grant;
        wider.may_write = true;
        let mut longer = grant;
        longer.chunk.count += 1;
        for forged in [wider, longer, other.facts().grant(chunk, true)] {
            let error = other.share(forged).await.unwrap_err();
            let refused = is(&error, Refused::WrongGrant) || is(&error, Refused::GrantOver);
            assert!(refused, "{error}");
        }
        // A grant of what is no longer owned.
        owner.free_chunk(chunk).await.unwrap();
        let error = other.share(grant).await.unwrap_err();
        assert!(is(&error, Refused::GrantOver), "{error}");
        owner.bye().await.unwrap();
        other.bye().await.unwrap();
        assert_eq!(node.metrics().statistics().extents_free, EXTENTS);
    });
    node.stop();
}

#[test]
fn an_isolated_node_permits_what_was_granted() {
    let node = node(true);
    run(async {
        let (mut owner, mut other) = (session(&node).await, session(&node).await);
        let chunk = owner.allocate_chunk(EXTENT).await.unwrap();
        let remote = owner.map().slice(chunk.first(), 64).unwrap();
        let status = async |work: &dyn Fn(LocalSlice) -> Work| {
            // A refusal ends the connection.
            let (mut theirs, local) = endpoint(&node, &other.memory_request(0)).await;
            perform(&mut theirs, work(local)).await
        };
        let read = |local| Work::Read { local, remote };
        let write = |local| Work::Write { local, remote };
        assert_eq!(status(&read).await, Status::RemoteAccess);
        let mut sharer = session(&node).await;
        sharer
            .share(owner.facts().grant(chunk, false))
            .await
            .unwrap();
        // A share of another session permits nothing.
        assert_eq!(status(&read).await, Status::RemoteAccess);
        other
            .share(owner.facts().grant(chunk, false))
            .await
            .unwrap();
        let status = async |work: &dyn Fn(LocalSlice) -> Work| {
            let (mut theirs, local) = endpoint(&node, &other.memory_request(0)).await;
            perform(&mut theirs, work(local)).await
        };
        assert_eq!(status(&read).await, Status::Success);
        assert_eq!(status(&write).await, Status::RemoteAccess);
        other.share(owner.facts().grant(chunk, true)).await.unwrap();
        let (mut theirs, local) = endpoint(&node, &other.memory_request(0)).await;
        assert_eq!(perform(&mut theirs, write(local)).await, Status::Success);
        // Its owner cannot free by itself what others share.
        let word = owner.map().owner_slice(chunk.first());
        let id = owner.owner().get();
        let (mut mine, local) = endpoint(&node, &owner.memory_request(0)).await;
        let swap = Work::CompareAndSwap {
            local: LocalSlice { bytes: 8, ..local },
            remote: word,
            expected: id,
            desired: 0,
        };
        assert_eq!(perform(&mut mine, swap).await, Status::RemoteAccess);
    });
    node.stop();
}

#[test]
fn attached_extents_follow_their_anchor() {
    for isolate in [false, true] {
        let node = node(isolate);
        run(async {
            let (mut owner, mut other) = (session(&node).await, session(&node).await);
            let stranger = session(&node).await;
            let anchor = owner.allocate_chunk(EXTENT).await.unwrap();
            other
                .share(owner.facts().grant(anchor, true))
                .await
                .unwrap();
            let grown = other.allocate_chunk(2 * EXTENT).await.unwrap();
            let error = owner.attach(grown, anchor.first()).await.unwrap_err();
            assert!(is(&error, Refused::NotOwned { count: 2 }), "{error}");
            other.attach(grown, anchor.first()).await.unwrap();
            let remote = owner.map().slice(grown.first() + 1, 0).unwrap();
            let write = |local| Work::Write { local, remote };
            for session in [&owner, &other] {
                let (mut mine, local) = endpoint(&node, &session.memory_request(0)).await;
                assert_eq!(perform(&mut mine, write(local)).await, Status::Success);
            }
            if isolate {
                let (mut mine, local) = endpoint(&node, &stranger.memory_request(0)).await;
                assert_eq!(perform(&mut mine, write(local)).await, Status::RemoteAccess);
            }
            // The one that attached them goes: they stay. Then their owner goes, and they pass on.
            let free = || node.metrics().statistics().extents_free;
            let mut third = session(&node).await;
            third
                .share(owner.facts().grant(anchor, true))
                .await
                .unwrap();
            other.bye().await.unwrap();
            owner.bye().await.unwrap();
            assert_eq!(free(), EXTENTS - 3);
            let (mut mine, local) = endpoint(&node, &third.memory_request(0)).await;
            assert_eq!(perform(&mut mine, write(local)).await, Status::Success);
            // The anchor is freed, and what is attached with it.
            third.unshare(anchor).await.unwrap();
            assert_eq!(free(), EXTENTS);
        });
        node.stop();
    }
}

#[test]
fn an_anchor_is_freed_with_what_is_attached() {
    let node = node(false);
    run(async {
        let mut owner = session(&node).await;
        let free = || node.metrics().statistics().extents_free;
        for ends in [false, true] {
            let anchor = owner.allocate_chunk(EXTENT).await.unwrap();
            let grown = owner.allocate_chunk(2 * EXTENT).await.unwrap();
            owner.attach(grown, anchor.first()).await.unwrap();
            assert_eq!(free(), EXTENTS - 3);
            if ends {
                owner.bye().await.unwrap();
                owner = session(&node).await;
            } else {
                owner.free_chunk(anchor).await.unwrap();
            }
            assert_eq!(free(), EXTENTS);
        }
        let known = owner.owner();
        let reply = owner.ask(&Request::IsOpen(known)).await.unwrap();
        assert_eq!(reply, Reply::IsOpen(true));
        owner.bye().await.unwrap();
        let mut other = session(&node).await;
        let reply = other.ask(&Request::IsOpen(known)).await.unwrap();
        assert_eq!(reply, Reply::IsOpen(false));
    });
    node.stop();
}
