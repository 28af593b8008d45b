//! The wire format of the `tcp` backend: connect request and reply, and the frames of a queue pair.
//!
//! ```text
//! connect request (56 bytes, which RDMA-CM carries too)
//!   0 magic:8 | 8 version:u16 | 10 purpose:u8 | 11 zero:5 | 16 session:u64 | 24 slot:u32 | 28 zero:4 | 32 counter:u64 | 40 proof:16
//! connect reply (24 bytes)
//!   0 magic:8 | 8 version:u16 | 10 refusal:u16 (0 is accepted) | 12 zero:12
//! frame header (40 bytes), then `bytes` of payload after WRITE, WRITE_IMM, SEND and the answer of a READ
//!   0 opcode:u8 | 1 status:u8 | 2 zero:u16 | 4 sequence:u32 | 8 key:u32 | 12 bytes:u32 | 16 offset:u64 | 24 first:u64 | 32 second:u64
//! ```
//!
//! Little-endian throughout. Requests of one direction are numbered from 0, wrapping. An answer
//! gives the outcome of its own request and acknowledges all earlier ones, as in reliable
//! connections. After a refusal the refusing side performs nothing more. Any deviation ends the
//! connection.
//!
//! This module encodes and decodes; it owns no socket.

use crate::work::{RemoteKey, Status};

/// The version of this wire format.
pub const PROTOCOL_VERSION: u16 = 1;
pub(crate) const CONNECT_REQUEST_BYTES: usize = 56;
pub(crate) const CONNECT_REPLY_BYTES: usize = 24;
pub(crate) const HEADER_BYTES: usize = 40;
/// The longest transfer of one request, in bytes.
pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;
const MAGIC: [u8; 8] = *b"FARCORE\x01";

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Messages of the control protocol.
    Control,
    /// One-sided requests on a memory node's regions, on behalf of a session.
    Memory {
        /// The session.
        session: u64,
        /// The session's slot for this queue pair; a new connection replaces the old one.
        slot: u32,
        /// Counts up with each connection of the session.
        counter: u64,
        /// Proves that the client holds the session's key.
        proof: [u8; 16],
        /// The carrier of the requests.
        carrier: Carrier,
    },
    /// A queue pair with an equal peer.
    Peer,
}

/// The carrier of one-sided requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// The connection itself.
    Socket,
    /// A queue pair of an RDMA device, which is set up over the connection.
    QueuePair,
}

/// The first message of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// The wire format's version that the client speaks.
    pub version: u16,
    /// The connection's purpose.
    pub purpose: Purpose,
}

impl ConnectRequest {
    /// This request, carried by a queue pair.
    #[cfg(feature = "verbs")]
    pub(crate) fn by_queue_pair(mut self) -> Self {
        if let Purpose::Memory { carrier, .. } = &mut self.purpose {
            *carrier = Carrier::QueuePair;
        }
        self
    }

    /// A request of this version.
    #[must_use]
    pub fn new(purpose: Purpose) -> Self {
        Self {
            version: PROTOCOL_VERSION,
            purpose,
        }
    }
}

/// Why a node refused a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The two sides speak different versions of the wire format.
    #[error(
        "the node speaks version {0} of the wire format and this side version {PROTOCOL_VERSION}: run the same release on both"
    )]
    Version(u16),
    /// The node serves its maximum of connections.
    #[error("the node serves its maximum of connections: raise its limit or close some")]
    Busy,
    /// The session does not exist, or its lease has ended.
    #[error("the node does not know the session: its lease has ended, or the node was restarted")]
    Session,
    /// The proof is wrong or was used before.
    #[error("the node rejected the session's proof")]
    Proof,
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopping,
    /// The node does not serve this purpose.
    #[error("the node does not serve connections of this kind")]
    Purpose,
    /// A reason that this version does not know.
    #[error("the node refused for an unknown reason ({0})")]
    Unknown(u16),
}

impl Refusal {
    /// What a peer learns that has proved nothing: not whether a session exists.
    pub(crate) fn disclosed(self) -> Self {
        match self {
            Self::Proof => Self::Session,
            other => other,
        }
    }

    fn code(self) -> u16 {
        match self {
            Self::Version(_) => 1,
            Self::Busy => 2,
            Self::Session => 3,
            Self::Proof => 4,
            Self::Stopping => 5,
            Self::Purpose => 6,
            Self::Unknown(code) => code,
        }
    }

    fn of(code: u16, version: u16) -> Self {
        match code {
            1 => Self::Version(version),
            2 => Self::Busy,
            3 => Self::Session,
            4 => Self::Proof,
            5 => Self::Stopping,
            6 => Self::Purpose,
            code => Self::Unknown(code),
        }
    }
}

