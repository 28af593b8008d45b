//! What servers have stored: what a client's keys hold, and all keys of two servers beside each
//! other.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use super::connection::{Connection, encoded};
use super::told::{PLACES, SLOTS, Seen};
use super::writer::{key, key_of_string};
use crate::redis::memory::words::Reply;

/// Commands whose replies are read together.
const AT_ONCE: usize = 200;
/// Keys that no client writes, so that loading takes a moment.
const FILLING: usize = 2000;
/// Bytes in the longest of them.
const FILLING_BYTES: usize = 1000;

/// All keys of a server with their types and values.
pub(super) type Stored = BTreeMap<String, (String, Reply)>;

fn text(reply: &Reply) -> Result<String> {
    match reply {
        Reply::Bytes(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Reply::Line(line) => Ok(line.clone()),
        _ => bail!("{reply:?} is no text"),
    }
}

fn texts(reply: &Reply) -> Result<Vec<String>> {
    match reply {
        Reply::Many(all) => all.iter().map(text).collect(),
        _ => bail!("{reply:?} is no list"),
    }
}

/// The number that a value begins with; 0 of a key that is not there.
fn number(reply: &Reply) -> Result<u64> {
    if *reply == Reply::Absent {
        return Ok(0);
    }
    let text = text(reply)?;
    let digits = text.split(':').next().unwrap_or_default();
    digits
        .parse()
        .with_context(|| format!("{text:?} begins with no number"))
}

/// Sends commands and reads their replies, some at once.
fn ask_all(connection: &mut Connection, commands: &[Vec<String>]) -> Result<Vec<Reply>> {
    let mut replies = Vec::new();
    for some in commands.chunks(AT_ONCE) {
        let bytes = some.iter().flat_map(|command| {
            let words: Vec<_> = command.iter().map(String::as_str).collect();
            encoded(&words)
        });
        connection.send(&bytes.collect::<Vec<_>>())?;
        for command in some {
            match connection.reply()? {
                Reply::Error(error) => bail!("{}: {error}", command.join(" ")),
                reply => replies.push(reply),
            }
        }
    }
    Ok(replies)
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Stores keys of several types that no client writes.
pub(super) fn fill(connection: &mut Connection) -> Result<()> {
    let command = |index: usize| {
        let value = "v".repeat(1 + index * 37 % FILLING_BYTES);
        let (key, part) = (format!("f:{}", index % 100), index.to_string());
        match index % 20 {
            0 => owned(&["SADD", &format!("{key}:set"), &part]),
            1 => owned(&["HSET", &format!("{key}:hash"), &part, &value]),
            2 => owned(&["XADD", &format!("{key}:stream"), "*", &part, &value]),
            _ => owned(&["SET", &format!("f:{index}"), &value]),
        }
    };
    let commands: Vec<_> = (0..FILLING).map(command).collect();
    ask_all(connection, &commands)?;
    Ok(())
}

/// Reads what a client has written.
pub(super) fn see(connection: &mut Connection, client: usize) -> Result<Seen> {
    let mut slots = vec![0; SLOTS];
    let gets: Vec<_> = (0..PLACES)
        .map(|place| owned(&["GET", &key_of_string(client, place)]))
        .collect();
    for (slot, reply) in slots.iter_mut().zip(ask_all(connection, &gets)?) {
        *slot = number(&reply)?;
    }
    let hash = connection.ask(&["HGETALL", &key(client, "hash")])?;
    for pair in texts(&hash)?.chunks(2) {
        slots[PLACES + pair[0].parse::<usize>()?] = pair[1].parse()?;
    }
    let scores = ["ZRANGE", &key(client, "scores"), "0", "-1", "WITHSCORES"];
    for pair in texts(&connection.ask(&scores)?)?.chunks(2) {
        slots[2 * PLACES + pair[0].parse::<usize>()?] = pair[1].parse()?;
    }
    slots[SLOTS - 1] = number(&connection.ask(&["GET", &key(client, "one")])?)?;
    let other = number(&connection.ask(&["GET", &key(client, "other")])?)?;
    let list = connection.ask(&["LRANGE", &key(client, "list"), "0", "-1"])?;
    let list = texts(&list)?.into_iter().map(|text| Ok(text.parse()?));
    Ok(Seen {
        slots,
        other,
        list: list.collect::<Result<_>>()?,
    })
}

/// Reads all keys.
pub(super) fn read_all(connection: &mut Connection) -> Result<Stored> {
    let keys = keys(connection)?;
    let types: Vec<_> = keys.iter().map(|key| owned(&["TYPE", key])).collect();
    let types = ask_all(connection, &types)?;
    let types = types.iter().map(text).collect::<Result<Vec<_>>>()?;
    let reads = keys.iter().zip(&types).map(|(key, kind)| {
        Ok(match kind.as_str() {
            "string" => owned(&["GET", key]),
            "list" => owned(&["LRANGE", key, "0", "-1"]),
            "hash" => owned(&["HGETALL", key]),
            "set" => owned(&["SMEMBERS", key]),
            "zset" => owned(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            "stream" => owned(&["XRANGE", key, "-", "+"]),
            kind => bail!("key {key} is a {kind:?}"),
        })
    });
    let values = ask_all(connection, &reads.collect::<Result<Vec<_>>>()?)?;
    let mut stored = Stored::new();
    for ((key, kind), value) in keys.into_iter().zip(types).zip(values) {
        let value = in_order(&kind, value)?;
        stored.insert(key, (kind, value));
    }
    Ok(stored)
}

/// All names of keys, each once.
fn keys(connection: &mut Connection) -> Result<Vec<String>> {
    let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let page = connection.ask(&["SCAN", &cursor, "COUNT", "1000"])?;
        let Reply::Many(parts) = page else {
            bail!("SCAN replies {page:?}");
        };
        ensure!(parts.len() == 2, "SCAN replies {parts:?}");
        keys.extend(texts(&parts[1])?);
        cursor = text(&parts[0])?;
        if cursor == "0" {
            break;
        }
    }
    keys.sort();
    keys.dedup();
    Ok(keys)
}

/// Brings what a server may reply in any order into one.
fn in_order(kind: &str, value: Reply) -> Result<Reply> {
    let parts = match kind {
        "hash" => 2,
        "set" => 1,
        _ => return Ok(value),
    };
    let all = texts(&value)?;
    let mut all: Vec<_> = all.chunks(parts).collect();
    all.sort();
    let all = all.concat().into_iter().map(Reply::Line);
    Ok(Reply::Many(all.collect()))
}

/// How two servers differ, a line a key.
pub(super) fn differences(one: &Stored, other: &Stored) -> Vec<String> {
    let mut keys: Vec<_> = one.keys().chain(other.keys()).collect();
    keys.sort();
    keys.dedup();
    let differing = keys
        .into_iter()
        .filter(|&key| one.get(key) != other.get(key));
    let line = |key: &String| {
        let [one, other] = [one, other].map(|stored| shown(stored.get(key)));
        format!("{key}: {one} and {other}")
    };
    differing.map(line).collect()
}

/// A value as a line that is not too long.
fn shown(value: Option<&(String, Reply)>) -> String {
    let text = format!("{value:?}");
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_begins_with_its_number() {
        assert_eq!(number(&Reply::Bytes(b"12:..".to_vec())).unwrap(), 12);
        assert_eq!(number(&Reply::Bytes(b"7".to_vec())).unwrap(), 7);
        assert_eq!(number(&Reply::Absent).unwrap(), 0);
        assert!(number(&Reply::Bytes(b"..".to_vec())).is_err());
    }

    #[test]
    fn keys_that_differ_are_named() {
        let value = |text: &str| ("string".to_owned(), Reply::Line(text.to_owned()));
        let one = Stored::from([("a".to_owned(), value("1")), ("b".to_owned(), value("2"))]);
        let mut other = one.clone();
        assert!(differences(&one, &other).is_empty());
        other.insert("b".to_owned(), value("3"));
        other.insert("c".to_owned(), value("4"));
        let lines = differences(&one, &other);
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].starts_with("b: ") && lines[1].starts_with("c: "),
            "{lines:?}"
        );
    }
}
