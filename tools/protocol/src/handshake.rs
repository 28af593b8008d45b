//! What both sides say before the first request.
//!
//! ```text
//! client                                            server
//!   HELLO: version, credits, nonce, name    ->
//!                                           <-      CHALLENGE: nonce, the server's proof
//!   PROVE: the client's proof               ->
//!                                           <-      WELCOME: limits, credits, upload slots
//!                                           <-      REFUSED: status, text (instead of any of these)
//! ```
//!
//! A proof is HMAC-SHA-256 with the token over both nonces and the body of HELLO, with a label of
//! its side. Bodies are values of messages. In HELLO, `version` is that of the protocol and
//! `argument` the longest message that the client receives. WELCOME has credits in its header.

use crate::fields::{part, u16_at, u32_at, u64_at};
use crate::header::{Header, Kind, WireError};
use crate::limits::{
    CREDITS_MAX, CREDITS_MIN, HEADER_BYTES, NAME_BYTES_MAX, PROTOCOL_VERSION, SMALL_BYTES_MAX,
    SMALL_BYTES_MIN, TRANSFER_SLOT_BYTES_MAX,
};
use crate::status::Status;

/// A random number used once.
pub type Nonce = [u8; 16];
/// Proves knowledge of the token.
pub type Proof = [u8; 32];

/// The longest message of a handshake, in bytes.
pub const HANDSHAKE_BYTES: usize = 512;
/// Receives for handshakes, at the server: HELLO and PROVE.
pub const HANDSHAKE_RECEIVES: usize = 2;

/// The client's first message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The version of the protocol.
    pub version: u16,
    /// The client's receives, all posted.
    pub credits: u16,
    /// The longest message that the client receives, in bytes.
    pub message_bytes: u32,
    /// The client's nonce.
    pub nonce: Nonce,
    /// The client's name, for logs; control characters are no part of it.
    pub name: String,
}

fn message(header: Header, body: &[u8]) -> Vec<u8> {
    let header = Header {
        value_bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
        ..header
    };
    let mut message = header.encode().to_vec();
    message.extend_from_slice(body);
    message
}

fn field(field: &'static str, value: u64, holds: bool) -> Result<(), WireError> {
    if holds {
        Ok(())
    } else {
        Err(WireError::Field { field, value })
    }
}

/// Header and body of a message that is of one kind and whose body has at least `least` bytes.
fn opened(bytes: &[u8], kind: Kind, least: usize) -> Result<(Header, &[u8]), WireError> {
    let header = Header::decode(bytes)?;
    if header.kind != kind || header.is_answer {
        return Err(WireError::Kind(bytes[0]));
    }
    let (key, body) = header.body(bytes)?;
    if !key.is_empty() || body.len() < least {
        return Err(WireError::Short(bytes.len()));
    }
    Ok((header, body))
}

/// A name as it may be logged, cut to its limit.
fn clean(name: &str) -> String {
    let mut clean: String = name.chars().filter(|c| !c.is_control()).collect();
    while clean.len() > NAME_BYTES_MAX {
        clean.pop();
    }
    clean
}

impl Hello {
    /// Encodes the message. Its body, which proofs cover, is what follows the header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let header = Header {
            version: self.version.into(),
            credits: self.credits,
            argument: self.message_bytes.into(),
            ..Header::new(Kind::Hello, 0)
        };
        let mut body = self.nonce.to_vec();
        body.extend_from_slice(clean(&self.name).as_bytes());
        message(header, &body)
    }

    /// Decodes the message. Another version is no error here: the server says which it speaks.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (header, body) = opened(bytes, Kind::Hello, 16)?;
        let version = u16::try_from(header.version).unwrap_or(u16::MAX);
        let name = &body[16..];
        field(
            "name bytes",
            name.len() as u64,
            name.len() <= NAME_BYTES_MAX,
        )?;
        let credits = header.credits;
        let of_this_version = version == PROTOCOL_VERSION;
        let fits = (CREDITS_MIN..=CREDITS_MAX).contains(&credits);
        field("credits", credits.into(), fits || !of_this_version)?;
        let message_bytes = u32::try_from(header.argument).unwrap_or(u32::MAX);
        let least = HEADER_BYTES + SMALL_BYTES_MIN;
        let fits = message_bytes as usize >= least.max(HANDSHAKE_BYTES);
        field("message bytes", header.argument, fits || !of_this_version)?;
        Ok(Self {
            version,
            credits,
            message_bytes,
            nonce: part(body, 0),
            name: clean(std::str::from_utf8(name).map_err(|_| WireError::Text)?),
        })
    }
}

