//! Clients that wait for elements of lists: which are woken by what, in which order, and how their
//! wait ends otherwise.

mod support;

use std::collections::BTreeSet;
use std::thread;

use self::support::words::WRONG_TYPE;
use self::support::{Reply, Served, WordClient, on_servers, wait_until};

/// Waits until `count` clients wait.
fn until_waiting(client: &mut WordClient, count: usize) {
    let line = format!("blocked_clients:{count}\\r");
    wait_until(&line, || client.call("info clients").contains(&line));
}

/// A client that waits for the reply to a command.
fn waiting(server: &Served, client: &mut WordClient, count: usize, words: &str) -> WordClient {
    let mut waiting = server.word_client();
    waiting.send_words(words);
    until_waiting(client, count);
    waiting
}

#[test]
fn a_wait_ends_with_an_element_from_any_core() {
    on_servers(|server| {
        let mut client = server.word_client();
        // Clients are spread over the cores.
        let mut others: Vec<_> = (0..4).map(|_| server.word_client()).collect();
        for (number, words) in [
            "blpop none q 0",
            "brpop q none 0",
            "blmpop 0 2 none q left count 5",
            "brpoplpush q target 0",
            "blmove q target left right 0",
        ]
        .into_iter()
        .enumerate()
        {
            let mut waits = waiting(server, &mut client, 1, words);
            let other = &mut others[number % 4];
            assert_eq!(other.call("rpush q a"), "1");
            let expected = match number {
                0 | 1 => "[\"q\", \"a\"]",
                2 => "[\"q\", [\"a\"]]",
                _ => "\"a\"",
            };
            assert_eq!(waits.reply(), expected, "{words}");
            until_waiting(&mut client, 0);
            assert_eq!(client.call("exists q"), "0");
        }
        assert_eq!(client.call("lrange target 0 -1"), "[\"a\", \"a\"]");
    });
}

#[test]
fn what_is_there_is_taken_at_once() {
    on_servers(|server| {
        let mut client = server.word_client();
        client.call("rpush q a b c d e f");
        for (words, reply) in [
            ("blpop none q 1", "[\"q\", \"a\"]"),
            ("brpop none q 0", "[\"q\", \"f\"]"),
            ("blmpop 1 2 none q right count 2", "[\"q\", [\"e\", \"d\"]]"),
            ("blmove q r left left 0.5", "\"b\""),
            ("brpoplpush q r 1", "\"c\""),
            ("lrange r 0 -1", "[\"c\", \"b\"]"),
        ] {
            assert_eq!(client.call(words), reply, "{words}");
        }
    });
}

#[test]
fn clients_are_served_in_the_order_in_which_they_wait() {
    on_servers(|server| {
        let mut client = server.word_client();
        let mut all: Vec<_> = (1..=5)
            .map(|count| waiting(server, &mut client, count, "blpop q 0"))
            .collect();
        assert_eq!(client.call("rpush q 1 2 3"), "3");
        // The push is replied to when those that it woke have taken theirs.
        assert_eq!(client.call("exists q"), "0");
        until_waiting(&mut client, 2);
        assert_eq!(client.call("rpush q 4"), "1");
        assert_eq!(client.call("rpush q 5"), "1");
        for (waits, element) in all.iter_mut().zip(1..) {
            assert_eq!(waits.reply(), format!("[\"q\", \"{element}\"]"));
        }
    });
}

#[test]
fn moved_elements_wake_clients_in_turn() {
    on_servers(|server| {
        let mut client = server.word_client();
        let mut first = waiting(server, &mut client, 1, "blmove a b right left 0");
        let mut second = waiting(server, &mut client, 2, "blmove b c left right 0");
        assert_eq!(client.call("rpush a x"), "1");
        assert_eq!(client.call("lrange c 0 -1"), "[\"x\"]");
        assert_eq!(
            (first.reply(), second.reply()),
            ("\"x\"".into(), "\"x\"".into())
        );
        // In a circle, and from a list to itself.
        let mut first = waiting(server, &mut client, 1, "brpoplpush d e 0");
        let mut second = waiting(server, &mut client, 2, "brpoplpush e d 0");
        assert_eq!(client.call("rpush d x"), "1");
        assert_eq!(client.call("lrange d 0 -1"), "[\"x\"]");
        assert_eq!(
            (first.reply(), second.reply()),
            ("\"x\"".into(), "\"x\"".into())
        );
        let mut one = waiting(server, &mut client, 1, "brpoplpush f f 0");
        assert_eq!(client.call("rpush f x"), "1");
        assert_eq!(one.reply(), "\"x\"");
        assert_eq!(client.call("lrange f 0 -1"), "[\"x\"]");
        // What is moved or renamed into place wakes as what is added does.
        let mut one = waiting(server, &mut client, 1, "blpop g 0");
        client.call("rpush other 1");
        assert_eq!(client.call("lmove other g left left"), "\"1\"");
        assert_eq!(one.reply(), "[\"g\", \"1\"]");
        let mut one = waiting(server, &mut client, 1, "blpop g 0");
        client.call("rpush other 2");
        assert_eq!(client.call("rename other g"), "OK");
        assert_eq!(one.reply(), "[\"g\", \"2\"]");
        let mut one = waiting(server, &mut client, 1, "blpop h 0");
        client.call("rpush other 3");
        assert_eq!(client.call("copy other h"), "1");
        assert_eq!(one.reply(), "[\"h\", \"3\"]");
    });
}

