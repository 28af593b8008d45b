//! Transactions: checks and writes of several keys of one shard, which happen together or not at
//! all.
//!
//! A [`Transaction`] has one step for each key: the version that it must have, if any, and what is
//! written, if anything. It is sent as a request of its first key, with the steps as its value:
//!
//! ```text
//! step:  | write:8 | expiry kind:8 | key bytes:16 | value bytes:32 | expected:64 | expiry:64 | key | value |
//!
//! the first step's key is the request's, and is not repeated; expected: all ones expects nothing,
//! bit 63 and a version of the shard that the key is absent since then
//! ```
//!
//! - I1: no two steps have one key.
//! - I2: the records of a transaction fit an empty page together.

use crate::constants::{
    EXPIRY_BYTES, KEY_BYTES_MAX, PAGE_BYTES_MIN, TRANSACTION_KEYS_MAX, UNIT_BYTES,
};
use crate::error::Error;
use crate::message::expiry::Expiry;
use crate::message::operation::Version;

/// Bytes of an encoded step beside its key and value.
const STEP_BYTES: usize = 24;
/// Stands for no expected version. Versions have 48 bits.
const NOTHING: u64 = u64::MAX;
/// The version beside it is that from which on the key is absent.
const ABSENCE: u64 = 1 << 63;

/// The most bytes that a record takes of a page beside its key and value: header, expiry, padding,
/// tag and directory entry.
const BESIDE_RECORD: usize = UNIT_BYTES + EXPIRY_BYTES + (UNIT_BYTES - 1) + UNIT_BYTES + 12;
/// Bytes of a page's header and of its directory's tag.
const BESIDE_RECORDS: usize = 5 * UNIT_BYTES;

// I2: a value is half a page at most, and so are all steps. The first key lies beside them.
const _: () = assert!(
    PAGE_BYTES_MIN / 2
        + KEY_BYTES_MAX
        + TRANSACTION_KEYS_MAX * (BESIDE_RECORD - STEP_BYTES)
        + BESIDE_RECORDS
        <= PAGE_BYTES_MIN
);
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize);

/// What a transaction writes to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionWrite<'a> {
    /// Nothing.
    None,
    /// This value.
    Put {
        value: &'a [u8],
        expiry: Expiry,
    },
    Delete,
}

impl<'a> TransactionWrite<'a> {
    fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Put { .. } => 1,
            Self::Delete => 2,
        }
    }

    pub(crate) fn value(self) -> &'a [u8] {
        match self {
            Self::Put { value, .. } => value,
            Self::None | Self::Delete => &[],
        }
    }

    fn expiry(self) -> Expiry {
        match self {
            Self::Put { expiry, .. } => expiry,
            Self::None | Self::Delete => Expiry::Never,
        }
    }
}

/// The absence of a key from some time on, as [`Conflict::absence`] reports it. A transaction that
/// expects it conflicts if the key was stored since, also if it is absent again by now: it was
/// deleted, has expired or was evicted.
///
/// The time is one of the key's shard. So it is also that of other absent keys of the shard.
///
/// [`Conflict::absence`]: crate::Conflict::absence
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence(u64);

impl Absence {
    /// An absence that no shard has reported. A transaction that expects it conflicts always, and
    /// the conflict of an absent key reports the absence from then on.
    pub const UNKNOWN: Self = Self(u64::MAX - 1);

    /// From a version of the shard on.
    pub(crate) fn since(version: Version) -> Self {
        Self(version | ABSENCE)
    }

    /// The version of the shard, if an expected version stands for an absence.
    pub(crate) fn version_of(expected: Version) -> Option<Version> {
        (expected & ABSENCE != 0).then_some(expected & !ABSENCE)
    }
}

/// What a transaction expects of a key and writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionStep<'a> {
    pub(crate) key: &'a [u8],
    /// The version that the key must have; `0` is absent. Or an [`Absence`].
    pub(crate) expected: Option<Version>,
    pub(crate) write: TransactionWrite<'a>,
}

