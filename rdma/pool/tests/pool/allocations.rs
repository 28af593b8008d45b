//! Where memory is allocated, what is claimed for it, and what becomes of it.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use farcore_pool::{Placement, PoolError, PoolOptions, RemotePool};

use crate::nodes::{EXTENT, connect, connect_with, name, node, node_at, until};

fn claimed(pool: &RemotePool) -> Vec<u64> {
    let nodes = pool.nodes();
    nodes
        .iter()
        .map(|node| node.claimed_bytes / EXTENT)
        .collect()
}

#[test]
fn small_values_share_an_extent_and_return_it() {
    let one = node(16);
    let pool = connect(&[&one]);
    let boxes: Vec<_> = (0..100_u64)
        .map(|value| pool.alloc_box(value).wait().unwrap())
        .collect();
    assert_eq!(claimed(&pool), [1]);
    for (value, one) in (0..).zip(&boxes) {
        assert_eq!(one.read().wait().unwrap(), value);
    }
    drop(boxes);
    assert_eq!(pool.nodes()[0].allocated_bytes, 0);
    drop(pool);
    // The session has ended: the node has all of its memory back.
    let again = connect(&[&one]);
    let all = again.alloc::<u8>(16 << 16).wait().unwrap();
    assert_eq!(claimed(&again), [16]);
    let error = again.alloc::<u8>(1).wait().unwrap_err();
    assert!(
        matches!(error, PoolError::Exhausted { bytes: 1, .. }),
        "{error}"
    );
    drop(all);
    until(|| claimed(&again) == [0]);
}

#[test]
fn a_slice_spans_nodes() {
    let nodes = [node(16), node(16), node(16)];
    let pool = connect(&[&nodes[0], &nodes[1], &nodes[2]]);
    let count = usize::try_from(40 * EXTENT).unwrap() + 1000;
    let bytes: Vec<u8> = (0..count)
        .map(|at| (at * 7 % 251).to_le_bytes()[0])
        .collect();
    let slice = pool.alloc_from(&bytes).wait().unwrap();
    assert_eq!(slice.nodes().len(), 3);
    assert_eq!(slice.to_vec().wait().unwrap(), bytes);
    // Across every border.
    let mut some = [0; 64];
    for border in (1..40).map(|extent| extent * 65536 - 32) {
        slice.read_range(border, &mut some).wait().unwrap();
        assert_eq!(some, bytes[border..border + 64]);
    }
    let error = pool.alloc::<u8>(8 << 16).wait().unwrap_err();
    assert!(matches!(error, PoolError::Exhausted { .. }), "{error}");
    // What the failed attempt took is free again.
    assert!(pool.alloc::<u8>(7 << 16).wait().is_ok());
}

#[test]
fn memory_lies_where_the_placement_says() {
    let nodes = [node(16), node(16), node(16)];
    let zoned = ["a", "b", "b"].iter().zip(&nodes);
    let names = zoned.map(|(zone, node)| format!("{zone}={}", name(node)));
    let options = PoolOptions {
        zone: Some("a".to_owned()),
        ..PoolOptions::default()
    };
    let pool = RemotePool::connect(names, options).unwrap();
    for _ in 0..20 {
        assert_eq!(pool.alloc::<u8>(5000).wait().unwrap().nodes(), [0]);
        let second = pool.at(Placement::Node(1)).alloc::<u8>(5000).wait();
        assert_eq!(second.unwrap().nodes(), [1]);
        let zoned = pool
            .at(Placement::Zone("b".to_owned()))
            .alloc::<u8>(9)
            .wait();
        assert_ne!(zoned.unwrap().nodes(), [0]);
        let beside = pool.at(Placement::Beside(1)).alloc::<u8>(9).wait();
        assert_eq!(beside.unwrap().nodes(), [0]);
    }
    let spread = pool
        .at(Placement::Spread)
        .alloc::<u8>(9 << 16)
        .wait()
        .unwrap();
    let mut held = spread.nodes();
    held.sort_unstable();
    assert_eq!(held, [0, 1, 2]);
    let absent = pool
        .at(Placement::Zone("c".to_owned()))
        .alloc::<u8>(1)
        .wait();
    assert!(matches!(absent.unwrap_err(), PoolError::NoNode { .. }));
    assert!(pool.at(Placement::Beside(99)).alloc::<u8>(1).wait().is_ok());
    let huge = RemotePool::embedded(u64::MAX).unwrap_err();
    assert!(matches!(huge, PoolError::TooLong { .. }), "{huge}");
    let absent = pool.at(Placement::Node(3)).alloc::<u8>(1).wait();
    assert!(matches!(absent.unwrap_err(), PoolError::NoNode { .. }));
}

