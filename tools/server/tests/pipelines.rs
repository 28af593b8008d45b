//! Many commands at once, however their bytes arrive: each has its reply, in order, and the replies
//! are those of a map.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::io::Write as _;
use std::thread;

use self::support::client::request;
use self::support::{Random, Reply, Served};

const COMMANDS: usize = 10_000;
const KEYS: usize = 40;
/// A value that is longer is not appended to.
const LENGTH_MAX: usize = 55_000;

/// What the server must hold.
#[derive(Default)]
struct Model(HashMap<Vec<u8>, Vec<u8>>);

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn number(count: usize) -> Reply {
    Reply::Integer(i64::try_from(count).unwrap())
}

impl Model {
    fn value(&self, key: &[u8], null: &Reply) -> Reply {
        let value = self.0.get(key).cloned();
        value.map_or_else(|| null.clone(), Reply::Bulk)
    }

    /// A random command and its reply.
    fn command(&mut self, random: &mut Random, null: &Reply) -> (Vec<Vec<u8>>, Reply) {
        let (one, other) = (key(random), key(random));
        match random.below(14) {
            0 | 1 => {
                let value = value(random);
                self.0.insert(one.clone(), value.clone());
                (vec![word("SET"), one, value], ok())
            }
            2 | 3 => {
                let reply = self.value(&one, null);
                (vec![word("get"), one], reply)
            }
            4 => {
                let removed = usize::from(self.0.remove(&one).is_some());
                (vec![word("DEL"), one], number(removed))
            }
            5 => {
                let found = [&one, &other];
                let found = found.iter().filter(|key| self.0.contains_key(**key));
                let reply = number(found.count());
                (vec![word("EXISTS"), one, other], reply)
            }
            6 => self.increment(),
            7 => self.append(one),
            8 => {
                let reply = Reply::Array(vec![self.value(&one, null), self.value(&other, null)]);
                (vec![word("MGET"), one, other], reply)
            }
            9 => {
                let (first, second) = (value(random), value(random));
                self.0.insert(one.clone(), first.clone());
                self.0.insert(other.clone(), second.clone());
                (vec![word("MSET"), one, first, other, second], ok())
            }
            10 => {
                let length = self.0.get(&one).map_or(0, Vec::len);
                (vec![word("STRLEN"), one], number(length))
            }
            11 => {
                let reply = self.value(&one, null);
                self.0.remove(&one);
                (vec![word("GETDEL"), one], reply)
            }
            12 => (vec![word("DBSIZE")], number(self.0.len())),
            _ => self.rename(one, other),
        }
    }

    fn increment(&mut self) -> (Vec<Vec<u8>>, Reply) {
        let counter = word("counter");
        let text = self.0.get(&counter).cloned().unwrap_or(word("0"));
        let sum = String::from_utf8(text).unwrap().parse::<i64>().unwrap() + 3;
        self.0.insert(counter.clone(), word(&sum.to_string()));
        let command = vec![word("INCRBY"), counter, word("3")];
        (command, Reply::Integer(sum))
    }

    fn append(&mut self, key: Vec<u8>) -> (Vec<Vec<u8>>, Reply) {
        let held = self.0.entry(key.clone()).or_default();
        if held.len() > LENGTH_MAX {
            held.clear();
            return (vec![word("SET"), key, Vec::new()], ok());
        }
        held.extend_from_slice(b"tail");
        let reply = number(held.len());
        (vec![word("APPEND"), key, word("tail")], reply)
    }

    /// It has several steps, and waits for those before it.
    fn rename(&mut self, from: Vec<u8>, to: Vec<u8>) -> (Vec<Vec<u8>>, Reply) {
        let command = vec![word("RENAME"), from.clone(), to.clone()];
        match self.0.remove(&from) {
            Some(value) => {
                self.0.insert(to, value);
                (command, ok())
            }
            None => (command, Reply::Error("ERR no such key".to_owned())),
        }
    }
}

