//! The rest of a command that is refused before all of it has come: it is skipped as it comes.

use crate::resp::ProtocolError;

/// Bytes of the line of a bulk string's length, at most.
const LINE_BYTES_MAX: usize = 32;
/// Bytes after a bulk string.
const ENDING_BYTES: usize = 2;

/// What is left of a command that is refused.
#[derive(Debug)]
pub(crate) struct Discarding {
    /// Bulk strings whose lengths have not come.
    bulks: usize,
    /// Bytes of the bulk string under way, with its end.
    bytes: usize,
    /// The begin of the line of the next one's length.
    line: Vec<u8>,
}

impl Discarding {
    /// Drops this many bulk strings.
    pub(crate) fn new(bulks: usize) -> Self {
        Self {
            bulks,
            bytes: 0,
            line: Vec::new(),
        }
    }

    /// True if nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        self.bulks == 0 && self.bytes == 0
    }

    /// Skips what belongs to the command; returns how many bytes that are.
    ///
    /// # Errors
    /// They are no bulk strings.
    pub(crate) fn skip(&mut self, bytes: &[u8]) -> Result<usize, ProtocolError> {
        let mut skipped = 0;
        while !self.is_done() && skipped < bytes.len() {
            let rest = &bytes[skipped..];
            if self.bytes > 0 {
                let some = self.bytes.min(rest.len());
                self.bytes -= some;
                skipped += some;
                continue;
            }
            let end = rest.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(rest.len(), |end| end + 1);
            self.line
                .extend_from_slice(&rest[..taken.min(LINE_BYTES_MAX + 1)]);
            if self.line.len() > LINE_BYTES_MAX {
                return Err(ProtocolError::BulkLine);
            }
            skipped += taken;
            if end.is_some() {
                self.bytes = length(&self.line)? + ENDING_BYTES;
                self.bulks -= 1;
                self.line.clear();
            }
        }
        Ok(skipped)
    }
}

/// The length that a line announces.
fn length(line: &[u8]) -> Result<usize, ProtocolError> {
    let (&mark, rest) = line.split_first().ok_or(ProtocolError::BulkLength)?;
    if mark != b'$' {
        return Err(ProtocolError::BulkExpected { found: mark });
    }
    let digits = rest.strip_suffix(b"\r\n");
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    let length = digits.and_then(|digits| digits.parse().ok());
    // A longer one is refused where lengths are checked.
    length
        .filter(|&length| length <= usize::MAX / 2)
        .ok_or(ProtocolError::BulkLength)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_skipped_however_it_is_cut() {
        let bytes = b"$3\r\nabc\r\n$0\r\n\r\n$10\r\n0123\r\n6789\r\n*1\r\n$4\r\nPING\r\n";
        let end = bytes.len() - b"*1\r\n$4\r\nPING\r\n".len();
        for step in 1..bytes.len() {
            let mut discarding = Discarding::new(3);
            let mut skipped = 0;
            for piece in bytes.chunks(step) {
                skipped += discarding.skip(piece).expect("bulk strings");
            }
            assert!(discarding.is_done(), "step {step}");
            assert_eq!(skipped, end, "step {step}");
        }
    }

    #[test]
    fn what_is_no_bulk_string_is_an_error() {
        let skip = |bytes: &[u8]| Discarding::new(1).skip(bytes);
        assert_eq!(
            skip(b"*1\r\n"),
            Err(ProtocolError::BulkExpected { found: b'*' })
        );
        for text in ["$\r\n", "$-1\r\n", "$1\n", "$99999999999999999999\r\n"] {
            assert_eq!(skip(text.as_bytes()), Err(ProtocolError::BulkLength));
        }
        assert_eq!(skip(&[b'$'; 40]), Err(ProtocolError::BulkLine));
    }
}
