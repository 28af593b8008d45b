//! Routing: one hash of the key, two independent halves.
//!
//! ```text
//! xxh3_128(key, seed) = | high 64: picks the shard | low 64: serves the index |
//! low half, bit 0 least significant:  | root group 63..32 | free 31..22 | tag 21..8 | bucket 7..0 |
//! ```
//!
//! The shard is picked by the half that the index never sees. With one half for both, a shard would
//! meet only the hashes that route to it, and most of its buckets would stay empty.
//!
//! With hash tags, the high half is that of the key's tag, if it has one: so keys with one tag lie
//! in one shard. The low half is always that of the whole key. Source: the Redis Cluster
//! specification.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The half of a key's hash that the index uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct IndexHash(pub(crate) u64);

/// Both halves of a key's hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyHash {
    high: u64,
    /// The half for the index.
    pub(crate) index: IndexHash,
}

/// The shard, among `shards`, that the high half of a hash picks.
#[inline]
fn pick(high: u64, shards: u16) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "less than `shards`")]
    let shard = ((u128::from(high) * u128::from(shards)) >> 64) as u16;
    shard
}

/// The part of a key between its first `{` and the next `}`; `None` if there is none, or if it is
/// empty.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|&byte| byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

/// Hashes keys with the engine's seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher128 {
    seed: u64,
    /// A key's tag alone picks its shard.
    hash_tags: bool,
}

impl Hasher128 {
    /// A hasher for one engine. The seed should be random, so that no client can choose colliding
    /// keys.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            hash_tags: false,
        }
    }

    /// This hasher, with or without hash tags.
    pub(crate) fn with_hash_tags(self, hash_tags: bool) -> Self {
        Self { hash_tags, ..self }
    }

    /// The shard of a key with this hash, among `shards`. Cost without hash tags: a branch and a
    /// multiplication.
    #[inline]
    pub(crate) fn shard(self, key: &[u8], hash: KeyHash, shards: u16) -> u16 {
        if self.hash_tags {
            return self.tagged_shard(key, hash, shards);
        }
        pick(hash.high, shards)
    }

    #[cold]
    #[inline(never)]
    fn tagged_shard(self, key: &[u8], hash: KeyHash, shards: u16) -> u16 {
        let high = hash_tag(key).map_or(hash.high, |tag| self.hash(tag).high);
        pick(high, shards)
    }

    /// Hashes a key.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "splits the two halves")]
    pub(crate) fn hash(self, key: &[u8]) -> KeyHash {
        let both = xxh3_128_with_seed(key, self.seed);
        KeyHash {
            high: (both >> 64) as u64,
            index: IndexHash(both as u64),
        }
    }
}

type HashKey = dyn Fn(&[u8]) -> IndexHash;

/// Hashes the keys of one shard for its index.
pub(crate) struct KeyHasher(Box<HashKey>);

impl KeyHasher {
    pub(crate) fn new(hash: impl Fn(&[u8]) -> IndexHash + 'static) -> Self {
        Self(Box::new(hash))
    }

    /// The half of a key's hash that the index uses.
    pub(crate) fn hash(&self, key: &[u8]) -> IndexHash {
        (self.0)(key)
    }
}

