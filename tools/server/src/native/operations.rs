//! Requests as operations of the engine, and its errors as statuses.

use farcore::{Change, Condition, Error, Expiry, ExpiryCondition, Operation, PutOptions};
use farcore_protocol::{
    ConditionKind, ExpiryConditionKind, ExpiryKind, Header, Kind, Status, WireError,
};

use crate::types::replies::lost_text;

/// When a key expires.
fn expiry(header: &Header) -> Result<Expiry, WireError> {
    Ok(match header.expiry()? {
        ExpiryKind::Never => Expiry::Never,
        ExpiryKind::Keep => Expiry::Keep,
        ExpiryKind::At => Expiry::At(header.argument),
        ExpiryKind::In => Expiry::In(header.argument),
    })
}

fn condition(header: &Header) -> Result<Condition<'static>, WireError> {
    if header.kind == Kind::CompareAndSwap {
        return Ok(Condition::Version(header.version));
    }
    Ok(match header.condition()? {
        ConditionKind::Always => Condition::Always,
        ConditionKind::Absent => Condition::Absent,
        ConditionKind::Present => Condition::Present,
        ConditionKind::Version => Condition::Version(header.version),
    })
}

/// How a put, or a compare-and-swap, happens.
pub(super) fn put_options(header: &Header) -> Result<PutOptions<'static>, WireError> {
    Ok(PutOptions {
        expiry: expiry(header)?,
        condition: condition(header)?,
    })
}

/// The operation of a request on one key; `None` if it is none.
pub(super) fn operation<'a>(
    header: &Header,
    key: &'a [u8],
    value: &'a [u8],
) -> Result<Option<Operation<'a>>, WireError> {
    let change = |change| Some(Operation::Change { key, change });
    Ok(match header.kind {
        Kind::Get if header.offset == 0 => Some(Operation::Get { key }),
        Kind::Get => Some(Operation::GetRange {
            key,
            offset: u32::try_from(header.offset).map_err(|_| WireError::Field {
                field: "offset",
                value: header.offset,
            })?,
            bytes: match header.value_bytes {
                0 => u32::MAX,
                bytes => bytes,
            },
        }),
        Kind::Put | Kind::CompareAndSwap => {
            let options = put_options(header)?;
            match (options.expiry, options.condition) {
                (Expiry::Never, Condition::Always) => Some(Operation::Put { key, value }),
                (Expiry::Never, Condition::Version(expected)) => Some(Operation::CompareAndSwap {
                    key,
                    value,
                    expected,
                }),
                (expiry, condition) => change(Change::Put {
                    value,
                    expiry,
                    condition,
                    previous: false,
                }),
            }
        }
        Kind::Delete => match condition(header)? {
            Condition::Always => Some(Operation::Delete { key }),
            condition => change(Change::Delete {
                condition,
                previous: false,
            }),
        },
        Kind::Increment => change(Change::Increment {
            by: header.argument.cast_signed(),
        }),
        Kind::Expire => change(Change::SetExpiry {
            expiry: expiry(header)?,
            condition: match header.expiry_condition()? {
                ExpiryConditionKind::Always => ExpiryCondition::Always,
                ExpiryConditionKind::Unset => ExpiryCondition::Unset,
                ExpiryConditionKind::Set => ExpiryCondition::Set,
                ExpiryConditionKind::Later => ExpiryCondition::Later,
                ExpiryConditionKind::Earlier => ExpiryCondition::Earlier,
            },
            value: false,
        }),
        Kind::Inspect => Some(Operation::Inspect { key }),
        _ => None,
    })
}

/// The status of a condition that did not hold, for the version that the key has.
pub(super) fn unmet(header: &Header, current: u64) -> Status {
    match header.kind {
        Kind::Put | Kind::Delete => match header.condition() {
            Ok(ConditionKind::Absent) => Status::Exists,
            Ok(ConditionKind::Present) => Status::NotFound,
            _ if header.kind == Kind::Delete && current == 0 => Status::NotFound,
            _ => Status::VersionMismatch,
        },
        _ => Status::VersionMismatch,
    }
}