#[test]
fn a_transaction_wakes_clients_at_its_end() {
    on_servers(|server| {
        let mut client = server.word_client();
        let mut waits = waiting(server, &mut client, 1, "blpop q 0");
        let replies = client.call_all(&["multi", "lpush q a", "del q", "set q text", "exec"]);
        assert_eq!(replies[4], "[1, 1, OK]");
        client.call("del q");
        // Another list: the first client may still look at the first one.
        let mut second = waiting(server, &mut client, 2, "blpop r 0");
        let replies = client.call_all(&["multi", "lpush r a", "lpush r b", "lpush r c", "exec"]);
        assert_eq!(replies[4], "[1, 2, 3]");
        assert_eq!(second.reply(), "[\"r\", \"c\"]");
        client.call("rpush q d");
        assert_eq!(waits.reply(), "[\"q\", \"d\"]");
    });
}

#[test]
fn wrong_types_end_only_a_wait_for_the_target() {
    on_servers(|server| {
        let mut client = server.word_client();
        client.call("set target text");
        let mut first = waiting(server, &mut client, 1, "brpoplpush q target 0");
        let mut second = waiting(server, &mut client, 2, "brpoplpush q good 0");
        assert_eq!(client.call("rpush q a b"), "2");
        assert_eq!(first.reply(), WRONG_TYPE);
        assert_eq!(second.reply(), "\"b\"");
        assert_eq!(client.call("lrange q 0 -1"), "[\"a\"]");
        client.call("del q");
        let mut waits = waiting(server, &mut client, 1, "blpop q 0");
        client.call("set q text");
        until_waiting(&mut client, 1);
        client.call("del q");
        client.call("rpush q a");
        assert_eq!(waits.reply(), "[\"q\", \"a\"]");
    });
}

#[test]
fn a_wait_ends_with_its_time_or_by_another_client() {
    on_servers(|server| {
        let mut client = server.word_client();
        for words in [
            "blpop q 0.01",
            "brpop q r 0.001",
            "blmpop 0.01 1 q left",
            "blmove q r left left 0.01",
            "brpoplpush q r 0.01",
        ] {
            assert_eq!(client.call(words), "nil", "{words}");
        }
        let mut waits = server.word_client();
        let id = waits.call("client id");
        for (words, reply) in [
            (format!("client unblock {id}"), "nil"),
            (format!("client unblock {id} timeout"), "nil"),
            (
                format!("client unblock {id} error"),
                "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK",
            ),
        ] {
            assert_eq!(client.call(&words), "0");
            waits.send_words("blpop q 0");
            until_waiting(&mut client, 1);
            let list = client.call(&format!("client list id {id}"));
            assert!(list.contains("flags=b"), "{list}");
            assert_eq!(client.call(&words), "1");
            assert_eq!(waits.reply(), reply);
        }
        assert_eq!(client.call("rpush q a"), "1");
        assert_eq!(client.call("lpop q"), "\"a\"");
        for (words, text) in [
            ("blpop q -1", "timeout is negative"),
            ("brpop q x", "timeout is not a float or out of range"),
            ("blmove q r left left inf", "timeout is out of range"),
            ("blmpop 1 0 q left", "numkeys should be greater than 0"),
        ] {
            assert_eq!(client.call(words), format!("(error) ERR {text}"));
        }
    });
}

#[test]
fn a_client_that_leaves_takes_nothing() {
    on_servers(|server| {
        let mut client = server.word_client();
        for by_kill in [false, true] {
            let gone = waiting(server, &mut client, 1, "blpop q 0");
            let mut stays = waiting(server, &mut client, 2, "blpop q 0");
            if by_kill {
                let address = gone.0.address();
                assert_eq!(client.call(&format!("client kill addr {address}")), "1");
            } else {
                drop(gone);
            }
            until_waiting(&mut client, 1);
            assert_eq!(client.call("rpush q a"), "1");
            assert_eq!(stays.reply(), "[\"q\", \"a\"]");
        }
    });
}

