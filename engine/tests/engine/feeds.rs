//! Feeds: all changes of an engine, for a reader that passes them on.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::task::Waker;
use std::time::Duration;

use farcore::{Engine, Expiry, Fed, FedBody, Feed, PutOptions, TreeOp, Version};

use crate::support::{key, tiny};

/// What a shard has said, taken apart: key, version, whether the step goes on, and what happened.
fn taken(feed: &Feed, shard: usize) -> Vec<(Vec<u8>, Version, bool, String)> {
    let mut all = Vec::new();
    while let Some(chunk) = feed.take(shard) {
        let mut rest = &chunk[..];
        while let Some((fed, bytes)) = Fed::parse(rest) {
            let what = match fed.body {
                FedBody::Put { value, expiry_ms } => {
                    format!("put {} {}", value.len(), expiry_ms.is_some())
                }
                FedBody::Tree(effect) => {
                    let name = match effect.op {
                        TreeOp::Update { .. } => "update",
                        TreeOp::Push { .. } => "push",
                        TreeOp::Insert { .. } => "insert",
                        _ => "other",
                    };
                    let (begins, after) = (effect.begins, effect.after);
                    format!("{name} {begins} {} {after}", effect.before)
                }
                FedBody::SectionBegins { shards, .. } => format!("section of {shards}"),
                body => format!("{body:?}"),
            };
            all.push((fed.key.to_vec(), fed.version, fed.has_more, what));
            rest = &rest[bytes..];
        }
        assert!(rest.is_empty(), "a chunk has whole entries");
        feed.give_back(shard, chunk);
    }
    all
}

/// What all shards have said of one key.
fn of_key(feed: &Feed, wanted: &[u8]) -> Vec<String> {
    let shards = 0..feed.shards();
    let all = shards.flat_map(|shard| taken(feed, shard));
    all.filter(|(key, ..)| key == wanted)
        .map(|(.., what)| what)
        .collect()
}

#[test]
fn what_is_answered_is_in_a_feed() {
    let engine = Engine::open(tiny()).unwrap();
    let feed = engine.feed();
    let mut handle = engine.handle().unwrap();
    handle.put(b"before", b"v").wait().unwrap();
    assert!(feed.start(Waker::noop()) && feed.wait());
    let mut versions = vec![0; feed.shards()];
    for number in 0..2000 {
        let key = key(number);
        handle.put(&key, &[7; 20]).wait().unwrap();
        let shard = engine.shard_of(&key);
        let said = taken(&feed, shard);
        assert_eq!(said.len(), 1, "it is there once the put is answered");
        assert_eq!((&said[0].0, &said[0].3[..]), (&key, "put 20 false"));
        assert!(said[0].1 > versions[shard] && feed.noted(shard) > 0);
        versions[shard] = said[0].1;
    }
    assert!(of_key(&feed, b"before").is_empty());
    let options = PutOptions {
        expiry: Expiry::In(1_000_000),
        ..PutOptions::default()
    };
    let _ = handle.put_with(b"k", b"v", options).wait().unwrap();
    handle.delete(b"k").wait().unwrap();
    handle.delete(b"k").wait().unwrap();
    assert_eq!(of_key(&feed, b"k"), ["put 1 true", "Delete"]);
    let _ = handle.tree(b"t").insert(b"a", b"1").wait().unwrap();
    handle.tree(b"t").push_last(&[b"x"]).wait().unwrap_err();
    handle.tree(b"t").len().wait().unwrap();
    let _ = handle.tree(b"t").insert(b"b", b"2").wait().unwrap();
    assert_eq!(of_key(&feed, b"t"), ["insert true 0 1", "insert false 1 2"]);

    // Sections say over how many shards they are.
    let two = [0, 1].map(|shard| {
        (0..)
            .map(key)
            .find(|key| engine.shard_of(key) == shard)
            .unwrap()
    });
    let keys: Vec<_> = two.iter().map(|key| &key[..]).collect();
    let section = handle.section(&keys, |under| {
        for key in &keys {
            under.put(key, b"both").wait()?;
        }
        farcore::Result::Ok(())
    });
    section.unwrap().unwrap();
    for shard in 0..2 {
        let said: Vec<_> = taken(&feed, shard)
            .into_iter()
            .map(|(.., what)| what)
            .collect();
        assert_eq!(said, ["section of 2", "put 4 false", "SectionEnds"]);
    }

    // One that ends says no more, and another one begins with nothing.
    feed.stop();
    handle.put(b"late", b"v").wait().unwrap();
    assert!(feed.start(Waker::noop()));
    assert!(of_key(&feed, b"late").is_empty());
    handle.put(b"late", b"v").wait().unwrap();
    assert_eq!(of_key(&feed, b"late"), ["put 1 false"]);
}

#[test]
fn changes_wait_for_a_reader_that_takes_nothing() {
    let engine = Engine::open(tiny()).unwrap();
    let feed = engine.feed();
    assert!(feed.start(Waker::noop()));
    let writer = std::thread::spawn({
        let mut handle = engine.handle().unwrap();
        move || {
            for _ in 0..40_000 {
                handle.put(b"k", &[1; 400]).wait().unwrap();
            }
        }
    });
    let shard = engine.shard_of(b"k");
    let (mut count, mut bytes) = (0, 0);
    while count < 40_000 {
        // It is taken only once the shard has stopped.
        let mut last = 0;
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let now = engine.stats().total.puts;
            if std::mem::replace(&mut last, now) == now {
                break;
            }
        }
        while let Some(chunk) = feed.take(shard) {
            bytes += chunk.len();
            let mut rest = &chunk[..];
            while let Some((_, length)) = Fed::parse(rest) {
                (count, rest) = (count + 1, &rest[length..]);
            }
            feed.give_back(shard, chunk);
        }
    }
    writer.join().unwrap();
    assert!(bytes > 16_000_000, "more than a feed keeps: {bytes}");
}
