//! The messages of the control protocol between a client and a memory node.
//!
//! Owns the formats; sends nothing. One-sided requests do not pass through this protocol.
//!
//! ```text
//! hello -> challenge -> proof -> welcome, then any number of: request -> reply
//! ```
//!
//! One message is one `postcard` value: the variant's number, then its fields. In every version,
//! variant 0 of a request is the hello, which begins with the version, and variant 0 of a reply is
//! the refusal, whose own variant 0 is a version mismatch. Two releases understand at least that
//! much of each other. A kind that a peer may lack is added at the end and changes no version: a
//! node refuses it with [`Refused::UnknownKind`], the session goes on, and the client does without.
//!
//! - I1: decoding untrusted bytes never panics and allocates no more than the bytes could hold.
//! - I2: a message that cannot be decoded is answered with a typed refusal.
//!
//! Limits: messages of [`MESSAGE_BYTES_MAX`](crate::tcp::MESSAGE_BYTES_MAX).

use std::time::Duration;

use farcore_tuning::Size;
use serde::{Deserialize, Serialize};

use crate::control::{Nonce, Proof};
use crate::pool::{ExtentRun, NodeMap, OwnerId};
use crate::work::RemoteKey;

/// The version of this protocol.
pub const CONTROL_VERSION: u16 = 2;
/// Default length of a chunk, in bytes.
pub const CHUNK_BYTES_DEFAULT: u64 = 1 << 20;
/// The shortest lease. Clients check their connections every few ten milliseconds and send four
/// heartbeats per lease.
pub const LEASE_MIN: Duration = Duration::from_secs(1);
/// The longest lease. A client refuses a longer one, so that no sum of times can overflow.
pub const LEASE_MAX: Duration = Duration::from_hours(24);
/// The longest time for which a session is kept after its lease.
pub const KEEP_MAX: Duration = Duration::from_hours(24 * 30);
/// Limit on a client's name, in bytes; a longer name is cut.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// How a session is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Opening {
    /// A new session, authenticated by the token.
    New,
    /// An existing session, authenticated by its key.
    Resume {
        /// The session.
        session: OwnerId,
        /// The incarnation of the node in which it was opened.
        incarnation: u32,
    },
}

/// A client's message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The first message.
    Hello {
        /// The protocol that the client speaks.
        version: u16,
        /// A name for the node's log.
        client: String,
        /// The client's nonce for the proofs.
        nonce: Nonce,
        /// Whether to open or resume.
        opening: Opening,
    },
    /// The answer to a challenge.
    Prove {
        /// The proof.
        proof: Proof,
    },
    /// Renews the lease. Every request does.
    Heartbeat,
    /// Requests adjacent extents.
    AllocateChunk {
        /// The length in bytes, rounded up to extents.
        bytes: u64,
    },
    /// Frees a chunk.
    FreeChunk(Chunk),
    /// Requests the node's figures.
    Statistics,
    /// Ends the session and frees everything that it holds.
    Bye,
    /// Shares extents of another session, by its grant.
    Share(Grant),
    /// Gives up a share.
    Unshare(Chunk),
    /// Counts the sessions that share extents of this one.
    CountShares(Chunk),
    /// Gives extents of this session to those that use an anchor, another extent.
    Attach {
        /// The extents.
        chunk: Chunk,
        /// The extent whose owner and sharers are theirs from now on.
        anchor: u32,
    },
    /// Whether a session is open.
    IsOpen(OwnerId),
    /// Calls a procedure of the node's host.
    Call(Call),
    /// Renews the lease, and has the node say whether it leaves.
    Renew,
}

/// The longest argument of a call, and the longest answer, in bytes.
pub const CALL_BYTES_MAX: usize = 32 << 10;
/// The longest name of a procedure, in bytes.
pub const PROCEDURE_BYTES_MAX: usize = 256;

/// A call of a procedure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Its name.
    pub procedure: String,
    /// Its argument.
    pub argument: Vec<u8>,
    /// Memory that it may read and write.
    pub target: Option<CallTarget>,
    /// How long it may take, in milliseconds; at most an eighth of the lease.
    pub limit_ms: u32,
}

/// A range of memory that the caller may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallTarget {
    /// The region.
    pub key: RemoteKey,
    /// The first byte's offset in it.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u32,
}

/// A session's permission for others to share extents that it owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The session that grants.
    pub session: OwnerId,
    /// The extents.
    pub chunk: Chunk,
    /// Whether they may be written.
    pub may_write: bool,
    /// Proves that the session grants it.
    pub proof: Proof,
}

