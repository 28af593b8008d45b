//! A console in this process and clients that speak HTTP/1.1 to it over sockets of their own.
//!
//! Clients write requests byte by byte as tests want them, which a library would refuse.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use farcore_console::{Console, FirstAdministrator, Options};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const PASSWORD: &str = "correct horse battery";
/// Longer than any answer takes.
const LONG: Duration = Duration::from_secs(60);

/// A console and its folder.
#[derive(Debug)]
pub(crate) struct Harness {
    pub(crate) console: Console,
    pub(crate) folder: TempDir,
}

/// The settings of tests: a free port, the administrator `admin`.
pub(crate) fn options(folder: &TempDir) -> Options {
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut options = Options::new(listen, folder.path().join("console"));
    options.first_administrator = Some(FirstAdministrator {
        name: "admin".to_owned(),
        password: PASSWORD.to_owned().into(),
    });
    options
}

/// Starts a console with some settings changed.
pub(crate) fn start(change: impl FnOnce(&mut Options)) -> Harness {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&folder);
    change(&mut options);
    let console = Console::start(options).unwrap();
    Harness { console, folder }
}

impl Harness {
    pub(crate) fn address(&self) -> SocketAddr {
        self.console.address()
    }

    /// A client without a session.
    pub(crate) fn stranger(&self) -> Client {
        Client {
            address: self.address(),
            cookie_name: "farcore_session".to_owned(),
            cookie: None,
            device: None,
            csrf: None,
        }
    }

    /// A client that is signed in.
    pub(crate) fn sign_in(&self, name: &str, password: &str) -> Client {
        let mut client = self.stranger();
        let reply = client.sign_in(name, password);
        assert_eq!(reply.status, 200, "{reply:?}");
        client
    }

    pub(crate) fn admin(&self) -> Client {
        self.sign_in("admin", PASSWORD)
    }

    /// Adds a user and signs it in.
    pub(crate) fn user(&self, admin: &Client, name: &str, role: &str) -> Client {
        let body = json!({ "name": name, "role": role, "password": PASSWORD });
        let reply = admin.post("/api/users", &body);
        assert_eq!(reply.status, 201, "{reply:?}");
        self.sign_in(name, PASSWORD)
    }

