//! What is sent beside the client: each command in its longest forms, and crowds of clients.

use std::fmt;
use std::sync::Arc;

use super::connection::encoded;
use super::requests::{self, MANY, RECORD_BYTES, Request, command, names, pairs, words};

/// The one command that no other client outlives.
pub(super) const ENDS_THE_SERVER: &str = "shutdown";

/// Clients of a crowd that changes long values, and of one that changes long records.
const CLIENTS: usize = 40;
const RECORD_CLIENTS: usize = 20;
/// Clients of a crowd whose commands name very many keys.
const KEYS_CLIENTS: usize = 8;
/// Bytes of a long value.
const LONG_BYTES: usize = 4 << 20;
/// Characters of a word, and words, that a description shows.
const SHOWN_CHARACTERS: usize = 16;
const SHOWN_WORDS: usize = 5;

/// What each client of a crowd does.
#[derive(Clone)]
pub(super) struct Crowd {
    pub(super) count: usize,
    /// What is stored for a client before.
    pub(super) stored: Arc<dyn Fn(usize) -> Vec<Request> + Send + Sync>,
    /// What it sends again and again.
    pub(super) sent: Arc<dyn Fn(usize) -> Vec<Request> + Send + Sync>,
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crowd")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) enum Sent {
    Nothing,
    /// By one client, whose connection is another one each time.
    Requests(Vec<Request>),
    Crowd(Crowd),
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// The command's name, in small letters.
    pub(super) command: String,
    /// Which form it is, or who sends it.
    pub(super) form: String,
    pub(super) sent: Sent,
}

/// A request in a few words.
fn shown(request: &Request) -> String {
    let some = request.iter().skip(1).take(SHOWN_WORDS - 1).map(|word| {
        let text = String::from_utf8_lossy(word);
        match text.chars().count() {
            0..=SHOWN_CHARACTERS => text.into_owned(),
            _ => text
                .chars()
                .take(SHOWN_CHARACTERS - 3)
                .chain("...".chars())
                .collect(),
        }
    });
    let mut shown: Vec<String> = some.collect();
    if request.len() > SHOWN_WORDS {
        shown.push("...".to_owned());
    }
    shown.join(" ")
}

impl Load {
    /// No load.
    pub(super) fn nothing() -> Self {
        Self {
            command: String::new(),
            form: "no load".to_owned(),
            sent: Sent::Nothing,
        }
    }

    /// Command and form.
    pub(super) fn shown(&self) -> String {
        let name = self.command.to_uppercase();
        match &self.sent {
            Sent::Nothing => self.form.clone(),
            Sent::Requests(_) => format!("{name} {}", self.form).trim_end().to_owned(),
            Sent::Crowd(_) => format!("{name}: {}", self.form),
        }
    }

    /// Bytes and words that a client sends each time.
    pub(super) fn input(&self) -> (usize, usize) {
        let requests = match &self.sent {
            Sent::Nothing => Vec::new(),
            Sent::Requests(requests) => requests.clone(),
            Sent::Crowd(crowd) => (crowd.sent)(0),
        };
        let bytes = requests.iter().map(|one| encoded(one).len()).sum();
        (bytes, requests.iter().map(Vec::len).sum())
    }
}

/// The loads of one command; `None` if no longest form of it is known.
pub(super) fn of_command(name: &str) -> Option<Vec<Load>> {
    let load = |form: String, requests| Load {
        command: name.to_owned(),
        form,
        sent: Sent::Requests(requests),
    };
    let forms = requests::longest(name)?.into_iter();
    let mut loads: Vec<Load> = forms.map(|one| load(shown(&one), vec![one])).collect();
    let sequences = requests::sequences(name).into_iter();
    loads.extend(sequences.map(|(what, all)| load(format!("({what})"), all)));
    Some(loads)
}

