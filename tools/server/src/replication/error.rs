//! Why a link ends.

use std::io;
use std::time::Duration;

/// Why a link ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// It is to end.
    #[error("it was stopped")]
    Stopped,
    /// The connection cannot be opened, or broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The connection is not encrypted as it should be.
    #[error("no encrypted connection to the source: {}{}", .0, remedy_of_tls(.0))]
    Tls(io::Error),
    /// The source has closed the connection, or has sent what is no reply, before it replied.
    #[error("the source ends the connection without a reply{0}")]
    Unanswered(&'static str),
    /// The source has closed the connection.
    #[error("the source has closed the connection")]
    Closed,
    /// The source is silent.
    #[error(
        "the source has sent nothing for {} s, the most is {} s; raise repl-timeout if it needs longer",
        waited.as_secs(),
        limit.as_secs()
    )]
    Silent { waited: Duration, limit: Duration },
    /// The source refuses a command of the handshake.
    #[error("the source refuses {command}: {reply}{}", remedy(.reply))]
    Refused {
        command: &'static str,
        reply: String,
    },
    /// What the source sends is not Redis's protocol.
    #[error("the source does not speak the protocol of replication: {0}")]
    Malformed(String),
    /// The data are damaged, or of a kind that is not known.
    #[error("the data of the source cannot be read: {0}")]
    Data(#[from] farcore_rdb::Error),
    /// The data end before or behind their length.
    #[error("the data of the source have {said} bytes by their length, and end after {read}")]
    Length { said: u64, read: u64 },
    /// A part is longer than what is held of one.
    #[error("{what} of the source has {bytes} bytes or more, at most {most} are held; {remedy}")]
    TooLong {
        what: &'static str,
        bytes: u64,
        most: u64,
        remedy: &'static str,
    },
    /// A command of the source is none that the server has.
    #[error("the source sent {command}, which this server does not have: {reason}")]
    Unknown { command: String, reason: String },
    /// A command of the source was not carried out.
    #[error("the source sent {command}, which fails here: {reply}")]
    NotApplied { command: String, reply: String },
    /// A part of the source's data is not stored.
    #[error("a part of the source's data is not stored: {0}")]
    NotStored(String),
    /// A client has ended it.
    #[error("a client has ended it, by CLIENT KILL")]
    Cut,
    /// The connection to the data has ended: what was passed on may be applied or not.
    #[error("the connection by which it stores has ended")]
    Inlet,
}

/// What helps where no encrypted connection is made.
fn remedy_of_tls(error: &io::Error) -> &'static str {
    if error.to_string().contains("certificate") {
        "; --replica-tls-ca must name its authority, and it must be for the host that is followed"
    } else {
        "; name the port at which the source accepts encrypted connections, or leave --replica-tls-ca out"
    }
}

/// What helps where a source ends the connection at once.
pub(super) fn remedy_of_silence(is_encrypted: bool) -> &'static str {
    match is_encrypted {
        true => {
            "; if it demands certificates of clients, give --replica-tls-cert and --replica-tls-key"
        }
        false => "; if it accepts encrypted connections there, give --replica-tls-ca",
    }
}

/// What helps where a source refuses a command.
fn remedy(reply: &str) -> &'static str {
    if reply.starts_with("NOAUTH") || reply.starts_with("WRONGPASS") {
        "; set masterauth, and masteruser for a user of its own, or give --replica-auth-file"
    } else if reply.starts_with("NOPERM") {
        "; the user needs +psync +replconf +ping"
    } else {
        ""
    }
}
