//! Replies of the server to what a source sent: which is whole, and which is an error.

/// Bytes of a line, at most.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of an error that are kept.
const ERROR_BYTES_MAX: usize = 512;
/// Bytes of the end of a line.
const END_BYTES: u64 = 2;

/// Bytes that are no reply.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct NoReply;

/// Reads replies of RESP2, of which it keeps nothing but errors.
#[derive(Debug, Default)]
pub(super) struct Replies {
    line: Vec<u8>,
    /// Bytes of a string that are still to come.
    skipped: u64,
    /// Values that are missing of the reply, beside the one that comes.
    missing: u64,
    /// The first error of the reply that comes.
    error: Option<String>,
}

impl Replies {
    /// Takes bytes; `whole` gets the error of each reply that is whole, if it is or holds one.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        mut whole: impl FnMut(Option<String>),
    ) -> Result<(), NoReply> {
        while !bytes.is_empty() {
            if self.skipped > 0 {
                let skipped = usize::try_from(self.skipped).unwrap_or(usize::MAX);
                let skipped = skipped.min(bytes.len());
                bytes = &bytes[skipped..];
                self.skipped -= skipped as u64;
                if self.skipped == 0 {
                    self.end_value(&mut whole);
                }
                continue;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            if self.line.len() + taken > LINE_BYTES_MAX {
                return Err(NoReply);
            }
            self.line.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut whole)?;
                self.line = line;
                self.line.clear();
            }
        }
        Ok(())
    }

    fn take_line(
        &mut self,
        line: &[u8],
        whole: &mut impl FnMut(Option<String>),
    ) -> Result<(), NoReply> {
        let (kind, rest) = line.split_first().ok_or(NoReply)?;
        let rest = rest.strip_suffix(b"\r\n").ok_or(NoReply)?;
        let count = || {
            let text = std::str::from_utf8(rest).ok();
            text.and_then(|text| text.parse::<i64>().ok())
                .ok_or(NoReply)
        };
        match kind {
            b'-' => {
                let kept = &rest[..rest.len().min(ERROR_BYTES_MAX)];
                let text = || String::from_utf8_lossy(kept).into_owned();
                self.error.get_or_insert_with(text);
            }
            b'$' => {
                if let Ok(bytes) = u64::try_from(count()?) {
                    self.skipped = bytes + END_BYTES;
                    return Ok(());
                }
            }
            b'*' => {
                // Counts are the server's own, which has as many values in memory.
                let values = u64::try_from(count()?).unwrap_or(0);
                self.missing = self.missing.checked_add(values).ok_or(NoReply)?;
            }
            b'+' | b':' => {}
            _ => return Err(NoReply),
        }
        self.end_value(whole);
        Ok(())
    }

    fn end_value(&mut self, whole: &mut impl FnMut(Option<String>)) {
        match self.missing.checked_sub(1) {
            Some(missing) => self.missing = missing,
            None => whole(self.error.take()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_however_they_are_split() {
        let bytes = b"+OK\r\n:1\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n$0\r\n\r\n*1\r\n-WRONGTYPE no\r\n*0\r\n-ERR a\r\n*-1\r\n";
        let wanted = [
            None,
            None,
            None,
            None,
            Some("WRONGTYPE no".to_owned()),
            None,
            Some("ERR a".to_owned()),
            None,
        ];
        for step in 1..bytes.len() {
            let (mut replies, mut found) = (Replies::default(), Vec::new());
            for part in bytes.chunks(step) {
                replies.take(part, |error| found.push(error)).unwrap();
            }
            assert_eq!(found, wanted, "in steps of {step}");
        }
        for bytes in [&b"hello\r\n"[..], b"+OK\n", b"$x\r\n", b"%1\r\n"] {
            let taken = Replies::default().take(bytes, |_| {});
            assert_eq!(taken, Err(NoReply), "{bytes:?}");
        }
        let endless = vec![b'+'; LINE_BYTES_MAX + 1];
        assert_eq!(Replies::default().take(&endless, |_| {}), Err(NoReply));
    }
}
