//! Encrypted connections: what rustls's client sends and receives over them, who is refused, and
//! what a client can do that speaks something else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/sealed.rs"]
mod sealed;
mod support;

use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;

use farcore_server::TlsOptions;
use rcgen::KeyPair;
use rustls::ClientConnection;

use self::sealed::{BOTH, Files, NAME, Sealed, plain_stream};
use self::support::client::request;
use self::support::{Random, Reply, wait_until};

#[test]
fn commands_are_served_in_both_versions() {
    let files = Files::new();
    let served = files.serve(None);
    let long: Vec<u8> = (0..=250).cycle().take(300_000).collect();
    for version in BOTH {
        let config = files.client_config(&[version], false);
        let mut client = Sealed::connect(&served, &config);
        assert_eq!(client.ask(&["PING"]).to_string(), "+PONG");
        // Values of many records, and one that is stored in pieces.
        for bytes in [100, 20_000, 60_000, 300_000] {
            let value = &long[..bytes];
            assert_eq!(client.ask(&[&b"SET"[..], b"k", value]).to_string(), "+OK");
            assert_eq!(client.ask(&["GET", "k"]), Reply::Bulk(value.to_vec()));
        }
        let pipeline: Vec<u8> = (0..2000)
            .flat_map(|at| request(&["ECHO", &at.to_string()]))
            .collect();
        client.write(&pipeline).unwrap();
        for at in 0..2000 {
            let reply = Reply::read(&mut client.0).unwrap().unwrap();
            assert_eq!(reply.text(), at.to_string());
        }
        assert_eq!(client.ask(&["QUIT"]).to_string(), "+OK");
        // The end is said, so nothing can have been cut off.
        assert_eq!(client.0.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
    // The other port is as it was.
    assert_eq!(served.client().ask(&["GET", "k"]), Reply::Bulk(long));
}

/// Clients that were disconnected because memory is short could take what is freed by connecting
/// again: a handshake takes memory before it sends a command.
#[test]
fn encrypted_connections_wait_for_memory() {
    const CLIENT_BYTES: usize = 1 << 20;
    const MORE: usize = 200;
    let files = Files::new();
    let mut served = files.serve_on(1, CLIENT_BYTES, None);
    let config = files.client_config(BOTH, false);
    let mut clients = Vec::new();
    while served.figures().connection_bytes < CLIENT_BYTES as u64 / 2 {
        let mut client = Sealed::connect(&served, &config);
        assert_eq!(client.ask(&["PING"]).to_string(), "+PONG");
        clients.push(client);
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..MORE {
            scope.spawn(|| {
                let mut client = Sealed::connect(&served, &config);
                let reply = client.ask(&["PING"]).to_string();
                sender.clone().send((client, reply)).unwrap();
            });
        }
        let all = (clients.len() + MORE) as u64;
        wait_until("all are accepted", || served.figures().connections == all);
        // Those that were served leave, so that all others come to their turn.
        drop(clients);
        for _ in 0..MORE {
            let (_, reply) = receiver.recv().unwrap();
            assert_eq!(reply, "+PONG");
        }
    });
    assert_eq!(served.figures().evicted_clients, 0);
    served.stop();
}

#[test]
fn an_encrypted_client_that_does_not_read_holds_little() {
    const GETS: usize = 200;
    const HELD_BYTES_MAX: usize = 1 << 20;
    let files = Files::new();
    let served = files.serve(None);
    let mut client = Sealed::connect(&served, &files.client_config(BOTH, false));
    let value: Vec<u8> = (0..=250).cycle().take(60_000).collect();
    assert_eq!(client.ask(&[&b"SET"[..], b"k", &value]).to_string(), "+OK");
    client.ask(&["CLIENT", "SETNAME", "unread"]);
    client.write(&request(&["GET", "k"]).repeat(GETS)).unwrap();
    let mut other = served.word_client();
    let mut figure = |name: &str| {
        let list = other.call("CLIENT LIST");
        let line = list.split("\\n").find(|line| line.contains("name=unread"));
        let (_, figure) = line.unwrap().split_once(name).unwrap();
        figure.split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    wait_until("replies wait", || figure("omem=") > 0);
    let mut sent = 0;
    wait_until("no more is sent", || {
        let before = std::mem::replace(&mut sent, served.figures().sent_bytes);
        let held = figure("tot-mem=");
        assert!(held < HELD_BYTES_MAX, "{held} bytes");
        std::thread::sleep(std::time::Duration::from_millis(50));
        sent < before + 10_000
    });
    for _ in 0..GETS {
        let reply = Reply::read(&mut client.0).unwrap().unwrap();
        assert!(reply == Reply::Bulk(value.clone()));
    }
}

#[test]
fn records_may_come_byte_by_byte() {
    let files = Files::new();
    let served = files.serve(None);
    let config = files.client_config(BOTH, false);
    let mut connection = ClientConnection::new(config, NAME.try_into().unwrap()).unwrap();
    let mut stream = plain_stream(&served);
    connection
        .writer()
        .write_all(&request(&["ECHO", "slowly"]))
        .unwrap();
    let mut plain = Vec::new();
    while plain.len() < 12 {
        let mut sealed = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut sealed).unwrap();
        }
        for byte in sealed {
            stream.write_all(&[byte]).unwrap();
        }
        if connection.wants_read() {
            connection.read_tls(&mut stream).unwrap();
            connection.process_new_packets().unwrap();
        }
        // Nothing may be there yet.
        let _ = connection.reader().read_to_end(&mut plain);
    }
    assert_eq!(plain, b"$6\r\nslowly\r\n");
}

