//! Connections that do not authenticate beside clients that do: the clients lose nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farcore_server::Options;

use self::support::{Client, Reply, Served, wait_until};

const PASSWORD: &str = "a good password";
/// What a client does beside the others.
const ROUNDS: usize = 60;

fn served(cores: usize, change: impl FnOnce(&mut Options)) -> Served {
    Served::with(cores, |options| {
        options.password = Some(PASSWORD.to_owned().into());
        change(options);
    })
}

/// A client that has authenticated.
fn client(served: &Served) -> Client {
    let mut client = served.client();
    assert_eq!(client.ask(&["AUTH", PASSWORD]).to_string(), "+OK");
    client
}

/// Connections that do not authenticate and go on for as long as they are not dropped.
struct Crowd {
    streams: Vec<Option<TcpStream>>,
    address: SocketAddr,
}

impl Crowd {
    fn new(address: SocketAddr, count: usize) -> Self {
        let mut crowd = Self {
            streams: (0..count).map(|_| None).collect(),
            address,
        };
        crowd.turn(b"");
        crowd
    }

    /// Has each send as much as goes at once; those that are disconnected come again.
    fn turn(&mut self, bytes: &[u8]) {
        for stream in &mut self.streams {
            let is_there = stream.as_mut().is_some_and(|one| match one.write(bytes) {
                Ok(_) => true,
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            });
            if !is_there {
                *stream = TcpStream::connect(self.address).ok();
                if let Some(stream) = stream {
                    stream.set_nonblocking(true).unwrap();
                }
            }
        }
    }
}

/// Has two clients with the password, one of which connects anew each time, use long values beside
/// a crowd that sends `bytes` again and again. Nothing of theirs fails, and none is disconnected.
fn serves_clients_beside(served: &Served, count: usize, bytes: &[u8]) {
    let is_over = AtomicBool::new(false);
    let mut stays = client(served);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut crowd = Crowd::new(served.address, count);
            while !is_over.load(Ordering::Relaxed) {
                crowd.turn(bytes);
            }
        });
        wait_until("the crowd has come", || {
            let figures = served.figures();
            figures.unauthenticated + figures.evicted_unauthenticated >= count as u64 / 2
        });
        let value = vec![b'v'; 100_000];
        for round in 0..ROUNDS {
            let key = format!("k{round}");
            let set = [&b"SET"[..], key.as_bytes(), &value];
            assert_eq!(stays.ask(&set).to_string(), "+OK");
            let mut other = client(served);
            assert_eq!(other.ask(&["GET", &key]), Reply::Bulk(value.clone()));
            assert_eq!(stays.ask(&["GET", &key]), Reply::Bulk(value.clone()));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let figures = served.figures();
    assert_eq!(figures.evicted_clients, 0, "{figures:?}");
}

#[test]
fn many_that_send_commands_and_never_read_disconnect_no_client() {
    for cores in [1, 2] {
        let served = served(cores, |_| {});
        let get = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(200);
        serves_clients_beside(&served, 600, &get);
    }
}

#[test]
fn many_that_say_nothing_leave_places_to_clients() {
    for cores in [1, 2] {
        let served = served(cores, |options| options.clients_max = 200);
        let mut crowd = Crowd::new(served.address, 300);
        wait_until("some make room", || {
            served.figures().evicted_unauthenticated >= 100
        });
        // A part of the places is out of their reach.
        wait_until("they have their places", || {
            served.figures().unauthenticated <= 175
        });
        serves_clients_beside(&served, 300, b"");
        // All places together are limited, and all are for clients if they come.
        let clients: Vec<_> = (0..200).map(|_| client(&served)).collect();
        let mut last = served.client();
        assert!(last.read().is_none_or(|reply| reply.is_error()));
        crowd.turn(b"");
        assert_eq!(served.figures().connections, clients.len() as u64);
        assert_eq!(served.figures().unauthenticated, 0);
    }
}

#[test]
fn many_that_send_a_part_of_a_command_take_a_share_of_the_memory() {
    for cores in [1, 2] {
        let served = served(cores, |_| {});
        let mut crowd = Crowd::new(served.address, 200);
        crowd.turn(b"*10\r\n$16000\r\n");
        for _ in 0..20 {
            crowd.turn(&[b'x'; 8 << 10]);
            assert!(served.figures().connection_bytes <= (16 << 20) / 16 + (1 << 20));
        }
        let half = [&b"*3\r\n$4\r\nAUTH\r\n$16000\r\n"[..], &[b'x'; 15_000]].concat();
        serves_clients_beside(&served, 300, &half);
        assert!(served.figures().evicted_unauthenticated > 0);
    }
}

