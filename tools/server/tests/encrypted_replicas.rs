//! Servers that follow each other over encrypted connections: what passes, and what is said where
//! one end expects something else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/sealed.rs"]
mod sealed;
mod support;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use farcore_server::TlsClientOptions;

use self::sealed::{BOTH, Files, NAME, Sealed};
use self::support::client::request;
use self::support::followers::{
    assert_equal, draw, figure, said, wait_for, wait_for_link, write_until,
};
use self::support::redis::Redis;
use self::support::{Client, Random, Reply, Served};

/// A server whose links are encrypted, and which shows a certificate if it has one.
fn replica(authority: PathBuf, identity: Option<(PathBuf, PathBuf)>) -> Served {
    Served::with(2, |options| {
        options.client_bytes = 256 << 20;
        options.replica.tls = Some(TlsClientOptions {
            authority,
            identity,
        });
    })
}

fn follow(client: &mut Client, host: &str, source: SocketAddr) {
    let port = source.port().to_string();
    assert_eq!(client.ask(&["REPLICAOF", host, &port]).text(), "OK");
}

/// Waits until the link is down because of something.
fn wait_for_error(client: &mut Client, parts: &[&str]) {
    wait_for(client, &format!("the error has {parts:?}"), |client| {
        let error = figure(client, "master_link_error");
        parts.iter().all(|part| error.contains(part))
    });
}

#[test]
fn a_server_follows_another_one_over_encrypted_links_that_are_cut_and_is_equal_to_it() {
    let files = Files::new();
    let identity = (files.path("client.pem"), files.path("client.key"));
    // One that demands certificates of clients, as Redis does by default.
    let served = files.serve_on(2, 256 << 20, Some("authority.pem"));
    let followed = replica(files.path("authority.pem"), Some(identity));
    let (mut source, mut here) = (served.client(), followed.client());
    let mut random = Random::new();
    for number in 0..3000 {
        let command = draw(&mut random, number);
        source.ask(&command);
    }
    said(&mut source, "SELECT 0");
    // Far more than one piece is sealed of.
    source.ask(&["SET", "long", &"x".repeat(3 << 20)]);
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (is_over, address) = (Arc::clone(&is_over), served.address);
        thread::spawn(move || write_until(address, &is_over, random, draw))
    };
    follow(&mut here, NAME, served.server().tls_address().unwrap());
    wait_for_link(&mut here);
    for round in 0..4u32 {
        let before = figure(&mut here, "replica_partial_syncs");
        wait_for(&mut here, "a link is cut", |here| {
            let killed = match round % 2 {
                0 => said(&mut source, "CLIENT KILL TYPE replica"),
                _ => said(here, "CLIENT KILL TYPE master"),
            };
            killed != "0"
        });
        wait_for(&mut here, "the stream goes on", |here| {
            figure(here, "replica_partial_syncs") != before
                || figure(here, "replica_full_syncs") != "1"
        });
        wait_for_link(&mut here);
    }
    is_over.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_eq!(said(&mut source, "WAIT 1 60000"), "1");
    wait_for(&mut here, "all is applied", |here| {
        figure(here, "slave_repl_offset") == figure(&mut source, "master_repl_offset")
    });
    assert_equal(&mut here, &mut source);
    assert!(said(&mut here, "CONFIG GET tls-replication").contains("yes"));
}