/// Checks and writes of several keys, which happen together or not at all.
///
/// All keys must lie in one shard ([`Engine::same_shard`](crate::Engine::same_shard)); with
/// [`Config::hash_tags`](crate::Config::hash_tags), keys with one tag do. The shard checks and
/// writes in one step, so no client sees a part of it, and no other request comes between.
///
/// Read the keys first, and expect the versions that the decision rests on. If one has changed
/// meanwhile, nothing is written: read again and retry.
///
/// ```
/// use farcore::{Config, Engine, Transaction, TransactionOutcome};
///
/// # let sizes = Config { local_bytes: 64 << 20, far_bytes: 64 << 20, keys_expected: 10_000, ..Config::default() };
/// let engine = Engine::open(Config { hash_tags: true, ..sizes })?;
/// let mut handle = engine.handle()?;
/// let version = handle.put(b"{a}:draft", b"text").wait()?;
/// let publish = Transaction::new()
///     .expect(b"{a}:draft", version)
///     .delete(b"{a}:draft")
///     .expect(b"{a}:page", 0) // is absent
///     .put(b"{a}:page", b"text");
/// let outcome = handle.transaction(&publish).wait()?;
/// assert!(matches!(outcome, TransactionOutcome::Committed { .. }));
/// # Ok::<(), farcore::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "it is sent by a call"]
pub struct Transaction<'a> {
    steps: Vec<TransactionStep<'a>>,
    /// The place of a key that was named twice in ways that contradict each other.
    contradicted: Option<usize>,
}

impl<'a> Transaction<'a> {
    /// A transaction without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// The place of a key's step, which is added if there is none. What names one key is usually
    /// added together, so the last steps are examined first.
    fn place(&mut self, key: &'a [u8]) -> usize {
        let known = self.steps.iter().rposition(|step| step.key == key);
        known.unwrap_or_else(|| {
            self.steps.push(TransactionStep {
                key,
                expected: None,
                write: TransactionWrite::None,
            });
            self.steps.len() - 1
        })
    }

    fn write(mut self, key: &'a [u8], write: TransactionWrite<'a>) -> Self {
        let place = self.place(key);
        let step = &mut self.steps[place];
        if step.write != TransactionWrite::None {
            self.contradicted.get_or_insert(place);
        }
        step.write = write;
        self
    }

    /// Expects that a key has a version; `0` expects that it is absent. A key that is also written
    /// is checked before.
    pub fn expect(mut self, key: &'a [u8], version: Version) -> Self {
        let place = self.place(key);
        let step = &mut self.steps[place];
        let absence = step.expected.and_then(Absence::version_of);
        if version == 0 && absence.is_some() {
            return self;
        }
        if step.expected.is_some_and(|expected| expected != version) {
            self.contradicted.get_or_insert(place);
        }
        step.expected = Some(version);
        self
    }

    /// Expects that a key is absent and has been since the absence was reported. It may also be
    /// expected to be absent by its version.
    pub fn expect_absence(mut self, key: &'a [u8], absence: Absence) -> Self {
        let place = self.place(key);
        if self.steps[place].expected == Some(0) {
            self.steps[place].expected = None;
        }
        self.expect(key, absence.0)
    }

    /// Stores a value that does not expire.
    pub fn put(self, key: &'a [u8], value: &'a [u8]) -> Self {
        self.put_until(key, value, Expiry::Never)
    }

    /// Stores a value that may expire. A time in the past deletes the key.
    pub fn put_until(self, key: &'a [u8], value: &'a [u8], expiry: Expiry) -> Self {
        self.write(key, TransactionWrite::Put { value, expiry })
    }

    /// Removes a key, whether or not it exists.
    pub fn delete(self, key: &'a [u8]) -> Self {
        self.write(key, TransactionWrite::Delete)
    }

