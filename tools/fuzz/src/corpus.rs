//! The corpus of a target: a file of text with one input a line, in the escapes of a byte string.
//!
//! A line that starts with `#` is a comment. A corpus has what code cannot make as a seed: inputs
//! that found a fault, and those by which a search reached more.

use std::fs;
use std::path::{Path, PathBuf};

/// The file of a target's corpus.
pub(crate) fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    folder.join(name.replace(' ', "-")).with_extension("txt")
}

/// Bytes as a line of a corpus.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    match text.strip_prefix('#') {
        Some(rest) => format!("\\x23{rest}"),
        None => text,
    }
}

/// The bytes of a line; `None` if it is none that [`escape`] writes.
#[must_use]
pub fn unescape(line: &str) -> Option<Vec<u8>> {
    let (mut rest, mut bytes) = (line.as_bytes(), Vec::new());
    while let [byte, after @ ..] = rest {
        let (byte, after) = match (byte, after) {
            (b'\\', [b'x', digits @ ..]) => {
                let (digits, after) = digits.split_first_chunk::<2>()?;
                let digits = str::from_utf8(digits).ok()?;
                (u8::from_str_radix(digits, 16).ok()?, after)
            }
            (b'\\', [escaped, after @ ..]) => {
                let at = b"nrt\\'\"".iter().position(|known| known == escaped)?;
                (b"\n\r\t\\'\""[at], after)
            }
            (b'\\', []) => return None,
            _ => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Some(bytes)
}

/// The inputs of a file; none if it does not exist.
///
/// # Panics
/// If a line is no input.
pub(crate) fn read(file: &Path) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            unescape(line).unwrap_or_else(|| panic!("{}: no input: {line}", file.display()))
        })
        .collect()
}

/// Writes a corpus anew: the comments at its head stay.
pub(crate) fn write(file: &Path, inputs: &[Vec<u8>]) -> std::io::Result<()> {
    let old = fs::read_to_string(file).unwrap_or_default();
    let comments = old.lines().take_while(|line| line.starts_with('#'));
    let mut text: String = comments.map(|line| format!("{line}\n")).collect();
    for input in inputs {
        text.push_str(&escape(input));
        text.push('\n');
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, text)
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn a_line_reads_back() {
        let all: Vec<_> = (0..=255).collect();
        for bytes in [&all[..], b"", b"# no comment", b"\\x", b"'\""] {
            let line = escape(bytes);
            assert!(!line.starts_with('#') && !line.contains('\n'), "{line}");
            assert_eq!(unescape(&line).as_deref(), Some(bytes));
        }
        for wrong in ["\\", "\\q", "\\x1", "\\xzz"] {
            assert_eq!(unescape(wrong), None);
        }
    }
}
