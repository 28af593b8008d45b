//! Codes, and the text of the last error of each thread.
//!
//! - I1: a code from 0 to -11 is a status of the native protocol, with its number. A status is an
//!   `i8`, so the codes of this side, from -1001 on, never meet one.
//! - I2: every code below 0 has a text. It names what was wrong, the limit and the value where
//!   there are some, and what to do.

#![allow(unsafe_code)] // exports names

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use farcore_client::{Error, Status};

/// How a call ended. 0 is success, 1 says that an operation is under way, and an error is below 0.
///
/// From 0 to -11 these are the statuses of Farcore's native protocol, with its numbers. From -1001
/// on they are errors of this library, those of pools from -1013 on.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The operation has not ended. Only polled calls return it.
    Pending = 1,
    /// It was done.
    Ok = 0,
    /// There is no such key.
    NotFound = -1,
    /// The key exists, and had to be absent. Nothing has changed.
    Exists = -2,
    /// The key has another version than the expected one. Nothing has changed; the call returns the
    /// present version.
    VersionMismatch = -3,
    /// The key is empty or longer than 1024 bytes.
    KeyTooLong = -4,
    /// The value is longer than 64 MiB, or than the server stores.
    ValueTooLong = -5,
    /// The server has no memory left. Free some, or give it more.
    NoMemory = -6,
    /// A fault of the server.
    Internal = -7,
    /// The record is on a memory node that cannot be reached, or was lost with one.
    Unavailable = -8,
    /// The server is busy, and has done nothing. Try again.
    Busy = -9,
    /// The server does not accept the request as valid. Client and server may differ in version.
    Protocol = -10,
    /// The operation does not work on this key's value: it is no counter, or a collection.
    WrongKind = -11,
    /// An argument is wrong: a null pointer, a length, an option out of range, or an address or
    /// token that cannot be read. Nothing was sent.
    InvalidArgument = -1001,
    /// The client, or the pool, is closed.
    Closed = -1002,
    /// No answer came within the time limit, and nothing has changed. Try again, or raise the
    /// limit.
    TimedOut = -1003,
    /// The change was sent, and no answer came: it may have been made, or not. Read the key, or the
    /// word, to see.
    UnknownOutcome = -1004,
    /// The server cannot be reached; of a pool, too few memory nodes can be used.
    Unreachable = -1005,
    /// The server refused the connection. The text has its reason.
    Refused = -1006,
    /// Client and server, or pool and memory node, have different tokens.
    WrongToken = -1007,
    /// Too many operations of the client wait to be sent. Wait for some, or raise the option
    /// `queue`. Nothing was sent.
    QueueFull = -1008,
    /// The caller's buffer is shorter than the value. The call returns the length that is needed.
    BufferTooSmall = -1009,
    /// This result of the operation was taken before. An operation gives a value once.
    Taken = -1010,
    /// No client or pool can start: the system has no thread, memory or descriptor left.
    CannotStart = -1011,
    /// A fault of this library. The call may have been carried out. Report it.
    Panicked = -1012,
    /// The bytes are not all inside the allocation. Nothing was done.
    OutOfBounds = -1013,
    /// The word's offset is no multiple of 8. Nothing was done.
    Unaligned = -1014,
    /// The allocation was freed, or given away.
    Freed = -1015,
    /// The pointer belongs to another pool. Export it there, and import it here.
    Foreign = -1016,
    /// The memory node was started again, or has ended this pool's session: what was allocated
    /// there is lost. Free it, and allocate again.
    Renewed = -1017,
    /// The memory node does not answer. What it holds may be intact. Try again later.
    NodeDown = -1018,
    /// The memory node refused the access. The text has its reason.
    AccessRefused = -1019,
    /// The nodes that may be used have no memory left. Free some, or add a node.
    Exhausted = -1020,
    /// No node of the pool matches the placement.
    NoNode = -1021,
    /// The length exceeds what can be addressed.
    TooLong = -1022,
    /// The memory was exported to be read only.
    ReadOnly = -1023,
    /// Memory of this process cannot be exported. Connect to memory nodes.
    Embedded = -1024,
    /// The exported memory holds values of another type, or of another length.
    WrongType = -1025,
    /// The exported memory is on a node that this pool is not connected to, or that was restarted.
    OtherNode = -1026,
    /// The exported memory was freed or taken, or its exporter's session has ended.
    Gone = -1027,
    /// The text is no exported pointer.
    Malformed = -1028,
    /// Calls or operations that are under way use the allocation. Wait for them.
    InUse = -1029,
    /// A procedure of the program that hosts the memory node failed, is late or unknown. The text
    /// has the reason.
    Procedure = -1030,
}

impl From<Status> for Code {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => Self::Ok,
            Status::NotFound => Self::NotFound,
            Status::Exists => Self::Exists,
            Status::VersionMismatch => Self::VersionMismatch,
            Status::KeyTooLong => Self::KeyTooLong,
            Status::ValueTooLong => Self::ValueTooLong,
            Status::NoMemory => Self::NoMemory,
            Status::Internal => Self::Internal,
            Status::Unavailable => Self::Unavailable,
            Status::Busy => Self::Busy,
            Status::Protocol => Self::Protocol,
            Status::WrongKind => Self::WrongKind,
        }
    }
}