    /// The keys, in the order in which each was named first. A key's place in this order is how
    /// outcomes and errors name it.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> {
        self.steps.iter().map(|step| step.key)
    }

    /// The version under which a committed transaction has stored a key, by the version of its last
    /// write; `None` if it does not put the key. The writes of a transaction have consecutive
    /// versions, in the order of their keys.
    #[must_use]
    pub fn version_of(&self, key: &[u8], last: Version) -> Option<Version> {
        let place = self.steps.iter().position(|step| step.key == key)?;
        let is_put = matches!(self.steps[place].write, TransactionWrite::Put { .. });
        let after = self.steps[place + 1..].iter();
        let after = after
            .filter(|step| step.write != TransactionWrite::None)
            .count() as u64;
        is_put.then(|| last.saturating_sub(after))
    }

    /// The steps, one for each key.
    pub(crate) fn steps(&self) -> &[TransactionStep<'a>] {
        &self.steps
    }

    /// The key that the request names; empty if there is none.
    #[cold]
    #[inline(never)]
    pub(crate) fn first_key(&self) -> &'a [u8] {
        self.steps.first().map_or(&[], |step| step.key)
    }

    /// Bytes of all steps, encoded.
    fn encoded_bytes(&self) -> usize {
        let steps = self.steps.iter();
        let bytes =
            |step: &TransactionStep<'_>| STEP_BYTES + step.key.len() + step.write.value().len();
        steps.map(bytes).sum::<usize>() - self.first_key().len()
    }

    /// Checks all limits, and that the keys lie in one shard.
    pub(crate) fn check(
        &self,
        bytes_max: usize,
        shard_of: impl Fn(&[u8]) -> usize,
    ) -> Result<(), Error> {
        let keys = self.steps.len();
        if keys == 0 {
            return Err(Error::TransactionEmpty);
        }
        if let Some(place) = self.contradicted {
            return Err(Error::KeyTwice { place });
        }
        if keys > TRANSACTION_KEYS_MAX {
            let max = TRANSACTION_KEYS_MAX;
            return Err(Error::TransactionKeys { keys, max });
        }
        for key in self.keys() {
            let (bytes, max) = (key.len(), KEY_BYTES_MAX);
            match bytes {
                0 => return Err(Error::KeyEmpty { max }),
                1..=KEY_BYTES_MAX => {}
                _ => return Err(Error::KeyTooLong { bytes, max }),
            }
        }
        let bytes = self.encoded_bytes();
        if bytes > bytes_max {
            let max = bytes_max;
            return Err(Error::TransactionTooLong { bytes, max });
        }
        let shard = shard_of(self.first_key());
        let other = self.keys().position(|key| shard_of(key) != shard);
        other.map_or(Ok(()), |other| Err(Error::KeysApart { first: 0, other }))
    }

    /// Writes the steps as a request's value. They were checked.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.clear();
        for (place, step) in self.steps.iter().enumerate() {
            let (expiry_kind, expiry) = step.write.expiry().encode();
            let (key, value) = (step.key, step.write.value());
            let key_bytes = u16::try_from(key.len()).unwrap_or(u16::MAX);
            let value_bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
            into.extend([step.write.code(), expiry_kind]);
            into.extend(key_bytes.to_le_bytes());
            into.extend(value_bytes.to_le_bytes());
            into.extend(step.expected.unwrap_or(NOTHING).to_le_bytes());
            into.extend(expiry.to_le_bytes());
            into.extend(if place == 0 { &[] } else { key });
            into.extend(value);
        }
    }
}

/// An encoded transaction, of which every length was checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionView<'a> {
    key: &'a [u8],
    encoded: &'a [u8],
    steps: usize,
}

impl<'a> TransactionView<'a> {
    /// The transaction of a request; `None` if the bytes are none that [`Transaction::encode`]
    /// writes for a checked one.
    pub(crate) fn parse(key: &'a [u8], encoded: &'a [u8]) -> Option<Self> {
        let (mut rest, mut steps) = (encoded, 0);
        while !rest.is_empty() {
            let first = (steps == 0).then_some(key);
            let (step, after) = next_step(first, rest)?;
            let fits = (1..=KEY_BYTES_MAX).contains(&step.key.len());
            steps += 1;
            if !fits || steps > TRANSACTION_KEYS_MAX {
                return None;
            }
            rest = after;
        }
        (steps > 0).then_some(Self {
            key,
            encoded,
            steps,
        })
    }

    /// The number of steps.
    pub(crate) fn len(&self) -> usize {
        self.steps
    }

