//! `serve --nodes-from`: a server whose memory nodes are those that a file, etcd or DNS names. What
//! needs etcd runs beside Debian's (package `etcd-server`), and says so where it is not installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::too_many_lines, reason = "a test tells one story")]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use simple_dns::rdata::{RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, RCODE, ResourceRecord};
use tempfile::TempDir;

use self::support::etcd::{Etcd, client};
use self::support::{Node, PATIENCE, Serve, farcore, output_of};

const PAUSE: Duration = Duration::from_millis(20);
const NAME: &str = "_farcore._tcp.nodes.test";

fn node(flags: &[&str]) -> Node {
    let all = ["--listen", "tcp://127.0.0.1:0", "--memory", "64MiB"];
    Node::start(&[], &[&all[..], &["--no-huge-pages"], flags].concat())
}

fn address(node: &Node) -> String {
    format!("tcp://{}", node.address)
}

fn serve(source: &str) -> Serve {
    let flags = ["--cores", "0", "--nodes-max", "4"];
    Serve::start(&[&flags[..], &["--nodes-from", source]].concat())
}

/// What `farcore nodes list` prints of a server.
fn list(server: &Serve) -> String {
    let mut command = farcore();
    command.args(["nodes", "list", "--server", &server.address.to_string()]);
    let output = output_of(&mut command);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The line of a node in a list.
fn line_of<'a>(list: &'a str, node: &str) -> Option<&'a str> {
    // A port may be the beginning of another one.
    let is_of = |line: &&str| line.split_whitespace().any(|word| word.ends_with(node));
    list.lines().find(is_of)
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "it never comes to this: {what}");
        thread::sleep(PAUSE);
    }
}

#[track_caller]
fn until_serving(server: &Serve, nodes: &[&str]) {
    until(&format!("{nodes:?} serve"), || {
        let list = list(server);
        let serves =
            |node: &&str| line_of(&list, node).is_some_and(|line| line.contains("serving"));
        nodes.iter().all(serves)
    });
}

#[track_caller]
fn until_gone(server: &Serve, node: &str) {
    until(&format!("{node} is gone"), || {
        line_of(&list(server), node).is_none()
    });
}