#[test]
fn a_full_node_is_passed_over() {
    let nodes = [node(16), node(16)];
    let pool = connect(&[&nodes[0], &nodes[1]]);
    let first = pool
        .at(Placement::Node(0))
        .alloc::<u8>(16 << 16)
        .wait()
        .unwrap();
    for _ in 0..16 {
        std::mem::drop(pool.alloc::<u8>(1000).wait().unwrap());
    }
    // One extent of it has a slab of small pieces.
    let kept: Vec<_> = (0..15).map(|_| pool.alloc::<u8>(60_000).wait()).collect();
    assert!(
        kept.iter()
            .all(|one| one.as_ref().is_ok_and(|one| one.nodes() == [1]))
    );
    drop(first);
}

#[test]
fn nothing_is_allocated_on_a_node_that_leaves() {
    let nodes = [node(16), node(16)];
    let pool = connect(&[&nodes[0], &nodes[1]]);
    let on = |node| pool.at(Placement::Node(node));
    let old = on(0).alloc_from(&[7_u64; 20_000]).wait().unwrap();
    let small: Vec<_> = (0..100_u64)
        .map(|value| on(0).alloc_box(value).wait().unwrap())
        .collect();
    // Memory that is kept for later.
    drop(on(0).alloc::<u8>(5_000).wait().unwrap());
    assert!(nodes[0].leave());
    until(|| pool.nodes()[0].is_leaving);
    assert!(pool.nodes()[0].is_up && !pool.nodes()[1].is_leaving);
    for count in [1, 3_000, 70_000, 200_000] {
        let new = pool.alloc::<u8>(count).wait().unwrap();
        assert_eq!(new.nodes(), [1], "{count} bytes");
        let spread = pool.at(Placement::Spread).alloc::<u8>(count).wait();
        assert_eq!(spread.unwrap().nodes(), [1], "{count} bytes");
    }
    let refused = on(0).alloc::<u8>(1).wait().unwrap_err();
    assert!(matches!(refused, PoolError::Leaving { .. }), "{refused}");
    assert!(refused.to_string().contains(&name(&nodes[0])), "{refused}");
    // What is there stays until it is freed.
    assert_eq!(old.to_vec().wait().unwrap(), [7; 20_000]);
    old.write(19_999, &8).wait().unwrap();
    assert_eq!(old.read(19_999).wait().unwrap(), 8);
    for (value, one) in (0..).zip(&small) {
        assert_eq!(one.read().wait().unwrap(), value);
    }
    let progress = || nodes[0].metrics().leave_progress().expect("it leaves");
    assert!(progress().extents > 0 && !progress().has_left);
    drop(old);
    drop(small);
    until(|| progress().has_left);
    assert_eq!((progress().extents, progress().sessions), (0, 1));
    assert_eq!(pool.nodes()[0].claimed_bytes, 0);
}

#[test]
fn threads_never_share_memory() {
    let nodes = [node(16), node(16)];
    let pool = connect(&[&nodes[0], &nodes[1]]);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0_u64..4 {
            let (pool, failures) = (&pool, &failures);
            scope.spawn(move || {
                let mut held = Vec::new();
                for step in 0..200_u64 {
                    let length = usize::try_from((step * 37 + number * 11) % 900 + 1).unwrap();
                    let mark = number << 32 | step;
                    let slice = pool.alloc_from(&vec![mark; length]).wait().unwrap();
                    held.push((mark, slice));
                    if step % 3 == 0 {
                        let (mark, slice) =
                            held.swap_remove(usize::try_from(step / 3 % 7).unwrap() % held.len());
                        let found = slice.to_vec().wait().unwrap();
                        if found.iter().any(|&word| word != mark) {
                            failures.lock().unwrap().push(mark);
                        }
                    }
                    if held.len() > 20 {
                        held.clear();
                    }
                }
            });
        }
    });
    assert_eq!(failures.into_inner().unwrap(), [0_u64; 0]);
}

#[test]
fn a_renewed_session_refuses_old_pointers() {
    let first = node(16);
    let address = first.address();
    let options = PoolOptions {
        timeout: Duration::from_secs(20),
        ..PoolOptions::default()
    };
    let pool = connect_with(&[&first], options);
    let word = pool.alloc_box(5_u64).wait().unwrap();
    let ptr = word.ptr();
    first.stop();
    let second = node_at(address, 16);
    // However long the new session takes, the old memory is lost, never another's.
    let lost = word.read().wait().unwrap_err();
    assert!(matches!(lost, PoolError::Renewed { .. }), "{lost}");
    assert!(matches!(
        ptr.read(&pool).wait(),
        Err(PoolError::Renewed { .. })
    ));
    let swapped = word.compare_and_swap(5, 6).wait();
    assert!(matches!(swapped, Err(PoolError::Renewed { .. })));
    assert!(word.loss().is_some());
    let again = pool.alloc_box(7_u64).wait().unwrap();
    assert_eq!(again.read().wait(), Ok(7));
    drop(word);
    assert_eq!(again.read().wait(), Ok(7));
    assert_eq!(pool.nodes()[0].renewals, 1);
    second.stop();
}