/// Keys of one byte take much more memory than their text while a client waits for them.
#[test]
fn the_memory_of_a_wait_counts_its_keys_and_queues() {
    const KEYS: usize = 2_000;
    let mut server = Served::roomy(1);
    let mut client = server.word_client();
    let mut waits = server.word_client();
    let id = waits.call("client id");
    let mut held = || {
        let line = client.call(&format!("client list id {id}"));
        let held = line.split("tot-mem=").nth(1).expect("it is there");
        let held = held.split(' ').next().expect("it is there");
        held.parse::<usize>().expect("it is a number")
    };
    let before = held();
    let keys: Vec<_> = (0..KEYS).map(|key| format!("{key:x}")).collect();
    waits.send_words(&format!("blpop {} 0", keys.join(" ")));
    wait_until("it waits", || held() > before + 250 * KEYS);
    let mut other = server.word_client();
    assert_eq!(other.call("rpush 7 a"), "1");
    assert_eq!(waits.reply(), "[\"7\", \"a\"]");
    assert_eq!(waits.call("ping"), "PONG");
    wait_until("it is freed", || held() < before + 250 * KEYS);
    server.stop();
}

#[test]
fn a_move_that_is_refused_leaves_its_element_to_those_that_wait() {
    const MOVES: usize = 200;
    on_servers(|server| {
        let mut client = server.word_client();
        client.call("set text text");
        let mut waits = server.word_client();
        for _ in 0..MOVES {
            client.call("rpush q element");
            client.send_words("rpoplpush q text");
            waits.send_words("blpop q 0");
            assert_eq!(waits.reply(), "[\"q\", \"element\"]");
            // The client may have been faster.
            let refused = client.reply();
            assert!(refused == "nil" || refused == WRONG_TYPE, "{refused}");
        }
    });
}

#[test]
fn an_element_is_never_away_while_its_move_is_refused() {
    const MOVES: usize = 300;
    on_servers(|server| {
        let (mut client, mut mover) = (server.word_client(), server.word_client());
        client.call("set text text");
        client.call("rpush q element");
        thread::scope(|scope| {
            let mover = scope.spawn(move || {
                for _ in 0..MOVES {
                    assert_eq!(mover.call("rpoplpush q text"), WRONG_TYPE);
                }
            });
            while !mover.is_finished() {
                assert_eq!(client.call("llen q"), "1");
            }
        });
    });
}

/// A push that finds no client to wake meets one that begins to wait, again and again.
#[test]
fn a_client_that_begins_to_wait_beside_a_push_is_woken() {
    const ROUNDS: usize = 2_000;
    on_servers(|server| {
        thread::scope(|scope| {
            let mut waits = server.word_client();
            let waits = scope.spawn(move || {
                for round in 0..ROUNDS {
                    let taken = waits.call("blpop q 60");
                    assert_eq!(taken, format!("[\"q\", \"{round}\"]"));
                }
            });
            let mut client = server.word_client();
            for round in 0..ROUNDS {
                client.send_words(&format!("rpush q {round}"));
                if round % 3 == 0 {
                    client.send_words("ping");
                    client.reply();
                }
                client.reply();
            }
            waits.join().expect("it ends");
        });
    });
}

/// The answer to a push may come when its client has left.
#[test]
fn a_push_of_a_client_that_leaves_wakes() {
    const ROUNDS: usize = 200;
    on_servers(|server| {
        let mut waits = server.word_client();
        for _ in 0..ROUNDS {
            let mut client = server.word_client();
            client.send_words("rpush q a");
            waits.send_words("blpop q 60");
            drop(client);
            assert_eq!(waits.reply(), "[\"q\", \"a\"]");
        }
    });
}