/// The text of an error, for clients that know no call of the engine.
pub(super) fn text_of(error: &Error) -> String {
    match error {
        Error::Unavailable { node, .. } if error.is_lost() => {
            lost_text(node, "`farcore cli forget-lost`")
        }
        Error::Collection => {
            "the value is a hash, set or list: clients of the Redis protocol read it; a put or a delete replaces it".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The status of an error.
pub(super) fn status_of(error: &Error) -> Status {
    match error {
        Error::KeyEmpty { .. } | Error::KeyTooLong { .. } => Status::KeyTooLong,
        Error::ValueTooLong { .. }
        | Error::LongValueTooLong { .. }
        | Error::LongValueLength { .. }
        | Error::TransactionTooLong { .. } => Status::ValueTooLong,
        Error::FarFull { .. } | Error::IndexFull { .. } | Error::LongValues { .. } => {
            Status::NoMemory
        }
        Error::Unavailable { .. } | Error::Fabric { .. } | Error::Damaged { .. } => {
            Status::Unavailable
        }
        Error::LongValueGone => Status::Busy,
        Error::Collection
        | Error::NoCollection
        | Error::LongValue { .. }
        | Error::NotANumber { .. }
        | Error::CounterOverflow { .. } => Status::WrongKind,
        _ => Status::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: Kind, condition: ConditionKind, expiry: ExpiryKind) -> Header {
        Header {
            options: Header::put_options(condition, expiry),
            version: 5,
            argument: 9,
            ..Header::new(kind, 1)
        }
    }

    #[test]
    fn requests_become_the_plainest_operation() {
        let of = |header: &Header| operation(header, b"k", b"v").expect("valid").expect("one");
        let plain = header(Kind::Put, ConditionKind::Always, ExpiryKind::Never);
        assert!(matches!(of(&plain), Operation::Put { .. }));
        let versioned = header(Kind::Put, ConditionKind::Version, ExpiryKind::Never);
        assert!(matches!(
            of(&versioned),
            Operation::CompareAndSwap { expected: 5, .. }
        ));
        let swap = header(Kind::CompareAndSwap, ConditionKind::Always, ExpiryKind::In);
        let Operation::Change {
            change: Change::Put {
                expiry, condition, ..
            },
            ..
        } = of(&swap)
        else {
            panic!("a change");
        };
        assert_eq!((expiry, condition), (Expiry::In(9), Condition::Version(5)));
        assert!(matches!(
            of(&Header::new(Kind::Delete, 1)),
            Operation::Delete { .. }
        ));
        let rest = Header {
            offset: 7,
            ..Header::new(Kind::Get, 1)
        };
        let all = u32::MAX;
        assert!(matches!(of(&rest), Operation::GetRange { offset: 7, bytes, .. } if bytes == all));
        assert_eq!(operation(&Header::new(Kind::Ping, 1), b"", b""), Ok(None));
        let wrong = Header {
            options: 0x0F,
            ..Header::new(Kind::Put, 1)
        };
        assert_eq!(operation(&wrong, b"k", b"v"), Err(WireError::Options(0x0F)));
    }

    #[test]
    fn an_unmet_condition_says_which() {
        let of =
            |kind, condition, current| unmet(&header(kind, condition, ExpiryKind::Never), current);
        assert_eq!(of(Kind::Put, ConditionKind::Absent, 3), Status::Exists);
        assert_eq!(of(Kind::Put, ConditionKind::Present, 0), Status::NotFound);
        assert_eq!(
            of(Kind::Put, ConditionKind::Version, 3),
            Status::VersionMismatch
        );
        assert_eq!(
            of(Kind::CompareAndSwap, ConditionKind::Always, 0),
            Status::VersionMismatch
        );
        assert_eq!(
            of(Kind::Delete, ConditionKind::Version, 0),
            Status::NotFound
        );
    }
}
