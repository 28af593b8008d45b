//! The hot paths alone, prepared for measurement: gets, puts, deletes, a lane crossing, and
//! sealing. Both benchmarks share them, so instructions and times are of the same code.

use farcore::internals::{BareCipher, BareLane, BareShard};
use farcore::{Answer, Config, EncryptionKey, Operation};

/// Requests of one measurement.
pub(crate) const REQUESTS: usize = 1024;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 128;
/// Keys of a shard that is all local.
const KEYS_LOCAL: u64 = 100_000;
/// Keys of a shard of which about a fifth is local.
const KEYS_FAR: u64 = 200_000;
const FRAMES_BYTES: usize = 16 << 10;

type Key = [u8; KEY_BYTES];

fn key(number: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// Keys in random order.
fn some_keys(below: u64) -> Vec<Key> {
    let place = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % below;
    (0..REQUESTS as u64)
        .map(|number| key(place(number)))
        .collect()
}

/// A filled shard, and the keys to request.
pub(crate) struct Prepared {
    shard: BareShard,
    keys: Vec<Key>,
}

fn filled(keys: u64, local_bytes: u64, requested: Vec<Key>) -> Prepared {
    let config = Config {
        local_bytes,
        far_bytes: 256 << 20,
        keys_expected: keys,
        // Makes each far get a READ of its own.
        read_ahead_chunks: 0,
        ..Config::default()
    };
    let mut shard = BareShard::open(config).expect("a shard");
    let value = [7; VALUE_BYTES];
    for first in (0..keys).step_by(REQUESTS) {
        let names: Vec<Key> = (first..keys.min(first + REQUESTS as u64))
            .map(key)
            .collect();
        let puts: Vec<_> = names
            .iter()
            .map(|key| Operation::Put { key, value: &value })
            .collect();
        shard.serve(&puts, &mut |_, answer| {
            assert!(matches!(answer, Answer::Stored { .. }));
        });
    }
    let mut ready = Prepared {
        shard,
        keys: requested,
    };
    // The first run brings code and tables into the caches.
    get(&mut ready);
    ready
}

/// Gets of local keys, in an index with plenty of memory.
pub(crate) fn local() -> Prepared {
    filled(KEYS_LOCAL, 64 << 20, some_keys(KEYS_LOCAL))
}

/// Gets of absent keys, in an index as full as it gets.
pub(crate) fn absent() -> Prepared {
    let keys = some_keys(KEYS_LOCAL);
    let other = keys.into_iter().map(|mut key| {
        key[KEY_BYTES - 1] = 1;
        key
    });
    filled(KEYS_LOCAL, 28 << 20, other.collect())
}

/// Gets of keys that are mostly far.
pub(crate) fn far() -> Prepared {
    filled(KEYS_FAR, 12 << 20, some_keys(KEYS_FAR / 2))
}

/// Probe, compare, answer; or READ, verify, answer.
pub(crate) fn get(prepared: &mut Prepared) -> usize {
    let gets: Vec<_> = prepared
        .keys
        .iter()
        .map(|key| Operation::Get { key })
        .collect();
    let mut bytes = 0;
    prepared.shard.serve(&gets, &mut |_, answer| {
        if let Answer::Value { value, .. } = answer {
            bytes += value.len();
        }
    });
    bytes
}

/// Probe, append or update in place, answer.
pub(crate) fn put(prepared: &mut Prepared) -> u64 {
    let value = [9; VALUE_BYTES];
    let puts: Vec<_> = prepared
        .keys
        .iter()
        .map(|key| Operation::Put { key, value: &value })
        .collect();
    let mut last = 0;
    prepared.shard.serve(&puts, &mut |_, answer| {
        if let Answer::Stored { version } = answer {
            last = version;
        }
    });
    last
}

/// New keys, put and deleted again.
pub(crate) fn churn(prepared: &mut Prepared) -> usize {
    put(prepared);
    let deletes: Vec<_> = prepared
        .keys
        .iter()
        .map(|key| Operation::Delete { key })
        .collect();
    let mut deleted = 0;
    prepared.shard.serve(&deletes, &mut |_, answer| {
        deleted += usize::from(answer == Answer::Deleted);
    });
    assert_eq!(deleted, prepared.keys.len());
    deleted
}

/// A lane, and the keys that cross it.
pub(crate) struct Crossing {
    lane: BareLane,
    keys: Vec<Key>,
}

pub(crate) fn crossing() -> Crossing {
    Crossing {
        lane: BareLane::new(64 << 10),
        keys: some_keys(KEYS_LOCAL),
    }
}

/// Sends requests and receives values.
pub(crate) fn cross(crossing: &mut Crossing) -> usize {
    let value = [7; VALUE_BYTES];
    let mut bytes = 0;
    for keys in crossing.keys.chunks(64) {
        let gets: Vec<_> = keys.iter().map(|key| Operation::Get { key }).collect();
        let took = crossing
            .lane
            .round_trip(&gets, (1, &value), &mut |_, answer| {
                if let Answer::Value { value, .. } = answer {
                    bytes += value.len();
                }
            });
        assert!(took);
    }
    bytes
}

/// A cipher and its data.
pub(crate) struct Sealing {
    cipher: BareCipher,
    data: Vec<u8>,
}

pub(crate) fn sealing() -> Sealing {
    Sealing {
        cipher: BareCipher::new(&EncryptionKey::Aes128([7; 16])),
        data: vec![1; FRAMES_BYTES],
    }
}

/// The bytes of 128 records, one at a time, as far gets open them.
pub(crate) fn open(sealing: &mut Sealing) -> u8 {
    for (record, unit) in sealing.data.chunks_mut(128).zip((0..).step_by(8)) {
        sealing.cipher.apply(1, unit, record);
    }
    sealing.data[0]
}

/// Bytes of a record and its tag.
const SEALED_BYTES: usize = 128 + 16;

/// Records with their tags, and room to open them.
pub(crate) struct Tagged {
    cipher: BareCipher,
    sealed: Vec<u8>,
    opened: Vec<u8>,
}

pub(crate) fn tagged() -> Tagged {
    let mut tagged = Tagged {
        cipher: BareCipher::new(&EncryptionKey::Aes128([7; 16])),
        sealed: vec![0; FRAMES_BYTES / 128 * SEALED_BYTES],
        opened: vec![1; FRAMES_BYTES / 128 * SEALED_BYTES],
    };
    seal_tagged(&mut tagged);
    tagged
}

/// As many bytes of records as in `open`, one at a time, each verified by its tag.
pub(crate) fn open_tagged(tagged: &mut Tagged) -> u8 {
    let records = tagged.sealed.chunks(SEALED_BYTES);
    let targets = tagged.opened.chunks_mut(SEALED_BYTES);
    for ((record, target), unit) in records.zip(targets).zip((0..).step_by(9)) {
        assert!(tagged.cipher.open(1, unit, record, target));
    }
    tagged.opened[0]
}

/// Seals the records of `open_tagged`, one at a time, as flushes do.
pub(crate) fn seal_tagged(tagged: &mut Tagged) -> u8 {
    let records = tagged.opened.chunks(SEALED_BYTES);
    let targets = tagged.sealed.chunks_mut(SEALED_BYTES);
    for ((record, target), unit) in records.zip(targets).zip((0..).step_by(9)) {
        tagged.cipher.seal(1, unit, record, target);
    }
    tagged.sealed[0]
}

/// Encrypts as many bytes as `open` decrypts as one run, as flushes do.
pub(crate) fn seal(sealing: &mut Sealing) -> u8 {
    sealing.cipher.apply(2, 0, &mut sealing.data);
    sealing.data[0]
}
