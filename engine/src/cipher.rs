//! The cipher at the fabric's boundary: AES-CTR over pages and records.
//!
//! ```text
//! counter block, big endian:  | epoch:32 | shard:16 | page sequence:48 | unit:32 |
//! ```
//!
//! - I1: an epoch is drawn at random for each engine, a sequence number is used for one flush of one shard: no unit
//!   is ever encrypted twice under one counter block.
//! - I2: the unit counter never carries into the sequence: a page has at most 2^17 units.
//!
//! Source: NIST SP 800-38A, section 6.5.

use std::fmt;
use std::path::Path;

use aes::{Aes128Enc, Aes256Enc};
use cipher::{InnerIvInit, KeyInit, StreamCipher};
use ctr::{Ctr32BE, CtrCore, flavors};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

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
    /// A key that nobody knows: far memory holds nothing that outlives the engine.
    ///
    /// # Errors
    /// [`Error::Key`] if the kernel gives no random bytes.
    pub fn random() -> Result<Self> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|error| Error::Key {
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
        if !matches!(text.len(), 32 | 64) || !text.is_ascii() {
            let reason = format!(
                "it has {} characters, not 32 or 64 hexadecimal digits",
                text.len()
            );
            return Err(Error::Key { reason });
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

#[derive(Clone)]
enum Schedule {
    Aes128(Box<Aes128Enc>),
    Aes256(Box<Aes256Enc>),
}

/// Encrypts and decrypts what one shard keeps in far memory. In counter mode both are the same.
#[derive(Clone)]
pub(crate) struct PageCipher {
    schedule: Schedule,
    epoch: u32,
    shard: u16,
}

impl fmt::Debug for PageCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCipher")
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}

impl PageCipher {
    /// The cipher of one shard of one engine.
    pub(crate) fn new(key: &EncryptionKey, epoch: u32, shard: u16) -> Self {
        let schedule = match key {
            EncryptionKey::Aes128(key) => Schedule::Aes128(Box::new(Aes128Enc::new(key.into()))),
            EncryptionKey::Aes256(key) => Schedule::Aes256(Box::new(Aes256Enc::new(key.into()))),
        };
        Self {
            schedule,
            epoch,
            shard,
        }
    }

    fn block(&self, sequence: u64, unit: u32) -> [u8; UNIT_BYTES] {
        let mut block = [0; UNIT_BYTES];
        block[..4].copy_from_slice(&self.epoch.to_be_bytes());
        block[4..6].copy_from_slice(&self.shard.to_be_bytes());
        block[6..12].copy_from_slice(&sequence.to_be_bytes()[2..]);
        block[12..].copy_from_slice(&unit.to_be_bytes());
        block
    }

    /// Encrypts or decrypts in place what starts at `unit` of the page flushed as `sequence`.
    pub(crate) fn apply(&self, sequence: u64, unit: u32, data: &mut [u8]) {
        let block = self.block(sequence, unit);
        match &self.schedule {
            Schedule::Aes128(aes) => {
                let core = CtrCore::<_, flavors::Ctr32BE>::inner_iv_init(&**aes, &block.into());
                Ctr32BE::from_core(core).apply_keystream(data);
            }
            Schedule::Aes256(aes) => {
                let core = CtrCore::<_, flavors::Ctr32BE>::inner_iv_init(&**aes, &block.into());
                Ctr32BE::from_core(core).apply_keystream(data);
            }
        }
    }

    /// As [`PageCipher::apply`], from one place to another of the same length.
    pub(crate) fn apply_to(&self, sequence: u64, unit: u32, source: &[u8], target: &mut [u8]) {
        target.copy_from_slice(source);
        self.apply(sequence, unit, target);
    }
}
