//! Misbehaving clients on every port of a memory node, beside a well-behaved one that must not be
//! disturbed.
//!
//! `FARCORE_SEED` replays a run, `FARCORE_FUZZ_SECONDS` lengthens it. The wire format is
//! implemented here again, so that an error in one side does not hide an error in the other.

mod support;

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use farcore_rdma::RemoteSlice;
use farcore_rdma::control::{CONTROL_VERSION, Opening, Request, Token};
use farcore_rdma::session::NodeSession;
use farcore_rdma::tcp::{Carrier, ConnectRequest, PROTOCOL_VERSION, Purpose, connect_control};

use self::support::{Node, PATIENCE, TOKEN, TokenFile};

const EXTENT: u64 = 64 << 10;
/// Growth of the node's memory allowed after the first round, in KiB: glibc keeps some.
const GROWTH_KIB: u64 = 64 << 10;
/// Connections at once in a burst: more than the limit of unauthenticated ones.
const MANY: usize = 100;

/// Xorshift: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("a usize")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.byte()).collect()
    }

    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        match self.below(4) {
            0 => bytes.truncate(self.below(bytes.len() + 1)),
            1 => bytes.extend(self.bytes(200)),
            _ => {
                for _ in 0..=self.below(4) {
                    let place = self.below(bytes.len());
                    bytes[place] = self.byte();
                }
            }
        }
    }
}

fn connect_bytes(request: &ConnectRequest) -> Vec<u8> {
    let mut bytes = vec![0; 56];
    bytes[..8].copy_from_slice(b"FARCORE\x01");
    bytes[8..10].copy_from_slice(&request.version.to_le_bytes());
    match request.purpose {
        Purpose::Control => bytes[10] = 1,
        Purpose::Memory {
            session,
            slot,
            counter,
            proof,
            carrier,
        } => {
            bytes[10] = match carrier {
                Carrier::Socket => 2,
                Carrier::QueuePair => 4,
            };
            bytes[16..24].copy_from_slice(&session.to_le_bytes());
            bytes[24..28].copy_from_slice(&slot.to_le_bytes());
            bytes[32..40].copy_from_slice(&counter.to_le_bytes());
            bytes[40..].copy_from_slice(&proof);
        }
        Purpose::Peer => bytes[10] = 3,
    }
    bytes
}

fn frame(opcode: u8, sequence: u32, to: RemoteSlice, bytes: u32) -> Vec<u8> {
    let mut header = vec![0; 40];
    header[0] = opcode;
    header[4..8].copy_from_slice(&sequence.to_le_bytes());
    header[8..12].copy_from_slice(&to.key.0.to_le_bytes());
    header[12..16].copy_from_slice(&bytes.to_le_bytes());
    header[16..24].copy_from_slice(&to.offset.to_le_bytes());
    header
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a listening node");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// A queue pair over a plain socket.
struct Line {
    stream: TcpStream,
    sequence: u32,
}

impl Line {
    fn join(address: SocketAddr, request: &ConnectRequest) -> Self {
        let mut stream = connect(address);
        stream
            .write_all(&connect_bytes(request))
            .expect("a node that reads");
        let mut reply = [0; 24];
        stream.read_exact(&mut reply).expect("an answer");
        assert_eq!(&reply[10..12], &[0, 0], "refused: {reply:?}");
        Self {
            stream,
            sequence: 0,
        }
    }

    fn request(&mut self, opcode: u8, to: RemoteSlice, bytes: u32, payload: &[u8]) -> [u8; 40] {
        let mut message = frame(opcode, self.sequence, to, bytes);
        message.extend_from_slice(payload);
        self.stream.write_all(&message).expect("a node that reads");
        let mut answer = [0; 40];
        self.stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[4..8], self.sequence.to_le_bytes());
        self.sequence += 1;
        answer
    }

    fn write(&mut self, to: RemoteSlice, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("short");
        assert_eq!(
            self.request(2, to, length, bytes)[0],
            64,
            "not acknowledged"
        );
    }

    fn read(&mut self, from: RemoteSlice, bytes: u32) -> Vec<u8> {
        assert_eq!(self.request(1, from, bytes, &[])[0], 65, "not read");
        let mut found = vec![0; bytes as usize];
        self.stream.read_exact(&mut found).expect("a payload");
        found
    }
}

fn message(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short").to_le_bytes();
    [&length[..], bytes].concat()
}

fn control() -> Vec<u8> {
    connect_bytes(&ConnectRequest::new(Purpose::Control))
}

fn hello(random: &mut Random) -> Vec<u8> {
    let mut nonce = [0; 16];
    nonce.fill_with(|| random.byte());
    let hello = Request::Hello {
        version: CONTROL_VERSION,
        client: "a misbehaving client".to_owned(),
        nonce,
        opening: Opening::New,
    };
    message(&hello.encode())
}

