//! A Redis that is a replica by hand.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::source::Words;
use crate::random::Numbers;
use crate::replication::source::write_command;

/// What is replied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Nothing,
    Number(i64),
    Text(Vec<u8>),
    Error(String),
    List(Vec<Reply>),
}

impl Reply {
    pub(super) fn list(&self) -> &[Self] {
        match self {
            Self::List(list) => list,
            other => panic!("no list: {other:?}"),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).expect("a text")
    }

    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Number(number) => u64::try_from(*number).expect("no negative number"),
            other => panic!("no number: {other:?}"),
        }
    }

    /// The value behind a name in a list.
    pub(super) fn field(&self, name: &str) -> &Self {
        let mut pairs = self.list().chunks(2);
        let pair = pairs.find(|pair| pair[0].bytes() == name.as_bytes());
        &pair.unwrap_or_else(|| panic!("{self:?} has no {name}"))[1]
    }
}

/// A Redis of its own.
#[derive(Debug)]
pub(super) struct Redis {
    process: Child,
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Redis {
    /// Starts one; none if it is not installed.
    pub(super) fn start() -> Option<Self> {
        let name = format!("farcore-effects-{:x}.socket", Numbers::new().word());
        let path = std::env::temp_dir().join(name);
        let mut process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .args(["--unixsocket".as_ref(), path.as_os_str()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let stream = loop {
            if let Ok(stream) = UnixStream::connect(&path) {
                break BufReader::new(stream);
            }
            assert_eq!(process.try_wait().expect("Redis"), None, "Redis ends");
            std::thread::sleep(Duration::from_millis(1));
        };
        Some(Self {
            process,
            path,
            stream,
        })
    }

    /// Sends a command and reads its reply.
    pub(super) fn send(&mut self, words: &[&[u8]]) -> Reply {
        let mut bytes = Vec::new();
        write_command(words, &mut bytes);
        self.stream.get_mut().write_all(&bytes).expect("Redis");
        self.read()
    }

    /// Sends commands of a transaction, none of which fails.
    pub(super) fn apply(&mut self, commands: &[Words]) {
        self.send(&[b"MULTI"]);
        for words in commands {
            let words: Vec<_> = words.iter().map(|word| &word[..]).collect();
            let queued = self.send(&words);
            assert_eq!(queued, Reply::Text(b"QUEUED".to_vec()), "{words:?}");
        }
        let replies = self.send(&[b"EXEC"]);
        for (words, reply) in commands.iter().zip(replies.list()) {
            assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
        }
    }

    fn read(&mut self) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("Redis");
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().expect("a number");
        match kind {
            "+" => Reply::Text(rest.as_bytes().to_vec()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(number()),
            "$" => match usize::try_from(number()) {
                Ok(length) => {
                    let mut text = vec![0; length + 2];
                    self.stream.read_exact(&mut text).expect("Redis");
                    text.truncate(length);
                    Reply::Text(text)
                }
                Err(_) => Reply::Nothing,
            },
            "*" => match usize::try_from(number()) {
                Ok(count) => Reply::List((0..count).map(|_| self.read()).collect()),
                Err(_) => Reply::Nothing,
            },
            _ => panic!("no reply: {line}"),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}