/// A node's message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The node refuses.
    Refused(Refused),
    /// The answer to a hello.
    Challenge {
        /// The node's nonce for the proofs.
        nonce: Nonce,
        /// Whether the node has a token. Without one, it accepts any proof.
        needs_token: bool,
    },
    /// The session is open.
    Welcome {
        /// An encoded [`Welcome`].
        welcome: Vec<u8>,
        /// The node's proof that it knows the key.
        proof: Proof,
    },
    /// The lease is renewed.
    Renewed,
    /// The chunk granted.
    Chunk(Chunk),
    /// The chunk is freed.
    Freed,
    /// The node's figures.
    Statistics(NodeStatistics),
    /// The session has ended.
    Farewell,
    /// The extents are shared.
    Shared,
    /// The share is given up.
    Unshared,
    /// The number of sessions that share some of the extents.
    Shares(u32),
    /// The extents are attached.
    Attached,
    /// Whether the session is open. If not, none of its requests is performed any more.
    IsOpen(bool),
    /// The procedure's answer.
    Called(Vec<u8>),
    /// Why the procedure failed.
    Failed(String),
    /// The lease is renewed. Sent only to a client that knows it: one that has sent
    /// [`Request::Renew`].
    Renewal {
        /// The node leaves: the client is to claim nothing there, and to move what it can.
        is_leaving: bool,
    },
}

/// The description of a newly opened or resumed session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The session's id, which owns the extents that it claims.
    pub session: OwnerId,
    /// The node's incarnation. A new one has lost all sessions and contents.
    pub incarnation: u32,
    /// The lease, in milliseconds without a request.
    pub lease_ms: u64,
    /// The memory that the node lends.
    pub map: NodeMap,
}

/// Adjacent extents, as encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chunk {
    /// The first extent's number.
    pub first: u32,
    /// The number of extents.
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
    /// The run; `None` if the numbers are invalid.
    #[must_use]
    pub fn run(self) -> Option<ExtentRun> {
        ExtentRun::new(self.first, self.count)
    }
}

/// A node's figures at one moment. Counts are since the node's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatistics {
    /// Nanoseconds since the node's start.
    pub uptime_ns: u64,
    /// Bytes lent.
    pub data_bytes: u64,
    /// Length of an extent, in bytes.
    pub extent_bytes: u64,
    /// All extents.
    pub extents: u64,
    /// Free extents.
    pub extents_free: u64,
    /// Extents held by sessions that are kept after their lease.
    pub extents_kept: u64,
    /// Open sessions, those kept after their lease and those being reclaimed included.
    pub sessions: u64,
    /// Sessions kept after their lease.
    pub sessions_kept: u64,
    /// Times that a client resumed a kept session.
    pub sessions_revived: u64,
    /// Sessions opened.
    pub sessions_opened: u64,
    /// Sessions that ended by their lease, after the time that they are kept.
    pub sessions_expired: u64,
    /// Control connections open now.
    pub control_connections: u64,
    /// Memory connections open now.
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
    /// Chunks granted.
    pub chunks_allocated: u64,
    /// Chunks freed by their owners.
    pub chunks_freed: u64,
    /// Extents reclaimed from ended sessions.
    pub extents_reclaimed: u64,
    /// Extents of ended sessions that could not be freed yet because the device failed. Retried.
    pub extents_stuck: u64,
    /// Failed attempts to free extents because the device failed.
    pub take_backs_failed: u64,
    /// Connections and requests refused, for any reason.
    pub refusals: u64,
}