#[test]
fn clients_without_a_certificate_are_refused_where_one_is_needed() {
    let files = Files::new();
    let served = files.serve(Some("authority.pem"));
    let known = files.client_config(BOTH, true);
    assert_eq!(
        Sealed::connect(&served, &known).ask(&["PING"]).to_string(),
        "+PONG"
    );
    for version in BOTH {
        let unknown = files.client_config(&[version], false);
        let refused = Sealed::connect(&served, &unknown).try_ask(&["SET", "k", "v"]);
        assert!(!matches!(refused, Ok(Some(_))), "{refused:?}");
        // A certificate of another authority.
        let stranger = Files::new();
        stranger.write(
            "authority.pem",
            &std::fs::read_to_string(files.path("authority.pem")).unwrap(),
        );
        let stranger = stranger.client_config(&[version], true);
        let refused = Sealed::connect(&served, &stranger).try_ask(&["SET", "k", "v"]);
        assert!(!matches!(refused, Ok(Some(_))), "{refused:?}");
    }
    assert_eq!(
        Sealed::connect(&served, &known).ask(&["GET", "k"]),
        Reply::Null
    );
}

#[test]
fn hostile_bytes_end_only_their_own_connection() {
    let files = Files::new();
    let served = files.serve(None);
    let config = files.client_config(BOTH, false);
    let mut friend = Sealed::connect(&served, &config);
    assert_eq!(friend.ask(&["PING"]).to_string(), "+PONG");
    let mut random = Random::new();
    let mut hello = Vec::new();
    let mut connection =
        ClientConnection::new(Arc::clone(&config), NAME.try_into().unwrap()).unwrap();
    connection.write_tls(&mut hello).unwrap();
    let mut attempts = vec![
        b"PING\r\n".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 70_000],
        vec![0xff; 70_000],
        [&hello[..], b"PING\r\n"].concat(),
        [&hello[..], &hello[..]].concat(),
    ];
    for _ in 0..40 {
        let mut changed = hello.clone();
        let place = random.below(changed.len());
        changed[place] ^= 1 << random.below(8);
        attempts.push(changed);
        attempts.push(
            (0..random.below(2000))
                .map(|_| u8::try_from(random.below(256)).unwrap())
                .collect(),
        );
    }
    for bytes in attempts {
        let mut stream = plain_stream(&served);
        // It may be closed before all is sent.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        assert!(!reply.starts_with(b"+PONG"), "a plain reply");
        assert!(served.server().is_serving(), "{bytes:?}");
    }
    assert_eq!(friend.ask(&["PING"]).to_string(), "+PONG");
    let reporter = served.server().reporter();
    wait_until("only the friend is left", || {
        reporter.figures().total().connections == 1
    });
}

#[test]
fn idle_encrypted_connections_take_little_memory() {
    let files = Files::new();
    let served = files.serve(None);
    let config = files.client_config(BOTH, false);
    let value = vec![b'x'; 30_000];
    let mut clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = Sealed::connect(&served, &config);
            client.ask(&[&b"SET"[..], b"k", &value]);
            assert_eq!(client.ask(&["GET", "k"]), Reply::Bulk(value.clone()));
            client
        })
        .collect();
    let reporter = served.server().reporter();
    wait_until("their buffers are given back", || {
        clients[0].ask(&["PING"]);
        reporter.figures().total().connection_bytes < 20 * (12 << 10)
    });
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let files = Files::new();
    files.write("empty.pem", "");
    files.write("other.key", &KeyPair::generate().unwrap().serialize_pem());
    let load = |certificate: &str, key: &str, authority: Option<&str>| {
        let engine = support::small_engine(1);
        let mut options = farcore_server::Options::new(([127, 0, 0, 1], 0).into());
        options.tls = Some(TlsOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            certificate: files.path(certificate),
            key: files.path(key),
            client_authority: authority.map(|name| files.path(name)),
        });
        let started = farcore_server::Server::start(&engine, options);
        started.map(|_| ()).unwrap_err().to_string()
    };
    for (certificate, key, authority, named) in [
        ("none.pem", "server.key", None, "none.pem"),
        (
            "empty.pem",
            "server.key",
            None,
            "empty.pem: no certificate is in it",
        ),
        ("server.pem", "none.key", None, "none.key"),
        ("server.pem", "empty.pem", None, "empty.pem"),
        ("server.pem", "other.key", None, "server.pem"),
        ("server.pem", "server.key", Some("empty.pem"), "empty.pem"),
    ] {
        let error = load(certificate, key, authority);
        assert!(error.contains(named), "{error}");
    }
}
