//! The cipher for far memory: AES-GCM over records and directories, or AES-CTR over pages.
//!
//! ```text
//! authenticated   nonce:                      | page sequence:48 | unit:32 | 0:16 |          (see `gcm`)
//! secrecy only    counter block: | epoch:32 | shard:16 | page sequence:48 | unit:32 |        both big endian
//! ```
//!
//! - I1: the key is derived for one shard of one opening of an engine, and a sequence number is
//!   used for one flush of that shard. So no nonce and no counter block is used twice under one
//!   key.
//! - I2: the unit of a nonce is where its message begins: a record, a gap between records, or the
//!   directory; 0 is the page header.
//! - I3: the unit counter never carries into the sequence: a page has at most 2^17 units.
//!
//! Sources: NIST SP 800-38A, section 6.5; NIST SP 800-38D; RFC 5869.

pub(crate) mod gcm;

use std::fmt;
use std::path::Path;

use aes::{Aes128Enc, Aes256Enc};
use cipher::consts::U16;
use cipher::{Array, BlockCipherEncrypt, InOutBuf, InnerIvInit, KeyInit, StreamCipherCore};
use ctr::{CtrCore, flavors};
use farcore_tuning::entropy;
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::cipher::gcm::{Gcm, Nonce, Tag};
use crate::constants::UNIT_BYTES;
use crate::error::{Error, Result};

/// A key for far memory. Zeroed when dropped, never printed.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub enum EncryptionKey {
    /// AES with a 128-bit key.
    Aes128([u8; 16]),
    /// AES with a 256-bit key.
    Aes256([u8; 32]),
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128(_) => "EncryptionKey::Aes128(..)",
            Self::Aes256(_) => "EncryptionKey::Aes256(..)",
        })
    }
}

impl EncryptionKey {
    /// A random AES-128 key that is stored nowhere. It need not be kept: the contents of far memory
    /// end with the engine.
    ///
    /// # Errors
    /// [`Error::Key`] if the kernel gives no random bytes.
    pub fn random() -> Result<Self> {
        let mut key = [0; 16];
        entropy(&mut key).map_err(|error| Error::Key {
            reason: error.to_string(),
        })?;
        Ok(Self::Aes128(key))
    }

    /// A key of 32 (AES-128) or 64 (AES-256) hexadecimal digits.
    ///
    /// # Errors
    /// [`Error::Key`] if it is anything else; the text is not repeated.
    pub fn from_hex(text: &str) -> Result<Self> {
        let text = text.trim();
        let mut bytes = Zeroizing::new([0u8; 32]);
        let length = text.len() / 2;
        if !matches!(text.len(), 32 | 64) {
            let reason = format!(
                "it has {} bytes, not 32 or 64 hexadecimal digits",
                text.len()
            );
            return Err(Error::Key { reason });
        }
        // Checked digit by digit: `from_str_radix` would take a sign as well.
        if !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Error::Key {
                reason: "it has a character that is no hexadecimal digit".to_owned(),
            });
        }
        for (place, byte) in bytes[..length].iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[place * 2..place * 2 + 2], 16).map_err(|_| {
                Error::Key {
                    reason: "it has a character that is no hexadecimal digit".to_owned(),
                }
            })?;
        }
        Ok(if length == 16 {
            let mut key = [0; 16];
            key.copy_from_slice(&bytes[..16]);
            Self::Aes128(key)
        } else {
            Self::Aes256(*bytes)
        })
    }

    /// A key from a file of hexadecimal digits.
    ///
    /// # Errors
    /// [`Error::Key`] if the file cannot be read or holds no key.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| Error::Key {
            reason: format!("{}: {error}", path.display()),
        })?;
        Self::from_hex(&Zeroizing::new(text))
    }

    /// A key from an environment variable of hexadecimal digits.
    ///
    /// # Errors
    /// [`Error::Key`] if the variable is not set or holds no key.
    pub fn from_environment(variable: &str) -> Result<Self> {
        let text = std::env::var(variable).map_err(|_| Error::Key {
            reason: format!("the variable {variable} is not set"),
        })?;
        Self::from_hex(&Zeroizing::new(text))
    }
}