impl From<&Error> for Code {
    fn from(error: &Error) -> Self {
        match error {
            Error::KeyLength { .. } => Self::KeyTooLong,
            Error::ValueTooLong { .. } => Self::ValueTooLong,
            Error::QueueFull { .. } => Self::QueueFull,
            // What counts for the caller is whether the change may have been made.
            Error::TimedOut {
                may_be_done: false, ..
            } => Self::TimedOut,
            Error::TimedOut { .. } | Error::UnknownOutcome { .. } => Self::UnknownOutcome,
            Error::Unreachable { .. } => Self::Unreachable,
            Error::Refused { .. } => Self::Refused,
            Error::Token { .. } => Self::WrongToken,
            Error::Server { status, .. } => (*status).into(),
            Error::Option { .. } => Self::InvalidArgument,
            Error::Start(_) => Self::CannotStart,
            Error::Closed => Self::Closed,
            _ => Self::Internal,
        }
    }
}

/// Why a call fails: a code and its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: Cow<'static, CStr>,
}

impl Failure {
    pub(crate) fn new(code: Code, text: &'static CStr) -> Self {
        let text = Cow::Borrowed(text);
        Self { code, text }
    }

    /// One whose text names values.
    pub(crate) fn with(code: Code, text: impl Into<Vec<u8>>) -> Self {
        let mut text = text.into();
        // A server's text may have any bytes; a zero would cut it off.
        text.retain(|&byte| byte != 0);
        let text = Cow::Owned(CString::new(text).unwrap_or_default());
        Self { code, text }
    }

    pub(crate) fn invalid(text: impl Into<Vec<u8>>) -> Self {
        Self::with(Code::InvalidArgument, text)
    }

    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound, c"there is no such key")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::with((&error).into(), error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// Keeps the text of this thread's last error, and gives its code.
pub(crate) fn raise(failure: Failure) -> Code {
    let Failure { code, text } = failure;
    // In a thread that ends, the place may be gone; then only the code is left.
    let _ = LAST.try_with(|last| last.replace(text));
    code
}

/// The text of the last error of this thread, in UTF-8, ended by a zero; empty if there was none.
///
/// It names the limit, the value and the remedy where there are some. A call that succeeds leaves
/// it as it is. The library owns the text, which lasts until this thread's next call that fails.
/// Never null; cannot fail. Cost: none.
#[unsafe(no_mangle)]
pub extern "C" fn farcore_error_message() -> *const c_char {
    let last = LAST.try_with(|last| last.borrow().as_ptr());
    last.unwrap_or(c"".as_ptr())
}

/// The version of this library, such as "0.1.0". Never null; the library owns the text, which lasts
/// as long as the process. Any thread may call it; cannot fail. Cost: none.
#[unsafe(no_mangle)]
pub extern "C" fn farcore_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_status_of_the_protocol_keeps_its_number() {
        for status in Status::ALL {
            assert_eq!(Code::from(status) as i32, i32::from(status.code()));
        }
    }

    #[test]
    fn every_error_of_the_client_has_a_code_and_its_text() {
        let address = || "tcp://localhost:1".parse().expect("an address");
        let reason = String::new;
        let timed_out = |may_be_done| Error::TimedOut {
            operation: "put",
            limit: Duration::from_millis(1500),
            may_be_done,
        };
        let unknown = Error::UnknownOutcome {
            operation: "put",
            reason: reason(),
        };
        let refused = Error::Refused {
            address: address(),
            reason: reason(),
        };
        let unreachable = Error::Unreachable {
            address: address(),
            reason: reason(),
        };
        let server = Error::Server {
            operation: "get",
            status: Status::Busy,
            reason: "bu\0sy".to_owned(),
        };
        let option = Error::Option {
            option: "queue",
            value: 0,
            range: "1 to 1048576",
        };
        let token = Error::Token { address: address() };
        let errors = [
            (
                Error::KeyLength {
                    bytes: 2000,
                    max: 1024,
                },
                -4,
                "2000 bytes: a key has 1 to 1024",
            ),
            (
                Error::ValueTooLong { bytes: 9, max: 8 },
                -5,
                "9 bytes: the limit is 8",
            ),
            (Error::QueueFull { limit: 7 }, -1008, "7 operations wait"),
            (timed_out(false), -1003, "1500 ms; nothing has changed"),
            (timed_out(true), -1004, "1500 ms; it may have been done"),
            (unknown, -1004, "read the key"),
            (unreachable, -1005, "tcp://localhost:1"),
            (refused, -1006, "refused"),
            (token, -1007, "token"),
            (server, -9, "busy"),
            (option, -1001, "queue is 0: must be 1 to 1048576"),
            (Error::Start("why".to_owned()), -1011, "why"),
            (Error::Closed, -1002, "closed"),
        ];
        for (error, code, text) in errors {
            let failure = Failure::from(error);
            assert_eq!(failure.code as i32, code, "{failure:?}");
            let said = failure.text.to_string_lossy().into_owned();
            assert!(said.contains(text), "{said}");
        }
    }

    #[test]
    fn the_text_is_of_the_thread_that_failed() {
        let said = || {
            let text = farcore_error_message();
            // SAFETY: it is never null, and this thread fails in no call meanwhile.
            unsafe { CStr::from_ptr(text) }.to_str().map(str::to_owned)
        };
        raise(Failure::new(Code::Closed, c"mine"));
        let other = std::thread::spawn(said).join().expect("it ended");
        assert_eq!((said().as_deref(), other.as_deref()), (Ok("mine"), Ok("")));
    }
}
