//! Native clients that use what the protocol allows and give nothing back: they do not read, or do
//! not go on. One thread has all of them; what they are sent waits in their sockets.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farcore_client::{FabricAddress, Token};
use farcore_protocol::batch::{OPERATIONS_MAX, push_operation};
use farcore_protocol::handshake::{Challenge, Hello, Welcome, encode_proof};
use farcore_protocol::scan::ENTRIES_MAX;
use farcore_protocol::{
    Flags, HEADER_BYTES, Header, Kind, PROTOCOL_VERSION, TRANSFER_SLOT_BYTES_MAX,
};
use farcore_rdma::control::{PeerProof, PeerSide};
use farcore_rdma::{
    Completion, LocalKey, LocalSlice, PeerEndpoint, PeerMemory, PeerOptions, Status as WorkStatus,
    VerbsOptions, Work, WorkId, WorkRequest,
};

use super::cores::pin;
use super::data::value_key;
use super::well_behaved::{LONG_BYTES, LONG_COUNT};

/// Bytes of a message buffer: a batch fits.
const BUFFER_BYTES: usize = 8 << 10;
/// Messages that the server may send.
const RECEIVES: u16 = 64;
/// Requests that are under way, at most: the server grants as many credits, and one is kept.
const REQUESTS: u16 = 31;
/// Bytes of the first part of a value that comes in parts.
const PART_BYTES: usize = 3000;
/// Values that a connection may begin to send in parts.
const PARTS: u32 = 4;
/// Time limit of a handshake.
const LIMIT: Duration = Duration::from_secs(3);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);
/// Before one that was refused connects again.
const AGAIN: Duration = Duration::from_millis(100);
/// Marks the work of a receive.
const RECEIVE: u64 = 1 << 32;

/// What native clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    /// Request long values and never read.
    Gets,
    /// Announce long values, send their first parts, and stop.
    Uploads,
    /// Request longer transfer slots and use none.
    Grows,
    /// List keys with their values and never read.
    Scans,
    /// Request many values in each message and never read.
    Batches,
    /// Say who they are and never prove it.
    Unproved,
}

/// Native clients that do the same. After its life each is replaced by another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NativeCrowd {
    pub(super) count: usize,
    pub(super) deed: Deed,
    pub(super) life: Duration,
}

fn request(header: Header, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    let header = Header {
        key_bytes: u16::try_from(key.len())?,
        value_bytes: u32::try_from(value.len())?,
        ..header
    };
    Ok([&header.encode()[..], key, value].concat())
}

impl Deed {
    /// The request with a number; `None` if there are no more.
    fn request(self, id: u32) -> Result<Option<Vec<u8>>> {
        let key = value_key(LONG_BYTES, u64::from(id) % LONG_COUNT);
        let (header, key, value) = match self {
            Self::Gets => (Header::new(Kind::Get, id), key, Vec::new()),
            Self::Uploads if id > PARTS => return Ok(None),
            Self::Uploads => {
                let header = Header {
                    flags: Flags::MORE,
                    offset: LONG_BYTES as u64,
                    ..Header::new(Kind::Put, id)
                };
                (
                    header,
                    format!("up:{id}").into_bytes(),
                    vec![b'u'; PART_BYTES],
                )
            }
            Self::Grows => {
                let header = Header {
                    slot: 8,
                    argument: TRANSFER_SLOT_BYTES_MAX as u64,
                    ..Header::new(Kind::Grow, id)
                };
                (header, Vec::new(), Vec::new())
            }
            Self::Scans => {
                let header = Header {
                    flags: Flags::VALUES,
                    argument: ENTRIES_MAX.into(),
                    ..Header::new(Kind::Scan, id)
                };
                (header, Vec::new(), Vec::new())
            }
            Self::Batches => {
                let mut body = Vec::new();
                for place in 0..OPERATIONS_MAX as u64 {
                    let key = value_key(4000, (place + u64::from(id)) % 1000);
                    push_operation(&mut body, &Header::new(Kind::Get, 0), &key, &[]);
                }
                (Header::new(Kind::Batch, id), Vec::new(), body)
            }
            Self::Unproved => return Ok(None),
        };
        request(header, &key, &value).map(Some)
    }
}