/// Why a node refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refused {
    /// The two sides speak different protocol versions.
    #[error(
        "the client speaks version {client} of the control protocol and the node version {node}: run the same release on both"
    )]
    Version {
        /// The node's version.
        node: u16,
        /// The client's version.
        client: u16,
    },
    /// The proof is wrong.
    #[error("wrong token: give the client the token that the memory node was started with")]
    WrongToken,
    /// The session does not exist, or its lease has ended.
    #[error(
        "the memory node does not know the session because its lease expired or the node was restarted: open a new session"
    )]
    NoSession,
    /// Another control connection has resumed the session.
    #[error("another control connection has resumed the session")]
    TakenOver,
    /// No run of free extents is long enough.
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
    /// The length of the chunk is out of range.
    #[error("a chunk of {asked_bytes} bytes requested: must be 1 to {bytes_max}")]
    ChunkBytes {
        /// The requested bytes.
        asked_bytes: u64,
        /// The longest chunk, in bytes.
        bytes_max: u64,
    },
    /// A chunk to be freed does not belong to the session.
    #[error("{count} extents of the chunk do not belong to the session")]
    NotOwned {
        /// The number of extents that do not.
        count: u32,
    },
    /// The bytes are not a message.
    #[error("the message is malformed")]
    Malformed,
    /// The message's kind is unknown.
    #[error("unknown message kind {0}")]
    UnknownKind(u32),
    /// The message is not allowed in this state.
    #[error("the message is not allowed in this state")]
    OutOfTurn,
    /// The node serves its maximum of sessions.
    #[error(
        "the memory node serves {sessions_max} sessions, its maximum: close some, or raise the node's limit"
    )]
    Busy {
        /// The limit.
        sessions_max: u64,
    },
    /// The node is stopping, or has an internal fault.
    #[error("the memory node is stopping")]
    Stopping,
    /// The session that grants a share has ended.
    #[error("the session that shared the memory has ended, and what was not shared then is lost")]
    GrantOver,
    /// A grant's proof is wrong.
    #[error("the grant was not made by the session that it names")]
    WrongGrant,
    /// The node has no such procedure.
    #[error("the node has no procedure of this name: its host registers them")]
    NoProcedure,
    /// The caller may not write the target.
    #[error("the target of the call is no memory that the caller may write")]
    WrongTarget,
    /// Too many procedures run.
    #[error("{calls_max} procedures run on the node, its maximum: call again later")]
    TooManyCalls {
        /// The limit.
        calls_max: u64,
    },
    /// A procedure takes longer than its limit. It runs on.
    #[error("the procedure took longer than {limit_ms} ms")]
    LateCall {
        /// The limit in milliseconds.
        limit_ms: u64,
    },
    /// The node leaves: it opens no session and grants no chunk. A client of a release that does
    /// not know this refusal takes it for an unexpected reply.
    #[error("the memory node is leaving: use another one")]
    Leaving,
}

/// The number of kinds of requests.
const REQUEST_KINDS: u32 = 14;

impl Request {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// The refusal to send: another version, an unknown kind, or not a message.
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
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a message; `None` if the bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    #[allow(
        clippy::expect_used,
        reason = "serialization into a vector cannot fail for these types"
    )]
    postcard::to_stdvec(value).expect("a plain value")
}