/// Loads of many clients.
#[expect(clippy::too_many_lines, reason = "one list names all loads")]
pub(super) fn crowds() -> Vec<Load> {
    let mut all = Vec::new();
    let mut add = |name: &str, form: &str, crowd: Crowd| {
        all.push(Load {
            command: name.to_owned(),
            form: format!("{} clients, {form}", crowd.count),
            sent: Sent::Crowd(crowd),
        });
    };
    let set_long = |who: usize| command(&format!("SET long:{who}"), [requests::bytes(LONG_BYTES)]);
    let each = |sent: fn(usize) -> Vec<Request>| Crowd {
        count: CLIENTS,
        stored: Arc::new(move |who| vec![set_long(who)]),
        sent: Arc::new(sent),
    };
    let change = "each to a long value of its own";
    add(
        "append",
        change,
        each(|who| {
            vec![command(
                &format!("APPEND long:{who}"),
                [requests::bytes(100)],
            )]
        }),
    );
    add(
        "setrange",
        change,
        each(|who| vec![words(&format!("SETRANGE long:{who} 1000 x"))]),
    );
    add(
        "get",
        "each of a long value of its own",
        each(|who| vec![words(&format!("GET long:{who}"))]),
    );
    add(
        "bitcount",
        "each of a long value of its own",
        each(|who| vec![words(&format!("BITCOUNT long:{who}"))]),
    );
    add(
        "copy",
        "each of a long value of its own",
        Crowd {
            count: RECORD_CLIENTS,
            ..each(|who| vec![words(&format!("COPY long:{who} copy:{who} REPLACE"))])
        },
    );
    add(
        "set",
        "each a long value of its own",
        Crowd {
            count: RECORD_CLIENTS,
            ..each(|who| {
                vec![command(
                    &format!("SET long:{who}"),
                    [requests::bytes(LONG_BYTES)],
                )]
            })
        },
    );
    let record = |word: &'static str, sent: fn(usize) -> Vec<Request>| Crowd {
        count: RECORD_CLIENTS,
        stored: Arc::new(move |who| {
            let element = requests::bytes(RECORD_BYTES - 4096);
            let head = format!("{word} {}:{who}", word.to_lowercase());
            match word {
                "HSET" => vec![command(&head, [b"field".to_vec(), element])],
                _ => vec![command(&head, [element])],
            }
        }),
        sent: Arc::new(sent),
    };
    let change = "each to a record of 1 MiB of its own";
    add(
        "hset",
        change,
        record("HSET", |who| {
            vec![words(&format!("HSET hset:{who} another 1"))]
        }),
    );
    add(
        "sadd",
        change,
        record("SADD", |who| {
            // Two changes, or the second time none is left.
            vec![
                words(&format!("SADD sadd:{who} b")),
                words(&format!("SREM sadd:{who} b")),
            ]
        }),
    );
    add(
        "rpush",
        change,
        record("RPUSH", |who| {
            vec![
                words(&format!("RPUSH rpush:{who} b")),
                words(&format!("RPOP rpush:{who}")),
            ]
        }),
    );
    add(
        "hgetall",
        "each of a record of 1 MiB of its own",
        record("HSET", |who| vec![words(&format!("HGETALL hset:{who}"))]),
    );
    let keys = |sent: fn(usize) -> Vec<Request>| Crowd {
        count: KEYS_CLIENTS,
        stored: Arc::new(|_| Vec::new()),
        sent: Arc::new(sent),
    };
    add(
        "mset",
        "each of keys of its own",
        keys(|who| vec![command("MSET", pairs(letter(who), MANY))]),
    );
    add(
        "del",
        "each of keys of its own that it stores before",
        keys(|who| {
            vec![
                command("MSET", pairs(letter(who), MANY)),
                command("DEL", names(letter(who), MANY)),
            ]
        }),
    );
    add(
        "mget",
        "each of all keys",
        keys(|_| vec![command("MGET", names('m', 2 * MANY))]),
    );
    add("keys", "each of all keys", keys(|_| vec![words("KEYS *")]));
    all
}

/// The first letter of a client's keys.
fn letter(who: usize) -> char {
    char::from(b'A' + u8::try_from(who % 26).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_and_many_are_shown_in_short() {
        let request = command("SET key", [vec![b'v'; 100]]);
        assert_eq!(shown(&request), format!("key {}...", "v".repeat(13)));
        let request = command("DEL", names('k', 9));
        assert_eq!(shown(&request), "k0000000 k0000001 k0000002 k0000003 ...");
    }

    #[test]
    fn inputs_are_counted_as_they_are_sent() {
        let load = Load {
            sent: Sent::Requests(vec![words("GET k"), words("PING")]),
            ..Load::nothing()
        };
        assert_eq!(load.input(), (20 + 14, 3));
    }
}
