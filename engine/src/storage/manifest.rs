//! What a data directory holds, as text: one line for each fact, and a checksum of them all.
//!
//! ```text
//! farcore-manifest 1
//! engine 32 hexadecimal digits
//! base 7                         the generation, 0 if there is none
//! shards 2                       of the base
//! unix_ms 1700000000000
//! keys 1000
//! log 9                          the last generation whose logs were made, 0 if there is none
//! file 0 1048576 CHAIN           of the base: shard, bytes, digest of all tags
//! file 1 1048576 CHAIN
//! checksum XXH3-128 of all lines before
//! ```
//!
//! - I1: a manifest is read only if each line is as it was written.

use std::fmt::Write;

use xxhash_rust::xxh3::xxh3_128;

use super::block::Chain;

const FORMAT: u32 = 1;
/// The longest manifest, in bytes: of as many shards as there can be.
pub(super) const MANIFEST_BYTES_MAX: u64 = 8 << 20;

/// A file of the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BaseFile {
    pub(crate) bytes: u64,
    /// The digest of the tags of its blocks.
    pub(crate) chain: Chain,
}

/// What a store consists of, beside its logs from the base's generation on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Manifest {
    /// The store's own number, which stays.
    pub(crate) engine: [u8; 16],
    /// The generation of the base; 0 if there is none.
    pub(crate) base: u64,
    /// The base's files, one of each shard, in their order.
    pub(crate) files: Vec<BaseFile>,
    pub(crate) unix_ms: u64,
    /// Keys of the base.
    pub(crate) keys: u64,
    /// The last generation whose logs were made; 0 if there is none.
    pub(crate) log: u64,
}

impl Manifest {
    /// As text.
    pub(super) fn text(&self) -> String {
        let engine = u128::from_be_bytes(self.engine);
        let (base, shards) = (self.base, self.files.len());
        let (unix_ms, keys, log) = (self.unix_ms, self.keys, self.log);
        let mut text = format!(
            "farcore-manifest {FORMAT}\nengine {engine:032x}\nbase {base}\nshards {shards}\n\
             unix_ms {unix_ms}\nkeys {keys}\nlog {log}\n"
        );
        for (shard, BaseFile { bytes, chain }) in self.files.iter().enumerate() {
            // Text takes whatever is written.
            let _ = writeln!(text, "file {shard} {bytes} {:032x}", chain.0);
        }
        let checksum = xxh3_128(text.as_bytes());
        let _ = writeln!(text, "checksum {checksum:032x}");
        text
    }

    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let last = "checksum ";
        let (front, checksum) = text
            .rfind(last)
            .map(|at| text.split_at(at))
            .ok_or("it has no checksum")?;
        let made = format!("{last}{:032x}\n", xxh3_128(front.as_bytes()));
        if checksum != made {
            return Err("its checksum is wrong".to_owned());
        }
        let mut lines = front.lines();
        let mut value = |key: &str| {
            let line = lines.next().unwrap_or_default();
            let value = line
                .strip_prefix(key)
                .and_then(|rest| rest.strip_prefix(' '));
            value.ok_or_else(|| format!("`{line}` is no line of `{key}`"))
        };
        let format = number::<u32>(value("farcore-manifest")?)?;
        if format != FORMAT {
            return Err(format!(
                "it has format {format} and this version reads {FORMAT}"
            ));
        }
        let engine = hexadecimal(value("engine")?)?.to_be_bytes();
        let base = number(value("base")?)?;
        let shards = number::<u16>(value("shards")?)?;
        let unix_ms = number(value("unix_ms")?)?;
        let keys = number(value("keys")?)?;
        let log = number(value("log")?)?;
        let mut files = Vec::new();
        for shard in 0..shards {
            let line = value("file")?;
            let parts: Vec<_> = line.split(' ').collect();
            let &[place, bytes, chain] = &parts[..] else {
                return Err(format!("`{line}` is no shard, bytes and digest"));
            };
            if number::<u16>(place)? != shard {
                return Err(format!("file {place} stands in the place of {shard}"));
            }
            files.push(BaseFile {
                bytes: number(bytes)?,
                chain: Chain(hexadecimal(chain)?),
            });
        }
        if let Some(line) = lines.next() {
            return Err(format!("`{line}` is a line too many"));
        }
        if log < base {
            return Err(format!("its log {log} is older than its base {base}"));
        }
        if (base == 0) != files.is_empty() {
            return Err(format!("base {base} has {shards} files"));
        }
        let read = Self {
            engine,
            base,
            files,
            unix_ms,
            keys,
            log,
        };
        // Other ends of lines, and whatever else was not looked at.
        let is_alike = read.text() == text;
        is_alike
            .then_some(read)
            .ok_or_else(|| "its lines do not end as they were written".to_owned())
    }
}

