//! The control protocol between a client and a memory node: messages, handshake and token.
//!
//! Both sides use it. It opens no socket and reads no clock.

pub(crate) mod handshake;
pub(crate) mod message;
pub(crate) mod token;

pub use self::handshake::SessionError;
pub(crate) use self::handshake::{ClientHello, NodeGreeted, granted};
pub use self::message::{
    CALL_BYTES_MAX, CHUNK_BYTES_DEFAULT, CONTROL_VERSION, Call, CallTarget, Chunk, Grant, KEEP_MAX,
    LEASE_MAX, LEASE_MIN, NodeStatistics, Opening, PROCEDURE_BYTES_MAX, Refused, Reply, Request,
    Welcome,
};
pub(crate) use self::message::{clean_name, decode, encode};
pub(crate) use self::token::{Join, SessionKey};
pub use self::token::{
    MemoryProof, Nonce, PeerProof, PeerSide, Proof, Token, TokenError, exposed_mode,
};
