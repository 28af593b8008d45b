//! Hostile messages of `tools/protocol/tests/corpus`, and mutations of them, through connections:
//! at a server in messages, in upload slots and instead of a handshake, and at a client as answers.
//!
//! What the server must do is written down a second time here: a message that breaks the protocol
//! ends its connection, and any other leaves it. `FARCORE_SEED` chooses other mutations, and
//! `FARCORE_MUTATIONS` how many.

#[path = "../../protocol/tests/support/mod.rs"]
mod corpus;
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farcore_client::{Client, ScanOptions};
use farcore_protocol::handshake::{Hello, Welcome};
use farcore_protocol::{
    Flags, HEADER_BYTES, Header, Kind, PROTOCOL_VERSION, SMALL_BYTES, Status, message_bytes,
};

use crate::corpus::{Draw, cases, fit, mutate, read};
use crate::support::peer::{Peer, with_server};
use crate::support::{PATIENCE, Served, wait_until};

/// Mutations that each test tries.
const MUTATIONS: usize = 500;
/// Messages that a peer of these tests sends over one connection, one an upload slot. It grants no
/// credits.
const MESSAGES: usize = 2;
/// The id of the request that shows whether a connection lives.
const PROBE: u32 = 0x50_52_4F_42;

/// The corpus, and mutations of it that fit a message.
fn messages() -> Vec<Vec<u8>> {
    let cases = cases();
    let mut draw = Draw::new();
    let mut messages: Vec<_> = cases.iter().map(|case| case.message.clone()).collect();
    let mutations = std::env::var("FARCORE_MUTATIONS").ok();
    let mutations = mutations.map_or(MUTATIONS, |text| text.parse().expect("FARCORE_MUTATIONS"));
    for _ in 0..mutations {
        let mut message = cases[draw.below(cases.len())].message.clone();
        for _ in 0..=draw.below(3) {
            let other = draw.below(cases.len());
            mutate(&mut draw, &mut message, &cases[other].message);
        }
        if draw.below(3) > 0 {
            fit(&mut message);
        }
        message.truncate(message_bytes(SMALL_BYTES));
        messages.push(message);
    }
    messages
}

/// What a message does to its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Ends,
    Lives,
    /// It depends on credits, or on memory of this side that the message names.
    Either,
}

/// As the document says it.
fn fate(message: &[u8]) -> Fate {
    let Ok(header) = Header::decode(message) else {
        return Fate::Ends;
    };
    let value_bytes = match header.kind {
        // The most bytes wanted.
        Kind::Get => 0,
        _ => header.value_bytes as usize,
    };
    let is_whole = HEADER_BYTES + usize::from(header.key_bytes) + value_bytes == message.len();
    let is_request = !header.is_answer && header.kind as u8 >= Kind::Noop as u8;
    let returns_slots = header.done > 0
        || matches!(header.kind, Kind::Noop | Kind::Done) && message.len() >= HEADER_BYTES + 2;
    if !is_whole || !is_request || returns_slots {
        Fate::Ends
    } else if header.credits > 0 || header.flags.has(Flags::LANDING) {
        Fate::Either
    } else {
        Fate::Lives
    }
}

/// Waits until the server has ended the connection, or answers the probe; true if it lives. Every
/// answer must be one.
async fn lives(peer: &mut Peer, shown: &str) -> bool {
    peer.send(&Header::new(Kind::Ping, PROBE).encode());
    while let Some(answer) = peer.receive().await {
        let header = Header::decode(&answer).expect("a header");
        if header.kind == Kind::Noop {
            continue;
        }
        assert!(header.is_answer, "{shown}: {header:?}");
        if !header.flags.has(Flags::LENT) && header.status == Status::Ok {
            read(&answer).unwrap_or_else(|error| panic!("{shown} is answered by {error}"));
        }
        if (header.kind, header.id) == (Kind::Ping, PROBE) {
            return true;
        }
    }
    false
}

fn all_is_back(served: &Served) {
    let client = served.client();
    client.put(b"fine", b"value").wait().expect("stored");
    drop(client);
    wait_until("every slot and credit is back", || {
        let figures = served.figures();
        figures.connections + figures.slots_in_use + figures.slot_bytes + figures.credits == 0
    });
}