/// As Redis does by default, both ends show certificates.
#[test]
fn redis_follows_and_is_followed_over_encrypted_links() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let files = Files::new();
    let mut there = Client::connect(redis.address);
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let path = |name: &str| files.path(name).to_str().unwrap().to_owned();
    let set = there.ask(&[
        "CONFIG",
        "SET",
        "tls-cert-file",
        &path("server.pem"),
        "tls-key-file",
        &path("server.key"),
        "tls-ca-cert-file",
        &path("authority.pem"),
        "tls-port",
        &port.to_string(),
        "tls-replication",
        "yes",
    ]);
    if set.text() != "OK" {
        println!("this Redis has no TLS: {set}");
        return;
    }
    said(&mut there, "CONFIG SET repl-diskless-sync-delay 0");
    let served = files.serve_on(1, 64 << 20, Some("authority.pem"));
    served.client().ask(&["SET", "k", "v"]);
    follow(&mut there, NAME, served.server().tls_address().unwrap());
    wait_for_link(&mut there);
    assert_eq!(said(&mut there, "GET k"), "v");
    assert_eq!(said(&mut there, "REPLICAOF NO ONE"), "OK");
    let identity = (files.path("client.pem"), files.path("client.key"));
    let followed = replica(files.path("authority.pem"), Some(identity));
    let mut here = followed.client();
    follow(&mut here, NAME, ([127, 0, 0, 1], port).into());
    wait_for_link(&mut here);
    assert_eq!(said(&mut there, "SET k w"), "OK");
    assert_eq!(said(&mut there, "WAIT 1 60000"), "1");
    assert_eq!(said(&mut here, "GET k"), "w");
}

#[test]
fn what_is_wrong_with_an_encrypted_link_is_said() {
    let (files, others) = (Files::new(), Files::new());
    let served = files.serve_on(1, 64 << 20, None);
    let strict = files.serve_on(1, 64 << 20, Some("authority.pem"));
    let (plain, sealed) = (served.address, served.server().tls_address().unwrap());
    served.client().ask(&["SET", "k", "v"]);
    let wrong = replica(others.path("authority.pem"), None);
    let mut client = wrong.client();
    follow(&mut client, NAME, sealed);
    wait_for_error(
        &mut client,
        &["no encrypted connection", "certificate", "--replica-tls-ca"],
    );
    let right = replica(files.path("authority.pem"), None);
    let mut client = right.client();
    // The certificate is for a name.
    follow(&mut client, "127.0.0.1", sealed);
    wait_for_error(&mut client, &["certificate", "not valid", "for the host"]);
    // Nothing comes back there, as the first message has no end of a line.
    assert_eq!(said(&mut client, "CONFIG SET repl-timeout 1"), "OK");
    follow(&mut client, NAME, plain);
    wait_for_error(&mut client, &["no encrypted connection", "name the port"]);
    assert_eq!(said(&mut client, "CONFIG SET repl-timeout 60"), "OK");
    follow(&mut client, NAME, strict.server().tls_address().unwrap());
    wait_for_error(&mut client, &["ertificate", "--replica-tls-"]);
    // None of them has changed what is here, and the right one is found.
    follow(&mut client, NAME, sealed);
    wait_for_link(&mut client);
    assert_eq!(said(&mut client, "GET k"), "v");
    let unencrypted = Served::roomy(1);
    let mut client = unencrypted.client();
    follow(&mut client, NAME, sealed);
    wait_for_error(&mut client, &["without a reply", "--replica-tls-ca"]);
    assert_eq!(figure(&mut client, "replica_full_syncs"), "0");
}

/// As `redis-cli --tls --rdb` does.
#[test]
fn all_data_come_over_an_encrypted_connection_to_their_end() {
    let files = Files::new();
    let served = files.serve(None);
    let mut source = served.client();
    for key in 0..300 {
        let value = format!("{key}").repeat(1000);
        assert_eq!(
            source.ask(&["SET", &format!("key:{key}"), &value]).text(),
            "OK"
        );
    }
    for version in BOTH {
        let config = files.client_config(&[version], false);
        let mut client = Sealed::connect(&served, &config);
        assert_eq!(
            client.ask(&["REPLCONF", "rdb-only", "1"]).to_string(),
            "+OK"
        );
        client.write(&request(&["SYNC"])).unwrap();
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut client.0, &mut all).unwrap();
        let start = all.iter().position(|byte| *byte == b'R').unwrap();
        let length = std::str::from_utf8(&all[..start]).unwrap().trim();
        let length: usize = length.trim_start_matches('$').parse().unwrap();
        assert_eq!(all.len() - start, length);
        assert!(all[start..].starts_with(b"REDIS"));
    }
    assert!(matches!(source.ask(&["PING"]), Reply::Simple(_)));
}