/// Bytes from a client that has not authenticated.
fn unauthenticated_bytes(random: &mut Random) -> Vec<u8> {
    let mut words = match random.below(7) {
        0 => random.bytes(300),
        1 => control(),
        2 => connect_bytes(&ConnectRequest::new(Purpose::Peer)),
        3 => connect_bytes(&ConnectRequest {
            version: PROTOCOL_VERSION.wrapping_add(1),
            purpose: Purpose::Control,
        }),
        4 => {
            let mut proof = [0; 16];
            proof.fill_with(|| random.byte());
            connect_bytes(&ConnectRequest::new(Purpose::Memory {
                session: random.next() % 4,
                slot: u32::from(random.byte()),
                counter: random.next(),
                proof,
                carrier: if random.byte() < 128 {
                    Carrier::Socket
                } else {
                    Carrier::QueuePair
                },
            }))
        }
        5 => {
            let proof = Request::Prove { proof: [7; 32] };
            let bytes = [hello(random), message(&proof.encode())];
            [control(), bytes.concat()].concat()
        }
        _ => {
            let mut bytes = [control(), hello(random)].concat();
            // A message that is announced and not sent.
            bytes.extend_from_slice(&u32::MAX.to_le_bytes()[random.below(4)..]);
            bytes
        }
    };
    if random.below(3) > 0 && !words.is_empty() {
        random.spoil(&mut words);
    }
    words
}

/// Frames of an authenticated client, the last of them damaged. It writes only to its own memory:
/// the node does not protect authenticated clients from each other.
fn damaged_frames(random: &mut Random, own: RemoteSlice) -> Vec<u8> {
    let mut all = Vec::new();
    let good = u32::try_from(random.below(20)).expect("few");
    for sequence in 0..good {
        let bytes = u32::try_from(random.below(4096)).expect("short");
        let writes = random.below(2) == 0;
        all.extend(frame(if writes { 2 } else { 1 }, sequence, own, bytes));
        if writes {
            all.resize(all.len() + bytes as usize, 0xEE);
        }
    }
    let opcode = [1, 2, 3, 4, 5, 6, 64, 65, 66, 67, random.byte()][random.below(11)];
    let sequence = if random.below(3) == 0 {
        u32::from(random.byte())
    } else {
        good
    };
    let past = [EXTENT * 1000, u64::MAX, u64::MAX - 7, 1 << 40];
    let mut last = frame(opcode, sequence, own, 64);
    match random.below(5) {
        0 => last[8..12].copy_from_slice(&(1000 + u32::from(random.byte())).to_le_bytes()),
        1 => last[16..24].copy_from_slice(&past[random.below(4)].to_le_bytes()),
        2 => last[16..24].copy_from_slice(&(own.offset + 1).to_le_bytes()),
        3 => {
            let long = [16 << 20, (16 << 20) + 1, 1 << 31, u32::MAX][random.below(4)];
            last[12..16].copy_from_slice(&long.to_le_bytes());
            last[16..24].copy_from_slice(&past[0].to_le_bytes());
        }
        _ => last[1..4].fill_with(|| random.byte()),
    }
    all.extend(last);
    all.resize(all.len() + random.below(65), 0xEE);
    if random.below(4) == 0 {
        all.truncate(random.below(all.len() + 1));
    }
    all
}

/// Sends bytes in pieces and closes in some way; returns the stream if it stays open.
fn send_bytes(random: &mut Random, mut stream: TcpStream, words: &[u8]) -> Option<TcpStream> {
    let piece = 1 + random.below(words.len().max(1));
    for part in words.chunks(piece) {
        // The node may have closed the connection before the end.
        if stream.write_all(part).is_err() {
            return None;
        }
    }
    match random.below(4) {
        0 => None,
        1 => {
            // Half-closed: the node sends its answer and closes.
            let _ = stream.shutdown(Shutdown::Write);
            let _ = io::copy(&mut stream, &mut io::sink());
            None
        }
        2 => {
            let _ = stream.shutdown(Shutdown::Read);
            Some(stream)
        }
        _ => Some(stream),
    }
}

fn http_words(random: &mut Random) -> Vec<u8> {
    let mut words = match random.below(4) {
        0 => random.bytes(2000),
        1 => b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18446744073709551615\r\n\r\n"
            .to_vec(),
        2 => [
            &b"GET /"[..],
            &vec![b'a'; random.below(100_000)],
            b" HTTP/1.1\r\n\r\n",
        ]
        .concat(),
        _ => b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
            .to_vec(),
    };
    if random.below(2) == 0 && !words.is_empty() {
        random.spoil(&mut words);
    }
    // A malformed request ends a connection that keep-alive would leave open.
    words.extend_from_slice(b"\r\n\r\n\0");
    words
}

