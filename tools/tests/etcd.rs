//! Servers of a cluster whose map lies in etcd: all of them get it, and one serves its slots only
//! while its lease holds. They run beside Debian's etcd (package `etcd-server`), and say so where
//! it is not installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::too_many_lines, reason = "a test tells one story")]

mod support;

use std::fs;
use std::io::{BufRead as _, Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use self::support::etcd::{Etcd, client};
use self::support::{PATIENCE, Serve, farcore};

/// The time of leases, the shortest one.
const LEASE: &str = "2s";
const PAUSE: Duration = Duration::from_millis(20);

impl Etcd {
    fn map(&self) -> String {
        self.address("shop/one")
    }

    /// Runs `farcore cluster` with the map in etcd; returns whether it succeeded and what it said.
    fn run(&self, words: &[&str]) -> (bool, String) {
        let mut command = farcore();
        command
            .arg("cluster")
            .args(words)
            .args(["--map", &self.map()]);
        let output = command.env("RUST_LOG", "off").output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    #[track_caller]
    fn succeeds(&self, words: &[&str]) -> String {
        let (succeeded, text) = self.run(words);
        assert!(succeeded, "{words:?}: {text}");
        text
    }

    /// A server of the cluster.
    fn serve(&self) -> Serve {
        Serve::start(&self.flags())
    }

    fn flags(&self) -> [&'static str; 6] {
        let address: &'static str = Box::leak(self.map().into_boxed_str());
        [
            "--cores",
            "0",
            "--cluster-map",
            address,
            "--cluster-lease",
            LEASE,
        ]
    }
}

/// Sends a command until its reply is one that is wanted.
#[track_caller]
fn until(server: &Serve, command: &str, is_wanted: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let line = server.line(command);
        let line = line.trim_end().to_owned();
        if is_wanted(&line) {
            return line;
        }
        assert!(begun.elapsed() < PATIENCE, "{command}: {line}");
        thread::sleep(PAUSE);
    }
}

fn is_fenced(line: &str) -> bool {
    line.starts_with("-CLUSTERDOWN The cluster is down")
}

#[test]
fn all_servers_get_the_map_and_serve_nothing_without_a_lease() {
    let Some(etcd) = Etcd::start() else { return };
    let servers = [etcd.serve(), etcd.serve()];
    let [one, two] = [0, 1].map(|number: usize| servers[number].address.to_string());
    until(&servers[0], "SET hello world", |line| {
        line == "-CLUSTERDOWN Hash slot not served"
    });
    let both = format!("{one},{two}");
    etcd.succeeds(&["create", "--servers", &both]);
    let (succeeded, text) = etcd.run(&["create", "--servers", &both]);
    assert!(!succeeded && text.contains("a map already"), "{text}");
    // Slot of hello: 866.
    until(&servers[0], "SET hello world", |line| line == "+OK");
    let moved = format!("-MOVED 866 {one}");
    until(&servers[1], "GET hello", |line| line == moved);
    assert!(!etcd.succeeds(&["show"]).contains("no lease"));
    etcd.succeeds(&["check"]);
    // Slots that move: both get the map from etcd.
    let mut command = farcore();
    command.args(["cluster", "move-slots", "--server", &one, "--from", &one]);
    let output = command.args(["--to", &two, "--slots", "866"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(servers[1].line("GET hello").trim_end(), "$5");
    assert!(etcd.succeeds(&["show"]).contains("version 2"));
    // A failover needs the end of a lease.
    let (succeeded, text) = etcd.run(&["failover", "--old", &one, "--wait", "0s"]);
    assert!(!succeeded && text.contains("has its lease"), "{text}");
    // Without etcd they stop after a while, and go on when it is there again.
    assert!(servers[1].line("CLUSTER INFO").starts_with('$'));
    etcd.signal(Signal::STOP);
    for server in &servers {
        until(server, "SET hello later", is_fenced_or_moved);
    }
    until(&servers[1], "GET hello", is_fenced);
    etcd.signal(Signal::CONT);
    until(&servers[1], "GET hello", |line| line == "$5");
    // One that ends in order has no lease any more.
    let [mut first, second] = servers;
    first.process.signal("TERM");
    assert!(first.process.end().success());
    until(&second, "GET hello", |line| line == "$5");
    assert_eq!(etcd.succeeds(&["show"]).matches("has no lease").count(), 1);
}

fn is_fenced_or_moved(line: &str) -> bool {
    is_fenced(line) || line.starts_with("-MOVED")
}

#[test]
fn the_slots_of_one_that_is_gone_become_those_of_its_follower() {
    let Some(etcd) = Etcd::start() else { return };
    let old = etcd.serve();
    let follower = etcd.serve();
    let other = etcd.serve();
    let [old_at, follower_at, other_at] =
        [&old, &follower, &other].map(|server| server.address.to_string());
    etcd.succeeds(&["create", "--servers", &format!("{old_at},{other_at}")]);
    until(&old, "SET hello world", |line| line == "+OK");
    let mut command = farcore();
    command.args(["cluster", "add", "--server", &old_at, "--new", &follower_at]);
    let output = command.args(["--follows", &old_at]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // The map has it follow: it was not started with --replica-of.
    until(&old, "WAIT 1 100", |line| line == ":1");
    until(&old, "SET hello moons", |line| line == "+OK");
    let begun = Instant::now();
    loop {
        let mut stream = old.connect();
        stream
            .get_mut()
            .write_all(b"SET hello worlds\r\nWAIT 1 1000\r\n")
            .unwrap();
        let mut lines = String::new();
        for _ in 0..2 {
            stream.read_line(&mut lines).unwrap();
        }
        if lines == "+OK\r\n:1\r\n" {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{lines}");
    }
    // It stops, as a host that hangs, and comes back when others have its slots.
    old.process.signal("STOP");
    let (succeeded, text) = etcd.run(&["failover", "--old", &old_at, "--new", &other_at]);
    assert!(!succeeded && text.contains("does not follow"), "{text}");
    let text = etcd.succeeds(&["failover", "--old", &old_at]);
    assert!(
        text.contains(&format!("{follower_at} has the slots of {old_at}")),
        "{text}"
    );
    until(&follower, "GET hello", |line| line == "$6");
    until(&follower, "SET hello world", |line| line == "+OK");
    let mut held = old.connect();
    old.process.signal("CONT");
    {
        held.get_mut().write_all(b"SET hello lost\r\n").unwrap();
        let mut line = String::new();
        held.read_line(&mut line).unwrap();
        assert!(is_fenced_or_moved(&line), "{line}");
    }
    // It follows the other one then.
    let moved = format!("-MOVED 866 {follower_at}");
    until(&old, "GET hello", |line| line == moved);
    until(&follower, "WAIT 1 100", |line| line == ":1");
    assert_eq!(follower.line("GET hello").trim_end(), "$5");
    let map = etcd.folder.path().join("map");
    fs::write(&map, "a file is no place for it").unwrap();
    let output = farcore()
        .args(["cluster", "failover", "--old", &old_at, "--map"])
        .arg(&map)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("name a map in etcd"), "{text}");
}

/// The map that a server goes by.
fn map_of(server: &Serve) -> String {
    let mut stream = server.connect();
    stream.get_mut().write_all(b"CLUSTERX MAP\r\n").unwrap();
    let mut length = String::new();
    stream.read_line(&mut length).unwrap();
    let length = length.trim_end().strip_prefix('$').unwrap();
    let mut text = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_pushed_map_takes_no_slots_from_one_that_has_its_lease() {
    let Some(etcd) = Etcd::start() else { return };
    let servers = [etcd.serve(), etcd.serve()];
    let addresses = [0, 1].map(|number: usize| servers[number].address.to_string());
    etcd.succeeds(&["create", "--servers", &addresses.join(",")]);
    until(&servers[0], "SET hello world", |line| line == "+OK");
    until(&servers[1], "GET hello", |line| line.starts_with("-MOVED"));
    // Slot of hello: 866, which is the first server's.
    let map = map_of(&servers[0]);
    let lines = map.split_once('\n').unwrap().1;
    let taken = lines.replace("0-8191", "0-865 867-8191");
    let taken = taken.replace("8192-16383", "866 8192-16383");
    assert_ne!(taken, lines, "{map}");
    let push = |lines: &str, rest: &str| {
        let quoted = lines.trim_end().replace('\n', "\\n");
        format!("CLUSTERX SETNODES \"{quoted}\" {rest}")
    };
    for rest in ["2", "2 FORCE"] {
        let refused = servers[1].line(&push(&taken, rest));
        assert!(refused.contains("has its lease"), "{refused}");
    }
    assert_eq!(servers[0].line("SET hello again").trim_end(), "+OK");
    assert_eq!(map_of(&servers[1]), map);
    // The one that loses them may say so itself. All of them hear of it.
    assert_eq!(servers[0].line(&push(&taken, "2")).trim_end(), "+OK");
    until(&servers[1], "SET hello there", |line| line == "+OK");
    until(&servers[0], "GET hello", |line| line.starts_with("-MOVED"));
    // A lower version that is forced is what etcd has, so it counts at all of them.
    until(&servers[1], &push(lines, "1 FORCE"), |line| line == "+OK");
    until(&servers[0], "GET hello", |line| line == "$5");
    until(&servers[1], "GET hello", |line| line.starts_with("-MOVED"));
    // Without a map they serve nothing.
    let client = client(&etcd.map());
    client.delete(&client.key("map")).unwrap();
    until(&servers[0], "GET hello", is_fenced);
    until(&servers[0], "FLUSHALL", is_fenced);
}
