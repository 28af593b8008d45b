//! No command holds a core: the longest turn of a core's loop stays below one limit, in steps that
//! the server counts, whatever a client sends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/longest.rs"]
mod longest;
mod support;

use std::collections::BTreeSet;

use farcore_server::TURN_STEPS_MAX;

use self::longest::{
    MANY, Request, WAITED, bytes, command, longest, names, pairs, replies, sequences, stored,
    transactions, words,
};
use self::support::client::request;
use self::support::{Client, Reply, Served, wait_until};

/// A server, a client that resets its figures, and what was found.
struct Bench {
    served: Served,
    control: Client,
    longest: Vec<(u64, String)>,
}

impl Bench {
    fn new() -> Self {
        Self::on(Served::of_long_records(1))
    }

    fn on(served: Served) -> Self {
        let control = served.client();
        Self {
            served,
            control,
            longest: Vec::new(),
        }
    }

    fn reset(&mut self) {
        assert_eq!(self.control.say("CONFIG RESETSTAT"), "+OK");
    }

    /// Notes the longest turn since the reset. What a turn has sent comes before its count.
    fn note(&mut self, what: &str) {
        let mut other = self.served.client();
        for _ in 0..3 {
            assert_eq!(other.say("PING"), "+PONG");
        }
        let steps = self.served.figures().longest_turn_steps;
        self.longest.push((steps, what.to_owned()));
    }

    /// Sends a command and reads its replies; returns its error, if it replies one.
    fn run(&mut self, client: &mut Client, one: &Request) -> Option<String> {
        self.reset();
        client.write(&request(one));
        let mut reply = Reply::Null;
        for _ in 0..replies(one) {
            reply = client.read().expect("a reply");
        }
        let shown = one.iter().take(5).map(|word| {
            let word = String::from_utf8_lossy(word);
            word.chars().take(16).collect::<String>()
        });
        let shown = shown.collect::<Vec<_>>().join(" ");
        let error = match reply {
            Reply::Error(text) => Some(text.chars().take(70).collect::<String>()),
            _ => None,
        };
        let reply = error.as_deref().unwrap_or_default();
        self.note(&format!("{shown} ({} arguments) {reply}", one.len()));
        error
    }

    /// Fails if a turn was too long.
    fn judge(&mut self) {
        self.longest.sort_unstable();
        let shown = self.longest.iter().rev().take(25);
        let shown: Vec<_> = shown
            .map(|(steps, what)| format!("{steps}: {what}"))
            .collect();
        println!("{}", shown.join("\n"));
        let (steps, what) = self.longest.last().expect("some ran");
        assert!(*steps > 1000, "nothing was counted");
        assert!(
            *steps <= TURN_STEPS_MAX,
            "{steps} of {TURN_STEPS_MAX} steps: {what}"
        );
    }
}

#[test]
fn every_command_at_its_longest_keeps_to_the_limit() {
    let mut bench = Bench::new();
    let mut client = bench.served.client();
    for (_, one) in stored() {
        assert_eq!(bench.run(&mut client, &one), None, "it is stored");
    }
    let known: BTreeSet<_> = client
        .ask(&["COMMAND", "LIST"])
        .elements()
        .iter()
        .map(Reply::text)
        .collect();
    assert!(known.len() > 100);
    for name in &known {
        let requests = longest(name);
        let requests = requests.unwrap_or_else(|| panic!("{name} has no longest form here"));
        let is_sent = !requests.is_empty() || !sequences(name).is_empty();
        assert!(is_sent || name == "shutdown", "{name} is never sent");
        let mut client = bench.served.client();
        for one in &requests {
            bench.run(&mut client, one);
        }
    }
    for last in ["FLUSHDB", "FLUSHALL"] {
        bench.run(&mut client, &words(last));
    }
    bench.judge();
}