    /// The steps, in their order.
    pub(crate) fn steps(&self) -> impl Iterator<Item = TransactionStep<'a>> + use<'a> {
        let (mut first, mut rest) = (Some(self.key), self.encoded);
        std::iter::from_fn(move || {
            let (step, after) = next_step(first.take(), rest)?;
            rest = after;
            Some(step)
        })
    }
}

/// The step at the start of some bytes, whose key is `first` if that is given, and the bytes behind
/// it; `None` if none can be there.
fn next_step<'a>(
    first: Option<&'a [u8]>,
    encoded: &'a [u8],
) -> Option<(TransactionStep<'a>, &'a [u8])> {
    let (head, rest) = encoded.split_first_chunk::<STEP_BYTES>()?;
    let key_bytes = usize::from(u16::from_le_bytes(*head[2..].first_chunk()?));
    let value_bytes = u32::from_le_bytes(*head[4..].first_chunk()?) as usize;
    let expected = u64::from_le_bytes(*head[8..].first_chunk()?);
    let expiry = u64::from_le_bytes(*head[16..].first_chunk()?);
    let (key, rest) = match first {
        Some(first) => (first, rest),
        None => rest.split_at_checked(key_bytes)?,
    };
    if key.len() != key_bytes {
        return None;
    }
    let (value, rest) = rest.split_at_checked(value_bytes)?;
    let expiry = Expiry::decode(head[1], expiry)?;
    let write = match head[0] {
        0 => TransactionWrite::None,
        1 => TransactionWrite::Put { value, expiry },
        2 => TransactionWrite::Delete,
        _ => return None,
    };
    let step = TransactionStep {
        key,
        expected: (expected != NOTHING).then_some(expected),
        write,
    };
    Some((step, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::constants::VALUE_BYTES_MAX;

    fn decoded<'a>(key: &'a [u8], encoded: &'a [u8]) -> Option<Vec<TransactionStep<'a>>> {
        let view = TransactionView::parse(key, encoded)?;
        let steps: Vec<_> = view.steps().collect();
        assert_eq!(steps.len(), view.len());
        Some(steps)
    }

    fn check(transaction: &Transaction<'_>) -> Result<(), Error> {
        transaction.check(VALUE_BYTES_MAX, |_| 0)
    }

    #[test]
    fn what_names_one_key_is_one_step() {
        let transaction = Transaction::new()
            .expect(b"a", 7)
            .put(b"b", b"1")
            .delete(b"a")
            .expect(b"b", 0)
            .expect(b"b", 0)
            .expect(b"c", 9)
            .put_until(b"d", b"2", Expiry::In(5));
        assert_eq!(check(&transaction), Ok(()));
        let keys: Vec<_> = transaction.keys().collect();
        assert_eq!(keys, [b"a", b"b", b"c", b"d"]);
        let version = |key: &[u8]| transaction.version_of(key, 50);
        assert_eq!(version(b"d"), Some(50));
        assert_eq!(version(b"b"), Some(49));
        assert_eq!([version(b"a"), version(b"c"), version(b"e")], [None; 3]);
    }

    #[test]
    fn each_limit_has_its_error() {
        let new = Transaction::new;
        assert_eq!(check(&new()), Err(Error::TransactionEmpty));
        let twice = [
            new().put(b"x", b"").put(b"k", b"1").put(b"k", b"1"),
            new().put(b"x", b"").put(b"k", b"1").delete(b"k"),
            new().put(b"x", b"").expect(b"k", 1).expect(b"k", 2),
        ];
        for transaction in twice {
            assert_eq!(check(&transaction), Err(Error::KeyTwice { place: 1 }));
        }
        let max = KEY_BYTES_MAX;
        let empty = new().put(b"k", b"").delete(b"");
        assert_eq!(check(&empty), Err(Error::KeyEmpty { max }));
        let (long, bytes) = (vec![b'k'; max + 1], max + 1);
        let too_long = new().put(b"k", b"").expect(&long, 0);
        assert_eq!(check(&too_long), Err(Error::KeyTooLong { bytes, max }));
        let names: Vec<_> = (0..=TRANSACTION_KEYS_MAX).map(usize::to_le_bytes).collect();
        let of = |count: usize| {
            names[..count]
                .iter()
                .fold(new(), |all, key| all.delete(key))
        };
        let max = TRANSACTION_KEYS_MAX;
        assert_eq!(check(&of(max)), Ok(()));
        let keys = max + 1;
        assert_eq!(check(&of(keys)), Err(Error::TransactionKeys { keys, max }));
        // The first key lies beside the steps.
        let value = [0; 50];
        let two = new().put(b"first", &value).put(b"second", &value);
        let (bytes, apart) = (2 * (24 + 50) + 6, |key: &[u8]| key.len());
        assert_eq!(two.check(bytes, |_| 0), Ok(()));
        let max = bytes - 1;
        let refused = Error::TransactionTooLong { bytes, max };
        assert_eq!(two.check(max, |_| 0), Err(refused));
        let refused = Error::KeysApart { first: 0, other: 1 };
        assert_eq!(two.check(bytes, apart), Err(refused));
    }

    #[test]
    fn every_error_says_what_to_do() {
        let apart = Error::KeysApart { first: 0, other: 3 }.to_string();
        assert!(
            apart.contains("keys 0 and 3") && apart.contains("hash_tags"),
            "{apart}"
        );
        let long = Error::TransactionTooLong { bytes: 9, max: 8 }.to_string();
        assert!(long.contains("9 bytes") && long.contains("split"), "{long}");
    }

    fn arbitrary_write() -> impl Strategy<Value = (u8, Vec<u8>, Expiry)> {
        let expiry = prop_oneof![
            Just(Expiry::Never),
            Just(Expiry::Keep),
            any::<u64>().prop_map(Expiry::At),
            any::<u64>().prop_map(Expiry::In),
        ];
        (0u8..3, prop::collection::vec(any::<u8>(), 0..80), expiry)
    }

    proptest! {
        #[test]
        fn a_transaction_survives_its_encoding(
            parts in prop::collection::btree_map(
                prop::collection::vec(any::<u8>(), 1..40),
                (arbitrary_write(), prop::option::of(0u64..1 << 48)),
                1..40,
            ),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut transaction = Transaction::new();
            for (key, ((write, value, expiry), expected)) in &parts {
                transaction = match write {
                    0 => transaction.expect(key, expected.unwrap_or(0)),
                    1 => transaction.put_until(key, value, *expiry),
                    _ => transaction.delete(key),
                };
                if let Some(expected) = expected {
                    transaction = transaction.expect(key, *expected);
                }
            }
            prop_assert_eq!(check(&transaction), Ok(()));
            let mut encoded = Vec::new();
            transaction.encode(&mut encoded);
            prop_assert_eq!(encoded.len(), transaction.encoded_bytes());
            let key = transaction.first_key();
            let steps = decoded(key, &encoded);
            prop_assert_eq!(steps.as_deref(), Some(transaction.steps()));
            // A part of it is none, or a shorter one.
            let part = &encoded[..cut.index(encoded.len())];
            if let Some(steps) = decoded(key, part) {
                prop_assert!(transaction.steps().starts_with(&steps));
            }
        }
    }

    #[test]
    fn any_bytes_are_a_transaction_or_none() {
        const KEY: &[u8] = b"a";
        let transaction = Transaction::new()
            .expect(KEY, 7)
            .put_until(b"b", b"value", Expiry::In(5))
            .put_until(b"c", b"value", Expiry::Keep)
            .delete(b"d");
        let mut encoded = Vec::new();
        transaction.encode(&mut encoded);
        farcore_fuzz::Target::new("transaction")
            .seed(encoded)
            .run(|bytes| {
                let Some(steps) = decoded(KEY, bytes) else {
                    return;
                };
                assert!((1..=TRANSACTION_KEYS_MAX).contains(&steps.len()));
                let bytes_of = |step: &TransactionStep<'_>| match step.write {
                    TransactionWrite::Put { value, .. } => step.key.len() + value.len(),
                    _ => step.key.len(),
                };
                let held: usize = steps.iter().map(bytes_of).sum();
                assert!(held <= KEY.len() + bytes.len());
            });
    }
}
