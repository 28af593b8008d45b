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
        "memory exhausted: {asked_bytes} adjacent bytes requested, {free_bytes} bytes free in total: free some or add a memory node"
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
mod tests {
    use super::*;
    use crate::pool::{NodeMap, OwnerId, RegionDescriptor};
    use crate::work::RemoteKey;

    fn token(text: &str) -> Token {
        Token::new(text.as_bytes()).expect("long enough")
    }

    fn welcome() -> Welcome {
        let region = |key| RegionDescriptor {
            key: RemoteKey(key),
            address: 0,
            bytes: 1 << 20,
        };
        Welcome {
            session: OwnerId::new(7).expect("not 0"),
            incarnation: 1,
            lease_ms: 30_000,
            map: NodeMap {
                extent_bytes: 1 << 20,
                table: region(1),
                regions: vec![region(2)],
            },
        }
    }

    fn refused(bytes: Refused) -> Vec<u8> {
        Reply::Refused(bytes).encode()
    }

    /// Both sides, each with its token.
    fn shake(client: Option<&Token>, node: Option<&Token>) -> Result<Welcome, SessionError> {
        let (client_key, node_key) = (token::key_of(client), token::key_of(node));
        let (hello, message) = ClientHello::new("test", Opening::New)?;
        let (greeted, message) = NodeGreeted::hello(&message, node.is_some())?;
        let (sent, message) = hello.challenged(&message, client, client_key)?;
        let reply = match greeted.proved(&message, node_key, node.is_some()) {
            Ok(proved) => proved.welcome(node_key, &welcome()),
            Err(error) => refused(error),
        };
        sent.welcomed(&reply, client_key)
            .map(|(welcome, _)| welcome)
    }

    #[test]
    fn only_peers_with_equal_tokens_agree() {
        let (one, other) = (token("0123456789abcdef"), token("0123456789abcdeF"));
        assert_eq!(shake(Some(&one), Some(&one)).unwrap(), welcome());
        assert_eq!(shake(None, None).unwrap(), welcome());
        let error = shake(Some(&one), Some(&other)).unwrap_err();
        assert!(matches!(error, SessionError::WrongToken), "{error}");
        let error = shake(Some(&one), None).unwrap_err();
        assert!(matches!(error, SessionError::NoTokenAtNode), "{error}");
        let error = shake(None, Some(&one)).unwrap_err();
        assert!(matches!(error, SessionError::TokenMissing), "{error}");
    }

    #[test]
    fn a_node_without_the_token_is_detected() {
        let one = token("0123456789abcdef");
        let key = token::key_of(Some(&one));
        let (hello, message) = ClientHello::new("test", Opening::New).unwrap();
        // It requires a token, accepts any proof and echoes what it received.
        let (greeted, message) = NodeGreeted::hello(&message, true).unwrap();
        let (sent, message) = hello.challenged(&message, Some(&one), key).unwrap();
        let Ok(Request::Prove { proof }) = Request::decode(&message) else {
            panic!("no proof");
        };
        greeted.proved(&message, b"", false).unwrap();
        let reply = Reply::Welcome {
            welcome: encode(&welcome()),
            proof,
        };
        let error = sent.welcomed(&reply.encode(), key).unwrap_err();
        assert!(matches!(error, SessionError::NodeNotProved), "{error}");
    }

    #[test]
    fn a_recorded_handshake_cannot_be_replayed() {
        let one = token("0123456789abcdef");
        let key = token::key_of(Some(&one));
        let (hello, first) = ClientHello::new("test", Opening::New).unwrap();
        let (greeted, challenge) = NodeGreeted::hello(&first, true).unwrap();
        let (sent, proof) = hello.challenged(&challenge, Some(&one), key).unwrap();
        let proved = greeted.proved(&proof, key, true).unwrap();
        let reply = proved.welcome(key, &welcome());
        sent.welcomed(&reply, key).unwrap();
        // Replayed to the node: its challenge differs.
        let (again, _) = NodeGreeted::hello(&first, true).unwrap();
        let error = again.proved(&proof, key, true).unwrap_err();
        assert_eq!(error, Refused::WrongToken);
        // Replayed to a client.
        let (hello, _) = ClientHello::new("test", Opening::New).unwrap();
        let (sent, _) = hello.challenged(&challenge, Some(&one), key).unwrap();
        let error = sent.welcomed(&reply, key).unwrap_err();
        assert!(matches!(error, SessionError::NodeNotProved), "{error}");
    }

    #[test]
    fn an_invalid_map_is_refused_by_the_client() {
        let (hello, message) = ClientHello::new("test", Opening::New).unwrap();
        let (greeted, message) = NodeGreeted::hello(&message, false).unwrap();
        let (sent, message) = hello.challenged(&message, None, b"").unwrap();
        let proved = greeted.proved(&message, b"", false).unwrap();
        let mut wrong = welcome();
        wrong.map.extent_bytes = 3;
        let error = sent
            .welcomed(&proved.welcome(b"", &wrong), b"")
            .unwrap_err();
        assert!(matches!(error, SessionError::Map(_)), "{error}");
    }

    #[test]
    fn a_lease_out_of_range_is_refused_by_the_client() {
        for lease_ms in [0, 999, 86_400_001, u64::MAX] {
            let (hello, message) = ClientHello::new("test", Opening::New).unwrap();
            let (greeted, message) = NodeGreeted::hello(&message, false).unwrap();
            let (sent, message) = hello.challenged(&message, None, b"").unwrap();
            let proved = greeted.proved(&message, b"", false).unwrap();
            let wrong = Welcome {
                lease_ms,
                ..welcome()
            };
            let error = sent
                .welcomed(&proved.welcome(b"", &wrong), b"")
                .unwrap_err();
            assert!(matches!(error, SessionError::Lease { .. }), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(&format!("{lease_ms} ms")) && text.contains("1000 to 86400000"),
                "{text}"
            );
        }
    }

    #[test]
    fn messages_out_of_turn_are_refused() {
        let bye = Request::Bye.encode();
        assert_eq!(
            NodeGreeted::hello(&bye, true).unwrap_err(),
            Refused::OutOfTurn
        );
        let (_, hello) = ClientHello::new("test", Opening::New).unwrap();
        let (greeted, _) = NodeGreeted::hello(&hello, true).unwrap();
        let error = greeted.proved(&hello, b"", true).unwrap_err();
        assert_eq!(error, Refused::OutOfTurn);
        let (hello, _) = ClientHello::new("test", Opening::New).unwrap();
        let reply = Reply::Farewell.encode();
        let error = hello.challenged(&reply, None, b"").unwrap_err();
        assert!(matches!(error, SessionError::Unexpected(_)), "{error}");
        let (hello, _) = ClientHello::new("test", Opening::New).unwrap();
        let reply = refused(Refused::Version { node: 2, client: 1 });
        let error = hello.challenged(&reply, None, b"").unwrap_err();
        assert!(matches!(
            error,
            SessionError::Version { node: 2, client: 1 }
        ));
    }
}
