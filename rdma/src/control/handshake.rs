//! The handshake that opens or resumes a session, without any socket: each step takes a message and
//! returns the next one.
//!
//! Owns the protocol's order and the checks of proofs; the cryptography is in [`token`].
//!
//! - I1: neither side continues before the peer has proved what it must. A client with a token
//!   accepts no node without one.
//! - I2: the node reveals nothing about its memory before the client's proof is verified.
//!
//! [`token`]: super::token

use std::io;
use std::time::Duration;

use farcore_tuning::Size;

use crate::control::token::{self, Nonces, SessionKey, Token};
use crate::control::{
    CONTROL_VERSION, LEASE_MAX, LEASE_MIN, Opening, Refused, Reply, Request, Welcome, clean_name,
    decode, encode,
};
use crate::pool::NodeMapError;

/// Why a client's session could not be opened or continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The two sides speak different protocol versions.
    #[error(
        "the node speaks version {node} of the control protocol and this client version {client}: run the same release on both"
    )]
    Version {
        /// The node's version.
        node: u16,
        /// This client's version.
        client: u16,
    },
    /// The node rejected the client's proof.
    #[error("wrong token: the node was started with a different token")]
    WrongToken,
    /// The node's proof is wrong: it does not know the token.
    #[error("the node did not prove that it knows the token: check the node's address")]
    NodeNotProved,
    /// The client has a token and the node has none.
    #[error(
        "the node has no token and this client has one: start the node with the token, or the client without"
    )]
    NoTokenAtNode,
    /// The node requires a token and the client has none.
    #[error("the node requires a token: give this client the token that the node was started with")]
    TokenMissing,
    /// The session has ended.
    #[error(
        "the session has ended because its lease expired or the node was restarted: open a new session"
    )]
    Expired,
    /// The node has no run of free extents of this length.
    #[error(
        "memory exhausted: {} in one piece requested, {} free in total: free some or add a memory node",
        Size(*asked_bytes),
        Size(*free_bytes)
    )]
    Exhausted {
        /// The requested bytes, in whole extents.
        asked_bytes: u64,
        /// The free bytes in total.
        free_bytes: u64,
    },
    /// The node refused for another reason.
    #[error("refused: {0}")]
    Refused(Refused),
    /// The node's description of its memory is invalid.
    #[error("the node's description of its memory is invalid: {0}")]
    Map(#[from] NodeMapError),
    /// The node's lease is out of range.
    #[error(
        "the node's lease is {lease_ms} ms, must be {} to {}: check the node's address",
        LEASE_MIN.as_millis(),
        LEASE_MAX.as_millis()
    )]
    Lease {
        /// The node's lease, in milliseconds.
        lease_ms: u64,
    },
    /// The node's reply has the wrong kind.
    #[error("unexpected reply from the node instead of {0}")]
    Unexpected(&'static str),
    /// The control connection failed.
    #[error("control connection: {0}")]
    Io(#[from] io::Error),
}

impl From<Refused> for SessionError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Version { node, client } => Self::Version { node, client },
            Refused::WrongToken => Self::WrongToken,
            Refused::NoSession => Self::Expired,
            Refused::Exhausted {
                asked_bytes,
                free_bytes,
            } => Self::Exhausted {
                asked_bytes,
                free_bytes,
            },
            other => Self::Refused(other),
        }
    }
}

/// Decodes a reply and turns a refusal into an error.
pub(crate) fn granted(bytes: &[u8], wanted: &'static str) -> Result<Reply, SessionError> {
    match Reply::decode(bytes) {
        Some(Reply::Refused(refused)) => Err(refused.into()),
        Some(reply) => Ok(reply),
        None => Err(SessionError::Unexpected(wanted)),
    }
}

/// The client's state after its hello.
#[derive(Debug)]
pub(crate) struct ClientHello {
    nonce: token::Nonce,
    opening: Opening,
}

/// The client's state after its proof.
#[derive(Debug)]
pub(crate) struct ClientProved {
    nonces: Nonces,
    opening: Opening,
}

impl ClientHello {
    pub(crate) fn new(name: &str, opening: Opening) -> io::Result<(Self, Vec<u8>)> {
        let nonce = token::nonce()?;
        let hello = Request::Hello {
            version: CONTROL_VERSION,
            client: clean_name(name),
            nonce,
            opening,
        };
        Ok((Self { nonce, opening }, hello.encode()))
    }

