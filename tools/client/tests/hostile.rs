//! Peers that break the protocol: the server serves on, and every slot and credit comes back.

mod support;

use std::time::Duration;

use farcore_protocol::handshake::{Challenge, Hello, Welcome, encode_proof};
use farcore_protocol::{Flags, HEADER_BYTES, Header, Kind, PROTOCOL_VERSION, Status};
use farcore_rdma::control::{PeerProof, PeerSide};
use farcore_rdma::{
    Completion, LocalKey, LocalSlice, PeerEndpoint, PeerMemory, PeerOptions, RemoteKey,
    RemoteSlice, Status as WorkStatus, VerbsOptions, Work, WorkId, WorkRequest,
};

use crate::support::{PATIENCE, Random, Served, pattern, wait_until};

const BUFFER: usize = 8192;
const RECEIVES: u16 = 16;
const RECEIVE: u64 = 1 << 32;

/// A peer that says what a test wants.
struct Peer {
    endpoint: PeerEndpoint,
    memory: PeerMemory,
    key: LocalKey,
    received: Vec<Vec<u8>>,
    statuses: Vec<WorkStatus>,
}

impl Peer {
    async fn connect(served: &Served) -> Self {
        let options = PeerOptions {
            depth: 256,
            limit_ns: u64::MAX,
            verbs: VerbsOptions::default(),
        };
        let endpoint = PeerEndpoint::connect(&served.address, &options, PATIENCE).await;
        let mut endpoint = endpoint.expect("a connection");
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

    fn send(&mut self, message: &[u8]) {
        let place = u64::from(RECEIVES);
        self.memory.write(place * BUFFER as u64, message);
        let local = self.slice(place, message.len());
        self.post(0, Work::Send { local });
        self.flush();
    }

    /// Writes into the server's memory, with a word or without.
    fn write(&mut self, bytes: &[u8], (key, offset): (u32, u64), word: Option<u32>) {
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

    fn poll(&mut self) {
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
    async fn receive(&mut self) -> Option<Vec<u8>> {
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
    async fn is_closed(&mut self) {
        while self.receive().await.is_some() {}
    }

    /// Shakes hands as a client does.
    async fn greet(&mut self) -> Welcome {
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
}

fn request(kind: Kind, key: &[u8], value: &[u8]) -> Vec<u8> {
    let header = Header {
        key_bytes: u16::try_from(key.len()).expect("short"),
        value_bytes: u32::try_from(value.len()).expect("short"),
        ..Header::new(kind, 3)
    };
    [&header.encode()[..], key, value].concat()
}

/// The server still serves, and has everything back.
fn serves_on(served: &Served) {
    let client = served.client();
    client.put(b"fine", b"value").wait().expect("stored");
    drop(client);
    wait_until("every slot and credit is back", || {
        let figures = served.figures();
        figures.connections + figures.slots_in_use + figures.slot_bytes + figures.credits == 0
    });
}

fn run(test: impl AsyncFnOnce(&Served)) {
    let served = Served::start(2);
    farcore_rdma::run_local(async { test(&served).await }).expect("an executor");
    serves_on(&served);
}

#[test]
fn garbage_instead_of_a_handshake_is_refused() {
    run(async |served| {
        let mut random = Random::new();
        for round in 0..40 {
            let mut peer = Peer::connect(served).await;
            let bytes = random.below(500);
            let mut message = pattern(bytes, random.next());
            if round % 2 == 0 && bytes >= HEADER_BYTES {
                message[..HEADER_BYTES].copy_from_slice(&Header::new(Kind::Hello, 0).encode());
            }
            peer.send(&message);
            peer.is_closed().await;
        }
        wait_until("all are refused", || served.figures().refused >= 40);
    });
}

#[test]
fn requests_before_the_proof_are_refused() {
    run(async |served| {
        let mut peer = Peer::connect(served).await;
        peer.send(&request(Kind::Put, b"k", b"v"));
        peer.is_closed().await;
        let mut peer = Peer::connect(served).await;
        let hello = Hello {
            version: PROTOCOL_VERSION,
            credits: RECEIVES,
            message_bytes: 8192,
            nonce: [7; 16],
            name: String::new(),
        };
        peer.send(&hello.encode());
        peer.receive().await.expect("a challenge");
        peer.send(&request(Kind::Get, b"k", b""));
        peer.is_closed().await;
        assert_eq!(
            served.figures().slot_bytes,
            0,
            "nothing is registered for strangers"
        );
    });
}

#[test]
fn garbage_headers_end_the_connection_only() {
    run(async |served| {
        let mut random = Random::new();
        for round in 0..60 {
            let mut peer = Peer::connect(served).await;
            peer.greet().await;
            let mut message = request(Kind::Put, b"key", b"value");
            match round % 6 {
                0 => message.truncate(random.below(message.len())),
                1 => message.extend(pattern(1 + random.below(100), 5)),
                2 => message[4..8].copy_from_slice(&u32::MAX.to_le_bytes()),
                3 => message[2..4].copy_from_slice(&u16::MAX.to_le_bytes()),
                4 => message[0] = [0, 63, 127, 128, 144, 255][random.below(6)],
                _ => message = pattern(random.below(4000), random.next()),
            }
            peer.send(&message);
            peer.is_closed().await;
        }
        wait_until("all are noticed", || served.figures().violations >= 60);
    });
}

#[test]
fn false_slots_and_words_end_the_connection() {
    run(async |served| {
        for round in 0..8 {
            let mut peer = Peer::connect(served).await;
            let welcome = peer.greet().await;
            let slot = u64::from(welcome.uploads.slot_bytes);
            let place = (welcome.uploads.memory_key, 0);
            let put = request(Kind::Put, b"key", &pattern(5000, 1));
            match round {
                // A slot that does not exist, and a word that is no slot.
                0 => peer.write(&put, place, Some(99)),
                1 => peer.write(&put, place, Some(u32::MAX)),
                // Beyond the slots, and a key of another's.
                2 => peer.write(&put, (welcome.uploads.memory_key, 4 * slot - 8), Some(3)),
                3 => peer.write(&put, (welcome.uploads.memory_key ^ 1, 0), Some(0)),
                // A length beyond the slot, in a slot at the end of the memory.
                4 => {
                    let mut long = put.clone();
                    long[4..8].copy_from_slice(&(70_000u32).to_le_bytes());
                    peer.write(&long, (welcome.uploads.memory_key, 3 * slot), Some(3));
                }
                // A slot with nothing in it.
                5 => peer.write(&put, (welcome.uploads.memory_key, slot), Some(3)),
                // A lend slot that was not lent.
                6 => {
                    let header = Header {
                        done: 1,
                        ..Header::new(Kind::Ping, 1)
                    };
                    peer.send(&header.encode());
                }
                _ => {
                    let mut done = request(Kind::Done, b"", &[9, 0, 200, 0]);
                    done[0] = Kind::Done as u8;
                    peer.send(&done);
                }
            }
            peer.is_closed().await;
        }
    });
}

#[test]
fn credits_that_nobody_has_end_the_connection() {
    run(async |served| {
        let mut peer = Peer::connect(served).await;
        peer.greet().await;
        let header = Header {
            credits: 500,
            ..Header::new(Kind::Ping, 1)
        };
        peer.send(&header.encode());
        peer.is_closed().await;
    });
}

#[test]
fn a_peer_that_takes_no_answers_holds_only_its_own_memory() {
    run(async |served| {
        let mut peer = Peer::connect(served).await;
        peer.greet().await;
        // It sends as many as it may and grants nothing: the last of its credits stays unused.
        let mut answered = 0;
        for number in 0..200u32 {
            let header = Header::new(Kind::Ping, number);
            peer.send(&header.encode());
            peer.poll();
            answered += std::mem::take(&mut peer.received).len();
        }
        for _ in 0..2000 {
            peer.poll();
            answered += std::mem::take(&mut peer.received).len();
            farcore_rdma::pause(Duration::from_micros(50)).await;
        }
        assert!(answered < usize::from(RECEIVES), "{answered} answers");
        let client = served.client();
        client.ping().wait().expect("others are served");
    });
}

#[test]
fn clients_that_die_in_large_transfers_leave_nothing() {
    run(async |served| {
        let client = served.client();
        client
            .put(b"large", &pattern(200_000, 3))
            .wait()
            .expect("stored");
        drop(client);
        let mut random = Random::new();
        for round in 0..60 {
            let mut peer = Peer::connect(served).await;
            let welcome = peer.greet().await;
            let place = welcome.uploads.memory_key;
            match round % 3 {
                // In a get, with the value lent.
                0 => {
                    peer.send(&request(Kind::Get, b"large", b""));
                    let answer = peer.receive().await.expect("an answer");
                    let header = Header::decode(&answer).expect("a header");
                    assert!(header.flags.has(Flags::LENT) && header.status == Status::Ok);
                    wait_until("the slot is in use", || served.figures().slots_in_use > 0);
                }
                // In a put, with a part of its value written.
                1 => {
                    let header = Header {
                        flags: Flags::MORE,
                        key_bytes: 3,
                        value_bytes: 5000,
                        offset: 3 << 20,
                        ..Header::new(Kind::Put, 9)
                    };
                    let part = [&header.encode()[..], b"key", &pattern(5000, 1)].concat();
                    peer.write(&part, (place, 0), Some(0));
                    peer.receive().await.expect("the part is taken");
                }
                // In the middle of a message.
                _ => peer.write(&pattern(random.below(6000), 1), (place, 0), None),
            }
            drop(peer);
        }
    });
    // The value of which only a part came is not there.
}

#[test]
fn another_token_is_refused_on_both_sides() {
    use farcore_client::{Client, ClientOptions, Error, Token};
    let token = |text: &str| Token::new(text.as_bytes()).expect("a token");
    let served = Served::with(1, |options| options.token = Some(token("0123456789abcdef")));
    let with = |token: Option<Token>| {
        let options = ClientOptions {
            token,
            ..support::options(farcore_client::Transfer::Read)
        };
        Client::connect(&served.address, options)
    };
    for wrong in [None, Some(token("0123456789abcdeF"))] {
        let error = with(wrong).expect_err("another token");
        assert!(matches!(error, Error::Token { .. }), "{error}");
    }
    let client = with(Some(token("0123456789abcdef"))).expect("the same token");
    client.ping().wait().expect("an answer");
    // A client that does not check the server is refused by the server.
    farcore_rdma::run_local(async {
        let mut peer = Peer::connect(&served).await;
        let hello = Hello {
            version: PROTOCOL_VERSION,
            credits: RECEIVES,
            message_bytes: 8192,
            nonce: [7; 16],
            name: String::new(),
        };
        peer.send(&hello.encode());
        peer.receive().await.expect("a challenge");
        peer.send(&encode_proof(&[0; 32]));
        let refusal = peer.receive().await.expect("a reason");
        let (status, reason) =
            farcore_protocol::handshake::decode_refusal(&refusal).expect("a reason");
        assert_eq!(status, Status::Protocol);
        assert!(reason.contains("token"), "{reason}");
        peer.is_closed().await;
    })
    .expect("an executor");
}

#[test]
fn too_many_connections_and_another_version_are_refused() {
    use farcore_client::{Client, ClientOptions};
    let served = Served::with(1, |options| options.connections_max = 2);
    let _clients = [served.client(), served.client()];
    let options = ClientOptions {
        timeout: Duration::from_secs(3),
        ..ClientOptions::default()
    };
    assert!(Client::connect(&served.address, options).is_err());
    let served = Served::start(1);
    farcore_rdma::run_local(async {
        let mut peer = Peer::connect(&served).await;
        let hello = Hello {
            version: PROTOCOL_VERSION + 1,
            credits: RECEIVES,
            message_bytes: 8192,
            nonce: [7; 16],
            name: String::new(),
        };
        peer.send(&hello.encode());
        let refusal = peer.receive().await.expect("a reason");
        let (_, reason) = farcore_protocol::handshake::decode_refusal(&refusal).expect("a reason");
        assert!(
            reason.contains("version 1") && reason.contains("version 2"),
            "{reason}"
        );
        peer.is_closed().await;
    })
    .expect("an executor");
    serves_on(&served);
}