/// The server's proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Challenge {
    /// The server's nonce.
    pub nonce: Nonce,
    /// The server's proof.
    pub proof: Proof,
}

impl Challenge {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = [&self.nonce[..], &self.proof].concat();
        message(Header::new(Kind::Challenge, 0), &body)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (_, body) = opened(bytes, Kind::Challenge, 48)?;
        Ok(Self {
            nonce: part(body, 0),
            proof: part(body, 16),
        })
    }
}

/// Encodes the client's proof.
#[must_use]
pub fn encode_proof(proof: &Proof) -> Vec<u8> {
    message(Header::new(Kind::Prove, 0), proof)
}

/// Decodes the client's proof.
///
/// # Errors
/// [`WireError`].
pub fn decode_proof(bytes: &[u8]) -> Result<Proof, WireError> {
    let (_, body) = opened(bytes, Kind::Prove, 32)?;
    Ok(part(body, 0))
}

/// Memory facts: transfer slots of one length, one behind the other.
///
/// ```text
/// 0 memory key:32 | 4 first slot:16 | 6 slots:16 | 8 slot bytes:32 | 12 zero:32
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotFacts {
    /// The key of their memory, in which the first begins at offset 0.
    pub memory_key: u32,
    /// The number of the first.
    pub first: u16,
    /// How many there are.
    pub slots: u16,
    /// Bytes of each.
    pub slot_bytes: u32,
}

impl SlotFacts {
    /// Bytes of the encoding.
    pub const BYTES: usize = 16;

    /// Encodes them.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.memory_key.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.first.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.slots.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.slot_bytes.to_le_bytes());
        bytes
    }

    /// Decodes them.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() < Self::BYTES {
            return Err(WireError::Short(bytes.len()));
        }
        let facts = Self {
            memory_key: u32_at(bytes, 0),
            first: u16_at(bytes, 4),
            slots: u16_at(bytes, 6),
            slot_bytes: u32_at(bytes, 8),
        };
        let fits = (HEADER_BYTES..=TRANSFER_SLOT_BYTES_MAX).contains(&(facts.slot_bytes as usize));
        field("slot bytes", facts.slot_bytes.into(), fits)?;
        let fits = facts.first.checked_add(facts.slots).is_some();
        field("slots", facts.slots.into(), fits)?;
        Ok(facts)
    }
}

/// The server's limits.
///
/// ```text
/// 0 message bytes:32 | 4 small bytes:32 | 8 longest value:64 | 16 slot bytes at most:32 | 20 zero:32
/// 24 upload slots: facts
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// Receives that the server has posted.
    pub credits: u16,
    /// The longest message that the server receives, in bytes.
    pub message_bytes: u32,
    /// Values from this length on travel in transfer slots.
    pub small_bytes: u32,
    /// The longest value, in bytes.
    pub value_bytes_max: u64,
    /// The longest transfer slot, in bytes.
    pub slot_bytes_max: u32,
    /// The upload slots.
    pub uploads: SlotFacts,
}

