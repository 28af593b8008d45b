//! Collections through handles and core clients: with far nodes and encryption, their errors, and
//! how other calls see them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use farcore::{
    CollectionMetadata, Condition, Config, Cursor, Engine, Error, Expiry, ExpiryCondition,
    ExpiryOutcome, Operation, ScanOptions, TreeBound, TreeCondition, TreeGuard, TreeKind, TreeOp,
    TreeStored, TreeValues,
};

use crate::support::{every_encryption, key, tiny, value};

/// Elements enough that most nodes are far.
const ELEMENTS: u64 = 60_000;

fn element(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

#[test]
fn a_long_map_is_in_order_with_far_nodes() {
    for config in every_encryption(tiny()) {
        let engine = Engine::open(config).unwrap();
        let mut handle = engine.handle().unwrap();
        let mut map = handle.tree(b"map");
        for number in 0..ELEMENTS {
            let stored = map.insert(&element(number), &value(number, 0)[..40]).wait();
            assert_eq!(stored, Ok(TreeStored::Added));
        }
        let length = map.len().wait().unwrap();
        assert_eq!((length.elements, length.bytes), (ELEMENTS, ELEMENTS * 48));
        let mut sorted: Vec<_> = (0..ELEMENTS).map(element).collect();
        sorted.sort_unstable();
        for rank in (0..ELEMENTS).step_by(997) {
            let at = &sorted[usize::try_from(rank).unwrap()];
            assert_eq!(map.rank(at).wait(), Ok(Some(rank)));
            let page = map.range_by_rank(rank, rank + 1, false, 1).wait().unwrap();
            assert_eq!(page.first().unwrap().0, at);
        }
        let mut seen = 0;
        let mut last: Option<Vec<u8>> = None;
        loop {
            let from = last
                .as_deref()
                .map_or(TreeBound::Unbounded, TreeBound::Excluded);
            let page = map
                .range(from, TreeBound::Unbounded, false, 1_000)
                .wait()
                .unwrap();
            for (key, value) in page.iter() {
                assert_eq!((key, value.len()), (&sorted[seen][..], 40));
                seen += 1;
            }
            last = page.last().map(|(key, _)| key.to_vec());
            if !page.has_more() {
                break;
            }
        }
        assert_eq!(seen as u64, ELEMENTS);
        for number in (0..ELEMENTS).step_by(3) {
            let found = map.remove(&element(number)).wait().unwrap();
            assert_eq!(&*found.unwrap(), &value(number, 0)[..40]);
        }
        assert_eq!(map.len().wait().unwrap().elements, ELEMENTS / 3 * 2);
        assert!(map.get(&element(3)).wait().unwrap().is_none());
        assert!(map.get(&element(4)).wait().unwrap().is_some());
        assert_eq!(handle.len().unwrap(), 1);
    }
}

#[test]
fn a_queue_through_a_core_client_keeps_its_order() {
    let engine = Engine::open(tiny()).unwrap();
    let job = async move |mut core: farcore::Core| {
        let mut queue = core.tree(b"queue");
        for number in 0..5_000u32 {
            let value = number.to_be_bytes();
            let length = queue.push_last(&[&value]).await.unwrap();
            assert_eq!(length, Some(u64::from(number) + 1));
        }
        let mut next = 0u32;
        loop {
            let page = queue.pop_first(100).await.unwrap();
            for (_, value) in page.iter() {
                assert_eq!(value, next.to_be_bytes());
                next += 1;
            }
            if !page.has_more() {
                break;
            }
        }
        assert_eq!(next, 5_000);
        assert_eq!(queue.len().await.unwrap().elements, 0);
        assert_eq!(core.len().await.unwrap(), 0);
    };
    engine.run_on_core(0, job).unwrap().join().unwrap();
}

#[test]
fn what_replaces_makes_a_collection_of_its_elements_alone() {
    let engine = Engine::open(tiny()).unwrap();
    let job = async move |mut core: farcore::Core| {
        let values: Vec<_> = (0..300u32).map(u32::to_be_bytes).collect();
        let values: Vec<&[u8]> = values.iter().map(|value| &value[..]).collect();
        for elements in [0, 1, 3_000] {
            for is_list in [true, false] {
                for number in 0..elements {
                    if is_list {
                        core.tree(b"key").push_last(&[b"old"]).await.unwrap();
                    } else {
                        let key = element(number);
                        let stored = core.tree(b"key").insert(&key, b"old").await;
                        assert_eq!(stored, Ok(TreeStored::Added));
                    }
                }
                if elements == 0 {
                    core.put(b"key", b"plain").await.unwrap();
                }
                let (expiry, always) = (Expiry::At(u64::MAX >> 8), ExpiryCondition::Always);
                let set = core.expire(b"key", expiry, always).await;
                assert!(matches!(set, Ok(ExpiryOutcome::Set(_))));
                let op = TreeOp::Push {
                    front: false,
                    exists: false,
                    replaces: true,
                    values: TreeValues::Slices(&values),
                };
                let (key, guard) = (b"key", TreeGuard::default());
                let push = Operation::Tree { key, op, guard };
                let mut count = None;
                let pushed = core.many([push], |_, answer| {
                    count = answer.value().first_chunk().copied();
                });
                pushed.await.unwrap();
                assert_eq!(count.map(u64::from_le_bytes), Some(300));
                let metadata = core.inspect(b"key").await.unwrap().unwrap();
                assert_eq!(metadata.expiry_ms, None);
                let mut list = core.tree(b"key");
                let page = list.range_by_rank(0, 400, false, 400).await.unwrap();
                assert!(
                    page.iter()
                        .map(|(_, value)| value)
                        .eq(values.iter().copied())
                );
                core.delete(b"key").await.unwrap();
            }
        }
    };
    engine.run_on_core(0, job).unwrap().join().unwrap();
}

#[test]
fn other_calls_see_one_key_and_no_value() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    handle.put(b"plain", b"value").wait().unwrap();
    for number in 0..2_000 {
        let stored = handle
            .tree(b"map")
            .insert(&element(number), b"value")
            .wait();
        assert_eq!(stored, Ok(TreeStored::Added));
    }
    assert_eq!(handle.len().unwrap(), 2);
    let known = handle.inspect(b"map").wait().unwrap().unwrap();
    assert_eq!(known.length, 2_000 * 13);
    let collection = CollectionMetadata {
        kind: TreeKind::Map,
        elements: 2_000,
    };
    assert_eq!(known.collection, Some(collection));
    let plain = handle.inspect(b"plain").wait().unwrap().unwrap();
    assert_eq!(plain.collection, None);
    let refused = Err(Error::Collection);
    assert_eq!(handle.get(b"map").wait().map(drop), refused);
    assert_eq!(handle.get_range(b"map", 0, 5).wait().map(drop), refused);
    assert_eq!(handle.append(b"map", b"tail").wait().map(drop), refused);
    assert_eq!(handle.increment(b"map", 1).wait().map(drop), refused);
    assert_eq!(handle.get_and_put(b"map", b"new").wait().map(drop), refused);
    assert_eq!(handle.get_and_delete(b"map").wait().map(drop), refused);
    let mut plain = handle.tree(b"plain");
    assert_eq!(plain.get(b"a").wait().map(drop), Err(Error::NoCollection));
    assert_eq!(plain.push_last(&[b"a"]).wait(), Err(Error::NoCollection));
    let mut map = handle.tree(b"map");
    let kind = TreeKind::Map;
    let wrong = Err(Error::CollectionKind { kind });
    assert_eq!(map.push_last(&[b"a"]).wait(), wrong);
    let long = map.insert(&[1; 1025], b"").wait();
    assert!(matches!(
        long,
        Err(Error::KeyTooLong {
            bytes: 1025,
            max: 1024
        })
    ));
    let most = map.insert(b"long", &vec![1; 33_000]).wait();
    assert!(matches!(most, Err(Error::ValueTooLong { .. })), "{most:?}");
    let unmet = map
        .insert_if(&element(1), b"other", TreeCondition::IfAbsent)
        .wait();
    assert_eq!(unmet, Ok(TreeStored::Unmet));
    assert_eq!(map.len().wait().unwrap().version, known.version);

    let page = handle.scan(Cursor::START, ScanOptions::default()).unwrap();
    let mut seen: Vec<_> = page
        .entries()
        .map(|entry| (entry.key.to_vec(), entry.collection))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [(b"map".to_vec(), true), (b"plain".to_vec(), false)]);
    let of_map = page.entries().find(|entry| entry.collection);
    let version = of_map.map(|entry| entry.version);
    assert_eq!(version, Some(known.version), "that of its last change");
}

