//! The shared token, and the proofs made with it.
//!
//! - I1: the token never leaves the process; only HMAC-SHA-256 values over fresh nonces do.
//! - I2: every kind of proof has its own label, and all its fields but the last have a fixed
//!   length. No proof serves as another: a side cannot be made to answer its own challenge.
//! - I3: proofs are compared in constant time. Tokens and keys are zeroed when they are dropped.
//! - I4: a proof of a memory connection works once: each counter of a slot is accepted once, in
//!   ascending order.
//!
//! ```text
//! client                                             node
//!   hello: client nonce               ------------>
//!                                     <------------  challenge: node nonce
//!   HMAC(token, client | nonces | how)------------>
//!                                     <------------  welcome, HMAC(token, node | nonces | welcome)
//!   session key = HMAC(token, session | nonces), on both sides
//!   memory connection: HMAC(session key, memory | session | slot | counter), cut to 16 bytes
//! ```
//!
//! Proofs authenticate the ends of a connection. They do not protect the stream: an attacker on the
//! path can change packets. Source: RFC 2104, NIST SP 800-107 (truncation).

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use farcore_tuning::entropy;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tracing::warn;
use zeroize::Zeroizing;

/// The permission of group and others to read a file.
const READABLE_BY_OTHERS: u32 = 0o044;

/// A random number used once.
pub type Nonce = [u8; 16];
/// Proves knowledge of a key.
pub type Proof = [u8; 32];
/// Proves knowledge of a session's key, in a connect request.
pub type MemoryProof = [u8; 16];

/// The secret shared by a memory node and its clients.
#[derive(Clone)]
pub struct Token(Zeroizing<Vec<u8>>);

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The length is out of range: too short to be safe, or not a token.
    #[error(
        "the token is {bytes} bytes long, must be {} to {}: create one with `(umask 077; head -c 32 /dev/urandom | base64 > token)`",
        Token::BYTES_MIN,
        Token::BYTES_MAX
    )]
    Length {
        /// The length, without surrounding white space.
        bytes: usize,
    },
}

impl Token {
    /// The shortest token, in bytes.
    pub const BYTES_MIN: usize = 16;
    /// The longest token, in bytes.
    pub const BYTES_MAX: usize = 4096;

    /// A token, trimmed of white space.
    ///
    /// # Errors
    /// [`TokenError::Length`].
    pub fn new(bytes: &[u8]) -> Result<Self, TokenError> {
        let bytes = bytes.trim_ascii();
        if !(Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes.len()) {
            return Err(TokenError::Length { bytes: bytes.len() });
        }
        Ok(Self(Zeroizing::new(bytes.to_vec())))
    }