impl Welcome {
    /// Encodes the message, which grants `credits`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let header = Header {
            credits: self.credits,
            ..Header::new(Kind::Welcome, 0)
        };
        let mut body = Vec::with_capacity(40);
        body.extend_from_slice(&self.message_bytes.to_le_bytes());
        body.extend_from_slice(&self.small_bytes.to_le_bytes());
        body.extend_from_slice(&self.value_bytes_max.to_le_bytes());
        body.extend_from_slice(&self.slot_bytes_max.to_le_bytes());
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&self.uploads.encode());
        message(header, &body)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (header, body) = opened(bytes, Kind::Welcome, 24 + SlotFacts::BYTES)?;
        let welcome = Self {
            credits: header.credits,
            message_bytes: u32_at(body, 0),
            small_bytes: u32_at(body, 4),
            value_bytes_max: u64_at(body, 8),
            slot_bytes_max: u32_at(body, 16),
            uploads: SlotFacts::decode(&body[24..])?,
        };
        let fits = (CREDITS_MIN..=CREDITS_MAX).contains(&welcome.credits);
        field("credits", welcome.credits.into(), fits)?;
        let fits = (SMALL_BYTES_MIN..=SMALL_BYTES_MAX).contains(&(welcome.small_bytes as usize));
        field("small bytes", welcome.small_bytes.into(), fits)?;
        let least = HEADER_BYTES + welcome.small_bytes as usize;
        let fits = (least..=TRANSFER_SLOT_BYTES_MAX).contains(&(welcome.message_bytes as usize));
        field("message bytes", welcome.message_bytes.into(), fits)?;
        Ok(welcome)
    }
}

/// Encodes a refusal with the reason, cut to fit a handshake.
#[must_use]
pub fn encode_refusal(status: Status, reason: &str) -> Vec<u8> {
    let header = Header {
        status,
        ..Header::new(Kind::Refused, 0)
    };
    let mut reason = reason.to_owned();
    while reason.len() > HANDSHAKE_BYTES - HEADER_BYTES {
        reason.pop();
    }
    message(header, reason.as_bytes())
}

/// Decodes a refusal.
///
/// # Errors
/// [`WireError`].
pub fn decode_refusal(bytes: &[u8]) -> Result<(Status, String), WireError> {
    let (header, body) = opened(bytes, Kind::Refused, 0)?;
    Ok((header.status, String::from_utf8_lossy(body).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(name: &str) -> Hello {
        Hello {
            version: PROTOCOL_VERSION,
            credits: 8,
            message_bytes: 5168,
            nonce: [7; 16],
            name: name.to_owned(),
        }
    }

    const WELCOME: Welcome = Welcome {
        credits: 32,
        message_bytes: 5168,
        small_bytes: 4096,
        value_bytes_max: 1 << 26,
        slot_bytes_max: 1 << 20,
        uploads: SlotFacts {
            memory_key: 9,
            first: 0,
            slots: 4,
            slot_bytes: 1 << 16,
        },
    };

    #[test]
    fn messages_survive_encoding_and_fit_a_handshake() {
        let said = hello("web-1\n");
        let encoded = said.encode();
        assert_eq!(Hello::decode(&encoded), Ok(hello("web-1")));
        let challenge = Challenge {
            nonce: [1; 16],
            proof: [2; 32],
        };
        assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
        assert_eq!(decode_proof(&encode_proof(&[3; 32])), Ok([3; 32]));
        assert_eq!(Welcome::decode(&WELCOME.encode()), Ok(WELCOME));
        let long = encode_refusal(Status::Busy, &"é".repeat(1000));
        assert!(
            decode_refusal(&long)
                .is_ok_and(|(status, text)| status == Status::Busy && text.starts_with("éé"))
        );
        let longest = hello(&"é".repeat(500));
        for bytes in [
            encoded,
            challenge.encode(),
            WELCOME.encode(),
            long,
            longest.encode(),
        ] {
            assert!(bytes.len() <= HANDSHAKE_BYTES);
        }
    }

    #[test]
    fn limits_out_of_range_are_refused_by_name() {
        let said = Hello {
            credits: 3,
            ..hello("")
        };
        let error = Hello::decode(&said.encode()).unwrap_err();
        assert_eq!(
            error,
            WireError::Field {
                field: "credits",
                value: 3
            }
        );
        let said = Hello {
            message_bytes: 100,
            ..hello("")
        };
        assert!(Hello::decode(&said.encode()).is_err());
        // Another version may have other limits; it is refused for its version.
        let said = Hello {
            version: 9,
            credits: 3,
            ..hello("")
        };
        assert_eq!(
            Hello::decode(&said.encode()).map(|hello| hello.version),
            Ok(9)
        );
        let welcome = Welcome {
            small_bytes: 1 << 30,
            ..WELCOME
        };
        assert!(Welcome::decode(&welcome.encode()).is_err());
    }
}
