//! Memory that sessions share. Two pools of this process are two sessions, as two processes are.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use farcore_pool::{Access, Exported, PoolError, PoolOptions, RemotePool, RemoteSlice};

use crate::nodes::{connect, isolated_node, name, node, until};

fn is_gone<T>(found: Result<T, PoolError>, wanted: &str) -> bool {
    match found {
        Err(PoolError::Gone { reason }) => reason.contains(wanted),
        _ => false,
    }
}

fn allocated(pool: &RemotePool) -> u64 {
    pool.nodes().iter().map(|node| node.allocated_bytes).sum()
}

#[test]
fn exported_memory_is_shared_and_freed_after_the_last_owner() {
    for node in [node(16), isolated_node(16)] {
        let (first, second) = (connect(&[&node]), connect(&[&node]));
        let own = first.alloc_from(&[1_u64, 2, 3]).wait().unwrap();
        let text = own.export(true).wait().unwrap().to_string();
        let exported: Exported<u64> = text.parse().unwrap();
        assert_eq!((exported.len(), exported.access()), (3, Access::Write));
        let theirs = second.import(&exported).wait().unwrap();
        assert_eq!(theirs.to_vec().wait().unwrap(), [1, 2, 3]);
        theirs.write(1, &20).wait().unwrap();
        assert_eq!(theirs.fetch_add(2, 5).wait().unwrap(), 3);
        assert_eq!(own.to_vec().wait().unwrap(), [1, 20, 8]);
        // The owner drops it; the other still uses it, and its memory is not given out.
        drop(own);
        let filled = first.alloc_from(&[9_u64; 3000]).wait().unwrap();
        assert_eq!(theirs.to_vec().wait().unwrap(), [1, 20, 8]);
        drop(filled);
        assert!(allocated(&first) > 0);
        drop(theirs);
        until(|| allocated(&first) == 0);
        assert!(is_gone(second.import(&exported).wait(), "freed"));
    }
}

#[test]
fn a_share_that_reads_cannot_write() {
    for node in [node(16), isolated_node(16)] {
        let (first, second) = (connect(&[&node]), connect(&[&node]));
        let own = first.alloc_from(&[1_u64, 2, 3]).wait().unwrap();
        let exported = own.export(false).wait().unwrap();
        let theirs = second.import(&exported).wait().unwrap();
        assert_eq!(theirs.read(2).wait(), Ok(3));
        assert_eq!(theirs.write(0, &9).wait(), Err(PoolError::ReadOnly));
        assert_eq!(
            theirs.write_many(&[0], &[9]).wait(),
            Err(PoolError::ReadOnly)
        );
        assert_eq!(theirs.fetch_add(0, 9).wait(), Err(PoolError::ReadOnly));
        assert_eq!(
            theirs.ptr(1).write(&second, &9).wait(),
            Err(PoolError::ReadOnly)
        );
        drop(own);
        assert_eq!(theirs.to_vec().wait().unwrap(), [1, 2, 3]);
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert!(allocated(&first) > 0);
        drop(theirs);
        until(|| allocated(&first) == 0);
    }
}

#[test]
fn shared_memory_outlives_its_exporter() {
    for node in [node(16), isolated_node(16)] {
        let (first, second) = (connect(&[&node]), connect(&[&node]));
        let third = connect(&[&node]);
        let long: Vec<u64> = (0..30_000).collect();
        let own = first.alloc_from(&long).wait().unwrap();
        let exported = own.export(true).wait().unwrap();
        let theirs = second.import(&exported).wait().unwrap();
        drop((own, first));
        assert_eq!(theirs.to_vec().wait().unwrap(), long);
        // Nothing of it can be claimed by another.
        let rest = third.alloc::<u8>(16 << 16).wait().unwrap_err();
        assert!(matches!(rest, PoolError::Exhausted { .. }));
        assert!(is_gone(third.import(&exported).wait(), "has ended"));
        drop(theirs);
        until(|| third.alloc::<u8>(16 << 16).wait().is_ok());
    }
}

/// What the process of [`child`] imports, and where.
const IMPORTED: &str = "FARCORE_TEST_IMPORTED";
const NODE: &str = "FARCORE_TEST_NODE";

/// Not a test: a process that imports what its environment names, until it is killed.
#[test]
fn child() {
    let Ok(text) = std::env::var(IMPORTED) else {
        return;
    };
    let node = std::env::var(NODE).expect("it is set with the other");
    let pool = RemotePool::connect([node], PoolOptions::default()).unwrap();
    let exported: Exported<u64> = text.parse().unwrap();
    let theirs = pool.import(&exported).wait().unwrap();
    assert_eq!(theirs.read(0).wait(), Ok(7));
    println!("imported");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_share_of_one_that_died_is_not_counted_for_ever() {
    let node = node(16);
    let first = connect(&[&node]);
    let own = first.alloc_from(&[7_u64]).wait().unwrap();
    for may_write in [true, false] {
        let exported = own.export(may_write).wait().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shares::child", "--nocapture"])
            .env(IMPORTED, exported.to_string())
            .env(NODE, name(&node))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("imported")));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let exported = own.export(true).wait().unwrap();
    drop(own);
    until(|| allocated(&first) == 0);
    assert!(is_gone(first.import(&exported).wait(), "freed"));
}