    /// Answers the node's challenge. `key` is the token, or the key of the session to resume.
    pub(crate) fn challenged(
        self,
        reply: &[u8],
        token: Option<&Token>,
        key: &[u8],
    ) -> Result<(ClientProved, Vec<u8>), SessionError> {
        let Reply::Challenge { nonce, needs_token } = granted(reply, "a challenge")? else {
            return Err(SessionError::Unexpected("a challenge"));
        };
        match (token, needs_token) {
            (Some(_), false) => return Err(SessionError::NoTokenAtNode),
            (None, true) => return Err(SessionError::TokenMissing),
            _ => {}
        }
        let nonces = Nonces {
            client: self.nonce,
            node: nonce,
        };
        let opening = self.opening;
        let proof = token::client_proof(key, &nonces, &encode(&opening));
        let prove = Request::Prove { proof }.encode();
        Ok((ClientProved { nonces, opening }, prove))
    }
}

impl ClientProved {
    /// Verifies the welcome and derives the session's key if the session is new.
    pub(crate) fn welcomed(
        self,
        reply: &[u8],
        key: &[u8],
    ) -> Result<(Welcome, SessionKey), SessionError> {
        let unexpected = SessionError::Unexpected("a welcome");
        let Reply::Welcome { welcome, proof } = granted(reply, "a welcome")? else {
            return Err(unexpected);
        };
        if !token::is_node_proof(key, &self.nonces, &welcome, &proof) {
            return Err(SessionError::NodeNotProved);
        }
        let welcome: Welcome = decode(&welcome).ok_or(unexpected)?;
        welcome.map.validate()?;
        let lease = Duration::from_millis(welcome.lease_ms);
        if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
            return Err(SessionError::Lease {
                lease_ms: welcome.lease_ms,
            });
        }
        if let Opening::Resume {
            session,
            incarnation,
        } = self.opening
            && (welcome.session, welcome.incarnation) != (session, incarnation)
        {
            return Err(SessionError::Expired);
        }
        Ok((welcome, SessionKey::derive(key, &self.nonces)))
    }
}

/// The node's state after a hello: its challenge is to be sent.
#[derive(Debug)]
pub(crate) struct NodeGreeted {
    nonces: Nonces,
    pub(crate) opening: Opening,
    pub(crate) client: String,
}

/// The node's state after the client's proof was verified.
#[derive(Debug)]
pub(crate) struct NodeProved(Nonces);

impl NodeGreeted {
    pub(crate) fn hello(bytes: &[u8], needs_token: bool) -> Result<(Self, Vec<u8>), Refused> {
        let Request::Hello {
            client,
            nonce,
            opening,
            ..
        } = Request::decode(bytes)?
        else {
            return Err(Refused::OutOfTurn);
        };
        let node = token::nonce().map_err(|_| Refused::Stopping)?;
        let challenge = Reply::Challenge {
            nonce: node,
            needs_token,
        };
        let nonces = Nonces {
            client: nonce,
            node,
        };
        let greeted = Self {
            nonces,
            opening,
            client: clean_name(&client),
        };
        Ok((greeted, challenge.encode()))
    }

    /// Verifies the client's proof. `key` is the token, or the key of the session to resume.
    /// Without `needs_proof` any proof is accepted.
    pub(crate) fn proved(
        &self,
        bytes: &[u8],
        key: &[u8],
        needs_proof: bool,
    ) -> Result<NodeProved, Refused> {
        let Request::Prove { proof } = Request::decode(bytes)? else {
            return Err(Refused::OutOfTurn);
        };
        let right = token::is_client_proof(key, &self.nonces, &encode(&self.opening), &proof);
        if needs_proof && !right {
            return Err(match self.opening {
                Opening::New => Refused::WrongToken,
                Opening::Resume { .. } => Refused::NoSession,
            });
        }
        Ok(NodeProved(self.nonces))
    }
}

impl NodeProved {
    /// The key of a new session.
    pub(crate) fn session_key(&self, key: &[u8]) -> SessionKey {
        SessionKey::derive(key, &self.0)
    }

    pub(crate) fn welcome(&self, key: &[u8], welcome: &Welcome) -> Vec<u8> {
        let welcome = encode(welcome);
        let proof = token::node_proof(key, &self.0, &welcome);
        Reply::Welcome { welcome, proof }.encode()
    }
}

#[cfg(test)]
mod tests;
