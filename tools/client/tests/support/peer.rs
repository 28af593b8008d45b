//! A peer that says what a test wants, as a client or as a server.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farcore_client::{Client, ClientOptions, FabricAddress, Transfer};
use farcore_protocol::handshake::{
    Challenge, Hello, SlotFacts, Welcome, decode_proof, encode_proof,
};
use farcore_protocol::{HEADER_BYTES, PROTOCOL_VERSION};
use farcore_rdma::control::{PeerProof, PeerSide};
use farcore_rdma::{
    Completion, LocalKey, LocalSlice, PeerEndpoint, PeerListener, PeerMemory, PeerOptions,
    RemoteKey, RemoteSlice, Status as WorkStatus, VerbsOptions, Work, WorkId, WorkRequest,
};

use super::PATIENCE;

pub(crate) const BUFFER: usize = 8192;
pub(crate) const RECEIVES: u16 = 16;
const RECEIVE: u64 = 1 << 32;

/// A peer that says what a test wants.
pub(crate) struct Peer {
    pub(crate) endpoint: PeerEndpoint,
    memory: PeerMemory,
    key: LocalKey,
    pub(crate) received: Vec<Vec<u8>>,
    statuses: Vec<WorkStatus>,
}

impl Peer {
    pub(crate) async fn connect(address: &FabricAddress) -> Self {
        let endpoint = PeerEndpoint::connect(address, &options(), PATIENCE).await;
        Self::new(endpoint.expect("a connection"))
    }

    /// Two ends of a connection, made at an address whose port is 0.
    pub(crate) async fn pair(address: &FabricAddress) -> (Self, Self) {
        let listener = PeerListener::bind(address, &options()).expect("a listener");
        let (scheme, bound) = listener.local_address();
        let address = format!("{}://{bound}", scheme.as_str());
        let address = address.parse().expect("an address");
        futures_lite::future::zip(Self::connect(&address), Self::accept(&listener)).await
    }

    /// Waits for a client.
    pub(crate) async fn accept(listener: &PeerListener) -> Self {
        loop {
            match listener.accept().expect("accepted") {
                Some(arrival) => {
                    let endpoint = PeerEndpoint::accept(arrival, &options()).await;
                    return Self::new(endpoint.expect("a connection"));
                }
                None => farcore_rdma::pause(Duration::from_millis(1)).await,
            }
        }
    }

    fn new(mut endpoint: PeerEndpoint) -> Self {
        let memory = PeerMemory::map((usize::from(RECEIVES) + 64) * BUFFER).expect("memory");
        let key = endpoint.register(memory.region()).expect("registered");
        let mut peer = Self {
            endpoint,
            memory,
            key,
            received: Vec::new(),
            statuses: Vec::new(),
        };
        for number in 0..RECEIVES {
            peer.post_receive(u64::from(number));
        }
        peer
    }

    fn slice(&self, place: u64, bytes: usize) -> LocalSlice {
        LocalSlice {
            key: self.key,
            offset: place * BUFFER as u64,
            bytes: u32::try_from(bytes).expect("short"),
        }
    }

    fn post(&mut self, id: u64, work: Work) {
        let request = WorkRequest {
            id: WorkId(id),
            work,
            signalled: true,
        };
        // A server that has closed the connection takes nothing more.
        let _ = self.endpoint.post(request);
    }

    fn post_receive(&mut self, number: u64) {
        let local = self.slice(number, BUFFER);
        self.post(RECEIVE | number, Work::Receive { local });
    }

    fn flush(&mut self) {
        self.endpoint.ring(0);
        self.endpoint.flush();
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        let place = u64::from(RECEIVES);
        self.memory.write(place * BUFFER as u64, message);
        let local = self.slice(place, message.len());
        self.post(0, Work::Send { local });
        self.flush();
    }

    /// Writes into the server's memory, with a word or without.
    pub(crate) fn write(&mut self, bytes: &[u8], (key, offset): (u32, u64), word: Option<u32>) {
        let place = u64::from(RECEIVES) + 1;
        self.memory.write(place * BUFFER as u64, bytes);
        let local = self.slice(place, bytes.len());
        let remote = RemoteSlice {
            key: RemoteKey(key),
            offset,
        };
        let work = match word {
            Some(immediate) => Work::WriteImmediate {
                local,
                remote,
                immediate,
            },
            None => Work::Write { local, remote },
        };
        self.post(1, work);
        self.flush();
    }

