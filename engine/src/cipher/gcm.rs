//! AES-GCM as defined by NIST SP 800-38D, with nonces of 96 bits and tags of 128 bits, for whole
//! messages or messages in pieces.
//!
//! ```text
//! counter block, big endian:  | nonce:96 | counter:32 |     counter 1 masks the tag, 2 and up encrypt
//! tag = E(counter block 1) ^ GHASH(associated data, ciphertext, both lengths in bits:64)
//! ```
//!
//! - I1: a nonce serves one message under one key. The caller guarantees it; sealing the same bytes
//!   again is allowed.
//! - I2: a message is decrypted only if its tag is right. Only a record's header is decrypted
//!   before: it says where the tag lies, and decides nothing else.
//! - I3: every message is a whole number of units, and so of blocks.
//!
//! Source: NIST SP 800-38D, sections 6.4 to 7.2.

use std::fmt;

use cipher::{Array, InOutBuf, consts::U16};
use ghash::GHash;
use ghash::universal_hash::UniversalHash;

use crate::cipher::Schedule;
use crate::constants::UNIT_BYTES;

/// A tag, in bytes.
pub(crate) const TAG_BYTES: usize = UNIT_BYTES;
/// Counter of the first block of a message.
const FIRST: u32 = 2;
/// Blocks that GHASH processes at once.
const HASHED_AT_ONCE: usize = 4;
/// Keystream blocks that are made when a message begins; one of them masks its tag. Most records
/// need no more.
const BEGUN: usize = 24;

/// The nonce of a message.
pub(crate) type Nonce = [u8; 12];
/// The tag of a message.
pub(crate) type Tag = [u8; TAG_BYTES];

type Block = Array<u8, U16>;

/// AES-GCM under one key.
#[derive(Clone)]
pub(crate) struct Gcm {
    schedule: Schedule,
    /// GHASH before its first block.
    ghash: GHash,
}

impl fmt::Debug for Gcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gcm").finish_non_exhaustive()
    }
}

/// The first keystream blocks of a message, made in one go.
struct Begun {
    blocks: [Block; BEGUN],
    count: usize,
}

impl Begun {
    fn mask(&self) -> &Block {
        &self.blocks[0]
    }

    fn stream(&self) -> &[Block] {
        &self.blocks[1..self.count]
    }
}

/// The state of a message that is sealed in pieces.
#[derive(Clone)]
pub(crate) struct Sealing {
    nonce: Nonce,
    /// Blocks sealed so far.
    blocks: u32,
    ghash: GHash,
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing")
            .field("blocks", &self.blocks)
            .finish_non_exhaustive()
    }
}

fn counter_block(nonce: &Nonce, counter: u32) -> [u8; UNIT_BYTES] {
    let mut block = [0; UNIT_BYTES];
    block[..12].copy_from_slice(nonce);
    block[12..].copy_from_slice(&counter.to_be_bytes());
    block
}

/// The last block of GHASH's input: both lengths.
fn lengths(associated_bytes: usize, bytes: usize) -> Block {
    let mut block = Block::default();
    block[..8].copy_from_slice(&(associated_bytes as u64 * 8).to_be_bytes());
    block[8..].copy_from_slice(&(bytes as u64 * 8).to_be_bytes());
    block
}

fn blocks_of(data: &[u8]) -> &[Block] {
    let (blocks, rest) = Array::slice_as_chunks(data);
    debug_assert!(rest.is_empty(), "a message is whole units");
    blocks
}

fn xor(data: &mut [u8], stream: &[u8]) {
    for (byte, mask) in data.iter_mut().zip(stream) {
        *byte ^= mask;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a message lies within a page"
)]
fn count_of(bytes: usize) -> u32 {
    (bytes / UNIT_BYTES) as u32
}

impl Gcm {
    /// AES-GCM with this key schedule.
    pub(crate) fn new(schedule: Schedule) -> Self {
        let mut key = [Block::default()];
        schedule.encrypt(&mut key);
        let ghash = GHash::new(&key[0]);
        Self { schedule, ghash }
    }

    /// The first keystream blocks of a message of this many blocks.
    fn begin(&self, nonce: &Nonce, blocks: usize) -> Begun {
        let count = (blocks + 1).min(BEGUN);
        let mut begun = Begun {
            blocks: [Block::default(); BEGUN],
            count,
        };
        for (block, counter) in begun.blocks[..count].iter_mut().zip(FIRST - 1..) {
            *block = counter_block(nonce, counter).into();
        }
        self.schedule.encrypt(&mut begun.blocks[..count]);
        begun
    }