/// Sends every message by a way, and compares what happens with its fate. The way receives how many
/// messages the connection has had.
fn at_a_server(send: impl Fn(&mut Peer, &Welcome, usize, &[u8])) {
    let served = Served::start(2);
    let client = served.client();
    client.put(b"key", b"a value").wait().expect("stored");
    drop(client);
    let work = async {
        let mut connected: Option<(Peer, Welcome, usize)> = None;
        let (mut ended, mut lived) = (0, 0);
        for (number, message) in messages().iter().enumerate() {
            let shown = format!("message {number}: {}", message.escape_ascii());
            let (mut peer, welcome, sent) = match connected.take() {
                Some(connected) => connected,
                None => {
                    let mut peer = Peer::connect(&served.address).await;
                    let welcome = peer.greet().await;
                    (peer, welcome, 0)
                }
            };
            send(&mut peer, &welcome, sent, message);
            let lives = lives(&mut peer, &shown).await;
            let fate = fate(message);
            let expected = if lives { Fate::Lives } else { Fate::Ends };
            assert!(
                fate == Fate::Either || fate == expected,
                "{shown}: {fate:?}, {expected:?}"
            );
            ended += u64::from(!lives);
            lived += usize::from(lives);
            if lives && sent + 1 < MESSAGES {
                connected = Some((peer, welcome, sent + 1));
            }
        }
        println!("{ended} ended their connection, {lived} did not");
        assert!(ended > 50 && lived > 50, "both must occur");
        ended
    };
    let ended = farcore_rdma::run_local(work).expect("an executor");
    // Those whose fate depends on memory of this side end without a violation.
    let violations = served.figures().violations;
    assert!(
        violations > 50 && violations <= ended,
        "{violations} of {ended}"
    );
    all_is_back(&served);
}

#[test]
fn messages_do_what_the_document_says() {
    at_a_server(|peer, _, _, message| peer.send(message));
}

#[test]
fn uploads_do_what_the_document_says() {
    at_a_server(|peer, welcome, sent, message| {
        // The answer to the message before may still be on its way, so its slot is not free.
        let slot = u32::try_from(sent).expect("small");
        assert!(
            slot < u32::from(welcome.uploads.slots),
            "a slot for each message"
        );
        let offset = u64::from(slot * welcome.uploads.slot_bytes);
        peer.write(message, (welcome.uploads.memory_key, offset), Some(slot));
    });
}

#[test]
fn only_a_hello_begins_a_handshake() {
    let served = Served::start(2);
    let work = async {
        let (mut challenged, mut refused) = (0, 0);
        for (number, message) in messages().iter().enumerate() {
            let shown = format!("message {number}: {}", message.escape_ascii());
            let mut peer = Peer::connect(&served.address).await;
            peer.send(message);
            let answer = peer.receive().await;
            let kind = answer.map(|answer| Header::decode(&answer).expect("a header").kind);
            let hello = Hello::decode(message);
            let is_as_expected = match hello {
                Ok(hello) if hello.version == PROTOCOL_VERSION => kind == Some(Kind::Challenge),
                // A client without a receive cannot be told.
                Ok(hello) if hello.credits == 0 => kind.is_none(),
                Ok(_) => kind == Some(Kind::Refused),
                Err(_) => kind.is_none(),
            };
            assert!(is_as_expected, "{shown}: {kind:?}");
            challenged += usize::from(kind == Some(Kind::Challenge));
            refused += usize::from(kind == Some(Kind::Refused));
        }
        println!("{challenged} challenged, {refused} refused for their version");
        assert!(challenged > 0 && refused > 0, "both must occur");
    };
    farcore_rdma::run_local(work).expect("an executor");
    let figures = served.figures();
    assert_eq!(figures.slot_bytes, 0, "nothing is registered for strangers");
    all_is_back(&served);
}

/// Operations of each kind that the corpus has answers of. Their outcomes are anything.
fn operate(client: &Client) {
    let keys: [&[u8]; 2] = [b"one", b"two"];
    let _ = client.get(b"key").wait();
    let _ = client.get_many(&keys).wait();
    let _ = client.scan(None, ScanOptions::default()).wait();
    let _ = client.put(b"key", b"value").wait();
    let _ = client.increment(b"key", 1).wait();
}

/// The message as it is, or as an answer to a request.
fn as_answer(number: usize, message: &[u8], asked: &Header) -> Vec<u8> {
    let mut message = message.to_vec();
    if message.len() >= HEADER_BYTES {
        if !number.is_multiple_of(4) {
            message[16..20].copy_from_slice(&asked.id.to_le_bytes());
        }
        if number.is_multiple_of(2) {
            message[0] = asked.kind as u8 | 1 << 7;
        }
    }
    message
}

#[test]
fn a_client_survives_every_answer() {
    let messages = messages();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    with_server(
        async |mut peer| {
            peer.welcome().await;
            while let Some(request) = peer.receive().await {
                let asked = Header::decode(&request).expect("a client sends headers");
                let number = next.fetch_add(1, Ordering::SeqCst);
                match messages.get(number) {
                    Some(message) => peer.send(&as_answer(number, message, &asked)),
                    None => is_over.store(true, Ordering::SeqCst),
                }
                // If it was no answer, this is one.
                peer.send(&asked.answer(Status::NotFound).encode());
            }
        },
        |client| {
            let start = Instant::now();
            while !is_over.load(Ordering::SeqCst) {
                operate(client);
                assert!(start.elapsed() < 3 * PATIENCE, "{:?}", client.figures());
            }
            let mut found = client.get(b"key").wait();
            while found.is_err() && start.elapsed() < 3 * PATIENCE {
                std::thread::sleep(Duration::from_millis(10));
                found = client.get(b"key").wait();
            }
            assert_eq!(found, Ok(None), "a server that behaves is served by it");
            println!("{:?}", client.figures());
        },
    );
}