fn healthy(http: SocketAddr) -> bool {
    let mut stream = connect(http);
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut text = String::new();
    let received = stream
        .write_all(request)
        .and_then(|()| stream.read_to_string(&mut text));
    received.is_ok() && text.ends_with("ok\n")
}

fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .expect("a living process")
}

async fn open(address: SocketAddr, name: &str) -> NodeSession {
    let token = Token::new(TOKEN.as_bytes()).expect("long enough");
    let start = Instant::now();
    loop {
        // Clients that have just left may still be counted as unauthenticated.
        if let Ok(channel) = connect_control(address, PATIENCE).await
            && let Ok(session) = NodeSession::open(channel, name, Some(&token)).await
        {
            return session;
        }
        assert!(start.elapsed() < PATIENCE, "{name} is not served");
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    farcore_rdma::run_local(work).expect("an executor")
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

// Over 70 lines: one scenario, whose steps share all of its state.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one kind of misbehaviour after the other"
)]
fn misbehaving_clients_do_not_disturb_others() {
    let seed = from_environment("FARCORE_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::from(now.unwrap().subsec_nanos()) | 1
    });
    println!("FARCORE_SEED={seed}");
    let limit = Duration::from_secs(from_environment("FARCORE_FUZZ_SECONDS").unwrap_or(4));
    let mut random = Random(seed.max(1));
    let token = TokenFile::new("fuzz");
    let http = TcpListener::bind("127.0.0.1:0")
        .and_then(|probe| probe.local_addr())
        .unwrap();
    let mut node = Node::start(
        &[],
        &[
            "--listen",
            "tcp://127.0.0.1:0",
            "--memory",
            "4MiB",
            "--extent",
            "64KiB",
            "--token-file",
            token.path(),
            "--http",
            &http.to_string(),
            "--no-huge-pages",
        ],
    );
    let (address, process) = (node.address, node.process.0.id());
    run(async {
        let mut good = open(address, "good").await;
        let run = good.allocate_chunk(EXTENT).await.unwrap();
        let place = good.map().slice(run.first(), 0).unwrap();
        let mut line = Line::join(address, &good.memory_request(0));
        let mut rude = open(address, "misbehaving").await;
        let run = rude.allocate_chunk(EXTENT).await.unwrap();
        let own_place = rude.map().slice(run.first(), 0).unwrap();
        let mut value = vec![1; 1000];
        line.write(place, &value);
        let (start, mut resident, mut bursts) = (Instant::now(), None, 0u32);
        while start.elapsed() < limit || bursts < 6 {
            let mut open_still = Vec::new();
            for _ in 0..20 {
                let stream = connect(address);
                let words = unauthenticated_bytes(&mut random);
                open_still.extend(send_bytes(&mut random, stream, &words));
                let line = Line::join(address, &rude.memory_request(bursts % 3));
                let words = damaged_frames(&mut random, own_place);
                open_still.extend(send_bytes(&mut random, line.stream, &words));
            }
            for _ in 0..10 {
                let mut stream = connect(http);
                let words = http_words(&mut random);
                if stream.write_all(&words).is_ok() && random.below(2) == 0 {
                    open_still.push(stream);
                }
            }
            if bursts.is_multiple_of(3) {
                // Many silent connections, more than the limit of unauthenticated ones.
                open_still.extend((0..MANY).map(|_| connect(address)));
                open_still.extend((0..MANY).map(|_| connect(http)));
            }
            // They are still open, and the well-behaved client is not disturbed.
            assert!(line.read(place, 1000) == value, "another value");
            value.fill_with(|| random.byte());
            line.write(place, &value);
            assert!(line.read(place, 1000) == value, "another value");
            good.heartbeat().await.unwrap();
            assert!(healthy(http), "HTTP does not answer");
            drop(open_still);
            let mut newcomer = open(address, "newcomer").await;
            newcomer.statistics().await.unwrap();
            newcomer.bye().await.unwrap();
            rude.heartbeat().await.unwrap();
            assert!(node.process.is_alive());
            let now = resident_kib(process);
            let first = *resident.get_or_insert(now);
            assert!(now < first + GROWTH_KIB, "{first} KiB, and now {now} KiB");
            bursts += 1;
        }
        println!(
            "{bursts} bursts, {:?} KiB, {} KiB",
            resident,
            resident_kib(process)
        );
        good.bye().await.unwrap();
    });
    node.process.signal("TERM");
    assert_eq!(node.process.end().code(), Some(0));
    let log = node.log.rest();
    let panics: Vec<_> = log
        .iter()
        .filter(|line| line.contains("panicked"))
        .collect();
    assert!(panics.is_empty(), "{panics:?}");
}