#[test]
fn memory_is_transferred_to_one_owner() {
    let node = node(16);
    let (first, second) = (connect(&[&node]), connect(&[&node]));
    let third = connect(&[&node]);
    let own = first.alloc_from(&[1_u64, 2]).wait().unwrap();
    let exported = own.transfer().unwrap();
    assert_eq!(exported.access(), Access::Take);
    assert!(allocated(&first) > 0);
    let theirs = second.import(&exported).wait().unwrap();
    assert_eq!(theirs.to_vec().wait().unwrap(), [1, 2]);
    assert!(is_gone(
        third.import(&exported).wait(),
        "another process has taken it"
    ));
    drop(theirs);
    until(|| allocated(&first) == 0);
    assert!(is_gone(third.import(&exported).wait(), "freed"));
}

#[test]
fn a_share_spans_nodes_and_returns_to_its_own_pool() {
    let nodes = [node(16), node(16)];
    let all = [&nodes[0], &nodes[1]];
    let (first, second) = (connect(&all), connect(&[&nodes[1], &nodes[0]]));
    // 31 of 32 extents: one is left for the reference word.
    let long: Vec<u64> = (0..31 * 8192).collect();
    let own = first.alloc_from(&long).wait().unwrap();
    assert_eq!(own.nodes().len(), 2);
    let exported = own.export(true).wait().unwrap();
    let theirs = second.import(&exported).wait().unwrap();
    let same = first.import(&exported).wait().unwrap();
    drop(own);
    assert_eq!(theirs.to_vec().wait().unwrap(), long);
    drop(theirs);
    assert_eq!(same.to_vec().wait().unwrap(), long);
    assert!(allocated(&first) > 0);
    drop(same);
    until(|| allocated(&first) == 0);
    let alone = connect(&[&nodes[0]]);
    let own = first.alloc_from(&long).wait().unwrap();
    let exported = own.export(true).wait().unwrap();
    let error = alone.import(&exported).wait().unwrap_err();
    assert!(matches!(error, PoolError::OtherNode { .. }), "{error}");
}

#[test]
fn an_own_import_keeps_the_memory() {
    let node = node(16);
    let pool = connect(&[&node]);
    let own = pool.alloc_from(&[7_u64]).wait().unwrap();
    let exported = own.export(false).wait().unwrap();
    let same = pool.import(&exported).wait().unwrap();
    drop(own);
    let moved = pool
        .alloc_from(&[8_u64])
        .wait()
        .unwrap()
        .transfer()
        .unwrap();
    let moved = pool.import(&moved).wait().unwrap();
    // Longer than what the node's task looks at is left alone.
    std::thread::sleep(Duration::from_millis(1700));
    let filled: Vec<_> = (0..64)
        .map(|_| pool.alloc_from(&[9_u64]).wait().unwrap())
        .collect();
    assert_eq!((same.read(0).wait(), moved.read(0).wait()), (Ok(7), Ok(8)));
    drop((same, moved, filled));
    until(|| allocated(&pool) == 0);
}

#[test]
fn what_is_no_pointer_is_refused() {
    let node = node(16);
    let (first, second) = (connect(&[&node]), connect(&[&node]));
    let own = first.alloc_from(&[1_u64, 2]).wait().unwrap();
    let exported = own.export(true).wait().unwrap();
    let text = exported.to_string();
    let wrong = text.parse::<Exported<i64>>().unwrap_err();
    assert!(matches!(wrong, PoolError::WrongType { .. }));
    let json = serde_json::to_string(&exported).unwrap();
    let again: Exported<u64> = serde_json::from_str(&json).unwrap();
    assert_eq!(again.to_bytes(), exported.to_bytes());
    assert!(serde_json::from_str::<Exported<u8>>(&json).is_err());
    for wrong in ["", "!", &text[..text.len() - 4], &format!("{text}AAAA")] {
        let error = wrong.parse::<Exported<u64>>().unwrap_err();
        assert!(
            matches!(error, PoolError::Malformed { .. }),
            "{wrong}: {error}"
        );
    }
    // Any byte that is changed is noticed, or changes nothing that the node protects.
    let bytes = exported.to_bytes();
    for at in 0..bytes.len() {
        for bit in [0, 7] {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let Ok(exported) = Exported::<u64>::from_bytes(&changed) else {
                continue;
            };
            let imported: Result<RemoteSlice<u64>, _> = second.import(&exported).wait();
            if let Ok(imported) = imported {
                assert!(imported.len() <= 8192, "byte {at}");
                let _ = imported.to_vec().wait();
            }
        }
    }
    let embedded = RemotePool::embedded(1 << 20).unwrap();
    let here = embedded.alloc::<u64>(1).wait().unwrap();
    assert_eq!(here.export(true).wait().unwrap_err(), PoolError::Embedded);
    let theirs = second.import(&exported).wait().unwrap();
    assert!(is_gone(theirs.export(true).wait(), "imported"));
}