/// Why received bytes are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The magic number is wrong.
    #[error("the peer does not speak Farcore's wire format")]
    Magic,
    /// The purpose is unknown.
    #[error("unknown purpose {0}")]
    Purpose(u8),
    /// The opcode is unknown.
    #[error("unknown opcode {0}")]
    Opcode(u8),
    /// A length exceeds the limit, or differs from the requested one.
    #[error("a length of {0} bytes is not allowed here")]
    Length(u32),
    /// An answer to no request.
    #[error("an answer numbered {0} to no request")]
    Sequence(u32),
    /// The peer goes on to request and leaves this many bytes of answers unread.
    #[error("{0} bytes of answers that are not read")]
    Unread(usize),
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

pub(crate) fn encode_request(request: &ConnectRequest) -> [u8; CONNECT_REQUEST_BYTES] {
    let mut bytes = [0; CONNECT_REQUEST_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&request.version.to_le_bytes());
    match request.purpose {
        Purpose::Control => bytes[10] = 1,
        Purpose::Memory {
            session,
            slot,
            counter,
            proof,
            carrier,
        } => {
            bytes[10] = match carrier {
                Carrier::Socket => 2,
                Carrier::QueuePair => 4,
            };
            bytes[16..24].copy_from_slice(&session.to_le_bytes());
            bytes[24..28].copy_from_slice(&slot.to_le_bytes());
            bytes[32..40].copy_from_slice(&counter.to_le_bytes());
            bytes[40..56].copy_from_slice(&proof);
        }
        Purpose::Peer => bytes[10] = 3,
    }
    bytes
}

/// # Errors
/// [`WireError::Magic`], [`WireError::Purpose`]. Another version is no error here: the side that
/// answers reports it.
pub(crate) fn decode_request(
    bytes: &[u8; CONNECT_REQUEST_BYTES],
) -> Result<ConnectRequest, WireError> {
    if bytes[..8] != MAGIC {
        return Err(WireError::Magic);
    }
    let version = u16::from_le_bytes(part(bytes, 8));
    let purpose = match bytes[10] {
        1 => Purpose::Control,
        kind @ (2 | 4) => Purpose::Memory {
            carrier: if kind == 2 {
                Carrier::Socket
            } else {
                Carrier::QueuePair
            },
            session: u64::from_le_bytes(part(bytes, 16)),
            slot: u32::from_le_bytes(part(bytes, 24)),
            counter: u64::from_le_bytes(part(bytes, 32)),
            proof: part(bytes, 40),
        },
        3 => Purpose::Peer,
        // Another version may have other purposes; its version is what must be reported.
        _ if version != PROTOCOL_VERSION => Purpose::Control,
        other => return Err(WireError::Purpose(other)),
    };
    Ok(ConnectRequest { version, purpose })
}

pub(crate) fn encode_reply(refusal: Option<Refusal>) -> [u8; CONNECT_REPLY_BYTES] {
    let mut bytes = [0; CONNECT_REPLY_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&refusal.map_or(0, Refusal::code).to_le_bytes());
    bytes
}

/// # Errors
/// [`WireError::Magic`] if the peer speaks another protocol.
pub(crate) fn decode_reply(
    bytes: &[u8; CONNECT_REPLY_BYTES],
) -> Result<Option<Refusal>, WireError> {
    if bytes[..8] != MAGIC {
        return Err(WireError::Magic);
    }
    let version = u16::from_le_bytes(part(bytes, 8));
    let code = u16::from_le_bytes(part(bytes, 10));
    Ok((code != 0).then(|| Refusal::of(code, version)))
}

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Opcode {
    Read = 1,
    Write = 2,
    WriteImmediate = 3,
    CompareAndSwap = 4,
    FetchAdd = 5,
    Send = 6,
    /// This request and all before it are done.
    Acknowledge = 64,
    /// The data of a READ.
    ReadAnswer = 65,
    /// The old value of an atomic, in `first`.
    AtomicAnswer = 66,
    /// This request failed with `status`; all before it are done.
    Refuse = 67,
}

impl Opcode {
    fn of(code: u8) -> Result<Self, WireError> {
        Ok(match code {
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::WriteImmediate,
            4 => Self::CompareAndSwap,
            5 => Self::FetchAdd,
            6 => Self::Send,
            64 => Self::Acknowledge,
            65 => Self::ReadAnswer,
            66 => Self::AtomicAnswer,
            67 => Self::Refuse,
            other => return Err(WireError::Opcode(other)),
        })
    }

    pub(crate) fn has_payload(self) -> bool {
        matches!(
            self,
            Self::Write | Self::WriteImmediate | Self::Send | Self::ReadAnswer
        )
    }
}

/// One frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) opcode: Opcode,
    pub(crate) status: u8,
    pub(crate) sequence: u32,
    pub(crate) key: RemoteKey,
    pub(crate) bytes: u32,
    pub(crate) offset: u64,
    /// Expected word, addend, immediate or old value.
    pub(crate) first: u64,
    /// Desired word.
    pub(crate) second: u64,
}