/// What encryption guarantees about the bytes in far memory. The adversary can read and write them:
/// the memory node's host, the network between, or another client that knows the node's token.
///
/// Neither mode hides how much is stored, which pages are read and written and when, or where
/// records begin that were read one by one. Neither keeps such an adversary from destroying the
/// bytes. Keys and values in local memory are plaintext.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum EncryptionMode {
    /// AES-GCM (NIST SP 800-38D): secrecy and integrity. Each record, and each page's directory,
    /// carries a tag of 128 bits, which is verified before anything that was read is used. A record
    /// that was changed, truncated, exchanged for another, moved, or replaced by older contents of
    /// the same place is [`Error::Damaged`]: neither its value nor its version is returned, and it
    /// is not taken for absent.
    ///
    /// This holds while the engine is open, for what it wrote itself: the key is derived anew for
    /// each opening, and local memory knows which contents are current. Nothing is guaranteed
    /// across engines.
    ///
    /// Cost: 16 bytes a record, locally and far. Puts, deletes and compare-and-swaps of far keys
    /// read the whole record, not only its key. A record of 240 bytes that is read from or written
    /// to far memory takes some 90 ns more than with [`EncryptionMode::SecrecyOnly`] (an AMD EPYC
    /// of the Zen 3 generation).
    #[default]
    Authenticated,
    /// AES-CTR (NIST SP 800-38A): secrecy only. Far records carry an unkeyed checksum of 32 bits.
    /// It detects accidents. An adversary that knows or guesses a record can turn its ciphertext
    /// into that of another value of its choice, or restore older ciphertext, and is detected only
    /// by chance.
    SecrecyOnly,
}

/// Random bytes of one opening of an engine, from which its keys are derived.
pub(crate) type Salt = [u8; 16];

/// A fresh random salt.
pub(crate) fn random_salt() -> Result<Salt> {
    let mut salt = Salt::default();
    entropy(&mut salt).map_err(|error| Error::Key {
        reason: format!("no random bytes: {error}"),
    })?;
    Ok(salt)
}

/// The round keys of AES.
#[derive(Clone)]
pub(crate) enum Schedule {
    Aes128(Box<Aes128Enc>),
    Aes256(Box<Aes256Enc>),
}

impl Schedule {
    pub(crate) fn new(key: &EncryptionKey) -> Self {
        match key {
            EncryptionKey::Aes128(key) => Self::Aes128(Box::new(Aes128Enc::new(key.into()))),
            EncryptionKey::Aes256(key) => Self::Aes256(Box::new(Aes256Enc::new(key.into()))),
        }
    }

    /// Encrypts blocks in place, independently.
    #[inline]
    pub(crate) fn encrypt(&self, blocks: &mut [Array<u8, U16>]) {
        match self {
            Self::Aes128(aes) => aes.encrypt_blocks(blocks),
            Self::Aes256(aes) => aes.encrypt_blocks(blocks),
        }
    }

    /// Encrypts or decrypts in counter mode, from a counter block on.
    #[inline]
    pub(crate) fn apply(&self, block: &[u8; UNIT_BYTES], data: InOutBuf<'_, '_, u8>) {
        let block = block.into();
        match self {
            Self::Aes128(aes) => {
                CtrCore::<_, flavors::Ctr32BE>::inner_iv_init(&**aes, block)
                    .apply_keystream_partial(data);
            }
            Self::Aes256(aes) => {
                CtrCore::<_, flavors::Ctr32BE>::inner_iv_init(&**aes, block)
                    .apply_keystream_partial(data);
            }
        }
    }
}

/// The key of one shard of one opening, in one mode.
fn derive(
    key: &EncryptionKey,
    mode: EncryptionMode,
    salt: &Salt,
    epoch: u32,
    shard: u16,
) -> EncryptionKey {
    let label: &[u8] = match mode {
        EncryptionMode::Authenticated => b"farcore 1 authenticated",
        EncryptionMode::SecrecyOnly => b"farcore 1 secrecy only",
    };
    expand(
        key,
        salt,
        &[label, &epoch.to_be_bytes(), &shard.to_be_bytes()],
    )
}

/// The key for what `info` names, by HKDF.
fn expand(key: &EncryptionKey, salt: &Salt, info: &[&[u8]]) -> EncryptionKey {
    let expand = |bytes: &[u8], subkey: &mut [u8]| {
        Hkdf::<Sha256>::new(Some(salt), bytes)
            .expand_multi_info(info, subkey)
            .expect("HKDF-SHA256 gives up to 8160 bytes");
    };
    match key {
        EncryptionKey::Aes128(bytes) => {
            let mut subkey = Zeroizing::new([0; 16]);
            expand(bytes, &mut *subkey);
            EncryptionKey::Aes128(*subkey)
        }
        EncryptionKey::Aes256(bytes) => {
            let mut subkey = Zeroizing::new([0; 32]);
            expand(bytes, &mut *subkey);
            EncryptionKey::Aes256(*subkey)
        }
    }
}