#[test]
fn two_copies_survive_the_loss_of_either() {
    let nodes = [node(32), node(32), node(32)];
    let options = PoolOptions {
        timeout: Duration::from_millis(500),
        ..PoolOptions::default()
    };
    let pool = connect_with(&[&nodes[0], &nodes[1], &nodes[2]], options);
    let twin = pool.alloc_twice::<u64>(50_000).wait().unwrap();
    let all: Vec<u64> = (0..50_000).collect();
    twin.write_range(0, &all).wait().unwrap();
    let [one, two] = twin.nodes()[..] else {
        panic!("{:?}", twin.nodes())
    };
    assert_ne!(one, two);
    let mut nodes = nodes.map(Some);
    let mut lose = |node: usize| {
        let node = nodes[node].take().expect("it runs");
        node.stop();
    };
    lose(one);
    for index in [0, 25_000, 49_999] {
        assert_eq!(twin.read(index).wait(), Ok(index as u64));
    }
    // The next write makes another copy, and then the first survivor is lost too.
    twin.write(7, &70).wait().unwrap();
    assert_eq!(twin.nodes().len(), 2);
    assert!(!twin.nodes().contains(&one));
    lose(two);
    let mut found = vec![0; 50_000];
    twin.read_range(0, &mut found).wait().unwrap();
    assert_eq!((found[7], found[8], found[49_999]), (70, 8, 49_999));
    twin.write(8, &80).wait().unwrap();
    assert_eq!(twin.read(8).wait(), Ok(80));
    assert!(twin.restore().wait().is_err());
    let last = twin.nodes();
    assert_eq!(last.len(), 1);
    assert!(twin.write(50_000, &1).wait().is_err());
    lose(last[0]);
    // The last copy may come back: it is not given up.
    let down = twin.write(8, &81).wait().unwrap_err();
    assert!(matches!(down, PoolError::Down { .. }), "{down}");
    assert_eq!(twin.nodes(), last);
    let lost = twin.read(8).wait().unwrap_err();
    assert!(matches!(lost, PoolError::Down { .. }), "{lost}");
    let alone = node(16);
    let pool = connect(&[&alone]);
    let error = pool.alloc_twice::<u8>(1).wait().unwrap_err();
    assert!(matches!(error, PoolError::NoNode { .. }), "{error}");
}

#[test]
fn a_node_that_is_gone_is_named_within_the_limit() {
    let (stays, goes) = (node(16), node(16));
    let options = PoolOptions {
        timeout: Duration::from_millis(300),
        ..PoolOptions::default()
    };
    let pool = connect_with(&[&stays, &goes], options);
    let here = pool.at(Placement::Node(0)).alloc_box(1_u64).wait().unwrap();
    let gone = pool.at(Placement::Node(1)).alloc_box(2_u64).wait().unwrap();
    let gone_name = name(&goes);
    goes.stop();
    match gone.read().wait().unwrap_err() {
        PoolError::Down { node, .. } => assert_eq!(node, gone_name),
        other => panic!("{other}"),
    }
    assert_eq!(here.read().wait(), Ok(1));
    // New memory comes from the node that answers.
    until(|| !pool.nodes()[1].is_up);
    for _ in 0..10 {
        assert_eq!(pool.alloc_box(3_u64).wait().unwrap().node(), Some(0));
    }
}

#[test]
fn nodes_that_cannot_be_used_are_named() {
    // Its address has another name.
    let one = node_at(([127, 0, 0, 1], 0).into(), 16);
    let quick = || PoolOptions {
        nodes_wait: Duration::from_millis(50),
        ..PoolOptions::default()
    };
    let nothing: [&str; 0] = [];
    for (nodes, wanted) in [
        (nothing.to_vec(), "name at least one"),
        (vec!["nonsense"], "no scheme"),
        (vec!["tcp://127.0.0.1:1"], "127.0.0.1:1"),
    ] {
        let error = RemotePool::connect(nodes, quick()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let name = name(&one);
    let twice = RemotePool::connect([&name, &name.replace("127.0.0.1", "localhost")], quick());
    let twice = twice.unwrap_err().to_string();
    assert!(twice.contains("same memory node"), "{twice}");
    let least = PoolOptions {
        nodes_min: Some(1),
        ..quick()
    };
    let pool = RemotePool::connect([&*name, "tcp://127.0.0.1:1"], least).unwrap();
    assert!(!pool.nodes()[1].is_up && pool.nodes()[1].reason.is_some());
    assert!(pool.alloc_box(1_u8).wait().is_ok());
}