    /// Encrypts or decrypts a message that was begun.
    fn apply(&self, nonce: &Nonce, begun: &Begun, mut data: InOutBuf<'_, '_, u8>) {
        let stream = Array::slice_as_flattened(begun.stream());
        let head = stream.len().min(data.len());
        let (mut first, rest) = data.reborrow().split_at(head);
        first.xor_in2out(&stream[..head]);
        if !rest.is_empty() {
            let counter = FIRST + count_of(head);
            self.schedule.apply(&counter_block(nonce, counter), rest);
        }
    }

    /// GHASH of a whole message without associated data.
    ///
    /// Leading zero blocks change nothing, so the message is padded in front to groups of as many
    /// blocks as are hashed at once.
    fn hash(&self, message: &[u8]) -> GHash {
        let mut ghash = self.ghash.clone();
        let blocks = blocks_of(message);
        let mut group = [Block::default(); HASHED_AT_ONCE];
        let (front, last) = blocks.split_at(blocks.len().saturating_sub(HASHED_AT_ONCE - 1));
        let odd = front.len() % HASHED_AT_ONCE;
        if odd > 0 {
            group[HASHED_AT_ONCE - odd..].copy_from_slice(&front[..odd]);
            ghash.update(&group);
            group = [Block::default(); HASHED_AT_ONCE];
        }
        ghash.update(&front[odd..]);
        let start = HASHED_AT_ONCE - 1 - last.len();
        group[start..HASHED_AT_ONCE - 1].copy_from_slice(last);
        group[HASHED_AT_ONCE - 1] = lengths(0, message.len());
        ghash.update(&group);
        ghash
    }

    /// The tag of a whole message that was begun.
    fn tag(&self, begun: &Begun, message: &[u8]) -> Tag {
        let mut tag = self.hash(message).finalize();
        xor(&mut tag, begun.mask());
        tag.into()
    }

