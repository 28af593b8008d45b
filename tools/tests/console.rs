//! `farcore console` from the command line: the first start, refusals, signals, and what a process
//! that is killed in the middle of a run leaves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use rusqlite::{Connection, OpenFlags};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::support::{Lines, PATIENCE, Process, farcore, output_of, terminal, text_of};

const PASSWORD: &str = "correct horse battery";

fn command() -> Command {
    let mut command = farcore();
    command.arg("console").env_remove("RUST_LOG");
    command
}

/// A folder for a console, and a file with a password.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        fs::write(place.password(), format!("{PASSWORD}\n")).unwrap();
        fs::set_permissions(place.password(), fs::Permissions::from_mode(0o600)).unwrap();
        place
    }

    fn password(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = command();
        command.arg("--data").arg(self.data()).args(arguments);
        output_of(&mut command)
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = command();
        command
            .args(["--listen", "127.0.0.1:0", "--data"])
            .arg(self.data())
            .arg("--admin-password-file")
            .arg(self.password())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let mut out = Lines::of(process.0.stdout.take().unwrap());
        let log = Lines::of(process.0.stderr.take().unwrap());
        let line = out.wait("ready: http://");
        let address = line.trim_start_matches("ready: http://").parse().unwrap();
        Running {
            process,
            address,
            log,
            head: String::new(),
        }
    }
}

/// A console that runs, and a session.
struct Running {
    process: Process,
    address: SocketAddr,
    log: Lines,
    /// Header lines of the session.
    head: String,
}

impl Running {
    fn connect(&self, method: &str, path: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.head,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        BufReader::new(stream)
    }

    /// Status, cookie and value of an answer.
    fn send(&self, method: &str, path: &str, body: &str) -> (u16, String, Value) {
        let mut text = String::new();
        self.connect(method, path, body)
            .read_to_string(&mut text)
            .unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let cookie = head
            .lines()
            .find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie
            .and_then(|cookie| cookie.split(';').next())
            .unwrap_or_default();
        let value = serde_json::from_str(body).unwrap_or_default();
        (status, cookie.to_owned(), value)
    }

    fn get(&self, path: &str) -> Value {
        self.send("GET", path, "").2
    }

    fn sign_in(&mut self, name: &str) {
        let body = json!({ "name": name, "password": PASSWORD }).to_string();
        let (status, cookie, value) = self.send("POST", "/api/session", &body);
        assert_eq!(status, 200, "{value}");
        let csrf = value["csrf"].as_str().unwrap();
        self.head = format!("Cookie: {cookie}\r\nX-CSRF-Token: {csrf}\r\n");
    }

    fn start_run(&self, messages: u64) -> u64 {
        let settings = json!({ "messages": messages, "warmup": 0, "points": 10_000 });
        let body = json!({ "name": "run", "settings": settings }).to_string();
        self.send("POST", "/api/runs", &body).2["id"]
            .as_u64()
            .unwrap()
    }

    /// Follows a run until a line of its events contains some words.
    fn follow(&self, run: u64, wanted: &str) {
        let reader = self.connect("GET", &format!("/api/runs/{run}/events"), "");
        let start = Instant::now();
        let found = reader
            .lines()
            .map_while(Result::ok)
            .take_while(|_| start.elapsed() < PATIENCE)
            .any(|line| line.contains(wanted));
        assert!(found, "run {run}: no `{wanted}`");
    }

