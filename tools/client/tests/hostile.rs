//! Peers that break the protocol: the server serves on, and every slot and credit comes back.

mod support;

use std::time::Duration;

use farcore_protocol::handshake::{Hello, encode_proof};
use farcore_protocol::{
    Flags, HEADER_BYTES, Header, Kind, PROTOCOL_VERSION, Status, VALUE_BYTES_MAX,
};

use crate::support::peer::{Peer, RECEIVES};
use crate::support::{Random, Served, pattern, wait_until};

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
            let mut peer = Peer::connect(&served.address).await;
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
        let mut peer = Peer::connect(&served.address).await;
        peer.send(&request(Kind::Put, b"k", b"v"));
        peer.is_closed().await;
        let mut peer = Peer::connect(&served.address).await;
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
fn a_value_beyond_the_limit_is_refused_at_its_first_part() {
    run(async |served| {
        let mut peer = Peer::connect(&served.address).await;
        peer.greet().await;
        for bytes in [1 << 63, u64::MAX, VALUE_BYTES_MAX + 1] {
            let mut message = request(Kind::Put, b"key", b"value");
            let (header, _) = message.split_at(HEADER_BYTES);
            let header = Header {
                flags: Flags::MORE,
                offset: bytes,
                ..Header::decode(header).expect("it is one")
            };
            message[..HEADER_BYTES].copy_from_slice(&header.encode());
            peer.send(&message);
            let answer = peer.receive().await.expect("an answer");
            let header = Header::decode(&answer).expect("a header");
            assert_eq!(header.status, Status::ValueTooLong, "{bytes} bytes");
            let text = String::from_utf8_lossy(&answer[HEADER_BYTES..]).into_owned();
            assert!(text.contains(&VALUE_BYTES_MAX.to_string()), "{text}");
        }
    });
}

