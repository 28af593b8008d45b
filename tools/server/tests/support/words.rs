//! A client that takes commands as words, and shows each reply as text:
//!
//! ```text
//! OK   (error) ERR text   7   "bulk"   nil   [1, "array"]   {"key", "of a map"}   >["push"]
//! ```

use std::collections::BTreeSet;
use std::io::Read;

use super::client::request;
use super::{Client, Reply};

/// The reply to a command for another type of value than that of the key.
pub(crate) const WRONG_TYPE: &str =
    "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

/// A client of words.
#[derive(Debug)]
pub(crate) struct WordClient(pub(crate) Client);

fn shown(reply: &Reply) -> String {
    let list = |all: &[Reply]| all.iter().map(shown).collect::<Vec<_>>().join(", ");
    match reply {
        Reply::Simple(text) | Reply::Double(text) => text.clone(),
        Reply::Error(text) => format!("(error) {text}"),
        Reply::Integer(number) => number.to_string(),
        Reply::Bulk(bytes) | Reply::Verbatim(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Reply::Null | Reply::NullArray | Reply::Null3 => "nil".to_owned(),
        Reply::Array(all) | Reply::Set(all) => format!("[{}]", list(all)),
        Reply::Push(all) => format!(">[{}]", list(all)),
        Reply::Map(pairs) => {
            let flat: Vec<_> = pairs.iter().flat_map(|(key, value)| [key, value]).collect();
            let shown: Vec<_> = flat.into_iter().map(shown).collect();
            format!("{{{}}}", shown.join(", "))
        }
        Reply::Boolean(is_true) => if *is_true { "t" } else { "f" }.to_owned(),
    }
}

fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().collect()
}

impl WordClient {
    /// Sends a command without waiting for its reply.
    pub(crate) fn send(&mut self, arguments: &[&[u8]]) {
        self.0.send(arguments);
    }

    /// Sends a command of words without waiting for its reply.
    pub(crate) fn send_words(&mut self, command: &str) {
        self.0.send(&words(command));
    }

    /// Sends a command of words, and waits for its reply.
    pub(crate) fn call(&mut self, command: &str) -> String {
        self.send_words(command);
        self.reply()
    }

    /// Sends commands of words at once, and waits for all replies.
    pub(crate) fn call_all(&mut self, commands: &[&str]) -> Vec<String> {
        let requests = commands.iter().map(|command| request(&words(command)));
        self.0.write(&requests.collect::<Vec<_>>().concat());
        commands.iter().map(|_| self.reply()).collect()
    }

    /// The next reply.
    pub(crate) fn reply(&mut self) -> String {
        shown(&self.0.read().expect("a reply before the end"))
    }

    /// True once the server has closed the connection; drops what it has sent before.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        loop {
            match self.0.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}

/// Each of these commands has this reply, one after another.
#[track_caller]
pub(crate) fn expect(client: &mut WordClient, calls: &[(&str, &str)]) {
    for (words, reply) in calls {
        assert_eq!(client.call(words), *reply, "{words}");
    }
}

/// Each of these commands has this reply, one after another; what arrays of it have may come in any
/// order.
#[track_caller]
pub(crate) fn expect_sorted(client: &mut WordClient, calls: &[(&str, &str)]) {
    for (words, reply) in calls {
        let seen = client.call(words);
        assert_eq!(members(&seen), members(reply), "{words}");
        assert_eq!(seen.len(), reply.len(), "{words}");
    }
}

/// The elements of an array or map that is shown.
pub(crate) fn members(reply: &str) -> BTreeSet<String> {
    let inside = reply.trim_matches(['[', ']', '{', '}']);
    let all = inside.split(", ").filter(|member| !member.is_empty());
    all.map(|member| member.trim_matches('"').to_owned())
        .collect()
}