/// Input behind its command fills its buffer, so that nothing more is received.
#[test]
fn a_client_that_leaves_behind_much_input_takes_nothing() {
    on_servers(|server| {
        let mut client = server.word_client();
        let gone = waiting(server, &mut client, 1, "blpop q 0");
        let mut gone = gone.0;
        gone.write(&b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n".repeat(4_500));
        drop(gone);
        until_waiting(&mut client, 0);
        assert_eq!(client.call("rpush q a"), "1");
        assert_eq!(client.call("lpop q"), "\"a\"");
    });
}

#[test]
fn a_wait_ends_with_the_key_that_was_added_to_first() {
    on_servers(|server| {
        let mut client = server.word_client();
        let mut waits = waiting(server, &mut client, 1, "blpop a b 0");
        let replies = client.call_all(&["multi", "rpush b 1", "rpush a 2", "exec"]);
        assert_eq!(replies[3], "[1, 1]");
        assert_eq!(waits.reply(), "[\"b\", \"1\"]");
        until_waiting(&mut client, 0);
        assert_eq!(client.call("lpop a"), "\"2\"");
    });
}

#[test]
fn a_key_named_twice_is_waited_for_once() {
    on_servers(|server| {
        let mut client = server.word_client();
        let mut first = waiting(server, &mut client, 1, "blpop q q none q 0");
        let mut second = waiting(server, &mut client, 2, "blmpop 0 3 q none q left");
        assert_eq!(client.call("rpush q 1 2"), "2");
        assert_eq!(first.reply(), "[\"q\", \"1\"]");
        assert_eq!(second.reply(), "[\"q\", [\"2\"]]");
        until_waiting(&mut client, 0);
        assert_eq!(client.call("exists q"), "0");
    });
}

#[test]
fn commands_behind_a_wait_run_after_it() {
    on_servers(|server| {
        let mut client = server.word_client();
        let mut waits = server.word_client();
        for words in ["set k 1", "blpop q 0", "get k", "blpop q 0", "incr k"] {
            waits.send_words(words);
        }
        until_waiting(&mut client, 1);
        assert_eq!(client.call("set k 7"), "OK");
        assert_eq!(client.call("rpush q a"), "1");
        assert_eq!(waits.reply(), "OK");
        assert_eq!(waits.reply(), "[\"q\", \"a\"]");
        assert_eq!(waits.reply(), "\"7\"");
        assert_eq!(client.call("rpush q b"), "1");
        assert_eq!(waits.reply(), "[\"q\", \"b\"]");
        assert_eq!(waits.reply(), "8");
    });
}

/// Many clients that wait and many that add: each element is taken by one, and none waits at the
/// end while there are elements.
#[test]
fn each_element_is_taken_by_one_client() {
    const WORKERS: usize = 6;
    const PRODUCERS: usize = 3;
    const ELEMENTS: usize = 300;
    on_servers(|server| {
        let taken: Vec<String> = thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|number| {
                    let mut client = server.word_client();
                    scope.spawn(move || {
                        let mut taken = Vec::new();
                        loop {
                            let words = match number % 3 {
                                0 => "blpop q1 q2 0",
                                1 => "brpop q2 q1 0",
                                _ => "blmpop 0 2 q1 q2 left count 3",
                            };
                            let reply = client.call(words);
                            let elements: Vec<_> = reply
                                .split(", ")
                                .skip(1)
                                .map(|one| one.trim_matches(['[', ']', '"']).to_owned())
                                .collect();
                            let ends = elements.iter().filter(|one| *one == "end").count();
                            taken.extend(elements.into_iter().filter(|one| one != "end"));
                            // One end for each worker.
                            for _ in 1..ends {
                                client.call("rpush q2 end");
                            }
                            if ends > 0 {
                                return taken;
                            }
                        }
                    })
                })
                .collect();
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|number| {
                    let mut client = server.word_client();
                    scope.spawn(move || {
                        for element in (0..ELEMENTS).step_by(2) {
                            let key = 1 + element / 2 % 2;
                            client.call(&format!(
                                "rpush q{key} {number}-{element} {number}-{}",
                                element + 1
                            ));
                        }
                    })
                })
                .collect();
            for producer in producers {
                producer.join().expect("it ends");
            }
            let mut client = server.word_client();
            wait_until("all are taken", || {
                client.call("llen q1") == "0" && client.call("llen q2") == "0"
            });
            for _ in 0..WORKERS {
                client.call("rpush q1 end");
            }
            (workers.into_iter())
                .flat_map(|worker| worker.join().expect("it ends"))
                .collect()
        });
        assert_eq!(taken.len(), PRODUCERS * ELEMENTS);
        let taken: BTreeSet<_> = taken.into_iter().collect();
        assert_eq!(taken.len(), PRODUCERS * ELEMENTS);
    });
}

#[test]
fn a_server_stops_while_clients_wait() {
    for cores in [1, 2] {
        let mut server = Served::roomy(cores);
        let mut client = server.word_client();
        let mut waits = waiting(&server, &mut client, 1, "blpop q 0");
        server.stop();
        assert!(waits.is_closed());
    }
}

#[test]
fn a_client_waits_for_a_limited_number_of_keys() {
    const MOST: usize = 16_384;
    let served = Served::start(1);
    let mut client = served.client();
    let words = |count: usize| {
        let keys = (0..count).map(|key| format!("k{key}"));
        std::iter::once("BLPOP".to_owned())
            .chain(keys)
            .chain(["0.01".to_owned()])
            .collect::<Vec<_>>()
    };
    assert_eq!(client.ask(&words(MOST)), Reply::NullArray);
    let refused = client.ask(&words(MOST + 1));
    assert!(
        refused.is_error() && refused.text().contains("16384"),
        "{refused}"
    );
    // In a transaction it does not wait.
    assert_eq!(client.ask(&["MULTI"]).to_string(), "+OK");
    assert_eq!(client.ask(&words(MOST + 1)).to_string(), "+QUEUED");
    assert_eq!(client.ask(&["EXEC"]).elements(), [Reply::NullArray]);
}