impl From<Hasher128> for KeyHasher {
    fn from(hasher: Hasher128) -> Self {
        Self::new(move |key| hasher.hash(key).index)
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARDS: u16 = 8;

    /// Bits that the index uses: the lowest one, and how many are examined.
    struct Field {
        name: &'static str,
        shift: u32,
        bits: u32,
    }

    /// The root group is picked by a multiplication, so first by its upper bits.
    const FIELDS: [Field; 4] = [
        Field {
            name: "bucket",
            shift: 0,
            bits: 8,
        },
        Field {
            name: "tag",
            shift: 8,
            bits: 14,
        },
        Field {
            name: "root group, upper bits",
            shift: 52,
            bits: 12,
        },
        Field {
            name: "root group, lower bits",
            shift: 32,
            bits: 12,
        },
    ];

    /// For each field of the hashes that `shard_of` gives to one shard: how far chi-squared lies
    /// above the expectation for even use, in standard deviations.
    fn excesses(shard_of: impl Fn(KeyHash) -> u16) -> [f64; FIELDS.len()] {
        let hasher = Hasher128::new(42);
        let mut counts = FIELDS.map(|field| vec![0u32; 1 << field.bits]);
        let mut total = 0u32;
        for key in 0..1_000_000u64 {
            let hash = hasher.hash(&key.to_le_bytes());
            if shard_of(hash) == 0 {
                total += 1;
                for (field, counts) in FIELDS.iter().zip(&mut counts) {
                    let place = hash.index.0 >> field.shift & ((1 << field.bits) - 1);
                    counts[usize::try_from(place).expect("14 bits at most")] += 1;
                }
            }
        }
        counts.map(|counts| {
            let expected = f64::from(total) / counts.len() as f64;
            let chi_squared: f64 = counts
                .iter()
                .map(|&count| (f64::from(count) - expected).powi(2) / expected)
                .sum();
            let freedom = counts.len() as f64 - 1.0;
            (chi_squared - freedom) / (2.0 * freedom).sqrt()
        })
    }

    #[test]
    fn the_bits_of_the_index_are_used_evenly_inside_a_shard() {
        for (field, excess) in FIELDS.iter().zip(excesses(|hash| pick(hash.high, SHARDS))) {
            // 99.99 % of uniform samples stay within 4.5; a value far below would be too even to be
            // random.
            assert!(excess.abs() < 4.5, "{}: {excess}", field.name);
        }
    }

    #[test]
    fn a_hash_used_twice_is_detected() {
        // Each field in turn decides both a key's shard and its place in the index.
        for (place, field) in FIELDS.iter().enumerate() {
            let twice =
                |hash: KeyHash| pick(hash.index.0 << (64 - field.shift - field.bits), SHARDS);
            let excess = excesses(twice)[place];
            assert!(excess > 1_000.0, "{}: {excess}", field.name);
        }
    }

    #[test]
    fn shards_are_used_evenly() {
        let hasher = Hasher128::new(7);
        let mut counts = [0u32; 3];
        for key in 0..90_000u32 {
            let key = key.to_le_bytes();
            counts[hasher.shard(&key, hasher.hash(&key), 3) as usize] += 1;
        }
        assert!(
            counts
                .iter()
                .all(|&count| (29_000..31_000).contains(&count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_hash_tag_is_what_redis_cluster_says() {
        let tags: [(&str, Option<&str>); 16] = [
            ("{user1000}.following", Some("user1000")),
            ("{user1000}.followers", Some("user1000")),
            ("foo{}{bar}", None),
            ("foo{{bar}}zap", Some("{bar")),
            ("foo{bar}{zap}", Some("bar")),
            ("{}", None),
            ("{", None),
            ("}", None),
            ("}{", None),
            ("}{a}", Some("a")),
            ("{{a}}", Some("{a")),
            ("{a", None),
            ("a}", None),
            ("{}}", None),
            ("{a}b}", Some("a")),
            ("plain", None),
        ];
        for (key, tag) in tags {
            assert_eq!(hash_tag(key.as_bytes()), tag.map(str::as_bytes), "{key}");
        }
    }

    #[test]
    fn with_hash_tags_the_tag_alone_picks_the_shard() {
        let plain = Hasher128::new(9);
        let tagged = plain.with_hash_tags(true);
        let shard = |hasher: Hasher128, key: &str| {
            let key = key.as_bytes();
            hasher.shard(key, hasher.hash(key), 1_000)
        };
        for user in 0..200 {
            let keys = ["{u}", "a:{u}", "{u}.b{v}", "}{u}"];
            let keys = keys.map(|key| key.replace('u', &user.to_string()));
            let of_tag = shard(plain, &user.to_string());
            for key in &keys {
                assert_eq!(shard(tagged, key), of_tag, "{key}");
                let hashes = [plain, tagged].map(|hasher| hasher.hash(key.as_bytes()));
                assert_eq!(hashes[0], hashes[1], "the index sees the whole key");
            }
            // Without a tag, with an empty one, or one that does not end: the whole key.
            for key in ["u", "{}u", "u{", "{u", "u}", "{}{u}"] {
                let key = key.replace('u', &user.to_string());
                assert_eq!(shard(tagged, &key), shard(plain, &key), "{key}");
            }
        }
    }
}