/// The AES-GCM for one file of a store, which has a salt of its own.
pub(crate) fn storage_gcm(key: &EncryptionKey, salt: &Salt) -> Gcm {
    Gcm::new(Schedule::new(&expand(key, salt, &[b"farcore 1 storage"])))
}

/// Encrypts and decrypts the far pages of one shard.
#[derive(Clone, Debug)]
pub(crate) enum PageCipher {
    Authenticated(RecordCipher),
    SecrecyOnly(CounterCipher),
}

impl PageCipher {
    /// The cipher for one shard of one opening of an engine.
    pub(crate) fn new(
        key: &EncryptionKey,
        mode: EncryptionMode,
        salt: &Salt,
        epoch: u32,
        shard: u16,
    ) -> Self {
        let schedule = Schedule::new(&derive(key, mode, salt, epoch, shard));
        match mode {
            EncryptionMode::Authenticated => Self::Authenticated(RecordCipher::new(schedule)),
            EncryptionMode::SecrecyOnly => {
                Self::SecrecyOnly(CounterCipher::new(schedule, epoch, shard))
            }
        }
    }

    /// The record cipher, in the authenticated mode.
    #[inline]
    pub(crate) fn authenticated(&self) -> Option<&RecordCipher> {
        match self {
            Self::Authenticated(cipher) => Some(cipher),
            Self::SecrecyOnly(_) => None,
        }
    }
}

/// Seals and opens records and directories, each a message of its own.
#[derive(Clone, Debug)]
pub(crate) struct RecordCipher(Gcm);

impl RecordCipher {
    fn new(schedule: Schedule) -> Self {
        Self(Gcm::new(schedule))
    }

    /// The AES-GCM that seals messages.
    pub(crate) fn gcm(&self) -> &Gcm {
        &self.0
    }

    /// The nonce of the message that begins at a unit of the page flushed as `sequence`.
    pub(crate) fn nonce(sequence: u64, unit: u32) -> Nonce {
        debug_assert!(sequence >> 48 == 0, "a sequence number has 48 bits");
        let mut nonce = Nonce::default();
        nonce[..6].copy_from_slice(&sequence.to_be_bytes()[2..]);
        nonce[6..10].copy_from_slice(&unit.to_be_bytes());
        nonce
    }

    /// The tag of a page's header.
    pub(crate) fn header_tag(&self, sequence: u64, header: &[u8]) -> Tag {
        self.0.authenticate(&Self::nonce(sequence, 0), header)
    }

    /// Decrypts the header of a record, unverified: it only says how much to read.
    pub(crate) fn peek(&self, sequence: u64, unit: u32, header: &mut [u8; UNIT_BYTES]) {
        self.0.peek(&Self::nonce(sequence, unit), header);
    }

    /// Decrypts the record at the start of `data`, which may be longer. Returns its bytes with its
    /// tag, or `None` if it is not what was sealed there; then nothing was decrypted.
    /// `sealed_bytes` returns the length of a sealed record from its header.
    #[inline]
    pub(crate) fn open_record(
        &self,
        sequence: u64,
        unit: u32,
        data: InOutBuf<'_, '_, u8>,
        sealed_bytes: impl FnOnce(&[u8; UNIT_BYTES]) -> Option<usize>,
    ) -> Option<usize> {
        self.0
            .open(&Self::nonce(sequence, unit), data, sealed_bytes)
    }

    /// Decrypts a directory that its tag follows. Returns false and changes nothing if it is not
    /// what was sealed there.
    pub(crate) fn open_directory(&self, sequence: u64, unit: u32, data: &mut [u8]) -> bool {
        self.0.open_whole(&Self::nonce(sequence, unit), data)
    }
}

/// Encrypts and decrypts pages in counter mode, where both are the same operation.
#[derive(Clone)]
pub(crate) struct CounterCipher {
    schedule: Schedule,
    epoch: u32,
    shard: u16,
}

impl fmt::Debug for CounterCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterCipher")
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}