/// One client.
struct Peer {
    endpoint: PeerEndpoint,
    memory: PeerMemory,
    key: LocalKey,
    born: Instant,
    /// Requests that it may still send.
    requests: u16,
}

impl Peer {
    async fn connect(address: &FabricAddress) -> Result<Self> {
        let options = PeerOptions {
            depth: 2 * usize::from(RECEIVES),
            limit_ns: u64::MAX,
            verbs: VerbsOptions::default(),
        };
        let mut endpoint = PeerEndpoint::connect(address, &options, LIMIT).await?;
        let places = usize::from(RECEIVES) + usize::from(REQUESTS) + 2;
        let memory = PeerMemory::map(places * BUFFER_BYTES)?;
        let key = endpoint.register(memory.region())?;
        let mut peer = Self {
            endpoint,
            memory,
            key,
            born: Instant::now(),
            requests: 0,
        };
        for number in 0..RECEIVES {
            peer.post_receive(number.into())?;
        }
        Ok(peer)
    }

    fn slice(&self, place: u64, bytes: usize) -> Result<LocalSlice> {
        Ok(LocalSlice {
            key: self.key,
            offset: place * BUFFER_BYTES as u64,
            bytes: u32::try_from(bytes)?,
        })
    }

    fn post(&mut self, id: u64, work: Work) -> Result<()> {
        let request = WorkRequest {
            id: WorkId(id),
            work,
            signalled: true,
        };
        self.endpoint.post(request).ok().context("no room")
    }

    fn post_receive(&mut self, number: u64) -> Result<()> {
        let local = self.slice(number, BUFFER_BYTES)?;
        self.post(RECEIVE | number, Work::Receive { local })
    }

    /// Sends a message from a buffer that no other has.
    fn send(&mut self, number: u16, message: &[u8]) -> Result<()> {
        let place = u64::from(RECEIVES + number);
        self.memory.write(place * BUFFER_BYTES as u64, message);
        let local = self.slice(place, message.len())?;
        self.post(number.into(), Work::Send { local })?;
        self.endpoint.ring(0);
        self.endpoint.flush();
        Ok(())
    }

    /// Waits for a message of the handshake.
    async fn receive(&mut self) -> Result<Vec<u8>> {
        loop {
            let mut completions = [Completion::NONE; 1];
            let count = self.endpoint.poll(0, &mut completions);
            self.endpoint.flush();
            let [completion] = completions;
            if count == 0 {
                if !self.endpoint.is_up() || self.born.elapsed() > LIMIT {
                    bail!("the server does not answer the handshake");
                }
                farcore_rdma::pause(PAUSE / 4).await;
            } else if completion.id.0 & RECEIVE != 0 {
                if completion.status != WorkStatus::Success {
                    bail!("the server has closed the connection");
                }
                let place = completion.id.0 & !RECEIVE;
                let mut message = Vec::new();
                let bytes = completion.bytes as usize;
                let offset = place * BUFFER_BYTES as u64;
                self.memory.read_to(offset, bytes, &mut message);
                return Ok(message);
            }
        }
    }

    /// Shakes hands; returns how many requests the server takes.
    async fn greet(&mut self, token: Option<&Token>, proves: bool) -> Result<u16> {
        let nonce = PeerProof::nonce()?;
        let hello = Hello {
            version: PROTOCOL_VERSION,
            credits: RECEIVES,
            message_bytes: u32::try_from(BUFFER_BYTES)?,
            nonce,
            name: "load".to_owned(),
        };
        let hello = hello.encode();
        self.send(REQUESTS, &hello)?;
        let challenge = Challenge::decode(&self.receive().await?)?;
        if !proves {
            return Ok(0);
        }
        let proofs = PeerProof {
            token,
            client: nonce,
            server: challenge.nonce,
            context: &hello[HEADER_BYTES..],
        };
        let proof = encode_proof(&proofs.of(PeerSide::Client));
        self.send(REQUESTS + 1, &proof)?;
        let welcome = Welcome::decode(&self.receive().await?)?;
        Ok(welcome.credits.saturating_sub(1).min(REQUESTS))
    }