/// A number as it is printed: without sign or leading zeros.
fn number<N: std::str::FromStr + ToString>(text: &str) -> Result<N, String> {
    let number = text.parse::<N>().ok();
    let number = number.filter(|number| number.to_string() == text);
    number.ok_or_else(|| format!("`{text}` is no number, or too large"))
}

fn hexadecimal(text: &str) -> Result<u128, String> {
    let number = u128::from_str_radix(text, 16).ok();
    let number = number.filter(|number| format!("{number:032x}") == text);
    number.ok_or_else(|| format!("`{text}` is not of 32 hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let file = |bytes| BaseFile {
            bytes,
            chain: Chain(u128::from(bytes) << 70),
        };
        Manifest {
            engine: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
            base: 7,
            files: vec![file(4096), file(8192)],
            unix_ms: 1_700_000_000_000,
            keys: u64::MAX,
            log: 9,
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_or_not() {
        let text = manifest().text();
        assert_eq!(Manifest::parse(&text), Ok(manifest()));
        assert!(text.starts_with(
            "farcore-manifest 1\nengine 0102030405060708090a0b0c0d0e0f10\nbase 7\nshards 2\n"
        ));
        for place in 0..text.len() {
            assert!(Manifest::parse(&text[..place]).is_err(), "{place}");
            let mut bytes = text.clone().into_bytes();
            bytes[place] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Manifest::parse(&changed).is_err(), "{changed}");
        }
        assert!(Manifest::parse(&format!("{text}\n")).is_err());
    }

    #[test]
    fn lines_that_do_not_agree_are_refused_though_their_checksum_is_right() {
        let text = manifest().text();
        let (front, _) = text.split_once("checksum").unwrap();
        for (old, new, why) in [
            (
                "manifest 1",
                "manifest 2",
                "it has format 2 and this version reads 1",
            ),
            ("base 7", "base 0", "base 0 has 2 files"),
            ("base 7", "base 07", "`07` is no number, or too large"),
            ("base 7", "base +7", "`+7` is no number, or too large"),
            ("shards 2", "shards 1", "is a line too many"),
            ("shards 2", "shards 3", "`` is no line of `file`"),
            (
                "shards 2",
                "shards 65536",
                "`65536` is no number, or too large",
            ),
            ("file 1", "file 2", "file 2 stands in the place of 1"),
            ("engine 01", "engine 1", "is not of 32 hexadecimal digits"),
            ("keys", "words", "is no line of `keys`"),
            ("log 9", "log 6", "its log 6 is older than its base 7"),
        ] {
            let changed = front.replacen(old, new, 1);
            let sum = xxh3_128(changed.as_bytes());
            let found = Manifest::parse(&format!("{changed}checksum {sum:032x}\n"));
            assert!(
                found.clone().is_err_and(|error| error.contains(why)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn any_text_is_a_manifest_that_is_written_again_alike_or_none() {
        farcore_fuzz::Target::new("manifest")
            .seeds([manifest().text().into_bytes()])
            .run(|bytes| {
                let Ok(text) = std::str::from_utf8(bytes) else {
                    return;
                };
                // Inputs that reach behind the checksum.
                let sum = xxh3_128(text.as_bytes());
                for text in [text, &format!("{text}checksum {sum:032x}\n")] {
                    if let Ok(read) = Manifest::parse(text) {
                        assert_eq!(read.text(), text);
                    }
                }
            });
    }
}
