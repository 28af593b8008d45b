//! Connections that are lost, servers that do not answer or break the protocol, and many callers.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farcore_client::{CasOutcome, Client, ClientOptions, Error, Status};
use farcore_protocol::{Flags, Header, Kind, Status as WireStatus};

use crate::support::peer::with_server;
use crate::support::{Served, pattern, wait_until};

#[test]
fn a_client_connects_again_and_goes_on() {
    let mut served = Served::start(2);
    let client = served.client();
    client.put(b"key", b"value").wait().expect("stored");
    for _ in 0..3 {
        served.restart();
        // Reads are sent again; whatever was not sent waits for the next connection.
        let found = client
            .get(b"key")
            .wait()
            .expect("read")
            .expect("it is there");
        assert_eq!(found.bytes, b"value");
    }
    assert!(client.figures().connections >= 4);
    served.stop();
    let quick = ClientOptions {
        timeout: Duration::from_millis(300),
        ..ClientOptions::default()
    };
    assert!(matches!(
        Client::connect(&served.address, quick),
        Err(Error::Unreachable { .. })
    ));
}

#[test]
fn sixteen_callers_count_to_the_sum() {
    let served = Served::start(2);
    let client = served.client();
    let others = [served.client(), served.client()];
    let is_over = AtomicBool::new(false);
    let (added, swapped) = thread::scope(|scope| {
        let callers: Vec<_> = (0..16usize)
            .map(|place| {
                let client = [&client, &others[0], &others[1]][place % 3].clone();
                let is_over = &is_over;
                scope.spawn(move || {
                    let (mut added, mut swapped) = (0, 0);
                    for _ in 0..100 {
                        client.increment(b"sum", 1).wait().expect("added");
                        added += 1;
                        let found = client.get(b"swap").wait().expect("read");
                        let (count, version) = found.map_or((0, 0), |value| {
                            let text = String::from_utf8(value.bytes).expect("digits");
                            (text.parse::<u64>().expect("a number"), value.version)
                        });
                        let next = (count + 1).to_string();
                        let outcome = client.compare_and_swap(b"swap", next.as_bytes(), version);
                        swapped += u64::from(matches!(outcome.wait(), Ok(CasOutcome::Stored(_))));
                    }
                    is_over.store(true, Ordering::Relaxed);
                    (added, swapped)
                })
            })
            .collect();
        let mut sums = (0, 0);
        for caller in callers {
            let (added, swapped) = caller.join().expect("it ended");
            sums = (sums.0 + added, sums.1 + swapped);
        }
        sums
    });
    assert_eq!(client.increment(b"sum", 0).wait(), Ok(added));
    let found = client
        .get(b"swap")
        .wait()
        .expect("read")
        .expect("it is there");
    assert_eq!(found.bytes, swapped.to_string().as_bytes());
}

#[test]
fn operations_are_awaited_on_any_runtime() {
    let served = Served::start(1);
    let client = served.client();
    let all = (0..500).map(|place| {
        let client = client.clone();
        async move {
            let key = format!("key-{place}").into_bytes();
            client.put(&key, &key).await.expect("stored");
            client
                .get(&key)
                .await
                .expect("read")
                .expect("it is there")
                .bytes
                == key
        }
    });
    let done = futures_lite::future::block_on(async {
        let mut done = 0;
        for one in all {
            done += usize::from(one.await);
        }
        done
    });
    assert_eq!(done, 500);
    let buffer = Vec::with_capacity(9000);
    let place = buffer.as_ptr();
    client
        .put(b"long", &pattern(9000, 1))
        .wait()
        .expect("stored");
    let found = client
        .get_into(b"long", buffer)
        .wait()
        .expect("read")
        .expect("it is there");
    assert_eq!(found.bytes.as_ptr(), place, "the buffer is used again");
}

#[test]
fn a_full_queue_is_an_error_that_names_its_limit() {
    with_server(
        async |mut peer| {
            peer.welcome().await;
            // It answers nothing.
            while peer.receive().await.is_some() {}
        },
        |client| {
            let pending: Vec<_> = (0..200).map(|_| client.ping()).collect();
            let full = pending.into_iter().any(|one| {
                one.wait_for(Duration::ZERO)
                    .is_ok_and(|outcome| outcome == Err(Error::QueueFull { limit: 8 }))
            });
            assert!(full);
        },
    );
}