#[test]
fn a_collection_ends_with_its_key() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let ends: [fn(&mut farcore::Handle); 5] = [
        |handle| assert!(handle.delete(b"map").wait().unwrap()),
        |handle| {
            let version = handle.put(b"map", b"value").wait().unwrap();
            assert!(version > 0);
        },
        |handle| {
            let put = handle.put_if(b"map", b"value", Condition::Present);
            let _ = put.wait().unwrap();
        },
        |handle| {
            let past = Expiry::At(1);
            let _ = handle
                .expire(b"map", past, ExpiryCondition::Always)
                .wait()
                .unwrap();
        },
        |handle| {
            let always = ExpiryCondition::Always;
            let soon = Expiry::In(3_600_000);
            let _ = handle.expire(b"map", soon, always).wait().unwrap();
            assert_eq!(handle.tree(b"map").len().wait().unwrap().elements, 3_000);
            assert!(handle.persist(b"map").wait().unwrap());
            assert!(handle.delete(b"map").wait().unwrap());
        },
    ];
    for (round, end) in (0..).zip(ends) {
        for number in 0..3_000 {
            let stored = handle
                .tree(b"map")
                .insert(&element(number), &value(number, round)[..20])
                .wait();
            assert_eq!(stored, Ok(TreeStored::Added));
        }
        end(&mut handle);
        handle.delete(b"map").wait().unwrap();
        assert_eq!(handle.tree(b"map").len().wait().unwrap().elements, 0);
        assert_eq!(handle.len().unwrap(), 0);
    }
    // What it took is free again: more than fits at once has come and gone.
    for round in 0..40 {
        let values: Vec<_> = (0..40).map(|number| value(number, round)).collect();
        let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        for _ in 0..100 {
            let mut list = handle.tree(b"list");
            let pushed = list.push_first(&slices[..20]).wait().unwrap();
            assert!(pushed.is_some());
        }
        handle.delete(b"list").wait().unwrap();
    }
    for number in 0..1_000 {
        handle.put(&key(number), &value(number, 0)).wait().unwrap();
    }
}