#[test]
fn garbage_headers_end_the_connection_only() {
    run(async |served| {
        let mut random = Random::new();
        for round in 0..60 {
            let mut peer = Peer::connect(&served.address).await;
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
            let mut peer = Peer::connect(&served.address).await;
            let welcome = peer.greet().await;
            let slot = u64::from(welcome.uploads.slot_bytes);
            let slots = u64::from(welcome.uploads.slots);
            let last = u32::from(welcome.uploads.slots) - 1;
            let place = (welcome.uploads.memory_key, 0);
            let put = request(Kind::Put, b"key", &pattern(5000, 1));
            match round {
                // A slot that does not exist, and a word that is no slot.
                0 => peer.write(&put, place, Some(99)),
                1 => peer.write(&put, place, Some(u32::MAX)),
                // Beyond the slots, and a key of another's.
                2 => peer.write(
                    &put,
                    (welcome.uploads.memory_key, slots * slot - 8),
                    Some(last),
                ),
                3 => peer.write(&put, (welcome.uploads.memory_key ^ 1, 0), Some(0)),
                // A length beyond the slot, in a slot at the end of the memory.
                4 => {
                    let mut long = put.clone();
                    long[4..8].copy_from_slice(&(70_000u32).to_le_bytes());
                    peer.write(
                        &long,
                        (welcome.uploads.memory_key, (slots - 1) * slot),
                        Some(last),
                    );
                }
                // A slot with nothing in it.
                5 => peer.write(&put, (welcome.uploads.memory_key, 0), Some(last)),
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
fn a_key_reaches_nothing_of_another_connection() {
    run(async |served| {
        let mut one = Peer::connect(&served.address).await;
        let own = one.greet().await.uploads.memory_key;
        let value = pattern(5000, 1);
        let put = request(Kind::Put, b"mine", &value);
        for length in [1, 48, 5000] {
            // The other writes where the first is about to.
            let mut other = Peer::connect(&served.address).await;
            other.greet().await;
            other.write(&pattern(length, 2), (own, 0), None);
            other.is_closed().await;
        }
        one.write(&put, (own, 0), Some(0));
        let answer = one.receive().await.expect("an answer");
        assert_eq!(
            Header::decode(&answer).expect("a header").status,
            Status::Ok
        );
        let client = served.client();
        let found = client
            .get(b"mine")
            .wait()
            .expect("read")
            .expect("it is there");
        assert!(found.bytes == value);
    });
}

#[test]
fn random_bytes_in_slots_and_messages_end_the_connection_only() {
    run(async |served| {
        let mut random = Random::new();
        for _ in 0..150 {
            let mut peer = Peer::connect(&served.address).await;
            let welcome = peer.greet().await;
            let place = (welcome.uploads.memory_key, 0);
            // Headers that are nearly right come farther than those that are not.
            let mut bytes = request(Kind::Put, b"key", &pattern(random.below(2000), 1));
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len().min(HEADER_BYTES + 4));
                bytes[at] = random.next().to_le_bytes()[0];
            }
            match random.below(3) {
                0 => peer.send(&bytes),
                1 => peer.write(&bytes, place, Some(0)),
                _ => peer.write(
                    &bytes,
                    place,
                    Some(u32::try_from(random.below(4)).expect("short")),
                ),
            }
            for _ in 0..20 {
                peer.poll();
                farcore_rdma::pause(Duration::from_micros(100)).await;
            }
        }
    });
}

#[test]
fn credits_that_nobody_has_end_the_connection() {
    run(async |served| {
        let mut peer = Peer::connect(&served.address).await;
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
        let mut peer = Peer::connect(&served.address).await;
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
fn a_peer_that_acknowledges_nothing_is_given_up() {
    let served = Served::with(1, |options| options.timeout = Duration::from_secs(1));
    farcore_rdma::run_local(async {
        let mut peer = Peer::connect(&served.address).await;
        peer.greet().await;
        peer.send(&Header::new(Kind::Ping, 1).encode());
        // It polls no more, so the answer is not acknowledged.
        wait_until("it is given up", || served.figures().connections == 0);
    })
    .expect("an executor");
    serves_on(&served);
}

#[test]
fn a_peer_that_says_nothing_is_given_up() {
    let served = Served::with(1, |options| options.timeout = Duration::from_secs(1));
    farcore_rdma::run_local(async {
        let _peer = Peer::connect(&served.address).await;
        wait_until("it is served", || served.figures().connections == 1);
        wait_until("it is given up", || served.figures().connections == 0);
    })
    .expect("an executor");
    serves_on(&served);
}

/// A part of a value that is said to be longer.
fn first_part(id: u32, total: u64, bytes: usize) -> Vec<u8> {
    let header = Header {
        flags: Flags::MORE,
        key_bytes: 3,
        value_bytes: u32::try_from(bytes).expect("short"),
        offset: total,
        ..Header::new(Kind::Put, id)
    };
    [&header.encode()[..], b"key", &pattern(bytes, 1)].concat()
}

#[test]
fn values_in_parts_that_do_not_add_up_are_refused() {
    run(async |served| {
        // Fewer bytes than were said, also where a record would hold them; more; and none at all.
        for (total, rest, is_stored) in [
            (100, 20, false),
            (5010, 10, true),
            (5010, 11, false),
            (3 << 20, 10, false),
            (5000, 5000, false),
            (0, 0, false),
        ] {
            let mut peer = Peer::connect(&served.address).await;
            let welcome = peer.greet().await;
            let place = (welcome.uploads.memory_key, 0);
            peer.write(&first_part(9, total, 5000), place, Some(0));
            let answer = peer.receive().await.expect("the part is taken");
            let header = Header::decode(&answer).expect("a header");
            assert!(header.flags.has(Flags::MORE) && header.status == Status::Ok);
            let last = Header {
                value_bytes: rest,
                ..Header::new(Kind::Put, 9)
            };
            let last = [&last.encode()[..], &pattern(rest as usize, 1)].concat();
            peer.write(&last, place, Some(0));
            let answer = peer.receive().await.expect("an answer");
            let header = Header::decode(&answer).expect("a header");
            assert_eq!(
                header.status == Status::Ok,
                is_stored,
                "{total}: {header:?}"
            );
            let client = served.client();
            assert_eq!(client.delete(b"key").wait(), Ok(is_stored));
        }
    });
}

#[test]
fn a_value_of_which_no_more_parts_come_does_not_hold_the_core() {
    let served = Served::with(1, |options| options.timeout = Duration::from_secs(1));
    farcore_rdma::run_local(async {
        for total in [6000, 3 << 20] {
            let mut peer = Peer::connect(&served.address).await;
            let welcome = peer.greet().await;
            let place = (welcome.uploads.memory_key, 0);
            peer.write(&first_part(9, total, 5000), place, Some(0));
            peer.receive().await.expect("the part is taken");
            let client = served.client();
            client.ping().wait().expect("others are served");
            // It has no answer before its last part; then it learns that it was too late.
            farcore_rdma::pause(Duration::from_millis(2500)).await;
            let last = Header {
                value_bytes: 10,
                ..Header::new(Kind::Put, 9)
            };
            peer.write(&[&last.encode()[..], &[0; 10]].concat(), place, Some(0));
            let answer = peer.receive().await.expect("an answer");
            let header = Header::decode(&answer).expect("a header");
            assert_ne!(header.status, Status::Ok, "{header:?}");
        }
    })
    .expect("an executor");
    serves_on(&served);
}

#[test]
fn values_of_which_no_more_parts_come_give_way_to_others() {
    const PLACES: usize = 64;
    let served = Served::with(1, |options| options.slot_bytes = 256 << 20);
    farcore_rdma::run_local(async {
        let mut peers = Vec::new();
        for _ in 0..=PLACES / 4 {
            let mut peer = Peer::connect(&served.address).await;
            let welcome = peer.greet().await;
            let place = (welcome.uploads.memory_key, 0);
            for id in 0..4 {
                peer.write(&first_part(id, 3 << 20, 5000), place, Some(0));
                peer.receive().await.expect("the part is taken");
            }
            peers.push((peer, place));
        }
        let value = pattern(3 << 20, 5);
        let client = served.client();
        client.put(b"long", &value).wait().expect("a place");
        let read = client.get(b"long").wait().expect("read");
        assert!(read.is_some_and(|read| read.bytes == value));
        wait_until("they have given up", || {
            served.figures().stalled_uploads >= 1
        });
        // It learns that it was too late with its last part.
        let (peer, place) = &mut peers[0];
        let last = Header {
            value_bytes: 10,
            ..Header::new(Kind::Put, 0)
        };
        peer.write(&[&last.encode()[..], &[0; 10]].concat(), *place, Some(0));
        let answer = peer.receive().await.expect("an answer");
        let header = Header::decode(&answer).expect("a header");
        assert_ne!(header.status, Status::Ok, "{header:?}");
    })
    .expect("an executor");
    serves_on(&served);
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
        for round in 0..200 {
            let mut peer = Peer::connect(&served.address).await;
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
        let mut peer = Peer::connect(&served.address).await;
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
fn handshakes_that_go_no_further_keep_no_client_out() {
    let token = || farcore_rdma::Token::new(b"0123456789abcdef").expect("a token");
    for cores in [1, 2] {
        let served = Served::with(cores, |options| options.token = Some(token()));
        let (_, place) = served.address.to_string().split_once("//").map_or_else(
            || panic!("no address"),
            |(scheme, place)| (scheme.to_owned(), place.to_owned()),
        );
        // More than there are places.
        let _silent: Vec<_> = (0..300)
            .map(|_| std::net::TcpStream::connect(&place).expect("a connection"))
            .collect();
        farcore_rdma::run_local(async {
            let mut peers = Vec::new();
            for _ in 0..200 {
                let mut peer = Peer::connect(&served.address).await;
                let hello = Hello {
                    version: PROTOCOL_VERSION,
                    credits: RECEIVES,
                    message_bytes: 8192,
                    nonce: [7; 16],
                    name: String::new(),
                };
                peer.send(&hello.encode());
                peers.push(peer);
            }
            wait_until("some make room", || {
                served.figures().evicted_handshakes >= 44 + 136
            });
            for round in 0..50_u32 {
                let key = round.to_le_bytes();
                let client = served.client_with(|options| options.token = Some(token()));
                client.put(&key, b"value").wait().expect("stored");
            }
            let figures = served.figures();
            assert!(figures.handshakes <= 256 + 64 + 64, "{figures:?}");
            assert_eq!(figures.late_handshakes, 0);
        })
        .expect("an executor");
        wait_until("all clients have left", || served.figures().credits == 0);
    }
}

#[test]
fn a_handshake_that_takes_too_long_ends() {
    let served = Served::with(1, |options| options.timeout = Duration::from_millis(20));
    let address = served.address.to_string();
    let (_, place) = address.split_once("//").expect("an address");
    let _silent = std::net::TcpStream::connect(place).expect("a connection");
    wait_until("it is late", || served.figures().late_handshakes == 1);
    farcore_rdma::run_local(async {
        let mut peer = Peer::connect(&served.address).await;
        peer.is_closed().await;
    })
    .expect("an executor");
    wait_until("both are late", || {
        let figures = served.figures();
        figures.late_handshakes == 2 && figures.handshakes == 0
    });
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
        let mut peer = Peer::connect(&served.address).await;
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
