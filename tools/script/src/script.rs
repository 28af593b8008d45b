//! A script: its text, its digest, and what its first line says.

use sha1::{Digest, Sha1};

use crate::keys::{CalledCommand, called_commands};

/// Engines that a first line may name.
const ENGINE: &str = "lua";
/// Flags that a first line may have; those without an effect here among them.
const FLAGS: [&str; 5] = [
    "allow-cross-slot-keys",
    "allow-oom",
    "allow-stale",
    "no-cluster",
    "no-writes",
];

/// Bytes of a script at most: digest and compiler are not interrupted.
pub const SCRIPT_BYTES_MAX: usize = 256 << 10;

/// The digest by which a script is known: 40 hexadecimal digits, in small letters.
#[must_use]
pub fn sha_of(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let digest = Sha1::digest(bytes);
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A script.
#[derive(Debug)]
pub struct Script {
    /// Its digest.
    pub sha: String,
    /// Its text.
    pub text: Vec<u8>,
    /// It may not write.
    pub is_read_only: bool,
    /// It may run while memory is full.
    pub allows_full_memory: bool,
    /// Its first line says what it does. Else that is not known before it runs.
    pub has_flags: bool,
    /// The commands that it calls, if its text shows that it uses none but its keys.
    pub commands: Option<Vec<CalledCommand>>,
}

impl Script {
    /// The script of a text.
    ///
    /// # Errors
    /// It has more than [`SCRIPT_BYTES_MAX`], or its first line begins with `#!` and is not
    /// understood: the text of the error, as Redis.
    pub fn new(text: &[u8]) -> Result<Self, String> {
        if text.len() > SCRIPT_BYTES_MAX {
            return Err(format!(
                "ERR Error compiling script (new function): a script takes at most \
                 {SCRIPT_BYTES_MAX} bytes"
            ));
        }
        let mut script = Self {
            sha: sha_of(text),
            text: text.to_vec(),
            is_read_only: false,
            allows_full_memory: false,
            has_flags: false,
            commands: called_commands(text),
        };
        if text.starts_with(b"#!") {
            script.read_first_line()?;
        }
        Ok(script)
    }

    fn read_first_line(&mut self) -> Result<(), String> {
        let end = self.text.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or("ERR Invalid script shebang")?;
        let line = String::from_utf8_lossy(&self.text[..end]).into_owned();
        let mut words = line.split_ascii_whitespace();
        let engine = words.next().unwrap_or("");
        if engine.strip_prefix("#!") != Some(ENGINE) {
            return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
        }
        for word in words {
            let Some(flags) = word.strip_prefix("flags=") else {
                return Err(format!("ERR Unknown lua shebang option: {word}"));
            };
            for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
                if !FLAGS.contains(&flag) {
                    return Err(format!("ERR Unexpected flag in script shebang: {flag}"));
                }
                self.is_read_only |= flag == "no-writes";
                self.allows_full_memory |= flag == "allow-oom";
            }
        }
        self.has_flags = true;
        // The line stays, as a comment would, so that lines keep their numbers.
        Ok(())
    }

    /// What is compiled: the text without what its first line says.
    #[cfg(any(test, feature = "lua"))]
    pub(crate) fn code(&self) -> &[u8] {
        if !self.has_flags {
            return &self.text;
        }
        let end = self.text.iter().position(|byte| *byte == b'\n');
        &self.text[end.unwrap_or(0)..]
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.text.capacity() + self.sha.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_a_script_may() {
        assert_eq!(
            sha_of(b"return 1"),
            "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
        );
        let plain = Script::new(b"return 1").expect("a script");
        assert!(!plain.has_flags && !plain.is_read_only && plain.code() == b"return 1");
        let flagged = Script::new(b"#!lua flags=no-writes,allow-oom\nreturn 1").expect("one");
        assert!(flagged.has_flags && flagged.is_read_only && flagged.allows_full_memory);
        assert_eq!(flagged.code(), b"\nreturn 1");
        for (text, error) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!js\n", "ERR Unexpected engine in script shebang: #!js"),
            ("#!lua x=1\n", "ERR Unknown lua shebang option: x=1"),
            (
                "#!lua flags=x\n",
                "ERR Unexpected flag in script shebang: x",
            ),
        ] {
            assert_eq!(Script::new(text.as_bytes()).expect_err("refused"), error);
        }
    }
}
