//! Commands and transactions of several keys in several shards: no client sees a part of one, also
//! while clients are killed amid theirs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use self::support::{Served, WordClient};

/// What clients do to keys, and what others must see of them at any moment.
struct Case {
    begin: &'static [&'static str],
    /// What each writer repeats, with an `EXEC` where there is a `MULTI`.
    writes: &'static [&'static str],
    /// Reads of one moment.
    reads: &'static [&'static str],
    /// Whether the replies may be of one moment.
    holds: fn(&[i64]) -> bool,
}

const CASES: &[Case] = &[
    Case {
        begin: &["RPUSH a 1 2 3 4 5 6 7 8 9 10"],
        writes: &[
            "LMOVE a b LEFT RIGHT",
            "LMOVE b a RIGHT LEFT",
            "RPOPLPUSH a b",
        ],
        reads: &["LLEN a", "LLEN b"],
        holds: |lengths| lengths.iter().sum::<i64>() == 10,
    },
    Case {
        begin: &["SADD a 1 2 3 4 5 6 7 8 9 10"],
        writes: &["SMOVE a b 3", "SMOVE b a 3", "SMOVE a b 4", "SMOVE b a 4"],
        reads: &["SCARD a", "SCARD b"],
        holds: |lengths| lengths.iter().sum::<i64>() == 10,
    },
    Case {
        begin: &["HSET a f 1 g 2"],
        writes: &["RENAME a b", "RENAME b a", "RENAMENX a b", "RENAMENX b a"],
        reads: &["EXISTS a", "EXISTS b", "HLEN a", "HLEN b"],
        holds: |found| found[0] + found[1] == 1 && found[2] + found[3] == 2,
    },
    Case {
        begin: &[],
        writes: &[
            "MSETNX a 1 b 2 c 3",
            "MULTI",
            "DEL a",
            "DEL b",
            "DEL c",
            "EXEC",
        ],
        reads: &["EXISTS a", "EXISTS b", "EXISTS c"],
        holds: |found| found == [0, 0, 0] || found == [1, 1, 1],
    },
    Case {
        begin: &[
            "SADD s 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
            "SADD t 1",
        ],
        writes: &[
            "SUNIONSTORE a s t",
            "SINTERSTORE a s t",
            "SDIFFSTORE a t s",
            "COPY s b",
            "DEL b",
        ],
        reads: &["SCARD a", "SCARD b"],
        holds: |lengths| [0, 1, 20].contains(&lengths[0]) && [0, 20].contains(&lengths[1]),
    },
    Case {
        begin: &[],
        writes: &[
            "MULTI",
            "HINCRBY a n 1",
            "RPUSH b x",
            "SADD c 1",
            "INCR d",
            "SREM c 1",
            "EXEC",
        ],
        reads: &["HINCRBY a n 0", "LLEN b", "SCARD c", "INCRBY d 0"],
        holds: |found| found[0] == found[1] && found[2] == 0 && found[0] == found[3],
    },
];

/// Sends commands at once, and reads the replies to the first `replies` of them.
fn pipeline(client: &mut WordClient, commands: &[&str], replies: usize) {
    for command in commands {
        client.send_words(command);
    }
    for _ in 0..replies {
        let reply = client.reply();
        assert!(
            !reply.contains("ERR") || reply.contains("no such key"),
            "{reply}"
        );
    }
}

/// Checks what a transaction reads.
fn check(client: &mut WordClient, case: &Case) {
    pipeline(client, &["MULTI"], 1);
    pipeline(client, case.reads, case.reads.len());
    let reply = client.call("EXEC");
    let found: Result<Vec<i64>, _> = reply
        .trim_matches(['[', ']'])
        .split(", ")
        .map(|one| one.trim_matches('"').parse())
        .collect();
    let found = found.unwrap_or_else(|_| panic!("numbers: {reply}"));
    assert!((case.holds)(&found), "{:?}: {reply}", case.reads);
}

fn run(server: &Served, case: &Case, (writers, rounds): (usize, usize)) {
    let mut first = server.word_client();
    first.call("FLUSHALL");
    for command in case.begin {
        first.call(command);
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..writers {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut client = server.word_client();
                for round in 0..rounds {
                    // Some leave before their replies come.
                    let leaves = (round + writer) % 5 == 0;
                    let replies = if leaves { 0 } else { case.writes.len() };
                    pipeline(&mut client, case.writes, replies);
                    if leaves {
                        client = server.word_client();
                    }
                }
                is_over.store(
                    writer == 0 || is_over.load(Ordering::Relaxed),
                    Ordering::Relaxed,
                );
            });
        }
        while !is_over.load(Ordering::Relaxed) {
            check(&mut first, case);
        }
    });
    check(&mut first, case);
}

#[test]
fn no_client_sees_a_part_though_others_are_killed() {
    for cores in [1, 2] {
        let mut sections = 0;
        for case in CASES {
            for of in [(4, 60), (16, 10)] {
                // What those have sent who left may be carried out after the others have ended, so
                // each run has a server of its own.
                let server = Served::roomy(cores);
                run(&server, case, of);
                let figures = server.section_figures();
                sections += figures.sections;
                assert_eq!(figures.sections_lost, 0);
            }
        }
        assert!(sections > 0);
    }
}
