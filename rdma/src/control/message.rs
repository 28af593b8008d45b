//! The control protocol: what a client and a memory node say to each other beside the one-sided
//! requests.
//!
//! ```text
//! hello -> challenge -> proof -> welcome, then any number of: request -> reply
//! ```
//!
//! One message is one `postcard` value: the variant's number, then its fields. In every version
//! variant 0 of a request is the hello and begins with the version, and variant 0 of a reply is the
//! refusal, whose own variant 0 is a mismatch of versions: two releases that understand nothing
//! else of each other understand that.
//!
//! - I1: decoding untrusted bytes never panics and takes no more memory than the bytes could hold.
//! - I2: a message that is not understood is a typed refusal at the other side.
//!
//! Limits: messages of [`MESSAGE_BYTES_MAX`](crate::tcp::MESSAGE_BYTES_MAX).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control::{Nonce, Proof};
use crate::pool::{ExtentRun, NodeMap, OwnerId};

/// The version of this protocol.
pub const CONTROL_VERSION: u16 = 2;
/// Bytes of a chunk where the client names none.
pub const CHUNK_BYTES_DEFAULT: u64 = 1 << 20;
/// The shortest lease: clients look after their connections every few ten milliseconds and send
/// four heartbeats a lease.
pub const LEASE_MIN: Duration = Duration::from_secs(1);
/// The longest lease. A client refuses a node that names another, so no sum of times can overflow.
pub const LEASE_MAX: Duration = Duration::from_hours(24);
/// The longest time that a session is kept after its lease.
pub const KEEP_MAX: Duration = Duration::from_hours(24 * 30);
/// The longest name of a client, in bytes; longer ones are cut.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// How a session is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Opening {
    /// A new one, with the token.
    New,
    /// One that exists, with its key.
    Resume {
        /// The session.
        session: OwnerId,
        /// The life of the node that it was opened in.
        incarnation: u32,
    },
}

/// What a client says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The first message.
    Hello {
        /// The protocol that the client speaks.
        version: u16,
        /// A name for the node's log.
        client: String,
        /// The client's half of what is proved over.
        nonce: Nonce,
        /// What it wants.
        opening: Opening,
    },
    /// The answer to a challenge.
    Prove {
        /// The proof.
        proof: Proof,
    },
    /// Renews the lease, as every request does.
    Heartbeat,
    /// Asks for adjacent extents.
    AllocateChunk {
        /// How much, rounded up to extents.
        bytes: u64,
    },
    /// Gives a chunk back.
    FreeChunk(Chunk),
    /// Asks for the node's figures.
    Statistics,
    /// Ends the session: all that it holds is free again.
    Bye,
}

/// What a node says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It will not.
    Refused(Refused),
    /// The answer to a hello.
    Challenge {
        /// The node's half of what is proved over.
        nonce: Nonce,
        /// Whether the node knows a token; without one anybody's proof is right.
        needs_token: bool,
    },
    /// The session is open.
    Welcome {
        /// An encoded [`Welcome`].
        welcome: Vec<u8>,
        /// Shows that the node knows the key too.
        proof: Proof,
    },
    /// The lease is renewed.
    Renewed,
    /// A chunk.
    Chunk(Chunk),
    /// The chunk is free again.
    Freed,
    /// The node's figures.
    Statistics(NodeStatistics),
    /// The session has ended.
    Farewell,
}

/// What a client gets to know when its session is open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The session, which is also the owner of what it claims.
    pub session: OwnerId,
    /// The node's life: another one has forgotten all sessions and contents.
    pub incarnation: u32,
    /// How long the session lives without a request.
    pub lease_ms: u64,
    /// What the node lends.
    pub map: NodeMap,
}

/// Adjacent extents, as they go over the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chunk {
    /// The number of the first.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl From<ExtentRun> for Chunk {
    fn from(run: ExtentRun) -> Self {
        Self {
            first: run.first(),
            count: run.count(),
        }
    }
}

impl Chunk {
    /// The run; `None` if there can be no such.
    #[must_use]
    pub fn run(self) -> Option<ExtentRun> {
        ExtentRun::new(self.first, self.count)
    }
}

