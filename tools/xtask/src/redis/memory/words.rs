//! The Redis protocol, as far as this needs it: commands are written, replies are read.

use std::io::{self, BufRead, ErrorKind};

/// Appends a command.
pub(in crate::redis) fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    begin(out, words.len());
    for word in words {
        argument(out, word);
    }
}

/// Appends the beginning of a command, which says how many words it has.
pub(in crate::redis) fn begin(out: &mut Vec<u8>, words: usize) {
    out.extend_from_slice(format!("*{words}\r\n").as_bytes());
}

/// Appends a word.
pub(in crate::redis) fn argument(out: &mut Vec<u8>, word: &[u8]) {
    announce(out, word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Appends the length of a word that follows.
pub(in crate::redis) fn announce(out: &mut Vec<u8>, bytes: usize) {
    out.extend_from_slice(format!("${bytes}\r\n").as_bytes());
}

/// A reply. Values of which only the length matters are kept too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::redis) enum Reply {
    /// A line: a status or a number.
    Line(String),
    Error(String),
    Bytes(Vec<u8>),
    Absent,
    Many(Vec<Self>),
}

fn wrong(line: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{line:?} is no reply"))
}

impl Reply {
    /// Reads a reply of either version of the protocol.
    ///
    /// # Errors
    /// Of the connection, `UnexpectedEof` at its end, `InvalidData`.
    pub(in crate::redis) fn read(stream: &mut impl BufRead) -> io::Result<Self> {
        let mut line = Vec::new();
        stream.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| wrong(line))?;
        let count = || rest.parse::<i64>().map_err(|_| wrong(line));
        match kind {
            "+" | ":" | "," | "#" | "(" => Ok(Self::Line(rest.to_owned())),
            "-" => Ok(Self::Error(rest.to_owned())),
            "_" => Ok(Self::Absent),
            "$" | "=" => {
                let Ok(bytes) = usize::try_from(count()?) else {
                    return Ok(Self::Absent);
                };
                let mut value = vec![0; bytes + 2];
                stream.read_exact(&mut value)?;
                value.truncate(bytes);
                Ok(Self::Bytes(value))
            }
            "*" | ">" | "~" => Self::read_many(stream, count()?),
            "%" => Self::read_many(stream, count()?.saturating_mul(2)),
            _ => Err(wrong(line)),
        }
    }

    fn read_many(stream: &mut impl BufRead, count: i64) -> io::Result<Self> {
        if count < 0 {
            return Ok(Self::Absent);
        }
        let all = (0..count).map(|_| Self::read(stream));
        all.collect::<io::Result<_>>().map(Self::Many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_written_as_arrays() {
        let mut out = Vec::new();
        command(&mut out, &[b"GET", b"k"]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }

    #[test]
    fn replies_of_both_versions_are_read() {
        let mut stream = &b"+OK\r\n-ERR no\r\n$-1\r\n_\r\n%1\r\n$1\r\na\r\n:7\r\n"[..];
        let mut read = || Reply::read(&mut stream).unwrap();
        assert_eq!(read(), Reply::Line("OK".to_owned()));
        assert_eq!(read(), Reply::Error("ERR no".to_owned()));
        assert_eq!((read(), read()), (Reply::Absent, Reply::Absent));
        let pair = vec![Reply::Bytes(b"a".to_vec()), Reply::Line("7".to_owned())];
        assert_eq!(read(), Reply::Many(pair));
        let end = Reply::read(&mut stream).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    }
}