/// What a command says that fails.
fn refused(words: &[&str]) -> String {
    let output = output_of(farcore().args(words).env_remove("RUST_LOG"));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn nodes_of_a_file_come_and_go_with_its_lines() {
    let nodes = [node(&[]), node(&[])];
    let [one, two] = [0, 1].map(|number: usize| address(&nodes[number]));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("nodes");
    fs::write(&file, format!("{one} # the first\n")).unwrap();
    let server = serve(file.to_str().unwrap());
    assert_eq!(server.line("SET k v"), "+OK");
    fs::write(&file, format!("rack={two}\n{one}\n")).unwrap();
    until_serving(&server, &[&one, &two]);
    // What is no list changes nothing.
    fs::write(&file, "nonsense").unwrap();
    thread::sleep(Duration::from_millis(2500));
    until_serving(&server, &[&one, &two]);
    fs::write(&file, format!("rack={two}\n")).unwrap();
    until_gone(&server, &one);
    assert_eq!(server.line("GET k"), "$1");
}

#[test]
fn nodes_register_in_etcd_and_servers_find_them() {
    let Some(mut etcd) = Etcd::start() else {
        return;
    };
    let place = etcd.address("shop/mem");
    let registered = |zone: &str| node(&["--etcd", &place, "--zone", zone]);
    let (first, mut second) = (registered("a"), registered("b"));
    let [one, two] = [&first, &second].map(address);
    let keys = client(&place);
    let names = || -> Vec<String> {
        let found = keys.list("shop/mem/nodes/").unwrap();
        found.entries.into_iter().map(|entry| entry.key).collect()
    };
    let has = |node: &str| names().contains(&format!("shop/mem/nodes/{node}"));
    assert!(has(&one) && has(&two));
    let value = keys.get(&keys.key(&format!("nodes/{one}"))).unwrap();
    let value = String::from_utf8(value.entries[0].value.clone()).unwrap();
    assert_eq!(
        value,
        format!(r#"{{"address":"{one}","zone":"a","bytes":67108864,"drains":false}}"#)
    );
    // Others write there, too.
    let write = |name: &str, value: &str| {
        let key = keys.key(&format!("nodes/{name}"));
        let written = keys.put_if(&[], (&key, value.as_bytes()), 0);
        assert!(written.unwrap().is_some());
    };
    write("garbage", "garbage");
    write("tcp://127.0.0.1:1", "garbage");
    let mut server = serve(&place);
    server.log.wait("nodes/garbage");
    until_serving(&server, &[&one, &two]);
    assert!(line_of(&list(&server), "tcp://127.0.0.1:1").is_none());
    assert_eq!(server.line("SET k v"), "+OK");

    let third = registered("c");
    let three = address(&third);
    until_serving(&server, &[&one, &two, &three]);
    // One that says that it drains is drained at once.
    write(&one, &value.replace("false", "true"));
    until_gone(&server, &one);

    // The key of one that is killed goes with its lease. One that ends has none any more.
    drop(third);
    assert!(has(&three), "{:?}", names());
    until("the lease ends", || !has(&three));
    second.process.signal("TERM");
    assert!(second.process.end().success());
    assert!(!has(&two), "{:?}", names());
    // They are still nodes, since they may come back. The server has some answers without them.
    let stay = |server: &Serve| {
        thread::sleep(Duration::from_secs(2));
        let there = list(server);
        assert!(line_of(&there, &two).is_some(), "{there}");
        assert!(line_of(&there, &three).is_some(), "{there}");
        assert!(!there.contains("draining"), "{there}");
        assert_eq!(server.line("GET k"), "$1");
    };
    stay(&server);

    // An etcd that has lost all leases gets the node again, and drains none.
    etcd.replace();
    until("it is registered again", || has(&one));
    stay(&server);
    until_serving(&server, &[&one]);
    drop(first);
}

#[test]
fn a_node_that_leaves_says_so_in_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let place = etcd.address("p");
    let registered = || node(&["--etcd", &place]);
    let (mut first, second) = (registered(), registered());
    let [one, two] = [&first, &second].map(address);
    let keys = client(&place);
    let value_of_one = || -> Option<String> {
        let found = keys.get(&keys.key(&format!("nodes/{one}"))).unwrap();
        let value = found.entries.into_iter().next()?.value;
        Some(String::from_utf8(value).unwrap())
    };
    // A server that cannot drain it: pages of two copies need both nodes.
    let flags = ["--cores", "0", "--replicas", "2"];
    let server = Serve::start(&[&flags[..], &["--nodes-from", &place]].concat());
    until_serving(&server, &[&one, &two]);
    assert_eq!(server.line("SET k v"), "+OK");
    first.process.signal("USR1");
    until("its key says so", || {
        value_of_one().is_some_and(|value| value.contains(r#""drains":true"#))
    });
    assert_eq!(server.line("GET k"), "$1");
    drop(server);
    assert!(first.process.end().success());
    assert_eq!(value_of_one(), None);
}

#[test]
fn a_key_that_is_deleted_is_written_again() {
    let Some(etcd) = Etcd::start() else { return };
    let place = etcd.address("p");
    let flags = ["--etcd", &place, "--advertise", "tcp://mem-1:7400"];
    let mut node = node(&flags);
    let keys = client(&place);
    let key = keys.key("nodes/tcp://mem-1:7400");
    assert_eq!(keys.look(&key).unwrap().entries.len(), 1);
    keys.delete(&key).unwrap();
    until("it is there again", || {
        !keys.look(&key).unwrap().entries.is_empty()
    });
    node.process.signal("TERM");
    assert!(node.process.end().success());
    assert!(keys.look(&key).unwrap().entries.is_empty());
}

#[test]
fn an_etcd_that_is_away_at_the_start_is_an_error() {
    let place = "etcd://127.0.0.1:1/p";
    let text = refused(&[
        "memnode",
        "--listen",
        "tcp://127.0.0.1:0",
        "--memory",
        "1MiB",
        "--etcd",
        place,
    ]);
    assert!(
        text.contains("--etcd: the node cannot be registered: "),
        "{text}"
    );
    let text = refused(&[
        "serve",
        "--resp",
        "127.0.0.1:0",
        "--nodes-from",
        place,
        "--wait-for-nodes",
        "0s",
    ]);
    assert!(text.contains(&format!("--nodes-from {place}: ")), "{text}");
}

#[test]
fn an_etcd_without_nodes_is_waited_for() {
    let Some(etcd) = Etcd::start() else { return };
    let place = etcd.address("p");
    let text = refused(&[
        "serve",
        "--resp",
        "127.0.0.1:0",
        "--nodes-from",
        &place,
        "--wait-for-nodes",
        "0s",
    ]);
    assert!(
        text.contains("names no node: start `farcore memnode --etcd`"),
        "{text}"
    );
    let later = place.clone();
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_secs(1));
        node(&["--etcd", &later])
    });
    let server = serve(&place);
    let one = later.join().unwrap();
    until_serving(&server, &[&address(&one)]);
    drop(server);

    // Also until there are as many as pages have copies.
    let later = place.clone();
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_secs(1));
        node(&["--etcd", &later])
    });
    let flags = ["--cores", "0", "--replicas", "2", "--nodes-from", &place];
    let server = Serve::start(&flags);
    let two = later.join().unwrap();
    until_serving(&server, &[&address(&one), &address(&two)]);
}