impl CounterCipher {
    fn new(schedule: Schedule, epoch: u32, shard: u16) -> Self {
        Self {
            schedule,
            epoch,
            shard,
        }
    }

    fn block(&self, sequence: u64, unit: u32) -> [u8; UNIT_BYTES] {
        debug_assert!(sequence >> 48 == 0, "a sequence number has 48 bits");
        let mut block = [0; UNIT_BYTES];
        block[..4].copy_from_slice(&self.epoch.to_be_bytes());
        block[4..6].copy_from_slice(&self.shard.to_be_bytes());
        block[6..12].copy_from_slice(&sequence.to_be_bytes()[2..]);
        block[12..].copy_from_slice(&unit.to_be_bytes());
        block
    }

    /// Encrypts or decrypts bytes in place that start at `unit` of the page flushed as `sequence`.
    #[inline]
    pub(crate) fn apply(&self, sequence: u64, unit: u32, data: &mut [u8]) {
        self.schedule
            .apply(&self.block(sequence, unit), data.into());
    }

    /// As [`CounterCipher::apply`], from `source` to `target` in one pass.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub(crate) fn apply_to(&self, sequence: u64, unit: u32, source: &[u8], target: &mut [u8]) {
        let both = InOutBuf::new(source, target);
        self.schedule.apply(
            &self.block(sequence, unit),
            both.expect("source and target are of one length"),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;

    const KEY_128: &str = "2b7e151628aed2a6abf7158809cf4f3c";
    const KEY_256: &str = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4";
    const PLAIN: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
                         30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    /// The first counter block of the standard's examples is f0f1f2..ff, split into epoch, shard,
    /// sequence and unit.
    fn standard(key: &str, expected: &str) {
        let schedule = Schedule::new(&EncryptionKey::from_hex(key).unwrap());
        let cipher = CounterCipher::new(schedule, 0xF0F1_F2F3, 0xF4F5);
        let (sequence, unit) = (0xF6F7_F8F9_FAFB, 0xFCFD_FEFF);
        let mut data = bytes(PLAIN);
        cipher.apply(sequence, unit, &mut data);
        assert_eq!(data, bytes(expected));
        let mut back = vec![0; data.len()];
        cipher.apply_to(sequence, unit, &data, &mut back);
        assert_eq!(back, bytes(PLAIN));
    }

    #[test]
    fn the_standards_examples_come_out() {
        // SP 800-38A, F.5.1 and F.5.5.
        standard(
            KEY_128,
            "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff\
             5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee",
        );
        standard(
            KEY_256,
            "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5\
             2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6",
        );
    }

    proptest! {
        #[test]
        fn a_record_is_its_part_of_the_page(wide: bool, sequence in 0u64..1 << 48, unit in 0usize..200, length in 0usize..700) {
            let key = EncryptionKey::from_hex(if wide { KEY_256 } else { KEY_128 }).unwrap();
            let cipher = CounterCipher::new(Schedule::new(&key), 7, 3);
            let page: Vec<u8> = (0..4096u32).map(|at| at.to_le_bytes()[0] ^ 0x5A).collect();
            let mut far = vec![0; page.len()];
            cipher.apply_to(sequence, 0, &page, &mut far);
            let start = unit * UNIT_BYTES;
            let end = (start + length).min(page.len());
            let mut record = far[start..end].to_vec();
            cipher.apply(sequence, u32::try_from(unit).unwrap(), &mut record);
            prop_assert_eq!(&record, &page[start..end]);
        }

        #[test]
        fn no_two_units_share_a_counter_block(
            one in (any::<u32>(), any::<u16>(), 0u64..1 << 48, 0u32..1 << 17),
            field in 0usize..4,
            bit in 0u32..64,
        ) {
            let block = |(epoch, shard, sequence, unit): (u32, u16, u64, u32)| {
                let schedule = Schedule::new(&EncryptionKey::Aes128([1; 16]));
                CounterCipher::new(schedule, epoch, shard).block(sequence, unit)
            };
            let mut other = one;
            match field {
                0 => other.0 ^= 1 << (bit % 32),
                1 => other.1 ^= 1 << (bit % 16),
                2 => other.2 ^= 1 << (bit % 48),
                _ => other.3 ^= 1 << (bit % 17),
            }
            prop_assert_ne!(block(one), block(other));
        }

        #[test]
        fn no_two_messages_share_a_nonce(one in (0u64..1 << 48, 0u32..1 << 17), second: bool, bit in 0u32..48) {
            let nonce = |(sequence, unit)| RecordCipher::nonce(sequence, unit);
            let mut other = one;
            if second {
                other.1 ^= 1 << (bit % 17);
            } else {
                other.0 ^= 1 << bit;
            }
            prop_assert_ne!(nonce(one), nonce(other));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,70}") {
            let _ = EncryptionKey::from_hex(&text);
        }
    }