/// Replies of long records are made one after the other, also if their answers come in one turn.
#[test]
fn long_records_that_many_read_at_once_keep_to_the_limit() {
    const READERS: usize = 64;
    let mut bench = Bench::new();
    let mut control = bench.served.client();
    let pairs = |range: std::ops::Range<usize>| {
        range.flat_map(|field| [format!("field{field}"), "v".repeat(1000)])
    };
    for first in (0..900).step_by(100) {
        let words = ["HSET", "long"].map(str::to_owned).into_iter();
        let all: Vec<_> = words.chain(pairs(first..first + 100)).collect();
        assert_eq!(control.ask(&all).to_string(), ":100");
    }
    let mut readers: Vec<_> = (0..READERS).map(|_| bench.served.client()).collect();
    for command in ["HGETALL", "HVALS"] {
        bench.reset();
        for reader in &mut readers {
            reader.send(&[command, "long"]);
        }
        for reader in &mut readers {
            let reply = reader.read().expect("a reply");
            let count = reply.elements().len();
            assert!(count > 0 && count.is_multiple_of(900), "{count} elements");
        }
        bench.note(&format!("{READERS} times {command}"));
    }
    bench.judge();
}

/// Sends commands at once and reads their replies, but for those that reply nothing.
fn send_all(client: &mut Client, all: &[Request], replies: usize) -> Reply {
    let bytes: Vec<_> = all.iter().flat_map(|one| request(one)).collect();
    client.write(&bytes);
    let replies = (0..replies).map(|_| client.read().expect("a reply"));
    replies.last().expect("there are some")
}

#[test]
fn transactions_keep_to_the_limit() {
    let mut bench = Bench::on(Served::roomy(1));
    let mut client = bench.served.client();
    let stored = send_all(&mut client, &[command("MSET", pairs('m', MANY))], 1);
    assert_eq!(stored.to_string(), "+OK");
    for (what, all) in transactions() {
        bench.reset();
        let begins = all.iter().position(|one| *one == words("MULTI")).unwrap();
        let (watches, all) = all.split_at(begins);
        for watch in watches {
            let reply = send_all(&mut client, std::slice::from_ref(watch), 1);
            assert_eq!(reply.to_string(), "+OK");
        }
        let reply = send_all(&mut client, all, all.len());
        assert_eq!(reply.elements().len(), all.len() - 2, "{what}");
        bench.note(what);
    }
    bench.reset();
    let mut silent = vec![words("CLIENT REPLY OFF"), words("MULTI")];
    silent.extend((0..20_000).map(|_| words("PING")));
    silent.extend([words("EXEC"), words("CLIENT REPLY ON")]);
    let reply = send_all(&mut client, &silent, 1);
    assert_eq!(reply.to_string(), "+OK");
    bench.note("many commands without replies");
    bench.judge();
}

#[test]
fn puts_with_events_keep_to_the_limit() {
    let mut bench = Bench::on(Served::roomy(1));
    let mut client = bench.served.client();
    let set = "CONFIG SET notify-keyspace-events KEAn";
    assert_eq!(bench.control.say(set), "+OK");
    for what in ["new keys", "keys that are there"] {
        bench.reset();
        let stored = client.ask(&command("MSET", pairs('k', MANY)));
        assert_eq!(stored.to_string(), "+OK");
        bench.note(what);
    }
    let value = bytes(50_000);
    let ten = (0..200).flat_map(|key| [format!("k{key}").into_bytes(), value.clone()]);
    let refused = client.ask(&command("MSET", ten)).to_string();
    let text = "-ERR while events are sent, the arguments of several puts take at most 8388608";
    assert!(refused.starts_with(text), "{refused}");
    bench.judge();
}