#[test]
fn a_collection_does_not_outlive_clear() {
    let engine = Engine::open(Config {
        far_bytes: 32 << 20,
        ..tiny()
    })
    .unwrap();
    let mut handle = engine.handle().unwrap();
    for number in 0..20_000 {
        let mut map = handle.tree(b"map");
        let stored = map.insert(&element(number), &[7; 30]).wait().unwrap();
        assert_eq!(stored, TreeStored::Added);
    }
    assert_eq!(handle.clear().unwrap(), 1);
    assert_eq!(handle.tree(b"map").len().wait().unwrap().elements, 0);
    let stored = handle.tree(b"map").insert(b"a", b"b").wait().unwrap();
    assert_eq!(stored, TreeStored::Added);
}

#[test]
fn threads_share_a_collection_through_a_client() {
    let engine = Engine::open(tiny()).unwrap();
    let client = engine.client().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let client = &client;
            scope.spawn(move || {
                let map = client.tree(b"map");
                for number in 0..1_000 {
                    let key = element(3 * number + thread);
                    let stored = map.insert(&key, &key).wait().unwrap();
                    assert_eq!(stored, TreeStored::Added);
                }
            });
        }
    });
    let map = client.tree(b"map");
    assert_eq!(map.len().wait().unwrap().elements, 3_000);
    let found = map.get(&element(77)).wait().unwrap().unwrap();
    assert_eq!(*found, element(77));
}

