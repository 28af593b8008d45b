//! The code of each error of a pool.

use farcore_pool::PoolError;

use crate::error::{Code, Failure};

impl From<&PoolError> for Code {
    fn from(error: &PoolError) -> Self {
        match error {
            PoolError::OutOfBounds { .. } => Self::OutOfBounds,
            PoolError::Unaligned { .. } => Self::Unaligned,
            PoolError::Freed => Self::Freed,
            PoolError::Foreign { .. } => Self::Foreign,
            PoolError::Renewed { .. } => Self::Renewed,
            PoolError::Down { .. } => Self::NodeDown,
            PoolError::UnknownOutcome { .. } => Self::UnknownOutcome,
            PoolError::Refused { .. } => Self::AccessRefused,
            PoolError::Exhausted { .. } | PoolError::Leaving { .. } => Self::Exhausted,
            PoolError::NoNode { .. } => Self::NoNode,
            PoolError::TooLong { .. } => Self::TooLong,
            PoolError::Alignment { .. } | PoolError::Lengths { .. } | PoolError::Option { .. } => {
                Self::InvalidArgument
            }
            PoolError::Connect(_) => Self::Unreachable,
            PoolError::Token(_) => Self::WrongToken,
            PoolError::Start(_) => Self::CannotStart,
            PoolError::ReadOnly => Self::ReadOnly,
            PoolError::Embedded => Self::Embedded,
            PoolError::Plain(_) | PoolError::WrongType { .. } => Self::WrongType,
            PoolError::OtherNode { .. } => Self::OtherNode,
            PoolError::Gone { .. } => Self::Gone,
            PoolError::Malformed { .. } => Self::Malformed,
            PoolError::Procedure { .. } => Self::Procedure,
            PoolError::Closed => Self::Closed,
            _ => Self::Internal,
        }
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        Self::with((&error).into(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Each error, with its code and a part of its text.
    fn errors() -> Vec<(PoolError, i32, &'static str)> {
        let node = || "tcp://10.0.0.1:7400".to_owned();
        let reason = || "why".to_owned();
        let outside = PoolError::OutOfBounds {
            offset: -8,
            bytes: 16,
            limit: 32,
        };
        let unaligned = PoolError::Unaligned {
            offset: 9,
            align: 8,
        };
        let down = PoolError::Down {
            node: node(),
            limit: Duration::from_secs(5),
            reason: reason(),
        };
        let refused = PoolError::Refused {
            node: node(),
            reason: reason(),
        };
        let exhausted = PoolError::Exhausted {
            bytes: 100,
            free_bytes: 7,
        };
        let no_node = PoolError::NoNode {
            placement: "zone b".to_owned(),
            nodes: node(),
        };
        let alignment = PoolError::Alignment {
            align: 8192,
            limit: 4096,
        };
        let long = PoolError::TooLong { count: 9, bytes: 1 };
        let option = PoolError::Option {
            option: "depth",
            value: "0".to_owned(),
            range: "1 to 4096",
        };
        let wrong_type = PoolError::WrongType {
            expected: "one".to_owned(),
            found: "another".to_owned(),
        };
        vec![
            (outside, -1013, "16 bytes at -8"),
            (unaligned, -1014, "byte 9"),
            (PoolError::Freed, -1015, "freed"),
            (PoolError::Foreign { other: 2, this: 1 }, -1016, "pool 2"),
            (PoolError::Renewed { node: node() }, -1017, "renewed"),
            (down, -1018, "within 5s"),
            (PoolError::UnknownOutcome { node: node() }, -1004, "word"),
            (refused, -1019, "why"),
            (exhausted, -1020, "100 bytes"),
            (no_node, -1021, "zone b"),
            (alignment, -1001, "8192"),
            (long, -1022, "2^63"),
            (option, -1001, "depth is 0: must be 1 to 4096"),
            (PoolError::Connect(reason()), -1005, "why"),
            (PoolError::Token(reason()), -1007, "why"),
            (PoolError::Start(reason()), -1011, "why"),
            (PoolError::ReadOnly, -1023, "read only"),
            (PoolError::Embedded, -1024, "this process"),
            (wrong_type, -1025, "expects one"),
            (PoolError::OtherNode { incarnation: 15 }, -1026, "0000000f"),
            (PoolError::Gone { reason: reason() }, -1027, "why"),
            (PoolError::Malformed { reason: reason() }, -1028, "why"),
            (PoolError::Closed, -1002, "closed"),
        ]
    }

    /// That of calls.
    fn procedure() -> (PoolError, i32, &'static str) {
        let error = PoolError::Procedure {
            node: "tcp://10.0.0.1:7400".to_owned(),
            procedure: "sum".to_owned(),
            reason: "why".to_owned(),
        };
        (error, -1030, "`sum` failed: why")
    }

    #[test]
    fn every_error_of_a_pool_has_a_code_and_its_text() {
        for (error, code, text) in errors().into_iter().chain([procedure()]) {
            let failure = Failure::from(error);
            assert_eq!(failure.code as i32, code, "{failure:?}");
            let said = failure.text.to_string_lossy().into_owned();
            assert!(said.contains(text), "{said}");
        }
    }
}