/// A node's figures at one moment. Counts are since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatistics {
    /// Nanoseconds since its start.
    pub uptime_ns: u64,
    /// Bytes that it lends.
    pub data_bytes: u64,
    /// Length of an extent, in bytes.
    pub extent_bytes: u64,
    /// Extents in all.
    pub extents: u64,
    /// Extents that are free.
    pub extents_free: u64,
    /// Extents that kept sessions hold.
    pub extents_kept: u64,
    /// Sessions that are open now, those included that are kept after their lease.
    pub sessions: u64,
    /// Of these, those that are kept after their lease.
    pub sessions_kept: u64,
    /// Times that a client came back to a session that was kept.
    pub sessions_revived: u64,
    /// Sessions ever opened.
    pub sessions_opened: u64,
    /// Sessions that ended because their lease did, and they were not kept or not for longer.
    pub sessions_expired: u64,
    /// Control connections that are open now.
    pub control_connections: u64,
    /// Memory connections that are open now.
    pub memory_connections: u64,
    /// READs performed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// WRITEs performed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Atomics performed.
    pub atomics: u64,
    /// One-sided requests refused.
    pub requests_refused: u64,
    /// Chunks handed out.
    pub chunks_allocated: u64,
    /// Chunks given back by their owners.
    pub chunks_freed: u64,
    /// Extents taken back from sessions that ended.
    pub extents_reclaimed: u64,
    /// Extents of sessions that ended which could not be freed yet because the device failed. They
    /// are tried again.
    pub extents_stuck: u64,
    /// Times that extents could not be freed because the device failed.
    pub take_backs_failed: u64,
    /// Connections and requests refused, whatever the reason.
    pub refusals: u64,
}

/// Why a node refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refused {
    /// The two sides speak different versions.
    #[error(
        "the client speaks version {client} of the control protocol and the node version {node}: run the same release on both"
    )]
    Version {
        /// The node's.
        node: u16,
        /// The client's.
        client: u16,
    },
    /// The proof is wrong.
    #[error("wrong token: give the client the token that the memory node was started with")]
    WrongToken,
    /// There is no such session, or its lease has ended.
    #[error(
        "the memory node knows no such session: its lease has ended, or the node was started anew; open a new one"
    )]
    NoSession,
    /// Another control connection has taken the session over.
    #[error("the session goes on over another control connection")]
    TakenOver,
    /// No run of free extents is that long.
    #[error(
        "memory exhausted: {asked_bytes} adjacent bytes were asked for and {free_bytes} are free in all; free some or add a memory node"
    )]
    Exhausted {
        /// What was asked for, in whole extents.
        asked_bytes: u64,
        /// What is free, in pieces.
        free_bytes: u64,
    },
    /// A chunk of that length cannot be.
    #[error("a chunk of {asked_bytes} bytes: must be 1 to {bytes_max}")]
    ChunkBytes {
        /// What was asked for.
        asked_bytes: u64,
        /// The longest chunk.
        bytes_max: u64,
    },
    /// A chunk was to be freed that is not the session's.
    #[error("{count} extents of the chunk do not belong to the session")]
    NotOwned {
        /// How many of its extents.
        count: u32,
    },
    /// The bytes are no message.
    #[error("the message is malformed")]
    Malformed,
    /// A message of that kind is not known.
    #[error("a message of the unknown kind {0}")]
    UnknownKind(u32),
    /// The message does not belong here.
    #[error("the message is out of turn")]
    OutOfTurn,
    /// It serves as many sessions as it may.
    #[error("the memory node serves {sessions_max} sessions and may serve no more: close some")]
    Busy {
        /// The limit.
        sessions_max: u64,
    },
    /// It is about to stop, or has a fault of its own.
    #[error("the memory node is stopping")]
    Stopping,
}

/// How many kinds of requests there are.
const REQUEST_KINDS: u32 = 7;

impl Request {
    /// The message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// How the node refuses it: another version, an unknown kind, or no message at all.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refused> {
        let (kind, rest) =
            postcard::take_from_bytes::<u32>(bytes).map_err(|_| Refused::Malformed)?;
        if kind >= REQUEST_KINDS {
            return Err(Refused::UnknownKind(kind));
        }
        if kind == 0 {
            let (client, _) =
                postcard::take_from_bytes::<u16>(rest).map_err(|_| Refused::Malformed)?;
            if client != CONTROL_VERSION {
                return Err(Refused::Version {
                    node: CONTROL_VERSION,
                    client,
                });
            }
        }
        decode(bytes).ok_or(Refused::Malformed)
    }
}

