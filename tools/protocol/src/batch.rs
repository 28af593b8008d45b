//! Several operations in one message, and their answers.
//!
//! ```text
//! operation: 0 kind:8 | 1 options:8 | 2 key bytes:16 | 4 value bytes:32 | 8 version:64 | 16 argument:64
//!            24 key, value
//! answer:    0 place:16 | 2 status:8 | 3 flags:8 | 4 value bytes:32 | 8 version:64
//!            16 value, unless the flag ABSENT says that it did not fit: get it alone
//! ```
//!
//! Kinds are those of single requests: GET, PUT, DELETE, CAS. Answers come in any order; `place`
//! counts operations from 0.

use crate::fields::{u16_at, u32_at, u64_at};
use crate::header::{Header, Kind, WireError};
use crate::limits::KEY_BYTES_MAX;
use crate::status::Status;

/// Bytes of an operation beside its key and value.
pub const OPERATION_BYTES: usize = 24;
/// Bytes of an answer beside its value.
pub const ANSWER_BYTES: usize = 16;
/// The most operations of a batch.
pub const OPERATIONS_MAX: usize = 64;

/// Appends an operation, whose header says kind, options, version and argument.
pub fn push_operation(body: &mut Vec<u8>, header: &Header, key: &[u8], value: &[u8]) {
    body.push(header.kind as u8);
    body.push(header.options);
    body.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
    let value_bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
    body.extend_from_slice(&value_bytes.to_le_bytes());
    body.extend_from_slice(&header.version.to_le_bytes());
    body.extend_from_slice(&header.argument.to_le_bytes());
    body.extend_from_slice(key);
    body.extend_from_slice(value);
}

/// The operations of a batch. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    rest: &'a [u8],
    place: usize,
}

impl<'a> Operations<'a> {
    /// Those of a body.
    #[must_use]
    pub fn of(body: &'a [u8]) -> Self {
        Self {
            rest: body,
            place: 0,
        }
    }

    /// Bytes that are not read yet.
    #[must_use]
    pub fn rest(&self) -> usize {
        self.rest.len()
    }

    fn read(&mut self) -> Result<(Header, &'a [u8], &'a [u8]), WireError> {
        let short = WireError::Short(self.rest.len());
        let (head, rest) = self.rest.split_at_checked(OPERATION_BYTES).ok_or(short)?;
        let kind = Kind::of(head[0]).ok_or(WireError::Kind(head[0]))?;
        if !matches!(
            kind,
            Kind::Get | Kind::Put | Kind::Delete | Kind::CompareAndSwap
        ) {
            return Err(WireError::Kind(head[0]));
        }
        if self.place == OPERATIONS_MAX {
            return Err(WireError::Long(self.rest.len()));
        }
        let key_bytes = u16_at(head, 2);
        if usize::from(key_bytes) > KEY_BYTES_MAX {
            return Err(WireError::Key(key_bytes.into()));
        }
        let value_bytes = u32_at(head, 4);
        let (key, rest) = rest.split_at_checked(key_bytes.into()).ok_or(short)?;
        let (value, rest) = rest.split_at_checked(value_bytes as usize).ok_or(short)?;
        let header = Header {
            key_bytes,
            value_bytes,
            options: head[1],
            version: u64_at(head, 8),
            argument: u64_at(head, 16),
            ..Header::new(kind, 0)
        };
        self.rest = rest;
        self.place += 1;
        Ok((header, key, value))
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<(Header, &'a [u8], &'a [u8]), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}

/// How one operation of a batch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchAnswer<'a> {
    /// The operation, counted from 0.
    pub place: u16,
    /// How it ended.
    pub status: Status,
    /// The version.
    pub version: u64,
    /// The value of a get; `None` if it did not fit.
    pub value: Option<&'a [u8]>,
}

const ABSENT: u8 = 1;

/// Appends an answer.
pub fn push_answer(body: &mut Vec<u8>, answer: &BatchAnswer<'_>) {
    body.extend_from_slice(&answer.place.to_le_bytes());
    body.push(answer.status.code().to_le_bytes()[0]);
    body.push(if answer.value.is_none() { ABSENT } else { 0 });
    let value = answer.value.unwrap_or_default();
    let value_bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
    body.extend_from_slice(&value_bytes.to_le_bytes());
    body.extend_from_slice(&answer.version.to_le_bytes());
    body.extend_from_slice(value);
}

/// The answers of a batch. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Answers<'a>(&'a [u8]);

impl<'a> Answers<'a> {
    /// Those of a body.
    #[must_use]
    pub fn of(body: &'a [u8]) -> Self {
        Self(body)
    }

    fn read(&mut self) -> Result<BatchAnswer<'a>, WireError> {
        let short = WireError::Short(self.0.len());
        let (head, rest) = self.0.split_at_checked(ANSWER_BYTES).ok_or(short)?;
        let (value, rest) = rest
            .split_at_checked(u32_at(head, 4) as usize)
            .ok_or(short)?;
        let code = i8::from_le_bytes([head[2]]);
        if head[3] & !ABSENT != 0 {
            return Err(WireError::Flags(head[3]));
        }
        self.0 = rest;
        Ok(BatchAnswer {
            place: u16_at(head, 0),
            status: Status::of(code).ok_or(WireError::Status(code))?,
            version: u64_at(head, 8),
            value: (head[3] & ABSENT == 0).then_some(value),
        })
    }
}

impl<'a> Iterator for Answers<'a> {
    type Item = Result<BatchAnswer<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.0 = &[];
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_answers_survive_encoding() {
        let mut body = Vec::new();
        let put = Header {
            version: 3,
            argument: 4,
            options: 1,
            ..Header::new(Kind::Put, 0)
        };
        push_operation(&mut body, &put, b"key", b"value");
        push_operation(&mut body, &Header::new(Kind::Get, 0), b"k", b"");
        let read: Result<Vec<_>, _> = Operations::of(&body).collect();
        let read = read.expect("what was written");
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].1, read[0].2), (&b"key"[..], &b"value"[..]));
        assert_eq!(
            (read[0].0.version, read[0].0.argument, read[0].0.options),
            (3, 4, 1)
        );
        let mut body = Vec::new();
        let answers = [
            BatchAnswer {
                place: 1,
                status: Status::Ok,
                version: 7,
                value: Some(b"value"),
            },
            BatchAnswer {
                place: 0,
                status: Status::NotFound,
                version: 0,
                value: Some(b""),
            },
            BatchAnswer {
                place: 2,
                status: Status::Ok,
                version: 8,
                value: None,
            },
        ];
        for answer in &answers {
            push_answer(&mut body, answer);
        }
        assert!(
            Answers::of(&body)
                .map(|one| one.expect("what was written"))
                .eq(answers)
        );
    }

    #[test]
    fn too_many_operations_are_refused() {
        let mut body = Vec::new();
        for _ in 0..=OPERATIONS_MAX {
            push_operation(&mut body, &Header::new(Kind::Get, 0), b"k", b"");
        }
        assert_eq!(
            Operations::of(&body).filter(Result::is_ok).count(),
            OPERATIONS_MAX
        );
        assert!(Operations::of(&body).any(|one| one.is_err()));
    }
}