    /// Ends it by a signal and returns its log.
    fn end(mut self, signal: &str) -> Vec<String> {
        self.process.signal(signal);
        assert_eq!(self.process.end().code(), Some(0));
        self.log.rest()
    }
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_first_start_without_a_password_names_the_remedy() {
    let place = Place::new();
    let output = place.run(&["--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    let line = last_line(&output);
    assert!(
        line.starts_with("farcore console: ") && line.contains("--admin-password-file"),
        "{line}"
    );
    assert!(!place.data().exists());
}

#[test]
fn wrong_flags_are_refused_with_a_remedy() {
    let place = Place::new();
    let password = place.password();
    let password = password.to_str().unwrap();
    fs::write(place.folder.path().join("short"), "short\n").unwrap();
    let short = place.folder.path().join("short");
    let short = short.to_str().unwrap();
    for (arguments, words) in [
        (
            vec!["--listen", "0.0.0.0:0", "--admin-password-file", password],
            "--behind-tls",
        ),
        (
            vec!["--listen", "[::]:0", "--admin-password-file", password],
            "--open-to-all",
        ),
        (
            vec!["--parallel", "0", "--admin-password-file", password],
            "write 1 to",
        ),
        (vec!["--admin-password-file", "/nowhere"], "/nowhere"),
        (
            vec!["--listen", "127.0.0.1:0", "--admin-password-file", short],
            "at least 12",
        ),
    ] {
        let output = place.run(&arguments);
        let line = last_line(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {line}");
        assert!(line.contains(words), "{arguments:?}: {line}");
    }
}

#[test]
fn signals_end_it_in_order_and_no_secret_is_logged() {
    for signal in ["TERM", "INT"] {
        let place = Place::new();
        let mut running = place.start(&["--admin-name", "root"]);
        running.sign_in("root");
        let run = running.start_run(1_000_000_000);
        running.follow(run, "running");
        let log = running.end(signal).join("\n");
        assert!(log.contains("stopped"), "{log}");
        assert!(!log.contains(PASSWORD), "{log}");
        assert!(!place.data().join("console.db-wal").exists());
        // The next start needs no password.
        fs::remove_file(place.password()).unwrap();
        let mut running = place.start(&[]);
        running.sign_in("root");
        assert_eq!(
            running.get(&format!("/api/runs/{run}"))["state"],
            "interrupted"
        );
    }
}

fn open(path: &Path) -> Connection {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap()
}

fn check_integrity(place: &Place) {
    for name in ["console.db", "data.db"] {
        let database = open(&place.data().join(name));
        let check = "PRAGMA integrity_check";
        let found: String = database.query_row(check, [], |row| row.get(0)).unwrap();
        assert_eq!(found, "ok", "{name}");
        let check = "SELECT count(*) FROM pragma_foreign_key_check";
        let found: i64 = database.query_row(check, [], |row| row.get(0)).unwrap();
        assert_eq!(found, 0, "{name}");
    }
    let console = open(&place.data().join("console.db"));
    // The words of the log fit its entries.
    let check = "INSERT INTO events_text (events_text) VALUES ('integrity-check')";
    console.execute(check, []).unwrap();
}

/// The number of stored points of a run.
fn stored(place: &Place, run: u64) -> i64 {
    let console = open(&place.data().join("console.db"));
    console.busy_timeout(PATIENCE).unwrap();
    let count = "SELECT count(*) FROM run_points WHERE run = ?1";
    console
        .query_row(count, [i64::try_from(run).unwrap()], |row| row.get(0))
        .unwrap()
}

#[test]
fn a_killed_process_leaves_an_interrupted_run_and_nothing_corrupt() {
    let place = Place::new();
    for least in [1, 100, 300] {
        let mut running = place.start(&["--parallel", "1"]);
        running.sign_in("admin");
        let run = running.start_run(100_000_000);
        let waiting = running.start_run(10_000);
        // Points are stored in batches of 64, the last of them while the next one is made.
        running.follow(run, &format!("id: {}", least + 65));
        running.process.signal("KILL");
        running.process.end();
        check_integrity(&place);
        let kept = stored(&place, run);
        assert!(kept >= least);
        let mut running = place.start(&["--parallel", "1"]);
        running.sign_in("admin");
        let shown = running.get(&format!("/api/runs/{run}"));
        assert_eq!(shown["state"], "interrupted", "{shown}");
        assert!(shown["ended_ms"].is_i64() && shown["progress"]["started"].as_i64() > Some(0));
        let series = running.get(&format!("/api/runs/{run}/series"));
        let rows = series["rows"].as_array().unwrap();
        assert_eq!(i64::try_from(rows.len()).unwrap(), kept);
        let times: Vec<_> = rows.iter().map(|row| row[0].as_f64().unwrap()).collect();
        assert!(times.is_sorted());
        let log = running.get(&format!("/api/logs?run={run}&level=warning"));
        assert!(log.to_string().contains("was interrupted"), "{log}");
        running.follow(waiting, "done");
        running.end("TERM");
        check_integrity(&place);
    }
}

/// Waits until a terminal has shown some words; returns all that it has shown.
fn wait_for(seen: &mut String, output: &std::sync::mpsc::Receiver<String>, wanted: &str) {
    let start = Instant::now();
    while !seen.contains(wanted) {
        let left = PATIENCE.saturating_sub(start.elapsed());
        match output.recv_timeout(left) {
            Ok(text) => seen.push_str(&text),
            Err(error) => panic!("no {wanted:?}: {error}\n{seen:?}"),
        }
    }
}

#[test]
fn the_terminal_asks_for_the_first_password_twice_and_does_not_show_it() {
    let place = Place::new();
    let (mut keys, line): (File, File) = terminal();
    let end = || Stdio::from(OwnedFd::from(line.try_clone().unwrap()));
    let mut command = command();
    command
        .args(["--listen", "127.0.0.1:0", "--data"])
        .arg(place.data());
    let child = command.stdin(end()).stdout(end()).stderr(end()).spawn();
    let process = Process(child.unwrap());
    let output = text_of(keys.try_clone().unwrap());
    let has_echo = || {
        tcgetattr(&line)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    };
    let mut seen = String::new();
    for (asked, typed) in [
        ("at least 12 characters: ", "short"),
        ("shorter than 12", ""),
        ("at least 12 characters: ", PASSWORD),
        ("The same again: ", "another good password"),
        ("not alike", ""),
        ("at least 12 characters: ", PASSWORD),
        ("The same again: ", PASSWORD),
    ] {
        wait_for(&mut seen, &output, asked);
        let at = seen.find(asked).unwrap() + asked.len();
        seen.drain(..at);
        if !typed.is_empty() {
            assert!(!has_echo());
            keys.write_all(format!("{typed}\n").as_bytes()).unwrap();
        }
    }
    wait_for(&mut seen, &output, "ready: http://");
    wait_for(&mut seen, &output, "\n");
    assert!(!seen.contains(PASSWORD), "{seen}");
    assert!(has_echo());
    let address = seen.split("ready: http://").nth(1).unwrap();
    let address = address.split_whitespace().next().unwrap().parse().unwrap();
    let mut running = Running {
        process,
        address,
        log: Lines::of(std::io::empty()),
        head: String::new(),
    };
    running.sign_in("admin");
    assert_eq!(running.get("/api/session")["user"]["role"], "administrator");
    running.end("INT");
}

#[test]
fn an_open_console_warns_and_answers_to_its_names() {
    let place = Place::new();
    let data = place.data();
    let password = place.password();
    let mut command = command();
    command
        .args([
            "--listen",
            "0.0.0.0:0",
            "--open-to-all",
            "--host",
            "console.example.org",
            "--data",
        ])
        .arg(&data)
        .arg("--admin-password-file")
        .arg(&password)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut out = Lines::of(process.0.stdout.take().unwrap());
    let mut log = Lines::of(process.0.stderr.take().unwrap());
    let port = out
        .wait("ready: http://0.0.0.0:")
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    log.wait("no encryption");
    for (host, status) in [
        (format!("127.0.0.1:{port}"), "200"),
        ("console.example.org".to_owned(), "200"),
        ("0.0.0.0".to_owned(), "421"),
        ("elsewhere.example.org".to_owned(), "421"),
    ] {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let head = format!("GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}")),
            "{host}: {text}"
        );
    }
    process.signal("TERM");
    assert_eq!(process.end().code(), Some(0));
}