    /// Reads a token from a file. Logs a warning if group or others may read that file too.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        // Preallocated: a vector that grows would leave copies of the secret behind.
        let mut bytes = Zeroizing::new(vec![0; 2 * Self::BYTES_MAX]);
        let mut filled = 0;
        let read = File::open(path).and_then(|mut file| {
            loop {
                match file.read(&mut bytes[filled..]) {
                    Ok(0) => return file.metadata(),
                    Ok(more) => filled += more,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        });
        let facts = read.map_err(|source| TokenError::Read {
            path: path.to_owned(),
            source,
        })?;
        let token = Self::new(&bytes[..filled])?;
        if let Some(mode) = exposed_mode(&facts) {
            let path = path.display();
            warn!(
                "the token file {path}: mode {mode:04o} lets other users read it; run `chmod 600 {path}`"
            );
        }
        Ok(token)
    }
}

/// The mode of a file that group or others may read.
#[must_use]
pub fn exposed_mode(facts: &Metadata) -> Option<u32> {
    let mode = facts.permissions().mode() & 0o777;
    // A pipe, as from `<(command)`, is no file that stays readable.
    (facts.is_file() && mode & READABLE_BY_OTHERS != 0).then_some(mode)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The key for proofs. A node without a token uses an empty one: its proofs then prove nothing.
pub(crate) fn key_of(token: Option<&Token>) -> &[u8] {
    token.map_or(&[], |token| &token.0)
}

/// Random bytes from the kernel.
///
/// # Errors
/// The kernel provides none.
pub(crate) fn nonce() -> io::Result<Nonce> {
    let mut nonce = [0; 16];
    entropy(&mut nonce)?;
    Ok(nonce)
}

/// Both sides' nonces in one handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nonces {
    pub(crate) client: Nonce,
    pub(crate) node: Nonce,
}

#[derive(Clone, Copy)]
enum Label {
    Client,
    Node,
    Session,
    Memory,
    Grant,
    PeerClient,
    PeerServer,
}

fn mac(key: &[u8], label: Label) -> Hmac<Sha256> {
    #[allow(clippy::expect_used, reason = "HMAC accepts keys of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(b"farcore 1 ");
    // All labels have one length.
    mac.update(match label {
        Label::Client => b"client ",
        Label::Node => b"node   ",
        Label::Session => b"session",
        Label::Memory => b"memory ",
        Label::Grant => b"grant  ",
        Label::PeerClient => b"pclient",
        Label::PeerServer => b"pserver",
    });
    mac
}

fn over(key: &[u8], label: Label, nonces: &Nonces, last: &[u8]) -> Hmac<Sha256> {
    let mut mac = mac(key, label);
    mac.update(&nonces.client);
    mac.update(&nonces.node);
    mac.update(last);
    mac
}

fn finish(mac: Hmac<Sha256>) -> Proof {
    mac.finalize().into_bytes().into()
}

/// The client's proof; `how` is the encoded [`Opening`](super::message::Opening).
pub(crate) fn client_proof(key: &[u8], nonces: &Nonces, how: &[u8]) -> Proof {
    finish(over(key, Label::Client, nonces, how))
}

pub(crate) fn is_client_proof(key: &[u8], nonces: &Nonces, how: &[u8], proof: &Proof) -> bool {
    let mac = over(key, Label::Client, nonces, how);
    mac.verify_slice(proof).is_ok()
}

/// The node's proof; `welcome` is the encoded welcome.
pub(crate) fn node_proof(key: &[u8], nonces: &Nonces, welcome: &[u8]) -> Proof {
    finish(over(key, Label::Node, nonces, welcome))
}

pub(crate) fn is_node_proof(key: &[u8], nonces: &Nonces, welcome: &[u8], proof: &Proof) -> bool {
    let mac = over(key, Label::Node, nonces, welcome);
    mac.verify_slice(proof).is_ok()
}

/// A side of a connection between equal peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerSide {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// Proves to an equal peer that this side holds the token; `context` is what both sides said in the
/// handshake. Without a token the proof proves nothing.
#[derive(Clone, Copy, Debug)]
pub struct PeerProof<'a> {
    /// The token.
    pub token: Option<&'a Token>,
    /// The nonce of the side that connected.
    pub client: Nonce,
    /// The nonce of the side that accepted.
    pub server: Nonce,
    /// What else the proof covers.
    pub context: &'a [u8],
}

impl PeerProof<'_> {
    fn mac(&self, side: PeerSide) -> Hmac<Sha256> {
        let label = match side {
            PeerSide::Client => Label::PeerClient,
            PeerSide::Server => Label::PeerServer,
        };
        let nonces = Nonces {
            client: self.client,
            node: self.server,
        };
        over(key_of(self.token), label, &nonces, self.context)
    }

    /// A side's proof.
    #[must_use]
    pub fn of(&self, side: PeerSide) -> Proof {
        finish(self.mac(side))
    }

    /// Whether a proof is that side's. Takes the same time for every wrong proof.
    #[must_use]
    pub fn is_of(&self, side: PeerSide, proof: &Proof) -> bool {
        self.mac(side).verify_slice(proof).is_ok()
    }

    /// A fresh nonce.
    ///
    /// # Errors
    /// The kernel provides no random numbers.
    pub fn nonce() -> io::Result<Nonce> {
        nonce()
    }
}

/// What a memory connection claims about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Join {
    pub(crate) session: u64,
    pub(crate) slot: u32,
    pub(crate) counter: u64,
}

/// The key of one session.
#[derive(Clone)]
pub(crate) struct SessionKey(Zeroizing<Proof>);

impl SessionKey {
    pub(crate) fn derive(key: &[u8], nonces: &Nonces) -> Self {
        Self(Zeroizing::new(finish(over(
            key,
            Label::Session,
            nonces,
            &[],
        ))))
    }

    /// A key of no session. A proof is checked against it where there is no session, so that the
    /// answer takes as long as where there is one.
    pub(crate) fn of_none() -> Self {
        Self(Zeroizing::new([0; size_of::<Proof>()]))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[..]
    }

    fn memory(&self, join: &Join) -> Hmac<Sha256> {
        let mut mac = mac(self.bytes(), Label::Memory);
        mac.update(&join.session.to_le_bytes());
        mac.update(&join.slot.to_le_bytes());
        mac.update(&join.counter.to_le_bytes());
        mac
    }

    pub(crate) fn memory_proof(&self, join: &Join) -> MemoryProof {
        let whole = finish(self.memory(join));
        let mut proof = [0; 16];
        proof.copy_from_slice(&whole[..16]);
        proof
    }

    fn grant(&self, session: u64, (first, count): (u32, u32), may_write: bool) -> Hmac<Sha256> {
        let mut mac = mac(self.bytes(), Label::Grant);
        mac.update(&session.to_le_bytes());
        mac.update(&first.to_le_bytes());
        mac.update(&count.to_le_bytes());
        mac.update(&[u8::from(may_write)]);
        mac
    }