#[test]
fn a_change_whose_answer_is_lost_has_an_unknown_outcome() {
    let was_lost = AtomicBool::new(false);
    with_server(
        async |mut peer| {
            peer.welcome().await;
            while let Some(message) = peer.receive().await {
                let header = Header::decode(&message).expect("a header");
                if !was_lost.swap(true, Ordering::SeqCst) {
                    return;
                }
                peer.send(&header.answer(WireStatus::NotFound).encode());
            }
        },
        |client| {
            let error = client.put(b"key", b"value").wait().expect_err("no answer");
            assert!(
                matches!(
                    error,
                    Error::UnknownOutcome {
                        operation: "put",
                        ..
                    }
                ),
                "{error}"
            );
            // A read is sent again over the next connection.
            was_lost.store(false, Ordering::SeqCst);
            assert_eq!(client.get(b"key").wait(), Ok(None));
        },
    );
}

#[test]
fn a_server_that_does_not_answer_is_waited_for_no_longer_than_the_limit() {
    with_server(
        async |mut peer| {
            peer.welcome().await;
            while peer.receive().await.is_some() {}
        },
        |client| {
            let error = client.put(b"key", b"value").wait().expect_err("no answer");
            let limit = Duration::from_millis(700);
            let operation = "put";
            assert_eq!(
                error,
                Error::TimedOut {
                    operation,
                    limit,
                    may_be_done: true
                }
            );
            let error = client.get(b"key").wait().expect_err("no answer");
            assert!(
                matches!(
                    error,
                    Error::TimedOut {
                        may_be_done: false,
                        ..
                    }
                ),
                "{error}"
            );
        },
    );
}

/// An answer that breaks the protocol, a different way each round; then one that does not.
fn broken(round: usize, asked: &Header) -> Vec<u8> {
    let answer = asked.answer(WireStatus::Ok);
    let lent = |value_bytes| Header {
        flags: Flags::LENT,
        value_bytes,
        memory_key: 1,
        ..answer
    };
    let header = match round {
        0 => return answer.encode()[..20].to_vec(),
        1 => return pattern(500, 3),
        2 => Header { id: 77, ..answer },
        3 => Header {
            kind: Kind::Put,
            ..answer
        },
        4 => Header {
            is_answer: false,
            ..answer
        },
        5 => Header {
            credits: 999,
            ..answer
        },
        6 => Header {
            flags: Flags::MORE,
            ..answer
        },
        7 => lent(5000),
        8 => lent(60 << 20),
        _ => asked.answer(WireStatus::NotFound),
    };
    header.encode().to_vec()
}

#[test]
fn a_server_that_breaks_the_protocol_is_left() {
    let rounds = std::sync::atomic::AtomicUsize::new(0);
    with_server(
        async |mut peer| {
            peer.welcome().await;
            while let Some(message) = peer.receive().await {
                let header = Header::decode(&message).expect("a header");
                let round = rounds.fetch_add(1, Ordering::SeqCst);
                let bytes = broken(round, &header);
                peer.send(&bytes);
            }
        },
        |client| {
            // The get is sent again over each new connection, until the server behaves.
            let mut found = client.get(b"key").wait();
            while matches!(found, Err(Error::TimedOut { .. })) {
                found = client.get(b"key").wait();
            }
            assert_eq!(found, Ok(None));
            assert!(client.figures().connections >= 9, "{:?}", client.figures());
        },
    );
}

#[test]
fn an_error_of_the_server_has_its_status_and_text() {
    let served = Served::start(1);
    let client = served.client();
    client.put(b"text", b"abc").wait().expect("stored");
    let error = client.increment(b"text", 1).wait().expect_err("no number");
    assert!(matches!(
        error,
        Error::Server {
            status: Status::WrongKind,
            ..
        }
    ));
    assert!(error.to_string().starts_with("increment: "), "{error}");
    drop(client);
    wait_until("the connection has ended", || {
        served.figures().connections == 0
    });
}