    #[test]
    fn a_key_is_hexadecimal_digits_and_nothing_else() {
        let padded = format!(" {KEY_128}\n");
        assert!(EncryptionKey::from_hex(&padded).is_ok());
        assert!(EncryptionKey::from_hex(&KEY_256.to_uppercase()).is_ok());
        for wrong in [
            "",
            "2b7e",
            &KEY_256[..62],
            "é",
            "zz7e151628aed2a6abf7158809cf4f3c",
        ] {
            let refused = EncryptionKey::from_hex(wrong);
            assert!(matches!(refused, Err(Error::Key { .. })), "{wrong}");
        }
        assert!(EncryptionKey::from_hex("+b7e151628aed2a6abf7158809cf4f3c").is_err());
    }

    #[test]
    fn every_opening_epoch_shard_and_mode_has_a_key_of_its_own() {
        let both = [EncryptionMode::Authenticated, EncryptionMode::SecrecyOnly];
        for key in [KEY_128, KEY_256] {
            let key = EncryptionKey::from_hex(key).unwrap();
            let mut keys = vec![key.clone()];
            for (mode, salt) in both
                .into_iter()
                .flat_map(|mode| [(mode, [1; 16]), (mode, [2; 16])])
            {
                for (epoch, shard) in [(0, 0), (0, 1), (1, 0), (1 << 16, 0)] {
                    let subkey = derive(&key, mode, &salt, epoch, shard);
                    assert_eq!(subkey, derive(&key, mode, &salt, epoch, shard));
                    assert!(!keys.contains(&subkey));
                    keys.push(subkey);
                }
            }
        }
        assert_ne!(random_salt().unwrap(), random_salt().unwrap());
    }

    #[test]
    fn errors_name_their_source_and_nothing_shows_the_key() {
        let missing = EncryptionKey::from_file("/nonexistent/key").unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/key"));
        let unset = EncryptionKey::from_environment("FARCORE_NO_SUCH_KEY").unwrap_err();
        assert!(unset.to_string().contains("FARCORE_NO_SUCH_KEY"));
        let refused = EncryptionKey::from_hex("zz7e151628aed2a6abf7158809cf4f3c").unwrap_err();
        assert!(!refused.to_string().contains("7e15"));
        let key = EncryptionKey::Aes128([171; 16]);
        for mode in [EncryptionMode::Authenticated, EncryptionMode::SecrecyOnly] {
            let cipher = PageCipher::new(&key, mode, &[9; 16], 1, 2);
            let shown = format!("{key:?} {cipher:?}");
            assert!(
                !shown.contains("171") && !shown.to_lowercase().contains("ab, "),
                "{shown}"
            );
        }
    }

    #[test]
    #[ignore = "prints rates; run it in release"]
    fn rates() {
        for key in [
            EncryptionKey::Aes128([9; 16]),
            EncryptionKey::Aes256([9; 32]),
        ] {
            let cipher = CounterCipher::new(Schedule::new(&key), 1, 2);
            for length in [64usize, 128, 256, 1024, 65_536] {
                let mut data = vec![1u8; length];
                let mut far = vec![0u8; length];
                let rounds = (1 << 20) / length.max(64);
                // The best of many slices, to exclude other work of the machine.
                let time = |mut run: Box<dyn FnMut(u64) + '_>| {
                    let slice = |_| {
                        let start = Instant::now();
                        for round in 0..rounds as u64 {
                            run(round);
                        }
                        start.elapsed().as_nanos() as f64 / rounds as f64
                    };
                    (0..200).map(slice).fold(f64::MAX, f64::min)
                };
                let here = time(Box::new(|round| cipher.apply(round, 4, &mut data)));
                let there = time(Box::new(|round| cipher.apply_to(round, 4, &data, &mut far)));
                println!(
                    "{key:?} {length:>6} B: {here:.1} ns in place ({:.1} GB/s), {there:.1} ns copied ({:.1} GB/s)",
                    length as f64 / here,
                    length as f64 / there,
                );
            }
        }
    }
}