    /// Proves that a session lets others share extents.
    pub(crate) fn grant_proof(&self, session: u64, chunk: (u32, u32), may_write: bool) -> Proof {
        finish(self.grant(session, chunk, may_write))
    }

    pub(crate) fn is_grant_proof(
        &self,
        session: u64,
        chunk: (u32, u32),
        may_write: bool,
        proof: &Proof,
    ) -> bool {
        self.grant(session, chunk, may_write)
            .verify_slice(proof)
            .is_ok()
    }

    pub(crate) fn is_memory_proof(&self, join: &Join, proof: &MemoryProof) -> bool {
        self.memory(join).verify_truncated_left(proof).is_ok()
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_others_can_read_is_exposed() {
        let name = format!("farcore-token-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, "sixteen bytes at least").unwrap();
        let mode = |path: &Path| exposed_mode(&std::fs::metadata(path).unwrap());
        for (given, exposed) in [
            (0o600, None),
            (0o400, None),
            (0o640, Some(0o640)),
            (0o604, Some(0o604)),
        ] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(given)).unwrap();
            assert_eq!(mode(&file), exposed, "{given:o}");
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(mode(Path::new("/dev/null")), None);
    }

    #[test]
    fn a_token_is_trimmed_and_its_length_checked() {
        let exact = Token::new(b" 0123456789abcdef\n").unwrap();
        assert_eq!(key_of(Some(&exact)), b"0123456789abcdef");
        assert_eq!(format!("{exact:?}"), "Token(..)");
        for text in [&b"0123456789abcde\n"[..], b"", &[b'x'; 5000]] {
            let error = Token::new(text).unwrap_err();
            let bytes = text.trim_ascii().len().to_string();
            assert!(error.to_string().contains(&bytes), "{error}");
        }
        let error = Token::read(Path::new("/nonexistent/token")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/token"), "{error}");
        // An endless file must not be read to its end.
        let error = Token::read(Path::new("/dev/zero")).unwrap_err();
        assert!(matches!(error, TokenError::Length { .. }), "{error}");
    }

    #[test]
    fn a_peers_proof_is_of_its_side_token_and_context() {
        let token = Token::new(b"0123456789abcdef").unwrap();
        let other = Token::new(b"0123456789abcdeF").unwrap();
        let proofs = PeerProof {
            token: Some(&token),
            client: [1; 16],
            server: [2; 16],
            context: b"hello",
        };
        let proof = proofs.of(PeerSide::Client);
        assert!(proofs.is_of(PeerSide::Client, &proof));
        assert!(!proofs.is_of(PeerSide::Server, &proof));
        for wrong in [
            PeerProof {
                token: Some(&other),
                ..proofs
            },
            PeerProof {
                token: None,
                ..proofs
            },
            PeerProof {
                client: [2; 16],
                server: [1; 16],
                ..proofs
            },
            PeerProof {
                context: b"hellO",
                ..proofs
            },
        ] {
            assert!(!wrong.is_of(PeerSide::Client, &proof));
        }
        let nonces = Nonces {
            client: [1; 16],
            node: [2; 16],
        };
        assert!(!is_client_proof(
            b"0123456789abcdef",
            &nonces,
            b"hello",
            &proof
        ));
    }

    #[test]
    fn a_proof_serves_one_purpose_only() {
        let key = b"0123456789abcdef";
        let nonces = Nonces {
            client: [1; 16],
            node: [2; 16],
        };
        let turned = Nonces {
            client: [2; 16],
            node: [1; 16],
        };
        let proof = client_proof(key, &nonces, b"how");
        assert!(is_client_proof(key, &nonces, b"how", &proof));
        assert!(!is_client_proof(key, &nonces, b"hoW", &proof));
        assert!(!is_client_proof(key, &turned, b"how", &proof));
        assert!(!is_client_proof(b"another", &nonces, b"how", &proof));
        assert!(!is_node_proof(key, &nonces, b"how", &proof));
        assert!(is_node_proof(
            key,
            &nonces,
            b"how",
            &node_proof(key, &nonces, b"how")
        ));
        let session = SessionKey::derive(key, &nonces);
        let join = Join {
            session: 7,
            slot: 1,
            counter: 3,
        };
        let proof = session.memory_proof(&join);
        assert!(session.is_memory_proof(&join, &proof));
        for other in [
            Join { session: 8, ..join },
            Join { slot: 2, ..join },
            Join { counter: 4, ..join },
        ] {
            assert!(!session.is_memory_proof(&other, &proof));
        }
        let another = SessionKey::derive(key, &turned);
        assert!(!another.is_memory_proof(&join, &proof));
    }
}