    pub(crate) fn poll(&mut self) {
        let mut completions = [Completion::NONE; 64];
        let count = self.endpoint.poll(0, &mut completions);
        for completion in &completions[..count] {
            if completion.id.0 & RECEIVE == 0 || completion.status != WorkStatus::Success {
                self.statuses.push(completion.status);
                continue;
            }
            let number = completion.id.0 & !RECEIVE;
            let mut message = vec![0; completion.bytes as usize];
            self.memory.read(number * BUFFER as u64, &mut message);
            self.received.push(message);
            self.post_receive(number);
        }
        self.flush();
    }

    /// The next message; `None` if the server has closed the connection.
    pub(crate) async fn receive(&mut self) -> Option<Vec<u8>> {
        let start = std::time::Instant::now();
        while self.received.is_empty() {
            self.poll();
            if self.received.is_empty() && !self.endpoint.is_up() {
                return None;
            }
            assert!(start.elapsed() < PATIENCE, "the server says nothing");
            farcore_rdma::pause(Duration::from_micros(200)).await;
        }
        Some(self.received.remove(0))
    }

    /// Waits until the server has closed the connection.
    pub(crate) async fn is_closed(&mut self) {
        while self.receive().await.is_some() {}
    }

    /// Shakes hands as a client does.
    pub(crate) async fn greet(&mut self) -> Welcome {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            credits: RECEIVES,
            message_bytes: u32::try_from(BUFFER).expect("short"),
            nonce: [7; 16],
            name: "hostile".to_owned(),
        };
        let hello = hello.encode();
        self.send(&hello);
        let challenge = self.receive().await.expect("a challenge");
        let challenge = Challenge::decode(&challenge).expect("a challenge");
        let proofs = PeerProof {
            token: None,
            client: [7; 16],
            server: challenge.nonce,
            context: &hello[HEADER_BYTES..],
        };
        self.send(&encode_proof(&proofs.of(PeerSide::Client)));
        let welcome = self.receive().await.expect("a welcome");
        Welcome::decode(&welcome).expect("a welcome")
    }

    /// Shakes hands as a server does.
    pub(crate) async fn welcome(&mut self) {
        let said = self.receive().await.expect("a hello");
        let hello = Hello::decode(&said).expect("a hello");
        let proofs = PeerProof {
            token: None,
            client: hello.nonce,
            server: [9; 16],
            context: &said[HEADER_BYTES..],
        };
        let challenge = Challenge {
            nonce: [9; 16],
            proof: proofs.of(PeerSide::Server),
        };
        self.send(&challenge.encode());
        let proof = self.receive().await.expect("a proof");
        let proof = decode_proof(&proof).expect("a proof");
        assert!(proofs.is_of(PeerSide::Client, &proof));
        let slots = PeerMemory::map(2 << 16).expect("memory");
        let (_, key) = self.endpoint.expose(slots.region()).expect("exposed");
        let welcome = Welcome {
            credits: RECEIVES,
            message_bytes: 5168,
            small_bytes: 4096,
            value_bytes_max: 1 << 26,
            slot_bytes_max: 1 << 20,
            uploads: SlotFacts {
                memory_key: key.0,
                first: 0,
                slots: 2,
                slot_bytes: 1 << 16,
            },
        };
        self.send(&welcome.encode());
    }
}

/// Runs a server of the test's own for one client after another, and a client.
pub(crate) fn with_server(serve: impl AsyncFn(Peer) + Sync, test: impl FnOnce(&Client)) {
    let any = "tcp://127.0.0.1:0".parse().expect("an address");
    let listener = PeerListener::bind(&any, &options()).expect("a listener");
    let address = format!("tcp://{}", listener.local_address().1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let work = async {
                while !is_over.load(Ordering::SeqCst) {
                    let ended = async {
                        while !is_over.load(Ordering::SeqCst) {
                            farcore_rdma::pause(Duration::from_millis(1)).await;
                        }
                    };
                    let one = async {
                        let peer = Peer::accept(&listener).await;
                        serve(peer).await;
                    };
                    futures_lite::future::or(one, ended).await;
                }
            };
            farcore_rdma::run_local(work).expect("an executor");
        });
        let client = Client::connect(
            &address.parse().expect("an address"),
            ClientOptions {
                timeout: Duration::from_millis(700),
                queue: 8,
                ..super::options(Transfer::Read)
            },
        );
        test(&client.expect("a client"));
        is_over.store(true, Ordering::SeqCst);
    });
}

fn options() -> PeerOptions {
    PeerOptions {
        depth: 256,
        limit_ns: u64::MAX,
        verbs: VerbsOptions::default(),
    }
}