#[test]
fn clients_that_end_keep_to_the_limit() {
    let mut bench = Bench::on(Served::roomy(1));
    let subscribed = |served: &Served| {
        let mut client = served.client();
        client.send(&command("PSUBSCRIBE", names('p', MANY)));
        (0..MANY).for_each(|_| drop(client.read()));
        client
    };
    let listed = |client: &mut Client| {
        let line = client.ask(&["CLIENT", "LIST"]).text();
        line.lines().count()
    };
    for how in ["drop", "QUIT", "RESET", "KILL"] {
        let mut client = subscribed(&bench.served);
        bench.reset();
        match how {
            "drop" => drop(client),
            "KILL" => {
                let killed = bench.control.say("CLIENT KILL TYPE normal");
                assert_eq!(killed, ":1");
            }
            word => drop(client.say(word)),
        }
        let control = &mut bench.control;
        wait_until("no pattern is left", || {
            control.say("PUBSUB NUMPAT") == ":0"
        });
        bench.note(&format!("the end of a client of many patterns: {how}"));
    }
    let mut client = bench.served.client();
    client.send(&command(
        "BLPOP",
        names('k', WAITED).chain(["0".to_owned()]),
    ));
    let control = &mut bench.control;
    wait_until("it waits", || {
        control.say("INFO clients").contains("blocked_clients:1")
    });
    bench.reset();
    drop(client);
    let control = &mut bench.control;
    wait_until("it has left", || {
        control.say("INFO clients").contains("blocked_clients:0")
    });
    bench.note("the end of a client that waits for many keys");
    // Many clients, of which all wait for one key, in the order of their arrival.
    let mut clients: Vec<_> = (0..400).map(|_| bench.served.client()).collect();
    clients
        .iter_mut()
        .for_each(|client| client.send(&words("BLPOP k0000001 0")));
    let control = &mut bench.control;
    wait_until("all wait", || {
        control.say("INFO clients").contains("blocked_clients:400")
    });
    bench.reset();
    assert_eq!(listed(&mut bench.control), 401);
    bench.note("a list of many clients");
    bench.reset();
    assert_eq!(bench.control.say("CLIENT KILL TYPE normal"), ":400");
    let control = &mut bench.control;
    wait_until("all have left", || {
        control.say("INFO clients").contains("blocked_clients:0")
    });
    bench.note("the end of many clients that wait for one key");
    bench.judge();
}

#[test]
fn the_fullest_slow_log_keeps_to_the_limit() {
    for cores in [1, 2] {
        let mut bench = Bench::on(Served::roomy(cores));
        let set = "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 100000";
        assert_eq!(bench.control.say(set), "+OK");
        let mut clients = [bench.served.client(), bench.served.client()];
        // Commands of several steps are all noted.
        let all: Vec<_> = (0..5_000).map(|_| words("TYPE absent")).collect();
        for client in &mut clients {
            assert_eq!(send_all(client, &all, all.len()).to_string(), "+none");
        }
        bench.reset();
        let shown = clients[0].ask(&["SLOWLOG", "GET", "-1"]);
        let ids = shown
            .elements()
            .iter()
            .map(|one| one.elements()[0].to_string());
        let ids: Vec<_> = ids.map(|id| id[1..].parse::<u64>().unwrap()).collect();
        assert!(ids.len() > 3000, "{}", ids.len());
        bench.note("the fullest slow log");
        assert!(ids.is_sorted_by(|one, next| one > next));
        let newest = clients[1].ask(&["SLOWLOG", "GET", "100"]);
        assert_eq!(newest.elements().len(), 100);
        bench.judge();
    }
}

#[test]
fn a_server_stops_beside_a_client_of_much() {
    let mut bench = Bench::on(Served::roomy(2));
    let mut client = bench.served.client();
    let stored = client.ask(&command("MSET", pairs('k', 2 * MANY)));
    assert_eq!(stored.to_string(), "+OK");
    let mut subscriber = bench.served.client();
    subscriber.send(&command("PSUBSCRIBE", names('p', MANY)));
    (0..MANY).for_each(|_| drop(subscriber.read()));
    let mut waiting = bench.served.client();
    waiting.send(&command(
        "BLPOP",
        names('w', WAITED).chain(["0".to_owned()]),
    ));
    bench.reset();
    let before = bench.served.figures().received_bytes;
    let removal = request(&command("DEL", names('k', 2 * MANY)));
    client.write(&removal);
    // What is not received by then is not run.
    let all = before + removal.len() as u64;
    wait_until("it is received", || {
        bench.served.figures().received_bytes >= all
    });
    let reporter = bench.served.server().reporter();
    bench.served.stop();
    let steps = reporter.figures().total().longest_turn_steps;
    bench
        .longest
        .push((steps, "the end of a server".to_owned()));
    bench.judge();
}