#[test]
fn a_server_begins_with_the_nodes_that_have_room() {
    let nodes = [node(&[]), node(&[]), node(&[])];
    let [one, two, three] = [0, 1, 2].map(|number: usize| address(&nodes[number]));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("nodes");
    fs::write(&file, format!("{one}\n{two}\n{three}\n")).unwrap();
    let flags = ["--cores", "0", "--nodes-max", "2", "--nodes-from"];
    let server = Serve::start(&[&flags[..], &[file.to_str().unwrap()]].concat());
    until_serving(&server, &[&one, &two]);
    assert!(line_of(&list(&server), &three).is_none());
    // It joins once another one has gone.
    fs::write(&file, format!("{two}\n{three}\n")).unwrap();
    until_serving(&server, &[&two, &three]);
    assert!(line_of(&list(&server), &one).is_none());
}

/// What the resolver of a test answers.
#[derive(Clone, Default)]
struct Zone {
    /// Ports of nodes on this host.
    ports: Vec<u16>,
    /// Over UDP the answer is cut.
    is_cut: bool,
    is_failing: bool,
    /// Answers that were given.
    answers: usize,
}

/// A resolver over UDP and TCP that first sends what is no answer.
struct Resolver {
    zone: Arc<Mutex<Zone>>,
    port: u16,
}

/// The answer to a question: its number and its name may be wrong.
fn answer(question: &Packet<'_>, zone: &Zone, number: u16) -> Vec<u8> {
    let mut packet = Packet::new_reply(number);
    packet.questions = question.questions.clone();
    if zone.is_failing {
        *packet.rcode_mut() = RCODE::ServerFailure;
    }
    if zone.is_cut {
        packet.set_flags(PacketFlag::TRUNCATION);
        return packet.build_bytes_vec().unwrap();
    }
    for &port in &zone.ports {
        let data = SRV {
            priority: 0,
            weight: 0,
            port,
            target: Name::new("127.0.0.1").unwrap(),
        };
        let owner = question.questions[0].qname.clone();
        let record = ResourceRecord::new(owner, CLASS::IN, 1, RData::SRV(data));
        packet.answers.push(record);
    }
    packet.build_bytes_vec_compressed().unwrap()
}

