//! `farcore pool demo`: each operation of a pool once.
//!
//! Two pools are opened, as two programs would. Without `--nodes`, two memory nodes of this process
//! lend the memory.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use farcore_command::outputs::print;
use farcore_pool::structures::{RemoteCounter, RemoteLock, RemoteMap, RemoteQueue};
use farcore_pool::{Exported, Plain, PoolError, RemotePool};
use farcore_rdma::Lock;
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};

use super::target::TargetArguments;

/// What a node of the demonstration lends, in bytes.
const NODE_BYTES: u64 = 16 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
}

#[derive(Clone, Copy, PartialEq, Debug, Plain)]
struct Point {
    label: char,
    x: f64,
    y: f64,
}

/// Prints a step, its outcome and how long it took.
fn step<T>(what: impl Display, act: impl FnOnce() -> Result<(T, String)>) -> Result<T> {
    let begun = Instant::now();
    let (outcome, text) = act()?;
    let took = begun.elapsed().as_secs_f64() * 1e6;
    print(format_args!("{what:<58} {text:<28} {took:>9.1} us"))?;
    Ok(outcome)
}

fn node() -> Result<NodeHandle> {
    let memory = MemoryOptions {
        region_bytes: NODE_BYTES,
        extent_bytes: 64 << 10,
        huge_pages: false,
        lock: Lock::Off,
        ..MemoryOptions::new(NODE_BYTES)
    };
    let options = NodeOptions::new(([127, 0, 0, 1], 0).into(), memory);
    Ok(MemoryNode::start(options)?)
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let options = arguments.target.options()?;
    if arguments.target.is_remote() {
        let open = || arguments.target.connect(options.clone());
        return show(&open()?, &open()?);
    }
    let nodes = [node()?, node()?];
    let names = nodes.iter().map(|node| format!("tcp://{}", node.address()));
    let names: Vec<_> = names.collect();
    print(format_args!(
        "two memory nodes of this process: {}",
        names.join(", ")
    ))?;
    let open = || RemotePool::connect(&names, options.clone());
    show(&open()?, &open()?)
}

fn show(first: &RemotePool, second: &RemotePool) -> Result<()> {
    values(first)?;
    sharing(first, second)?;
    structures(first, second)
}

fn values(pool: &RemotePool) -> Result<()> {
    let word = step("alloc_box(41_u64)", || {
        let word = pool.alloc_box(41_u64).wait()?;
        let node = word.node().unwrap_or(0);
        Ok((word, format!("on node {node}")))
    })?;
    step("fetch_add(1)", || {
        let old = word.fetch_add(1).wait()?;
        Ok(((), format!("was {old}")))
    })?;
    let points = step("alloc::<Point>(1000), a struct with padding", || {
        let points = pool.alloc::<Point>(1000).wait()?;
        Ok((points, format!("{} bytes", 1000 * Point::BYTES)))
    })?;
    let point = Point {
        label: 'p',
        x: 1.5,
        y: -2.0,
    };
    step("write(7, &point)", || {
        points.write(7, &point).wait()?;
        Ok(((), String::new()))
    })?;
    let ptr = points.ptr(0);
    step("ptr.index(7).read(&pool)", || {
        let found = ptr.index(7).read(pool).wait()?;
        ensure!(found == point, "{found:?} was read, {point:?} written");
        Ok(((), format!("{} at ({}, {})", found.label, found.x, found.y)))
    })?;
    step("read(1000), past the end", || {
        let error = points.read(1000).wait().err();
        ensure!(
            matches!(error, Some(PoolError::OutOfBounds { .. })),
            "{error:?}"
        );
        Ok(((), "OutOfBounds".to_owned()))
    })?;
    points.free();
    step("ptr.read(&pool), after the owner freed it", || {
        let error = ptr.read(pool).wait().err();
        ensure!(error == Some(PoolError::Freed), "{error:?}");
        Ok(((), "Freed".to_owned()))
    })
}

fn sharing(first: &RemotePool, second: &RemotePool) -> Result<()> {
    let values = first.alloc_from(&[1_u32, 2, 3]).wait()?;
    let text = step("export(may_write): a text for another process", || {
        let text = values.export(true).wait()?.to_string();
        let length = text.len();
        Ok((text, format!("{length} characters")))
    })?;
    let theirs = step("import(&text), in another pool", || {
        let exported: Exported<u32> = text.parse()?;
        let theirs = second.import(&exported).wait()?;
        Ok((theirs, "the same memory".to_owned()))
    })?;
    step("write(0, &10) there, read(0) here", || {
        theirs.write(0, &10).wait()?;
        let found = values.read(0).wait()?;
        Ok(((), format!("{found}")))
    })
}

fn structures(first: &RemotePool, second: &RemotePool) -> Result<()> {
    let counter = RemoteCounter::create(first, 0).wait()?;
    let exported = counter.export().wait()?;
    step("RemoteCounter: add(5) from both pools", || {
        counter.add(5).wait()?;
        RemoteCounter::open(second, &exported)
            .wait()?
            .add(5)
            .wait()?;
        let value = counter.get().wait()?;
        Ok(((), format!("{value}")))
    })?;
    let lock = RemoteLock::create(first, Duration::from_secs(5)).wait()?;
    step("RemoteLock: lock, renew, unlock", || {
        let held = lock.lock().wait()?;
        let token = held.token();
        held.renew().wait()?;
        held.unlock().wait()?;
        Ok(((), format!("fencing token {token}")))
    })?;
    let queue = RemoteQueue::create(first, 100).wait()?;
    step("RemoteQueue: push(&7), pop()", || {
        queue.push(&7_u32).wait()?;
        let found = queue.pop().wait()?;
        Ok(((), format!("{found:?}")))
    })?;
    let map = RemoteMap::create(first, 1000).wait()?;
    step("RemoteMap: insert(&\"answer\", &42)", || {
        map.insert(b"answer", &42_u64).wait()?;
        Ok(((), String::new()))
    })?;
    let exported = map.export().wait()?;
    let same: RemoteMap<[u8; 6], u64> = RemoteMap::open(second, &exported).wait()?;
    step(
        "RemoteMap: get(&\"answer\") in the other pool, one READ",
        || {
            let found = same.get(b"answer").wait()?;
            Ok(((), format!("{found:?}")))
        },
    )
}
