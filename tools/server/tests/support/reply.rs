//! Replies of RESP2 and RESP3, read from a stream and shown in one line.

use std::fmt;
use std::io::{self, BufRead, Read};

/// A reply.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    NullArray,
    Null3,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Double(String),
    Boolean(bool),
    Verbatim(Vec<u8>),
}

fn malformed(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {line:?}"))
}

impl Reply {
    /// Reads a reply; `None` at the end of the stream.
    pub(crate) fn read(stream: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = Vec::new();
        if stream.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        let Some(text) = text.strip_suffix("\r\n") else {
            return Err(malformed(&text));
        };
        let (kind, rest) = text.split_at_checked(1).ok_or_else(|| malformed(text))?;
        let number = || rest.parse::<i64>().map_err(|_| malformed(text));
        Ok(Some(match kind {
            "+" => Self::Simple(rest.to_owned()),
            "-" => Self::Error(rest.to_owned()),
            ":" => Self::Integer(number()?),
            "$" if rest == "-1" => Self::Null,
            "*" if rest == "-1" => Self::NullArray,
            "_" => Self::Null3,
            "$" => Self::Bulk(bulk(stream, number()?)?),
            "=" => Self::Verbatim(bulk(stream, number()?)?),
            "," => Self::Double(rest.to_owned()),
            "#" => Self::Boolean(rest == "t"),
            "*" => Self::Array(many(stream, number()?)?),
            "~" => Self::Set(many(stream, number()?)?),
            ">" => Self::Push(many(stream, number()?)?),
            "%" => {
                let flat = many(stream, 2 * number()?)?;
                Self::Map(
                    flat.chunks_exact(2)
                        .map(|pair| (pair[0].clone(), pair[1].clone()))
                        .collect(),
                )
            }
            _ => return Err(malformed(text)),
        }))
    }

    /// The text of a string, whatever its kind.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Simple(text) | Self::Error(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Verbatim(bytes) => String::from_utf8_lossy(&bytes[4..]).into_owned(),
            other => other.to_string(),
        }
    }

    /// The elements of an array or set.
    pub(crate) fn elements(&self) -> &[Self] {
        match self {
            Self::Array(elements) | Self::Set(elements) | Self::Push(elements) => elements,
            other => panic!("not an array: {other}"),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

fn bulk(stream: &mut impl Read, length: i64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(|_| malformed("a negative length"))?;
    let mut bytes = vec![0; length + 2];
    stream.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

fn many(stream: &mut impl BufRead, count: i64) -> io::Result<Vec<Reply>> {
    (0..count)
        .map(|_| Reply::read(stream)?.ok_or_else(|| malformed("the end")))
        .collect()
}

fn list(f: &mut fmt::Formatter<'_>, elements: &[Reply]) -> fmt::Result {
    f.write_str("[")?;
    for (place, element) in elements.iter().enumerate() {
        let separator = if place == 0 { "" } else { ", " };
        write!(f, "{separator}{element}")?;
    }
    f.write_str("]")
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Integer(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Verbatim(bytes) => write!(f, "=\"{}\"", bytes.escape_ascii()),
            Self::Null => f.write_str("null"),
            Self::NullArray => f.write_str("null array"),
            Self::Null3 => f.write_str("_"),
            Self::Array(elements) => list(f, elements),
            Self::Set(elements) => {
                f.write_str("~")?;
                list(f, elements)
            }
            Self::Push(elements) => {
                f.write_str(">")?;
                list(f, elements)
            }
            Self::Map(pairs) => {
                f.write_str("{")?;
                for (place, (key, value)) in pairs.iter().enumerate() {
                    let separator = if place == 0 { "" } else { ", " };
                    write!(f, "{separator}{key}: {value}")?;
                }
                f.write_str("}")
            }
            Self::Double(text) => write!(f, ",{text}"),
            Self::Boolean(is_true) => write!(f, "#{is_true}"),
        }
    }
}
