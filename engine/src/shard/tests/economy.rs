//! What a shard guarantees about bytes: exact live bytes, bounded reads, far memory that is
//! returned, and no plaintext in far memory.

use super::wire::Wire;
use super::{ENCRYPTIONS, Owned, Random, Reactor, Setting};
use crate::message::operation::Operation;
use crate::shard::Shard;

#[test]
fn live_bytes_are_exact() {
    let mut reactor = Reactor::new(&Setting::default());
    for round in 0..4u64 {
        for key in 0..8_000u64 {
            let value = vec![round as u8; 200 + (key % 300) as usize];
            let name = key.to_le_bytes();
            assert!(matches!(
                reactor.call(Operation::Put {
                    key: &name,
                    value: &value
                }),
                Owned::Stored(_)
            ));
        }
        reactor.check();
        for key in (0..8_000u64).step_by(3) {
            assert_eq!(
                reactor.call(Operation::Delete {
                    key: &key.to_le_bytes()
                }),
                Owned::Deleted
            );
        }
        reactor.check();
    }
    assert!(reactor.shard.metrics.counters.snapshot().compaction_pages > 0);
}

#[test]
fn far_memory_holds_no_plaintext() {
    let secret = b"PLAINTEXT-THAT-MUST-NOT-BE-SEEN!";
    for encryption in ENCRYPTIONS {
        let mut reactor = Reactor::new(&Setting {
            encryption,
            ..Setting::default()
        });
        for key in 0..8_000u64 {
            let key_bytes = key.to_le_bytes();
            let value = secret.repeat(8);
            reactor.call(Operation::Put {
                key: &key_bytes,
                value: &value,
            });
            // The value before a shorter one does not stay in the clear either.
            if key % 5 == 0 {
                reactor.call(Operation::Put {
                    key: &key_bytes,
                    value: b"short",
                });
            }
        }
        reactor.shard.start_flush();
        while reactor.shard.flush_done().is_none() {
            reactor.advance();
        }
        assert!(reactor.shard.metrics.counters.snapshot().pages_flushed > 10);
        // SAFETY: no request is in flight.
        let far = unsafe { reactor.nodes[0].copy_for_inspection() };
        assert!(far.iter().any(|&byte| byte != 0), "far memory was written");
        // This search finds it without encryption: the test can fail.
        let found = far.windows(secret.len()).any(|window| window == secret);
        assert_eq!(found, encryption.is_none(), "{encryption:?}");
    }
}

#[test]
fn a_log_order_scan_reads_ahead() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 32 << 20,
        ..Setting::default()
    });
    let keys = 40_000u64;
    for key in 0..keys {
        reactor.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &[7; 200],
        });
    }
    let before = reactor.shard.metrics.counters.snapshot();
    for key in 0..keys / 2 {
        let answer = reactor.call(Operation::Get {
            key: &key.to_le_bytes(),
        });
        assert!(matches!(answer, Owned::Value(_, bytes) if bytes == [7; 200]));
    }
    let after = reactor.shard.metrics.counters.snapshot();
    let reads = after.far_reads - before.far_reads;
    assert!(
        reads * 16 <= keys / 2,
        "{reads} READs for {} records",
        keys / 2
    );
}

#[test]
fn random_reads_move_little_more_than_the_records() {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 32 << 20,
        ..Setting::default()
    });
    let keys = 40_000u64;
    let mut random = Random(3);
    for key in 0..keys {
        let bytes = 80 + random.below(400) as usize;
        reactor.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &vec![7; bytes],
        });
    }
    let before = reactor.shard.metrics.counters.snapshot();
    for _ in 0..20_000 {
        let key = random.below(keys);
        reactor.call(Operation::Get {
            key: &key.to_le_bytes(),
        });
    }
    let after = reactor.shard.metrics.counters.snapshot();
    let moved = after.far_read_bytes - before.far_read_bytes;
    let wanted = after.far_wanted_bytes - before.far_wanted_bytes;
    assert!(
        moved > 0 && moved * 10 <= wanted * 12,
        "{moved} bytes moved for {wanted}"
    );
}

#[test]
fn deleting_most_keys_frees_far_memory() {
    // Pages that are mostly dead and pages that are mostly alive: neither may take much memory.
    for kept_of_ten in [2, 6] {
        deleting_gives_far_memory_back(kept_of_ten);
    }
}

#[test]
fn a_page_of_dead_records_keeps_the_shard_awake() {
    let mut reactor = Reactor::new(&Setting::default());
    for key in 0..2_000u64 {
        let key = key.to_le_bytes();
        reactor.call(Operation::Put {
            key: &key,
            value: &[7; 200],
        });
    }
    while !reactor.shard.is_quiet() {
        reactor.advance();
    }
    for key in 0..600u64 {
        let key = key.to_le_bytes();
        assert!(reactor.offer(key[0].into(), Operation::Delete { key: &key }));
    }
    assert!(!reactor.shard.is_quiet());
    while !reactor.shard.is_quiet() {
        reactor.advance();
    }
}

fn deleting_gives_far_memory_back(kept_of_ten: u64) {
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 32 << 20,
        ..Setting::default()
    });
    let keys = 60_000u64;
    for key in 0..keys {
        reactor.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &[7; 200],
        });
    }
    for key in (0..keys).filter(|key| key % 10 >= kept_of_ten) {
        assert_eq!(
            reactor.call(Operation::Delete {
                key: &key.to_le_bytes()
            }),
            Owned::Deleted
        );
    }
    for _ in 0..100_000 {
        reactor.advance();
        if reactor.shard.is_quiet() {
            break;
        }
    }
    let live: u64 = reactor
        .shard
        .local
        .pages
        .iter()
        .filter(|&(number, _)| reactor.shard.far.pages.holds(number))
        .map(|(_, page)| page.live_bytes)
        .sum();
    let used = reactor.shard.far.pages.used_bytes();
    assert!(
        used * 10 <= live * 13 && live > 20 * (64 << 10),
        "{used} bytes in use for {live} alive"
    );
    for key in (0..keys).filter(|key| key % 10 < kept_of_ten) {
        let answer = reactor.call(Operation::Get {
            key: &key.to_le_bytes(),
        });
        assert!(matches!(answer, Owned::Value(..)), "{key}: {answer:?}");
    }
}

#[test]
fn the_index_takes_only_spare_memory() {
    /// Index bytes for each expected key of a new shard.
    fn bytes_a_key(local_bytes: usize, keys: u64) -> f64 {
        let reactor = Reactor::new(&Setting {
            local_bytes,
            keys_expected: keys,
            ..Setting::default()
        });
        reactor.shard.index.bytes() as f64 / keys as f64
    }
    let keys = 200_000;
    let [none, some, all] = [300, 480, 700].map(|each| bytes_a_key(keys as usize * each, keys));
    assert!(none <= 10.0, "{none}: a 32nd is less than the keys need");
    assert!((12.0..=16.0).contains(&some), "{some}: a 32nd is 15 bytes");
    assert!(
        (19.0..=20.0).contains(&all),
        "{all}: twice what the keys need"
    );
    // The smallest shard has none to spare, and works.
    let least = Shard::<Wire>::local_bytes_min(64 << 10, 1_000);
    assert_eq!(Shard::<Wire>::keys_sized_for(least, 64 << 10, 1_000), 1_000);
    assert!(bytes_a_key(usize::try_from(least).unwrap(), 1_000) > 0.0);
}