impl Resolver {
    fn start(zone: Zone) -> Self {
        let zone = Arc::new(Mutex::new(zone));
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let shown = Arc::clone(&zone);
        thread::spawn(move || {
            let mut bytes = [0; 512];
            loop {
                let (length, from) = udp.recv_from(&mut bytes).unwrap();
                let question = Packet::parse(&bytes[..length]).unwrap();
                assert_eq!(question.questions[0].qname.to_string(), NAME);
                let now = {
                    let mut zone = shown.lock().unwrap();
                    zone.answers += usize::from(!zone.is_cut);
                    zone.clone()
                };
                let wrong = Zone {
                    ports: vec![1],
                    ..Zone::default()
                };
                let mut other = question.clone();
                other.questions[0].qname = Name::new("_farcore._tcp.other.test").unwrap();
                for message in [
                    b"garbage".to_vec(),
                    answer(&question, &wrong, question.id().wrapping_add(1)),
                    answer(&other, &wrong, question.id()),
                    bytes[..length].to_vec(),
                    answer(&question, &now, question.id()),
                ] {
                    udp.send_to(&message, from).unwrap();
                }
                // One that comes from elsewhere, as a guess would.
                let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                let guess = answer(&question, &wrong, question.id());
                let _ = stranger.send_to(&guess, from);
            }
        });
        let shown = Arc::clone(&zone);
        thread::spawn(move || {
            for stream in tcp.incoming() {
                let mut stream = stream.unwrap();
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut bytes).unwrap();
                let question = Packet::parse(&bytes).unwrap();
                let now = {
                    let mut zone = shown.lock().unwrap();
                    zone.answers += 1;
                    let is_cut = false;
                    Zone {
                        is_cut,
                        ..zone.clone()
                    }
                };
                let message = answer(&question, &now, question.id());
                let length = u16::try_from(message.len()).unwrap().to_be_bytes();
                // In two pieces.
                stream.write_all(&length).unwrap();
                stream.write_all(&message).unwrap();
            }
        });
        Self { zone, port }
    }

    /// Changes the zone, and waits until some questions are answered by it.
    fn change(&self, change: impl FnOnce(&mut Zone)) {
        let before = {
            let mut zone = self.zone.lock().unwrap();
            change(&mut zone);
            zone.answers
        };
        until("questions are answered", || {
            self.zone.lock().unwrap().answers >= before + 2
        });
    }
}

#[test]
fn nodes_that_dns_names_come_and_stay_although_answers_fail() {
    let nodes = [node(&[]), node(&[]), node(&[])];
    let [one, two, three] = [0, 1, 2].map(|number: usize| address(&nodes[number]));
    let ports = [0, 1, 2].map(|number: usize| nodes[number].address.port());
    // The first answer is whole only over TCP.
    let resolver = Resolver::start(Zone {
        ports: ports[..2].to_vec(),
        is_cut: true,
        ..Zone::default()
    });
    let source = format!("dns://127.0.0.1:{}/{NAME}?type=SRV", resolver.port);
    let mut server = serve(&source);
    until_serving(&server, &[&one, &two]);
    assert_eq!(server.line("SET k v"), "+OK");
    let stays = |server: &Serve| {
        let list = list(server);
        let is_there = |node: &String| line_of(&list, node).is_some();
        assert!(is_there(&one) && is_there(&two), "{list}");
        assert!(!list.contains("draining"), "{list}");
        // What the wrong answers name.
        assert!(!is_there(&"tcp://127.0.0.1:1".to_owned()), "{list}");
    };
    resolver.change(|zone| {
        zone.is_cut = false;
        zone.ports.clear();
    });
    server.log.wait("names no node");
    stays(&server);
    resolver.change(|zone| {
        zone.is_failing = true;
        zone.ports = vec![ports[2]];
    });
    server.log.wait("it answers ServerFailure");
    stays(&server);
    // A node that is missing for a moment stays, and a new one comes.
    resolver.change(|zone| {
        zone.is_failing = false;
        zone.ports = vec![ports[0], ports[2]];
    });
    until_serving(&server, &[&one, &two, &three]);
    stays(&server);
    assert_eq!(server.line("GET k"), "$1");
}