fn word(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn key(random: &mut Random) -> Vec<u8> {
    format!("key:{}", random.below(KEYS)).into_bytes()
}

/// Some are about as long as what is received at once.
fn value(random: &mut Random) -> Vec<u8> {
    let bytes = [0, 3, 3, 3, 60, 60, 900, 900, 50_000][random.below(9)];
    vec![b'a' + u8::try_from(random.below(26)).unwrap(); bytes]
}

fn run(cores: usize, protocol: usize) {
    let served = Served::start(cores);
    let mut random = Random::new();
    let null = if protocol == 3 {
        Reply::Null3
    } else {
        Reply::Null
    };
    let mut model = Model::default();
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..COMMANDS {
        let (command, reply) = model.command(&mut random, &null);
        bytes.extend(request(&command));
        expected.push((command, reply));
    }
    let mut client = served.client();
    client.ask(&["HELLO", &protocol.to_string()]);
    let mut stream = client.stream.get_ref().try_clone().unwrap();
    let writer = thread::spawn(move || {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let most = [1, 7, 100, 5_000, 200_000][random.below(5)];
            let (now, later) = rest.split_at((1 + random.below(most)).min(rest.len()));
            stream.write_all(now).unwrap();
            rest = later;
        }
    });
    for (place, (command, expected)) in expected.iter().enumerate() {
        let seen = client.read().unwrap();
        let shown = || {
            let words = command
                .iter()
                .map(|word| word[..word.len().min(20)].escape_ascii());
            words.map(|word| word.to_string()).collect::<Vec<_>>()
        };
        assert!(
            seen == *expected,
            "command {place} {:?}: {seen:.200}",
            shown()
        );
    }
    writer.join().unwrap();
    assert_eq!(client.say("PING"), "+PONG");
}

#[test]
fn replies_of_a_split_pipeline_are_those_of_a_map() {
    run(1, 2);
    run(2, 3);
}

#[test]
fn replies_come_in_order_though_keys_lie_on_several_cores() {
    let served = Served::start(2);
    let mut client = served.client();
    let keys: Vec<_> = (0..1000).map(|number| format!("k{number}")).collect();
    let shards: Vec<_> = keys
        .iter()
        .map(|key| served.shard_of(key.as_bytes()))
        .collect();
    for shard in 0..served.shards() {
        assert!(shards.contains(&shard), "no key lies on core {shard}");
    }
    for key in &keys {
        client.send(&["SET", key, &format!("value of {key}")]);
        client.send(&["GET", key]);
        client.send(&["PING"]);
    }
    for key in &keys {
        assert_eq!(client.read(), Some(ok()));
        let value = format!("value of {key}").into_bytes();
        assert_eq!(client.read(), Some(Reply::Bulk(value)));
        assert_eq!(client.read(), Some(Reply::Simple("PONG".to_owned())));
    }
}

#[test]
fn a_command_has_more_keys_than_a_reply_has_parts() {
    let served = Served::start(2);
    let mut client = served.client();
    let keys: Vec<_> = (0..9_000).map(|number| format!("k{number}")).collect();
    // All values are more than the output that a client may have ahead, 256 KiB.
    let value_of = |key: &String| format!("{key:v>64}");
    let words = |name: &str, values: bool| {
        let mut words = vec![name.to_owned()];
        for key in &keys {
            words.push(key.clone());
            if values {
                words.push(value_of(key));
            }
        }
        words
    };
    assert_eq!(client.ask(&words("MSET", true)), ok());
    assert_eq!(client.ask(&words("EXISTS", false)), number(9_000));
    let values = client.ask(&words("MGET", false));
    assert_eq!(values.elements().len(), 9_000);
    for (key, value) in keys.iter().zip(values.elements()) {
        assert_eq!(value.text(), value_of(key));
    }
    assert_eq!(client.ask(&words("DEL", false)), number(9_000));
    assert_eq!(client.say("DBSIZE"), ":0");
}