/// Decodes a value; `None` unless the bytes are exactly one.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// A client's name made safe for the log: short, without control characters.
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
            (1..=u64::MAX, any::<(u32, u32, bool, Proof)>()).prop_map(
                |(id, (first, count, may_write, proof))| {
                    Request::Share(Grant {
                        session: OwnerId::new(id).expect("not 0"),
                        chunk: Chunk { first, count },
                        may_write,
                        proof,
                    })
                }
            ),
            any::<(u32, u32)>().prop_map(|(first, count)| Request::Unshare(Chunk { first, count })),
            any::<(u32, u32)>()
                .prop_map(|(first, count)| Request::CountShares(Chunk { first, count })),
            any::<(u32, u32, u32)>().prop_map(|(first, count, anchor)| Request::Attach {
                chunk: Chunk { first, count },
                anchor,
            }),
            (1..=u64::MAX).prop_map(|id| Request::IsOpen(OwnerId::new(id).expect("not 0"))),
            (".{0,20}", any::<(Vec<u8>, Option<(u32, u64, u32)>, u32)>()).prop_map(
                |(procedure, (argument, target, limit_ms))| {
                    Request::Call(Call {
                        procedure,
                        argument,
                        target: target.map(|(key, offset, bytes)| CallTarget {
                            key: RemoteKey(key),
                            offset,
                            bytes,
                        }),
                        limit_ms,
                    })
                }
            ),
            Just(Request::Renew),
        ]
    }

    fn kind(message: &Request) -> u8 {
        message.encode()[0]
    }

    proptest! {
        #[test]
        fn requests_survive_encoding(request in requests(), cut in any::<prop::sample::Index>()) {
            let bytes = request.encode();
            prop_assert_eq!(Request::decode(&bytes), Ok(request));
            let short = &bytes[..cut.index(bytes.len())];
            prop_assert_eq!(Request::decode(short), Err(Refused::Malformed));
            let long = [&bytes[..], &[0]].concat();
            prop_assert_eq!(Request::decode(&long), Err(Refused::Malformed));
        }
    }

    fn welcome() -> Welcome {
        let region = |key| RegionDescriptor {
            key: RemoteKey(key),
            address: 1 << 40,
            bytes: 16 << 20,
        };
        Welcome {
            session: OwnerId::new(7).unwrap(),
            incarnation: 3,
            lease_ms: 5_000,
            map: NodeMap {
                extent_bytes: 1 << 20,
                table: region(1),
                regions: vec![region(2), region(3)],
            },
        }
    }

    /// I1, and that a map that is accepted has places for its extents and no others.
    #[test]
    fn any_bytes_are_a_message_or_refused() {
        let request = |request: Request| request.encode();
        let opening = Opening::Resume {
            session: OwnerId::new(9).unwrap(),
            incarnation: 1,
        };
        farcore_fuzz::Target::new("control message")
            .seed(request(Request::Hello {
                version: CONTROL_VERSION,
                client: "client".to_owned(),
                nonce: [7; 16],
                opening,
            }))
            .seed(request(Request::Prove { proof: [1; 32] }))
            .seed(request(Request::AllocateChunk { bytes: 1 << 30 }))
            .seed(request(Request::FreeChunk(Chunk { first: 1, count: 2 })))
            .seed(request(Request::Share(Grant {
                session: OwnerId::new(9).unwrap(),
                chunk: Chunk { first: 1, count: 2 },
                may_write: true,
                proof: [1; 32],
            })))
            .seed(Reply::Refused(Refused::WrongToken).encode())
            .seed(Reply::Renewal { is_leaving: true }.encode())
            .seed(
                Reply::Welcome {
                    welcome: encode(&welcome()),
                    proof: [3; 32],
                }
                .encode(),
            )
            .seed(encode(&welcome()))
            .run(|bytes| {
                match Request::decode(bytes) {
                    Ok(request) => {
                        assert_eq!(Request::decode(&request.encode()), Ok(request));
                    }
                    Err(Refused::UnknownKind(kind)) => assert!(kind >= REQUEST_KINDS),
                    Err(Refused::Version { client, .. }) => assert_ne!(client, CONTROL_VERSION),
                    Err(refused) => assert_eq!(refused, Refused::Malformed),
                }
                if let Some(reply) = Reply::decode(bytes) {
                    assert_eq!(Reply::decode(&reply.encode()), Some(reply));
                }
                if let Some(welcome) = decode::<Welcome>(bytes) {
                    check_map(&welcome.map);
                    assert_eq!(decode(&encode(&welcome)), Some(welcome));
                }
            });
    }

    fn check_map(map: &NodeMap) {
        let is_valid = map.validate().is_ok();
        let places = (map.extents(), map.slice(7, 7), map.bitmap_slice(u32::MAX));
        let _ = (places, map.owner_slice(u32::MAX));
        if is_valid {
            let extents = map.extents();
            assert!(map.slice(0, 0).is_some());
            assert_eq!(map.slice(extents, 0), None);
            let owner = map.owner_slice(extents - 1);
            assert!(owner.offset + 8 <= map.table.bytes, "{owner:?}");
        }
    }

    #[test]
    fn another_version_is_recognised() {
        assert_eq!(kind(&Request::Renew) as u32 + 1, REQUEST_KINDS);
        let refused = Refused::Version { node: 2, client: 9 };
        // Kind 0, version 9, then bytes that this version cannot decode.
        assert_eq!(Request::decode(&[0, 9, 0xFF, 0xFF]), Err(refused));
        assert_eq!(Reply::Refused(refused).encode(), [0, 0, 2, 9]);
        let text = refused.to_string();
        assert!(text.contains("version 9") && text.contains("version 2"));
    }

    /// What a release before it sent and read of a heartbeat stays as it was.
    #[test]
    fn a_renewal_is_a_kind_beside_the_heartbeat() {
        assert_eq!(Request::Heartbeat.encode(), [2]);
        assert_eq!(Reply::Renewed.encode(), [3]);
        assert_eq!(Request::Renew.encode(), [13]);
        for is_leaving in [false, true] {
            let renewal = Reply::Renewal { is_leaving };
            assert_eq!(renewal.encode(), [15, u8::from(is_leaving)]);
            assert_eq!(Reply::decode(&[15, u8::from(is_leaving)]), Some(renewal));
        }
        for wrong in [&[15][..], &[15, 2], &[15, 1, 0]] {
            assert_eq!(Reply::decode(wrong), None, "{wrong:?}");
        }
        let refused = Refused::Leaving;
        assert!(refused.to_string().contains("the memory node is leaving"));
        assert_eq!(
            Reply::decode(&Reply::Refused(refused).encode()),
            Some(Reply::Refused(refused))
        );
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