    /// Connects and greets.
    async fn enter(address: &FabricAddress, token: Option<&Token>, deed: Deed) -> Result<Self> {
        let mut peer = Self::connect(address).await?;
        peer.requests = peer.greet(token, deed != Deed::Unproved).await?;
        peer.born = Instant::now();
        Ok(peer)
    }

    /// Sends all that it will ever send.
    fn act(&mut self, deed: Deed) -> Result<()> {
        for number in 0..std::mem::take(&mut self.requests) {
            let Some(message) = deed.request(u32::from(number) + 1)? else {
                break;
            };
            self.send(number, &message)?;
        }
        Ok(())
    }
}

/// What native crowds have done.
#[derive(Debug, Default)]
pub(super) struct NativeCounts {
    begun: AtomicU64,
    refused: AtomicU64,
}

impl fmt::Display for NativeCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (begun, refused) = (get(&self.begun), get(&self.refused));
        write!(f, "{begun} native connections, {refused} refused")
    }
}

/// The place of a client in its crowd.
struct Place {
    crowd: NativeCrowd,
    peer: Option<Peer>,
    /// When it may connect again after it was refused.
    due: Instant,
}

impl Place {
    fn new(crowd: NativeCrowd) -> Self {
        Self {
            crowd,
            peer: None,
            due: Instant::now(),
        }
    }

    /// Ends a client whose life is over; true if another is to enter.
    fn is_due(&mut self) -> bool {
        let life = self.crowd.life;
        self.peer.take_if(|peer| peer.born.elapsed() >= life);
        self.peer.is_none() && self.due <= Instant::now()
    }
}

/// All that are due enter before any of them sends a request: those who came first would take what
/// the others need to enter.
async fn drive(
    crowds: &[NativeCrowd],
    (address, token): &(FabricAddress, Option<Token>),
    counts: &NativeCounts,
    is_over: &AtomicBool,
) {
    let all = crowds
        .iter()
        .flat_map(|&crowd| (0..crowd.count).map(move |_| crowd));
    let mut places: Vec<Place> = all.map(Place::new).collect();
    while !is_over.load(Ordering::Relaxed) {
        for place in &mut places {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            if !place.is_due() {
                continue;
            }
            match Peer::enter(address, token.as_ref(), place.crowd.deed).await {
                Ok(peer) => {
                    counts.begun.fetch_add(1, Ordering::Relaxed);
                    place.peer = Some(peer);
                }
                Err(_) => {
                    counts.refused.fetch_add(1, Ordering::Relaxed);
                    place.due = Instant::now() + AGAIN;
                }
            }
        }
        for place in &mut places {
            let deed = place.crowd.deed;
            // One that was closed meanwhile is replaced when its life is over.
            let _ = place.peer.as_mut().map(|peer| peer.act(deed));
        }
        farcore_rdma::pause(PAUSE).await;
    }
}

/// Native crowds that live until this is ended.
#[derive(Debug)]
pub(super) struct NativeLoad {
    counts: Arc<NativeCounts>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl NativeLoad {
    /// Starts the crowds, on a core.
    pub(super) fn start(
        crowds: Vec<NativeCrowd>,
        to: (FabricAddress, Option<Token>),
        core: usize,
    ) -> Result<Self> {
        let counts = Arc::new(NativeCounts::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let (counted, ended) = (Arc::clone(&counts), Arc::clone(&is_over));
        let thread = thread::Builder::new().name("native-load".to_owned());
        let thread = thread.spawn(move || {
            pin(core)?;
            farcore_rdma::run_local(drive(&crowds, &to, &counted, &ended))?;
            Ok(())
        });
        Ok(Self {
            counts,
            is_over,
            thread: thread.context("cannot start a thread")?,
        })
    }

    /// Ends all connections; returns what they have done.
    pub(super) fn end(self) -> Result<Arc<NativeCounts>> {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.ok().context("the native load panicked")??;
        Ok(self.counts)
    }
}
