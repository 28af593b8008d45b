//! The interface of a backend's fixture, and the helpers that the cases use.
//!
//! A [`Bench`] owns a fixture, the regions of both ends and the time, which each poll advances.

use std::sync::Arc;

use farcore_rdma::{
    Completion, Endpoint, LocalKey, LocalSlice, Lock, PostError, Region, RegionOptions, RemoteKey,
    RemoteSlice, Status, Work, WorkId, WorkRequest,
};

pub(crate) const REGION_BYTES: usize = 4 << 20;
/// The depth of a queue pair.
pub(crate) const DEPTH: usize = 16;
/// Polls after which an event counts as absent.
const PATIENCE: u32 = 200_000;

/// Two connected endpoints.
pub(crate) trait Fixture {
    type End: Endpoint;
    fn near(&mut self) -> &mut Self::End;
    fn far(&mut self) -> &mut Self::End;
    /// The far region's key for the near end.
    fn key(&self) -> RemoteKey;
    /// Makes the far side stop answering.
    fn kill(&mut self);
    /// Makes the far side answer again, and reconnects every failed queue pair.
    async fn revive(&mut self);
}

pub(crate) fn region(bytes: usize) -> Arc<Region> {
    let options = RegionOptions {
        bytes,
        huge_pages: false,
        lock: Lock::Off,
        prefault: false,
    };
    Arc::new(Region::map(&options).expect("memory"))
}

pub(crate) struct Bench<F> {
    pub(crate) fixture: F,
    pub(crate) local: Arc<Region>,
    pub(crate) remote: Arc<Region>,
    near_key: LocalKey,
    far_key: LocalKey,
    now_ns: u64,
}

impl<F: Fixture> Bench<F> {
    /// `remote` is the fixture's far region.
    pub(crate) fn new(mut fixture: F, remote: Arc<Region>) -> Self {
        let local = region(REGION_BYTES);
        let near_key = fixture
            .near()
            .register(Arc::clone(&local))
            .expect("registered");
        let far_key = fixture
            .far()
            .register(Arc::clone(&remote))
            .expect("registered");
        Self {
            fixture,
            local,
            remote,
            near_key,
            far_key,
            now_ns: 0,
        }
    }

    pub(crate) fn local(&self, offset: u64, bytes: u32) -> LocalSlice {
        LocalSlice {
            key: self.near_key,
            offset,
            bytes,
        }
    }

    /// A buffer of the far end.
    pub(crate) fn peers(&self, offset: u64, bytes: u32) -> LocalSlice {
        LocalSlice {
            key: self.far_key,
            offset,
            bytes,
        }
    }

    pub(crate) fn at(&self, offset: u64) -> RemoteSlice {
        RemoteSlice {
            key: self.fixture.key(),
            offset,
        }
    }

    pub(crate) fn request(id: u64, work: Work) -> WorkRequest {
        WorkRequest {
            id: WorkId(id),
            work,
            signalled: true,
        }
    }

    pub(crate) fn try_post(&mut self, queue: usize, id: u64, work: Work) -> Result<(), PostError> {
        self.fixture.near().post(queue, Self::request(id, work))
    }

    pub(crate) fn post(&mut self, queue: usize, id: u64, work: Work) {
        self.try_post(queue, id, work).expect("posted");
    }

    /// Posts at the far end.
    pub(crate) fn post_far(&mut self, queue: usize, id: u64, work: Work) {
        let request = Self::request(id, work);
        self.fixture.far().post(queue, request).expect("posted");
    }

    pub(crate) fn ring(&mut self, queue: usize) {
        let now_ns = self.now_ns;
        self.fixture.near().ring_doorbell(queue, now_ns);
    }

    /// Polls both ends once. Returns the completions of the near end and of the far end.
    pub(crate) fn poll(&mut self) -> (Vec<Completion>, Vec<Completion>) {
        self.now_ns += 1_000;
        let now_ns = self.now_ns;
        let mut completions = [Completion::NONE; 64];
        let count = self.fixture.near().poll(now_ns, &mut completions);
        let near = completions[..count].to_vec();
        let far = self.fixture.far();
        for queue in 0..far.queues() {
            far.ring_doorbell(queue, now_ns);
        }
        let count = far.poll(now_ns, &mut completions);
        (near, completions[..count].to_vec())
    }

    /// Polls until the given numbers of requests have completed at each end.
    pub(crate) fn wait(&mut self, near: usize, far: usize) -> (Vec<Completion>, Vec<Completion>) {
        let (mut nears, mut fars) = (Vec::new(), Vec::new());
        for _ in 0..PATIENCE {
            let (near_now, far_now) = self.poll();
            nears.extend(near_now);
            fars.extend(far_now);
            if nears.len() >= near && fars.len() >= far {
                break;
            }
        }
        assert_eq!((nears.len(), fars.len()), (near, far), "{nears:?} {fars:?}");
        (nears, fars)
    }

    /// Polls for a while and checks that nothing completes.
    pub(crate) fn wait_in_vain(&mut self) {
        for _ in 0..1_000 {
            let (near, far) = self.poll();
            assert!(near.is_empty() && far.is_empty(), "{near:?} {far:?}");
        }
    }

    /// Runs one request to completion.
    pub(crate) fn run(&mut self, work: Work) -> Status {
        self.post(0, 77, work);
        self.ring(0);
        let (near, _) = self.wait(1, 0);
        assert_eq!(near[0].id, WorkId(77));
        near[0].status
    }

    pub(crate) fn set(&self, region: &Region, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= region.len());
        // SAFETY: inside the region, and no request that names the range is in flight.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                region.as_ptr().as_ptr().add(offset),
                bytes.len(),
            );
        }
    }

    pub(crate) fn get(&self, region: &Region, offset: usize, bytes: usize) -> Vec<u8> {
        assert!(offset + bytes <= region.len());
        let mut copy = vec![0; bytes];
        // SAFETY: as in `set`.
        unsafe {
            std::ptr::copy_nonoverlapping(
                region.as_ptr().as_ptr().add(offset),
                copy.as_mut_ptr(),
                bytes,
            );
        }
        copy
    }

    pub(crate) fn word(&self, region: &Region, offset: usize) -> u64 {
        u64::from_le_bytes(self.get(region, offset, 8).try_into().expect("8 bytes"))
    }
}