    /// Stops the console and starts it again on the same folder.
    pub(crate) fn restart(self) -> Self {
        self.console.stop();
        let console = Console::start(options(&self.folder)).unwrap();
        Self {
            console,
            folder: self.folder,
        }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(one, _)| one == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of an error, or the empty text.
    pub(crate) fn code(&self) -> String {
        let value: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        value["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub(crate) fn field(&self) -> String {
        let value: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        value["error"]["field"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// Sends bytes as they are.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Whether a read found nothing in the time that it had, rather than an end.
pub(crate) fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Reads the head of an answer.
pub(crate) fn read_head(reader: &mut impl BufRead) -> Option<Reply> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    Some(Reply {
        status,
        headers,
        body: Vec::new(),
    })
}

/// Reads an answer from a connection that closes after it; of a stream of events only the head.
pub(crate) fn read_reply(stream: TcpStream) -> Option<Reply> {
    let mut reader = BufReader::new(stream);
    let mut reply = read_head(&mut reader)?;
    let is_stream = reply.header("content-type") == Some("text/event-stream");
    if is_stream {
        return Some(reply);
    }
    let length = reply
        .header("content-length")
        .and_then(|text| text.parse().ok());
    match length {
        Some(length) => reader.take(length).read_to_end(&mut reply.body),
        None => reader.read_to_end(&mut reply.body),
    }
    .ok()?;
    Some(reply)
}

/// One browser.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// The name of the session's cookie, and its value.
    pub(crate) cookie_name: String,
    pub(crate) cookie: Option<String>,
    /// Name and value of the device's cookie.
    pub(crate) device: Option<String>,
    pub(crate) csrf: Option<String>,
}

impl Client {
    /// The head of a request with this client's cookie and token, without its last line.
    pub(crate) fn head(&self, method: &str, path: &str, more: &str) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !more.to_ascii_lowercase().contains("host:") {
            write!(head, "Host: {}\r\n", self.address).unwrap();
        }
        if let Some(cookie) = &self.cookie {
            write!(head, "Cookie: {}={cookie}\r\n", self.cookie_name).unwrap();
        }
        if let Some(device) = &self.device {
            write!(head, "Cookie: {device}\r\n").unwrap();
        }
        if let Some(csrf) = &self.csrf {
            write!(head, "X-CSRF-Token: {csrf}\r\n").unwrap();
        }
        head.push_str(more);
        head
    }

    /// Sends a request with further header lines, each ended by CR LF.
    pub(crate) fn send(&self, method: &str, path: &str, more: &str, body: &[u8]) -> Reply {
        let mut stream = connect(self.address);
        let mut head = self.head(method, path, more);
        if !body.is_empty() {
            write!(head, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses a body closes before it is sent.
        let _ = stream.write_all(body);
        read_reply(stream).unwrap_or_else(|| panic!("{method} {path}: no answer"))
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "", b"")
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, "", b"")
    }

    pub(crate) fn json(&self, method: &str, path: &str, body: &Value) -> Reply {
        let kind = "Content-Type: application/json\r\n";
        self.send(method, path, kind, body.to_string().as_bytes())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.json("POST", path, body)
    }

    /// Signs in, and keeps cookie and token.
    pub(crate) fn sign_in(&mut self, name: &str, password: &str) -> Reply {
        let body = json!({ "name": name, "password": password });
        let reply = self.post("/api/session", &body);
        if reply.status == 200 {
            let set = reply
                .headers
                .iter()
                .filter(|(name, _)| name == "set-cookie");
            for (_, text) in set {
                let pair = text.split(';').next().unwrap();
                let (name, value) = pair.split_once('=').unwrap();
                if name.ends_with("farcore_device") {
                    self.device = Some(pair.to_owned());
                } else {
                    self.cookie_name = name.to_owned();
                    self.cookie = Some(value.to_owned());
                }
            }
            self.csrf = Some(reply.json()["csrf"].as_str().unwrap().to_owned());
        }
        reply
    }

    /// Starts a run and returns its number.
    pub(crate) fn start_run(&self, name: &str, messages: u64) -> i64 {
        let settings = json!({ "messages": messages, "warmup": 100, "points": 20 });
        let reply = self.post("/api/runs", &json!({ "name": name, "settings": settings }));
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["id"].as_i64().unwrap()
    }

    /// Follows a run's events from a point on: names, ids and data, until the stream ends.
    pub(crate) fn follow(&self, run: i64, seen: usize) -> Events {
        let mut stream = connect(self.address);
        let more = format!("Last-Event-ID: {seen}\r\n");
        let path = format!("/api/runs/{run}/events");
        let head = self.head("GET", &path, &more);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let reply = read_head(&mut reader).unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        Events { reader }
    }

    /// Follows a run to its end and returns the state in which it ended.
    pub(crate) fn await_end(&self, run: i64) -> String {
        let states = self.follow(run, 0).filter(|event| event.name == "state");
        let last = states.last().expect("a state");
        last.data["state"].as_str().unwrap().to_owned()
    }
}

/// A server-sent event.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) data: Value,
}

/// The events of a stream, until it ends.
#[derive(Debug)]
pub(crate) struct Events {
    reader: BufReader<TcpStream>,
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let mut line = String::new();
            // Sizes of chunks and comments are between the lines of events.
            match self.reader.read_line(&mut line) {
                Ok(count) if count > 0 => {}
                Err(error) if is_late(&error) => panic!("the stream neither goes on nor ends"),
                _ => return None,
            }
            let line = line.trim_end();
            if let Some(data) = line.strip_prefix("data: ") {
                event.data = serde_json::from_str(data).unwrap();
            } else if let Some(id) = line.strip_prefix("id: ") {
                event.id = id.to_owned();
            } else if let Some(name) = line.strip_prefix("event: ") {
                event.name = name.to_owned();
            } else if line.is_empty() && !event.name.is_empty() {
                return Some(event);
            }
        }
    }
}
