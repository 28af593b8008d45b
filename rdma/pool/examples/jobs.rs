//! Two programs and a queue of jobs in remote memory.
//!
//! One opens a queue and a map and exports them; the other imports both, takes jobs and stores what
//! came of them. Here both run in one process, on a memory node that it starts.

use std::thread;

use farcore_pool::structures::{RemoteMap, RemoteQueue};
use farcore_pool::{Exported, Plain, PoolOptions, RemotePool};
use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeOptions};

#[derive(Clone, Copy, Debug, Plain)]
struct Job {
    number: u64,
    factor: f64,
}

/// Takes jobs until there is none, and stores their outcomes.
fn work(node: &str, queue: &str, outcomes: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let pool = RemotePool::connect([node], PoolOptions::default())?;
    let queue: Exported<u64> = queue.parse()?;
    let queue = RemoteQueue::<Job>::open(&pool, &queue).wait()?;
    let outcomes: Exported<u64> = outcomes.parse()?;
    let outcomes = RemoteMap::<u64, f64>::open(&pool, &outcomes).wait()?;
    let mut count = 0;
    while let Some(job) = queue.pop().wait()? {
        let outcome = job.number as f64 * job.factor;
        outcomes.insert(&job.number, &outcome).wait()?;
        count += 1;
    }
    Ok(count)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = MemoryOptions {
        region_bytes: 16 << 20,
        extent_bytes: 64 << 10,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(16 << 20)
    };
    let node = MemoryNode::start(NodeOptions::new(([127, 0, 0, 1], 0).into(), memory))?;
    let address = format!("tcp://{}", node.address());

    let pool = RemotePool::connect([&address], PoolOptions::default())?;
    let queue = RemoteQueue::create(&pool, 1000).wait()?;
    let outcomes: RemoteMap<u64, f64> = RemoteMap::create(&pool, 1000).wait()?;
    for number in 0..1000 {
        let job = Job {
            number,
            factor: 0.5,
        };
        assert!(queue.push(&job).wait()?, "the queue holds 1000 jobs");
    }
    let queue_text = queue.export().wait()?.to_string();
    let outcomes_text = outcomes.export().wait()?.to_string();
    let counts = thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (address, queue, outcomes) = (&address, &queue_text, &outcomes_text);
                scope.spawn(move || {
                    work(address, queue, outcomes).map_err(|error| error.to_string())
                })
            })
            .collect();
        let counts = workers.into_iter().map(thread::ScopedJoinHandle::join);
        counts.collect::<Vec<_>>()
    });
    for count in counts {
        println!(
            "a worker did {} jobs",
            count.map_err(|_| "a worker panicked")??
        );
    }
    let half = outcomes.get(&999).wait()?;
    assert_eq!(half, Some(499.5));
    println!("{} outcomes are stored", outcomes.count().wait()?);
    Ok(())
}