impl Reply {
    /// The message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a message; `None` if it is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    #[allow(
        clippy::expect_used,
        reason = "these types have no map, and no lack of room"
    )]
    postcard::to_stdvec(value).expect("a plain value")
}

/// The value, if the bytes are it and nothing more.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// A client's name as the log may hold it: short, and without control characters.
pub(crate) fn clean_name(name: &str) -> String {
    let mut clean = String::new();
    for character in name.chars().filter(|c| !c.is_control()) {
        if clean.len() + character.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        clean.push(character);
    }
    clean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pool::RegionDescriptor;
    use crate::tcp::MESSAGE_BYTES_MAX;
    use crate::work::RemoteKey;

    fn requests() -> impl Strategy<Value = Request> {
        let opening = prop_oneof![
            Just(Opening::New),
            (1..=u64::MAX, any::<u32>()).prop_map(|(id, incarnation)| Opening::Resume {
                session: OwnerId::new(id).expect("not 0"),
                incarnation,
            }),
        ];
        prop_oneof![
            (".{0,20}", any::<Nonce>(), opening).prop_map(|(client, nonce, opening)| {
                Request::Hello {
                    version: CONTROL_VERSION,
                    client,
                    nonce,
                    opening,
                }
            }),
            any::<Proof>().prop_map(|proof| Request::Prove { proof }),
            Just(Request::Heartbeat),
            any::<u64>().prop_map(|bytes| Request::AllocateChunk { bytes }),
            any::<(u32, u32)>()
                .prop_map(|(first, count)| Request::FreeChunk(Chunk { first, count })),
            Just(Request::Statistics),
            Just(Request::Bye),
        ]
    }

    fn kind(message: &Request) -> u8 {
        message.encode()[0]
    }

    proptest! {
        #[test]
        fn requests_come_over_as_they_were(request in requests(), cut in any::<prop::sample::Index>()) {
            let bytes = request.encode();
            prop_assert_eq!(Request::decode(&bytes), Ok(request));
            let short = &bytes[..cut.index(bytes.len())];
            prop_assert_eq!(Request::decode(short), Err(Refused::Malformed));
            let long = [&bytes[..], &[0]].concat();
            prop_assert_eq!(Request::decode(&long), Err(Refused::Malformed));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(kind in 0u8..12, mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Request::decode(&bytes), Reply::decode(&bytes), decode::<Welcome>(&bytes));
            bytes.insert(0, kind);
            match Request::decode(&bytes) {
                Err(Refused::UnknownKind(unknown)) => prop_assert!(unknown >= 7),
                _ => prop_assert!(kind < 7),
            }
            let _ = Reply::decode(&bytes);
        }
    }

    #[test]
    fn versions_understand_each_other_that_far() {
        assert_eq!(kind(&Request::Bye) as u32 + 1, REQUEST_KINDS);
        let refused = Refused::Version { node: 2, client: 9 };
        // Kind 0, version 9, and what nobody here can read.
        assert_eq!(Request::decode(&[0, 9, 0xFF, 0xFF]), Err(refused));
        assert_eq!(Reply::Refused(refused).encode(), [0, 0, 2, 9]);
        let text = refused.to_string();
        assert!(text.contains("version 9") && text.contains("version 2"));
    }

    #[test]
    fn the_largest_map_fits_a_message() {
        let region = |key: u32| RegionDescriptor {
            key: RemoteKey(u32::MAX - key),
            address: (1 << 47) + u64::from(key),
            bytes: (2 << 30) - 1,
        };
        let count = u32::try_from(crate::node::REGIONS_MAX).unwrap();
        let welcome = Welcome {
            session: OwnerId::new(u64::MAX).unwrap(),
            incarnation: u32::MAX,
            lease_ms: u64::MAX,
            map: NodeMap {
                extent_bytes: 1 << 30,
                table: region(count),
                regions: (0..count).map(region).collect(),
            },
        };
        let bytes = encode(&welcome);
        let reply = Reply::Welcome {
            welcome: bytes.clone(),
            proof: [0; 32],
        };
        assert!(reply.encode().len() <= MESSAGE_BYTES_MAX);
        assert_eq!(decode(&bytes), Some(welcome));
    }

    #[test]
    fn names_are_cut_and_cleaned() {
        assert_eq!(clean_name("a\nb\u{1b}[0m"), "ab[0m");
        let long = clean_name(&"ä".repeat(100));
        assert_eq!(long.len(), NAME_BYTES_MAX);
    }
}
