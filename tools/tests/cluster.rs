//! Servers of a cluster as an operator has them: a map is made, slots are moved between servers,
//! and servers come and go.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::too_many_lines, reason = "a test tells one story")]

mod support;

#[cfg(feature = "tls")]
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;
use std::{fs, process};

#[cfg(feature = "tls")]
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use self::support::{PATIENCE, Serve, farcore};

/// Servers that look for their maps in files of a folder.
struct Cluster {
    servers: Vec<Serve>,
    folder: TempDir,
}

fn map_of(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("map-{number}"))
}

impl Cluster {
    fn start(count: usize) -> Self {
        let folder = TempDir::new().unwrap();
        let password = folder.path().join("password");
        fs::write(&password, "correct horse battery\n").unwrap();
        let server = |number| {
            let map = map_of(folder.path(), number);
            let (map, password) = (map.to_str().unwrap(), password.to_str().unwrap());
            Serve::start(&[
                "--cores",
                "0",
                "--password-file",
                password,
                "--replica-auth-file",
                password,
                "--cluster-map",
                map,
            ])
        };
        Self {
            servers: (0..count).map(server).collect(),
            folder,
        }
    }

    fn address(&self, number: usize) -> String {
        self.servers[number].address.to_string()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs `farcore cluster` with words; returns whether it succeeded, and what it printed.
    fn run(&self, words: &[impl AsRef<str>]) -> (bool, String) {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        let mut command = farcore();
        command.arg("cluster").args(&words).env("RUST_LOG", "off");
        if !["create", "show", "check"].contains(&words[0]) {
            let password = self.path("password");
            let server = self.address(0);
            command.args(["--server", &server, "--auth-file", &password]);
        }
        let process::Output {
            status,
            stdout,
            stderr,
        } = command.output().unwrap();
        let text = [stdout, stderr].concat();
        (status.success(), String::from_utf8(text).unwrap())
    }

    #[track_caller]
    fn succeeds(&self, words: &[impl AsRef<str> + std::fmt::Debug]) -> String {
        let (succeeded, text) = self.run(words);
        assert!(succeeded, "{words:?}: {text}");
        text
    }

    #[track_caller]
    fn fails(&self, words: &[impl AsRef<str> + std::fmt::Debug], reason: &str) {
        let (succeeded, text) = self.run(words);
        assert!(!succeeded && text.contains(reason), "{words:?}: {text}");
    }

    /// The first line of the reply of a server.
    fn line(&self, number: usize, command: &str) -> String {
        use std::io::{BufRead as _, Write as _};
        let mut stream = self.servers[number].connect();
        let request = format!("AUTH \"correct horse battery\"\r\n{command}\r\n");
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        for _ in 0..2 {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        line.trim_end().to_owned()
    }

    fn version(&self, number: usize) -> String {
        let map = fs::read_to_string(map_of(self.folder.path(), number)).unwrap();
        map.lines().next().unwrap().to_owned()
    }
}

#[test]
fn slots_and_servers_are_moved_by_commands() {
    let cluster = Cluster::start(4);
    let three = [0, 1, 2].map(|number| cluster.address(number)).join(",");
    let first = cluster.path("first");
    cluster.succeeds(&["create", "--map", &first, "--servers", &three]);
    for number in 0..3 {
        fs::copy(&first, map_of(cluster.folder.path(), number)).unwrap();
    }
    let begun = Instant::now();
    // Slot of hello: 866.
    while cluster.line(0, "SET hello world") != "+OK" {
        assert!(begun.elapsed() < PATIENCE);
        thread::yield_now();
    }
    let [one, two, fourth] = [0, 1, 3].map(|number| cluster.address(number));
    let moves = |rest: &[&str]| -> Vec<String> {
        let words = ["move-slots", "--from", &one, "--to"];
        let words = words.iter().chain(rest);
        words.map(|word| (*word).to_owned()).collect()
    };
    let moved = cluster.succeeds(&moves(&[&two, "--slots", "866,1000-1999"]));
    assert!(moved.contains("1001 slots move from"), "{moved}");
    assert!(
        moved.contains("all servers have the map of version 2"),
        "{moved}"
    );
    for number in 0..3 {
        assert_eq!(cluster.version(number), "version 2");
    }
    assert_eq!(cluster.line(0, "GET hello"), format!("-MOVED 866 {two}"));
    assert_eq!(cluster.line(1, "GET hello"), "$5");
    // What is not the first server's, what it is given already, and one that is unknown.
    cluster.fails(&moves(&[&two, "--slots", "866"]), "slot 866 is not of");
    cluster.fails(&moves(&[&one, "--count", "1"]), "it has them already");
    cluster.fails(
        &moves(&["h:1", "--count", "1"]),
        "neither an ID nor an address",
    );
    cluster.fails(&moves(&[&two, "--count", "16000"]), "owns 4461 slots");
    // A server comes, gets slots, and cannot go with them.
    cluster.succeeds(&["add", "--new", &fourth]);
    cluster.fails(&["add", "--new", &fourth], "is there twice");
    cluster.fails(&["add", "--new", "127.0.0.1:1"], "refused");
    cluster.succeeds(&[
        "move-slots",
        "--from",
        &two,
        "--to",
        &fourth,
        "--slots",
        "866",
    ]);
    assert_eq!(cluster.line(3, "GET hello"), "$5");
    cluster.fails(&["remove", "--old", &fourth], "it owns 1 slots");
    cluster.succeeds(&[
        "move-slots",
        "--from",
        &fourth,
        "--to",
        &two,
        "--slots",
        "866",
    ]);
    cluster.succeeds(&["remove", "--old", &fourth]);
    assert_eq!(cluster.line(3, "GET hello"), format!("-MOVED 866 {two}"));
    // A server that was away gets the map that it has missed.
    let stale = fs::read_to_string(&first)
        .unwrap()
        .replace("version 1", "version 99");
    fs::write(cluster.path("beside"), &stale).unwrap();
    fs::rename(cluster.path("beside"), map_of(cluster.folder.path(), 2)).unwrap();
    while !cluster.line(2, "GET hello").contains(&one) {
        assert!(begun.elapsed() < PATIENCE);
    }
    let shared = cluster.succeeds(&["share"]);
    assert!(shared.contains("version 99"), "{shared}");
    for number in 0..3 {
        assert_eq!(cluster.version(number), "version 99");
    }
}

/// Writes the certificate of an authority, and one that it has made for a name, with its key.
#[cfg(feature = "tls")]
fn write_certificates(folder: &Path, name: &str) {
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let names = &mut authority.distinguished_name;
    names.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    let certificate = authority.self_signed(&key).unwrap();
    fs::write(folder.join("authority.pem"), certificate.pem()).unwrap();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    fs::write(folder.join("server.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("server.key"), key.serialize_pem()).unwrap();
}

/// A server that others reach encrypted alone, by the name of its host, and must show a certificate
/// to; and its address.
#[cfg(feature = "tls")]
fn start_encrypted(folder: &Path, number: usize) -> (Serve, String) {
    // A port that was free a moment ago.
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let path = |name: &str| folder.join(name).display().to_string();
    let (listen, address) = (format!("127.0.0.1:{port}"), format!("localhost:{port}"));
    let (password, authority) = (path("password"), path("authority.pem"));
    let (certificate, key) = (path("server.pem"), path("server.key"));
    let map = map_of(folder, number).display().to_string();
    let flags = [
        ("--cores", "0"),
        ("--password-file", &password[..]),
        ("--tls", &listen),
        ("--tls-cert", &certificate),
        ("--tls-key", &key),
        ("--tls-ca", &authority),
        ("--replica-auth-file", &password),
        ("--replica-tls-ca", &authority),
        ("--replica-tls-cert", &certificate),
        ("--replica-tls-key", &key),
        ("--cluster-map", &map),
        ("--cluster-announce", &address),
    ];
    let flags: Vec<_> = flags.into_iter().flat_map(<[&str; 2]>::from).collect();
    (Serve::start(&flags), address)
}

#[cfg(feature = "tls")]
#[test]
fn commands_reach_servers_that_accept_encrypted_connections() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    fs::write(here.join("password"), "correct horse battery\n").unwrap();
    write_certificates(here, "localhost");
    let (servers, addresses): (Vec<_>, Vec<_>) =
        (0..3).map(|number| start_encrypted(here, number)).unzip();
    let [one, two, three] = [0, 1, 2].map(|number: usize| &addresses[number][..]);
    let cluster = Cluster { servers, folder };
    let two_of_them = format!("{one},{two}");
    let first = cluster.path("first");
    cluster.succeeds(&["create", "--map", &first, "--servers", &two_of_them]);
    for number in 0..2 {
        fs::copy(&first, map_of(cluster.folder.path(), number)).unwrap();
    }
    let begun = Instant::now();
    while cluster.line(0, "SET hello world") != "+OK" {
        assert!(begun.elapsed() < PATIENCE);
        thread::yield_now();
    }
    let names = ["password", "authority.pem", "server.pem", "server.key"];
    let [password, authority, certificate, key] = names.map(|name| cluster.path(name));
    let run = |words: &[&str], tls: &[&str]| {
        let mut command = farcore();
        command.arg("cluster").args(words).env("RUST_LOG", "off");
        command.args(["--server", one, "--auth-file", &password]);
        let process::Output {
            status,
            stdout,
            stderr,
        } = command.args(tls).output().unwrap();
        let text = String::from_utf8([stdout, stderr].concat()).unwrap();
        (status.success(), text)
    };
    let encrypted = ["--tls-ca", &authority];
    let shown = ["--tls-cert", &certificate, "--tls-key", &key];
    let all = [&encrypted[..], &shown].concat();
    let moved = ["move-slots", "--from", one, "--to", two, "--slots", "866"];
    for words in [
        &moved[..],
        &["add", "--new", three, "--follows", two],
        &["remove", "--old", three],
        &["share"],
    ] {
        let (succeeded, text) = run(words, &all);
        assert!(succeeded, "{words:?}: {text}");
    }
    let there = format!("-MOVED 866 {two}");
    assert_eq!(cluster.line(0, "GET hello"), there);
    assert_eq!(cluster.line(1, "GET hello"), "$5");
    // In the clear, without a certificate, and with another authority.
    let other = [&["--tls-ca", &certificate][..], &shown].concat();
    let missing = cluster.path("none.pem");
    let none = [&["--tls-ca", &missing][..], &shown].concat();
    for (tls, reason) in [
        (&[][..], "give --tls-ca"),
        (&encrypted, "give --tls-cert"),
        (&other, "no encrypted connection: invalid peer certificate"),
        (&none, "none.pem"),
    ] {
        let (succeeded, text) = run(&["share"], tls);
        assert!(!succeeded && text.contains(reason), "{tls:?}: {text}");
    }
}