#[test]
fn a_push_of_too_many_values_changes_nothing() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let mut list = handle.tree(b"list");
    let values = vec![&b"v"[..]; 1025];
    let refused = list.push_last(&values).wait();
    let (elements, max) = (1025, 1024);
    assert_eq!(refused, Err(Error::TooManyElements { elements, max }));
    assert_eq!(list.len().wait().unwrap().elements, 0);
    assert_eq!(list.push_last(&values[..1024]).wait(), Ok(Some(1024)));
    assert_eq!(list.push_first(&values[..1024]).wait(), Ok(Some(2048)));
}

#[test]
fn elements_are_counted_by_key_and_set_by_their_value() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let mut map = handle.tree(b"map");
    let all = (TreeBound::Unbounded, TreeBound::Unbounded);
    assert_eq!(map.count(all.0, all.1).wait(), Ok(Some(0)));
    assert_eq!(
        map.compare_and_set(b"b", Some(b"1"), Some(b"2")).wait(),
        Ok(false)
    );
    assert_eq!(map.compare_and_set(b"b", None, Some(b"1")).wait(), Ok(true));
    assert_eq!(
        map.compare_and_set(b"b", None, Some(b"2")).wait(),
        Ok(false)
    );
    assert_eq!(
        map.compare_and_set(b"b", Some(b"1"), Some(b"2")).wait(),
        Ok(true)
    );
    assert_eq!(&*map.get(b"b").wait().unwrap().unwrap(), b"2");
    for element in [b"a", b"c", b"d"] {
        let _ = map.insert(element, b"value").wait().unwrap();
    }
    for (from, to, count) in [
        (all.0, all.1, 4),
        (TreeBound::Included(b"b"), TreeBound::Excluded(b"d"), 2),
        (TreeBound::Excluded(b"b"), TreeBound::Included(b"d"), 2),
        (TreeBound::Included(b"d"), TreeBound::Excluded(b"b"), 0),
    ] {
        assert_eq!(
            map.count(from, to).wait(),
            Ok(Some(count)),
            "{from:?} {to:?}"
        );
    }
    assert_eq!(map.compare_and_set(b"b", Some(b"2"), None).wait(), Ok(true));
    assert_eq!(map.count(all.0, all.1).wait(), Ok(Some(3)));
    let queue = handle.tree(b"queue").push_last(&[b"value"]).wait();
    assert_eq!(queue, Ok(Some(1)));
    let kind = TreeKind::List;
    let is_list = Err(Error::CollectionKind { kind });
    let mut queue = handle.tree(b"queue");
    assert_eq!(queue.count(all.0, all.1).wait(), is_list);
    let kind = TreeKind::List;
    let is_list = Err(Error::CollectionKind { kind });
    assert_eq!(queue.compare_and_set(b"b", None, None).wait(), is_list);
    drop(handle);
    let job = async move |mut core: farcore::Core| {
        let mut map = core.tree(b"map");
        assert_eq!(map.count(all.0, all.1).await, Ok(Some(3)));
        assert_eq!(
            map.compare_and_set(b"a", Some(b"value"), None).await,
            Ok(true)
        );
        assert_eq!(map.count(all.0, all.1).await, Ok(Some(2)));
    };
    engine.run_on_core(0, job).unwrap().join().unwrap();
}
