//! How a request ended.

/// The status of an answer. Its codes are part of the wire format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, thiserror::Error)]
#[repr(i8)]
pub enum Status {
    /// It was done.
    #[default]
    #[error("done")]
    Ok = 0,
    /// There is no such key.
    #[error("no such key")]
    NotFound = -1,
    /// The key exists, and was to be absent.
    #[error("the key exists")]
    Exists = -2,
    /// The key has another version than was expected; the answer has the current one.
    #[error("the key has another version")]
    VersionMismatch = -3,
    /// The key is empty or too long.
    #[error("the key is empty or too long")]
    KeyTooLong = -4,
    /// The value is too long.
    #[error("the value is too long")]
    ValueTooLong = -5,
    /// The engine has no memory left.
    #[error("no memory is left")]
    NoMemory = -6,
    /// A fault of the server.
    #[error("the server failed")]
    Internal = -7,
    /// The record is on a memory node that cannot be reached, or was lost.
    #[error("the record is unavailable")]
    Unavailable = -8,
    /// The server has too much to do: try again later.
    #[error("the server is busy")]
    Busy = -9,
    /// The request is no valid one.
    #[error("the request is invalid")]
    Protocol = -10,
    /// The key holds a value that the operation does not work on.
    #[error("the value is of another kind")]
    WrongKind = -11,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Ok,
        Self::NotFound,
        Self::Exists,
        Self::VersionMismatch,
        Self::KeyTooLong,
        Self::ValueTooLong,
        Self::NoMemory,
        Self::Internal,
        Self::Unavailable,
        Self::Busy,
        Self::Protocol,
        Self::WrongKind,
    ];

    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> i8 {
        self as i8
    }

    /// The status of a code; `None` if there is no such status.
    #[must_use]
    pub fn of(code: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_document() {
        let codes: Vec<i8> = Status::ALL.iter().map(|status| status.code()).collect();
        assert_eq!(codes, (0..12).map(|code: i8| -code).collect::<Vec<_>>());
        for code in i8::MIN..=i8::MAX {
            assert_eq!(
                Status::of(code).map(Status::code),
                (-11..=0).contains(&code).then_some(code)
            );
        }
    }
}