#[test]
fn one_that_does_not_authenticate_is_late_and_a_client_is_not() {
    let served = served(2, |options| {
        options.authentication_limit = Duration::from_millis(1);
    });
    let (mut stays, mut silent) = (client(&served), served.client());
    assert_eq!(silent.read(), None);
    wait_until("it is counted", || {
        served.figures().late_unauthenticated == 1
    });
    assert_eq!(stays.say("PING"), "+PONG");
    // One that knew the password goes on, whatever it says.
    assert_eq!(stays.say("RESET"), "+RESET");
    let mut silent = served.client();
    assert_eq!(silent.read(), None);
    assert_eq!(stays.say("PING"), "-NOAUTH Authentication required.");
    assert_eq!(stays.ask(&["AUTH", PASSWORD]).to_string(), "+OK");
    let text = stays.ask(&["INFO", "everything"]).text();
    assert!(
        text.contains("\nlate_unauthenticated_clients:2\r\n"),
        "{text}"
    );
    assert!(text.contains("\nunauthenticated_clients:0\r\n"), "{text}");
}

#[test]
fn a_server_without_a_password_has_none() {
    let served = Served::with(1, |options| {
        options.authentication_limit = Duration::from_millis(1);
        options.clients_max = 50;
    });
    let mut clients: Vec<_> = (0..50).map(|_| served.client()).collect();
    for client in &mut clients {
        assert_eq!(client.say("PING"), "+PONG");
    }
    let figures = served.figures();
    assert_eq!((figures.unauthenticated, figures.connections), (0, 50));
}

#[test]
fn replies_to_pipelined_commands_come_one_by_one_and_in_order() {
    let served = served(1, |_| {});
    let mut client = served.client();
    let mut bytes = b"PING\r\n".repeat(500);
    bytes.extend_from_slice(format!("AUTH default \"{PASSWORD}\"\r\n").as_bytes());
    bytes.extend(b"PING\r\n".repeat(500));
    client.write(&bytes);
    for _ in 0..500 {
        let refusal = Reply::Error("NOAUTH Authentication required.".to_owned());
        assert_eq!(client.read(), Some(refusal));
    }
    assert_eq!(client.read(), Some(Reply::Simple("OK".to_owned())));
    for _ in 0..500 {
        assert_eq!(client.read(), Some(Reply::Simple("PONG".to_owned())));
    }
}

#[test]
fn wrong_passwords_take_ever_longer_and_a_right_one_is_served() {
    let served = served(2, |options| {
        options.authentication_limit = Duration::from_secs(1);
    });
    let mut client = served.client();
    client.write(&b"AUTH wrong\r\n".repeat(1000));
    // 10 ms, 20, 40 and so on: few fit into the time for authentication.
    let mut wrong = 0;
    while let Some(reply) = client.read() {
        assert!(reply.to_string().starts_with("-WRONGPASS"), "{reply}");
        wrong += 1;
    }
    assert!(
        (2..=10).contains(&wrong),
        "{wrong} passwords were looked at"
    );
    let figures = served.figures();
    assert_eq!(figures.failed_authentications, wrong);
    assert_eq!(figures.late_unauthenticated, 1);
    // Connections for one guess each are delayed together, HELLO too; a right password is served.
    for guess in 0..30 {
        let mut other = served.client();
        let reply = if guess % 2 == 0 {
            other.say("AUTH wrong")
        } else {
            other.say("HELLO 3 AUTH default wrong")
        };
        assert!(reply.starts_with("-WRONGPASS"), "{reply}");
    }
    let before = served.figures().delayed_authentications;
    let mut right = served.client();
    assert_eq!(right.ask(&["AUTH", PASSWORD]).to_string(), "+OK");
    assert_eq!(served.figures().delayed_authentications, before + 1);
    let text = right.ask(&["INFO", "stats"]).text();
    let line = format!("\nacl_access_denied_auth:{}\r\n", wrong + 30);
    assert!(text.contains(&line), "{text}");
}