impl Header {
    pub(crate) fn new(opcode: Opcode, sequence: u32) -> Self {
        Self {
            opcode,
            status: 0,
            sequence,
            key: RemoteKey(0),
            bytes: 0,
            offset: 0,
            first: 0,
            second: 0,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.opcode as u8;
        bytes[1] = self.status;
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.second.to_le_bytes());
        bytes
    }

    /// # Errors
    /// [`WireError`] for an unknown opcode or a length beyond the limit.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let header = Self {
            opcode: Opcode::of(bytes[0])?,
            status: bytes[1],
            sequence: u32::from_le_bytes(part(bytes, 4)),
            key: RemoteKey(u32::from_le_bytes(part(bytes, 8))),
            bytes: u32::from_le_bytes(part(bytes, 12)),
            offset: u64::from_le_bytes(part(bytes, 16)),
            first: u64::from_le_bytes(part(bytes, 24)),
            second: u64::from_le_bytes(part(bytes, 32)),
        };
        if header.bytes > TRANSFER_BYTES_MAX {
            return Err(WireError::Length(header.bytes));
        }
        Ok(header)
    }
}

/// A failure's code on the wire.
pub(crate) fn status_code(status: Status) -> u8 {
    match status {
        Status::RemoteAccess => 1,
        Status::RemoteOperation => 2,
        Status::LocalLength => 3,
        _ => u8::MAX,
    }
}

/// A received failure, as the requesting side sees it.
pub(crate) fn status_of(code: u8) -> Status {
    match code {
        1 => Status::RemoteAccess,
        // A message too long for its receiver is an invalid request to the sender.
        2 | 3 => Status::RemoteOperation,
        code => Status::Unknown(u32::from(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_connection_request_or_refused() {
        let memory = |carrier| Purpose::Memory {
            session: 7,
            slot: 1,
            counter: 2,
            proof: [3; 16],
            carrier,
        };
        let purposes = [
            Purpose::Control,
            Purpose::Peer,
            memory(Carrier::Socket),
            memory(Carrier::QueuePair),
        ];
        let request = |purpose| encode_request(&ConnectRequest::new(purpose)).to_vec();
        farcore_fuzz::Target::new("connection request")
            .seeds(purposes.map(request))
            .seed(encode_reply(Some(Refusal::Busy)))
            .run(|bytes| {
                if let Some(bytes) = bytes.first_chunk() {
                    let reply = decode_reply(bytes);
                    assert_eq!(reply.is_ok(), bytes[..8] == MAGIC);
                    if let Ok(Some(refusal)) = reply
                        && !matches!(refusal, Refusal::Version(_))
                    {
                        assert_eq!(
                            decode_reply(&encode_reply(Some(refusal))),
                            Ok(Some(refusal))
                        );
                    }
                }
                let Some(bytes) = bytes.first_chunk() else {
                    return;
                };
                match decode_request(bytes) {
                    Ok(request) if request.version == PROTOCOL_VERSION => {
                        assert_eq!(decode_request(&encode_request(&request)), Ok(request));
                    }
                    Ok(_) => assert_eq!(bytes[..8], MAGIC),
                    Err(error) => assert_eq!(error == WireError::Magic, bytes[..8] != MAGIC),
                }
            });
    }

    #[test]
    fn any_bytes_are_frames_or_refused() {
        let frame = |opcode| Header {
            status: 1,
            key: RemoteKey(7),
            bytes: 64,
            offset: 8,
            first: 2,
            second: 3,
            ..Header::new(opcode, 5)
        };
        let opcodes = [
            Opcode::Read,
            Opcode::Write,
            Opcode::CompareAndSwap,
            Opcode::Refuse,
        ];
        farcore_fuzz::Target::new("frame")
            .seeds(opcodes.map(|opcode| frame(opcode).encode().to_vec()))
            .run(|bytes| {
                for bytes in bytes.as_chunks().0 {
                    let Ok(header) = Header::decode(bytes) else {
                        continue;
                    };
                    assert!(header.bytes <= TRANSFER_BYTES_MAX);
                    let again = header.encode();
                    assert_eq!(Header::decode(&again), Ok(header));
                    // Two bytes mean nothing.
                    assert_eq!(
                        (again[..2].as_ref(), &again[4..]),
                        (&bytes[..2], &bytes[4..])
                    );
                    let _ = status_of(header.status);
                }
            });
    }

    #[test]
    fn a_refusal_carries_its_reason() {
        assert_eq!(decode_reply(&encode_reply(None)), Ok(None));
        for refusal in [
            Refusal::Version(PROTOCOL_VERSION),
            Refusal::Busy,
            Refusal::Session,
            Refusal::Proof,
            Refusal::Stopping,
            Refusal::Purpose,
            Refusal::Unknown(99),
        ] {
            assert_eq!(
                decode_reply(&encode_reply(Some(refusal))),
                Ok(Some(refusal))
            );
        }
        assert_eq!(
            decode_reply(&[7; CONNECT_REPLY_BYTES]),
            Err(WireError::Magic)
        );
    }
}
