//! Bare work requests of the embedded backend, in one thread: what a transfer costs without a
//! connection. SEND copies a message twice, through a queue between the two ends.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farcore_rdma::{
    Completion, EmbeddedEndpoint, EmbeddedNode, Endpoint, LinkModel, LocalKey, LocalSlice, Lock,
    Region, RegionOptions, RemoteKey, RemoteSlice, Status, Work, WorkId, WorkRequest,
};

use crate::table::{Row, Way, print};
use crate::{LENGTHS, Rounds, WINDOW};

/// Bytes from one buffer to the next.
const BUFFER: usize = 1 << 20;
const DEPTH: usize = 2 * WINDOW;

fn region() -> Result<Arc<Region>, Box<dyn Error>> {
    let options = RegionOptions {
        bytes: WINDOW * BUFFER,
        huge_pages: false,
        lock: Lock::Off,
        prefault: true,
    };
    Ok(Arc::new(Region::map(&options)?))
}

/// Two ends and the memory between them.
struct Ends {
    near: EmbeddedEndpoint,
    far: EmbeddedEndpoint,
    near_key: LocalKey,
    far_key: LocalKey,
    remote: RemoteKey,
}

impl Ends {
    fn new() -> Result<Self, Box<dyn Error>> {
        let node = EmbeddedNode::new(region()?, LinkModel::default());
        let (nodes, remote) = (&[Arc::new(node)][..], 0);
        let remote_key = nodes[remote].remote_key();
        let mut near = EmbeddedEndpoint::new(nodes, 1, DEPTH, 1);
        let mut far = EmbeddedEndpoint::new(nodes, 1, DEPTH, 2);
        near.connect(0, &mut far, 0);
        Ok(Self {
            near_key: near.register(region()?)?,
            far_key: far.register(region()?)?,
            near,
            far,
            remote: remote_key,
        })
    }

    /// Performs `count` requests with one doorbell, and waits for all.
    fn perform(&mut self, way: Way, bytes: u32, count: usize) -> Result<(), Box<dyn Error>> {
        let request = |place: usize, work| WorkRequest {
            id: WorkId(place as u64),
            work,
            signalled: true,
        };
        for place in 0..count {
            let offset = (place * BUFFER) as u64;
            let slice = |key| LocalSlice { key, offset, bytes };
            let (local, key) = (slice(self.near_key), self.remote);
            let remote = RemoteSlice { key, offset };
            let work = match way {
                Way::Read => Work::Read { local, remote },
                Way::Write => Work::Write { local, remote },
                _ => {
                    let local = slice(self.far_key);
                    let posted = self.far.post(0, request(place, Work::Receive { local }));
                    posted.map_err(|error| format!("{error:?}"))?;
                    Work::Send {
                        local: slice(self.near_key),
                    }
                }
            };
            let posted = self.near.post(0, request(place, work));
            posted.map_err(|error| format!("{error:?}"))?;
        }
        self.near.ring_doorbell(0, 0);
        let mut completions = [Completion::NONE; WINDOW];
        let (mut sent, mut received) = (0, if way == Way::Send { 0 } else { count });
        while sent < count || received < count {
            let ended = self.near.poll(0, &mut completions);
            let failed = completions[..ended]
                .iter()
                .find(|one| one.status != Status::Success);
            if let Some(failed) = failed {
                return Err(failed.status.to_string().into());
            }
            sent += ended;
            if way == Way::Send {
                received += self.far.poll(0, &mut completions);
            }
        }
        Ok(())
    }

    fn measure(&mut self, way: Way, bytes: usize, limit: Duration) -> Result<Row, Box<dyn Error>> {
        let length = u32::try_from(bytes)?;
        let mut times = Vec::new();
        let end = Instant::now() + limit;
        while Instant::now() < end {
            let begun = Instant::now();
            self.perform(way, length, 1)?;
            times.push(begun.elapsed());
        }
        let (mut done, begun) = (0_u32, Instant::now());
        while begun.elapsed() < limit {
            self.perform(way, length, WINDOW)?;
            done += 1;
        }
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let rate = f64::from(done) * WINDOW as f64 / begun.elapsed().as_secs_f64();
        Ok(Row::new("embedded", (bytes, way), &mut times, rate))
    }
}

pub(crate) fn run(rounds: Rounds) -> Result<(), Box<dyn Error>> {
    let mut ends = Ends::new()?;
    let mut rows = Vec::new();
    for _ in 0..rounds.rounds {
        for bytes in LENGTHS {
            for way in [Way::Send, Way::Read, Way::Write] {
                rows.push(ends.measure(way, bytes, rounds.limit())?);
            }
        }
    }
    print(&rows);
    Ok(())
}