    /// Encrypts a message from `source` to `target` and returns its tag.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(crate) fn seal(&self, nonce: &Nonce, source: &[u8], target: &mut [u8]) -> Tag {
        let begun = self.begin(nonce, source.len() / UNIT_BYTES);
        let both = InOutBuf::new(source, &mut *target);
        self.apply(
            nonce,
            &begun,
            both.expect("source and target are of one length"),
        );
        self.tag(&begun, target)
    }

    /// The tag of data that stays in the clear.
    pub(crate) fn authenticate(&self, nonce: &Nonce, associated: &[u8]) -> Tag {
        let begun = self.begin(nonce, 0);
        let mut ghash = self.ghash.clone();
        ghash.update(blocks_of(associated));
        ghash.update(&[lengths(associated.len(), 0)]);
        let mut tag = ghash.finalize();
        xor(&mut tag, begun.mask());
        tag.into()
    }

    /// The tag of a sealed message and of data beside it that stays in the clear; both are whole
    /// units.
    fn tag_of_both(&self, nonce: &Nonce, associated: &[u8], message: &[u8]) -> Tag {
        let begun = self.begin(nonce, 0);
        let mut ghash = self.ghash.clone();
        ghash.update(blocks_of(associated));
        ghash.update(blocks_of(message));
        ghash.update(&[lengths(associated.len(), message.len())]);
        let mut tag = ghash.finalize();
        xor(&mut tag, begun.mask());
        tag.into()
    }

    /// Encrypts a message in place. The tag covers data beside it, too.
    pub(crate) fn seal_beside(&self, nonce: &Nonce, associated: &[u8], data: &mut [u8]) -> Tag {
        self.schedule
            .apply(&counter_block(nonce, FIRST), (&mut *data).into());
        self.tag_of_both(nonce, associated, data)
    }

    /// Decrypts a message in place that was sealed beside other data. Returns false and changes
    /// nothing unless the tag is right.
    pub(crate) fn open_beside(
        &self,
        nonce: &Nonce,
        associated: &[u8],
        data: &mut [u8],
        tag: &Tag,
    ) -> bool {
        let made = self.tag_of_both(nonce, associated, data);
        let is_right = u128::from_le_bytes(*tag) == u128::from_le_bytes(made);
        if is_right {
            self.schedule
                .apply(&counter_block(nonce, FIRST), data.into());
        }
        is_right
    }

    /// Begins a message that is sealed in pieces.
    pub(crate) fn begin_pieces(&self, nonce: Nonce) -> Sealing {
        Sealing {
            nonce,
            blocks: 0,
            ghash: self.ghash.clone(),
        }
    }

    /// Encrypts the next piece of a message, whole units.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(crate) fn seal_piece(&self, sealing: &mut Sealing, source: &[u8], target: &mut [u8]) {
        let block = counter_block(&sealing.nonce, FIRST + sealing.blocks);
        let both = InOutBuf::new(source, &mut *target);
        self.schedule
            .apply(&block, both.expect("source and target are of one length"));
        sealing.ghash.update(blocks_of(target));
        sealing.blocks += count_of(source.len());
    }

    /// The tag of a message, after its last piece.
    pub(crate) fn finish(&self, mut sealing: Sealing) -> Tag {
        let bytes = sealing.blocks as usize * UNIT_BYTES;
        sealing.ghash.update(&[lengths(0, bytes)]);
        let begun = self.begin(&sealing.nonce, 0);
        let mut tag = sealing.ghash.finalize();
        xor(&mut tag, begun.mask());
        tag.into()
    }

    /// Fills `target` with the ciphertext of a message of zeros, from `unit` of it on. The message
    /// has no tag.
    pub(crate) fn fill(&self, nonce: &Nonce, unit: u32, target: &mut [u8]) {
        target.fill(0);
        let block = counter_block(nonce, FIRST + unit);
        self.schedule.apply(&block, target.into());
    }

    /// Decrypts the first unit of a message before its tag is verified.
    pub(crate) fn peek(&self, nonce: &Nonce, unit: &mut [u8]) {
        let block = counter_block(nonce, FIRST);
        self.schedule.apply(&block, unit.into());
    }

    /// Decrypts a message that its tag follows and whose first unit says its length. `length`
    /// receives that unit and returns the bytes of message and tag, or `None` if they are
    /// impossible. Returns `None` and decrypts nothing unless the tag is right.
    pub(crate) fn open(
        &self,
        nonce: &Nonce,
        mut data: InOutBuf<'_, '_, u8>,
        length: impl FnOnce(&[u8; UNIT_BYTES]) -> Option<usize>,
    ) -> Option<usize> {
        let begun = self.begin(nonce, data.len() / UNIT_BYTES);
        let mut first = *data.get_in().first_chunk::<UNIT_BYTES>()?;
        xor(&mut first, begun.stream().first()?);
        let all = length(&first)?;
        let message = all.checked_sub(TAG_BYTES)?;
        let sealed = data.get_in().get(..all)?;
        let tag: Tag = *sealed[message..].first_chunk()?;
        let made = self.tag(&begun, &sealed[..message]);
        // One comparison of 128 bits: its time does not reveal where the first difference is.
        if u128::from_le_bytes(tag) != u128::from_le_bytes(made) {
            return None;
        }
        let (whole, _) = data.reborrow().split_at(message);
        self.apply(nonce, &begun, whole);
        Some(all)
    }

    /// Decrypts in place a message that its tag follows. Returns false and changes nothing unless
    /// the tag is right.
    pub(crate) fn open_whole(&self, nonce: &Nonce, data: &mut [u8]) -> bool {
        let bytes = data.len();
        self.open(nonce, data.into(), |_| Some(bytes)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use aes_gcm::aead::AeadInOut;
    use aes_gcm::{Aes128Gcm, Aes256Gcm};
    use cipher::KeyInit;
    use proptest::prelude::*;

    use super::*;
    use crate::cipher::EncryptionKey;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    fn gcm(key: &EncryptionKey) -> Gcm {
        Gcm::new(Schedule::new(key))
    }

    /// The test cases that were submitted to NIST with the mode's specification, as far as their
    /// messages are whole blocks.
    #[test]
    #[expect(clippy::too_many_lines, reason = "one list of examples")]
    fn the_specifications_examples_come_out() {
        const ZERO: &str = "00000000000000000000000000000000";
        const KEY: &str = "feffe9928665731c6d6a8f9467308308";
        const PLAIN: &str = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
                             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
        let zero = "000000000000000000000000";
        let nonce = "cafebabefacedbaddecaf888";
        let cases = [
            (
                ZERO.to_owned(),
                zero,
                "",
                "",
                "58e2fccefa7e3061367f1d57a4e7455a",
            ),
            (
                ZERO.to_owned(),
                zero,
                ZERO,
                "0388dace60b6a392f328c2b971b2fe78",
                "ab6e47d42cec13bdf53a67b21257bddf",
            ),
            (
                KEY.to_owned(),
                nonce,
                PLAIN,
                "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
                 21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985",
                "4d5c2af327cd64a62cf35abd2ba6fab4",
            ),
            (
                ZERO.repeat(2),
                zero,
                "",
                "",
                "530f8afbc74536b9a963b4f1c4cb738b",
            ),
            (
                ZERO.repeat(2),
                zero,
                ZERO,
                "cea7403d4d606b6e074ec5d3baf39d18",
                "d0d1c8a799996bf0265b98b5d48ab919",
            ),
            (
                KEY.repeat(2),
                nonce,
                PLAIN,
                "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
                 8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad",
                "b094dac5d93471bdec1a502270e3cc6c",
            ),
        ];
        for (key, nonce, plain, sealed, tag) in cases {
            let gcm = gcm(&EncryptionKey::from_hex(&key).unwrap());
            let nonce: Nonce = bytes(nonce).try_into().unwrap();
            let plain = bytes(plain);
            let mut target = vec![0; plain.len()];
            let made = gcm.seal(&nonce, &plain, &mut target);
            assert_eq!((&target, &made[..]), (&bytes(sealed), &bytes(tag)[..]));
            let mut pieces = gcm.begin_pieces(nonce);
            gcm.seal_piece(&mut pieces, &plain, &mut target);
            assert_eq!(
                (&target, &gcm.finish(pieces)[..]),
                (&bytes(sealed), &bytes(tag)[..])
            );
            if !plain.is_empty() {
                let mut read = [bytes(sealed), bytes(tag)].concat();
                assert!(gcm.open_whole(&nonce, &mut read));
                assert_eq!(&read[..plain.len()], plain);
            }
        }
    }

    /// Ciphertext and tag by another implementation.
    fn reference(
        key: &EncryptionKey,
        nonce: &Nonce,
        associated: &[u8],
        plain: &[u8],
    ) -> (Vec<u8>, Vec<u8>) {
        let mut sealed = plain.to_vec();
        let buffer = sealed.as_mut_slice().into();
        let tag = match key {
            EncryptionKey::Aes128(key) => {
                Aes128Gcm::new(key.into()).encrypt_inout_detached(nonce.into(), associated, buffer)
            }
            EncryptionKey::Aes256(key) => {
                Aes256Gcm::new(key.into()).encrypt_inout_detached(nonce.into(), associated, buffer)
            }
        };
        let tag = tag.unwrap().to_vec();
        (sealed, tag)
    }

    fn keys() -> impl Strategy<Value = EncryptionKey> {
        prop_oneof![
            any::<[u8; 16]>().prop_map(EncryptionKey::Aes128),
            any::<[u8; 32]>().prop_map(EncryptionKey::Aes256),
        ]
    }

    fn whole_units(units: usize) -> impl Strategy<Value = Vec<u8>> {
        (0..units).prop_flat_map(|units| prop::collection::vec(any::<u8>(), units * UNIT_BYTES))
    }

    proptest! {
        #[test]
        fn messages_are_sealed_as_by_another_implementation(key in keys(), nonce: Nonce, plain in whole_units(90), associated in whole_units(5)) {
            let gcm = gcm(&key);
            let (sealed, tag) = reference(&key, &nonce, &[], &plain);
            let mut target = vec![0; plain.len()];
            let made = gcm.seal(&nonce, &plain, &mut target);
            prop_assert_eq!((&target, &made[..]), (&sealed, &tag[..]));
            let (_, tag) = reference(&key, &nonce, &associated, &[]);
            prop_assert_eq!(&gcm.authenticate(&nonce, &associated)[..], &tag[..]);
        }

        #[test]
        fn messages_beside_other_data_are_sealed_as_by_another_implementation(key in keys(), nonce: Nonce, plain in whole_units(90), associated in whole_units(5), place in any::<prop::sample::Index>()) {
            let gcm = gcm(&key);
            let mut data = plain.clone();
            let tag = gcm.seal_beside(&nonce, &associated, &mut data);
            let (sealed, known) = reference(&key, &nonce, &associated, &plain);
            prop_assert_eq!((&data, &tag[..]), (&sealed, &known[..]));
            let mut all = [&associated[..], &data, &tag].concat();
            let place = place.index(all.len());
            all[place] ^= 1;
            let (other, rest) = all.split_at_mut(associated.len());
            let (changed, wrong) = rest.split_at_mut(data.len());
            let before = changed.to_vec();
            let wrong = wrong[..].try_into().unwrap();
            prop_assert!(!gcm.open_beside(&nonce, other, changed, wrong));
            prop_assert_eq!(changed, &before[..]);
            prop_assert!(gcm.open_beside(&nonce, &associated, &mut data, &tag));
            prop_assert_eq!(data, plain);
        }

        #[test]
        fn pieces_are_sealed_as_the_whole(key in keys(), nonce: Nonce, plain in whole_units(1400), cuts in prop::collection::vec(1usize..600, 1..9)) {
            let gcm = gcm(&key);
            let mut target = vec![0; plain.len()];
            let mut sealing = gcm.begin_pieces(nonce);
            let mut at = 0;
            for units in cuts.iter().cycle() {
                if at == plain.len() {
                    break;
                }
                let end = (at + units * UNIT_BYTES).min(plain.len());
                // Sealing a piece again from the state before it gives the same bytes.
                gcm.seal_piece(&mut sealing.clone(), &plain[at..end], &mut target[at..end]);
                gcm.seal_piece(&mut sealing, &plain[at..end], &mut target[at..end]);
                at = end;
            }
            let tag = gcm.finish(sealing);
            let (sealed, expected) = reference(&key, &nonce, &[], &plain);
            prop_assert_eq!((&target, &tag[..]), (&sealed, &expected[..]));
        }

        #[test]
        fn what_is_opened_is_what_was_sealed_and_nothing_else(key in keys(), nonce: Nonce, plain in whole_units(60), behind in whole_units(20), flip in any::<prop::sample::Index>(), bit in 0u32..8) {
            prop_assume!(!plain.is_empty());
            let gcm = gcm(&key);
            let (sealed, tag) = reference(&key, &nonce, &[], &plain);
            let all = plain.len() + TAG_BYTES;
            let read = [sealed, tag, behind].concat();
            let length = |first: &[u8; UNIT_BYTES]| (first[..] == plain[..UNIT_BYTES]).then_some(all);
            let mut target = vec![0; read.len()];
            let both = InOutBuf::new(&read, &mut target).unwrap();
            prop_assert_eq!(gcm.open(&nonce, both, length), Some(all));
            prop_assert_eq!(&target[..plain.len()], &plain[..]);
            let mut here = read.clone();
            prop_assert_eq!(gcm.open(&nonce, here.as_mut_slice().into(), length), Some(all));
            prop_assert_eq!(&here[..plain.len()], &plain[..]);
            let mut wrong = read.clone();
            wrong[flip.index(all)] ^= 1 << bit;
            let before = wrong.clone();
            let opened = gcm.open(&nonce, wrong.as_mut_slice().into(), |_| Some(all));
            prop_assert_eq!(opened, None);
            prop_assert_eq!(wrong, before);
            // Every other length fails, and so does another nonce.
            for units in 0..read.len() / UNIT_BYTES + 2 {
                let bytes = units * UNIT_BYTES;
                let mut here = read.clone();
                let opened = gcm.open(&nonce, here.as_mut_slice().into(), |_| Some(bytes));
                prop_assert_eq!(opened.is_some(), bytes == all);
            }
            let mut other = nonce;
            other[flip.index(12)] ^= 1 << bit;
            let mut here = read;
            prop_assert_eq!(gcm.open(&other, here.as_mut_slice().into(), |_| Some(all)), None);
        }

        #[test]
        fn the_first_unit_can_be_looked_at(key in keys(), nonce: Nonce, plain in whole_units(9)) {
            prop_assume!(!plain.is_empty());
            let gcm = gcm(&key);
            let (mut sealed, _) = reference(&key, &nonce, &[], &plain);
            gcm.peek(&nonce, &mut sealed[..UNIT_BYTES]);
            prop_assert_eq!(&sealed[..UNIT_BYTES], &plain[..UNIT_BYTES]);
        }
    }
}
