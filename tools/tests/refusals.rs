//! What a memory node refuses: both sides report it, and another client is not disturbed.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use farcore::{Config, Engine, Error, Handle, Token};
use farcore_rdma::Lock;
use farcore_rdma::control::{CONTROL_VERSION, Opening, Refused, Reply, Request};

use self::support::{Node, PATIENCE, TOKEN, TokenFile};

fn start(token: &TokenFile, memory: &str) -> Node {
    Node::start(
        &[],
        &[
            "--listen",
            "tcp://127.0.0.1:0",
            "--memory",
            memory,
            "--token-file",
            token.path(),
            "--no-huge-pages",
        ],
    )
}

fn open(address: SocketAddr, token: Option<&str>) -> farcore::Result<Engine> {
    Engine::open(Config {
        cores: vec![0],
        local_bytes: 12 << 20,
        far_bytes: 32 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 10_000,
        nodes: vec![format!("tcp://{address}").parse().expect("an address")],
        token: token.map(|text| Token::new(text.as_bytes()).expect("long enough")),
        far_silence_ns: 500_000_000,
        prefault: false,
        lock: Lock::Off,
        handles_max: 2,
        ..Config::default()
    })
}

fn refusal(opened: farcore::Result<Engine>) -> String {
    match opened {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

fn value(number: u32) -> Vec<u8> {
    vec![number.to_le_bytes()[0]; 900]
}

/// Keys; their records exceed local memory.
const KEYS: u32 = 18_000;

fn write(handle: &mut Handle) {
    for number in 0..KEYS {
        let put = handle.put(&number.to_le_bytes(), &value(number)).wait();
        put.expect("a node that answers");
    }
}

/// Whether the key can be read; panics if its value is wrong.
fn is_right(handle: &mut Handle, number: u32) -> bool {
    match handle.get(&number.to_le_bytes()).wait() {
        Ok(found) => {
            assert!(found.is_some_and(|found| *found == value(number)));
            true
        }
        Err(Error::Unavailable { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn connect(address: SocketAddr, version: u8) -> (TcpStream, [u8; 24]) {
    let mut stream = TcpStream::connect(address).expect("a listening node");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut request = [0; 56];
    request[..8].copy_from_slice(b"FARCORE\x01");
    (request[8], request[10]) = (version, 1);
    stream.write_all(&request).expect("a node that reads");
    let mut reply = [0; 24];
    stream.read_exact(&mut reply).expect("an answer");
    (stream, reply)
}

#[test]
fn both_sides_report_a_refusal_and_other_clients_go_on() {
    let token = TokenFile::new("refusals");
    let mut node = start(&token, "40MiB");
    let engine = open(node.address, Some(TOKEN)).unwrap();
    let mut handle = engine.handle().unwrap();
    write(&mut handle);
    // Another version of the wire format.
    let (_, reply) = connect(node.address, 9);
    assert_eq!((reply[8], reply[10]), (1, 1), "its version, and why");
    node.log.wait("another version of the wire format");
    // Another version of the control protocol.
    let (mut stream, reply) = connect(node.address, 1);
    assert_eq!(reply[10], 0);
    let hello = Request::Hello {
        version: CONTROL_VERSION + 1,
        client: "newer".to_owned(),
        nonce: [0; 16],
        opening: Opening::New,
    };
    let hello = hello.encode();
    let length = u32::try_from(hello.len()).unwrap().to_le_bytes();
    stream.write_all(&[&length[..], &hello].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let refused = Refused::Version {
        node: CONTROL_VERSION,
        client: CONTROL_VERSION + 1,
    };
    assert_eq!(Reply::decode(&answer[4..]), Some(Reply::Refused(refused)));
    node.log.wait(&refused.to_string());
    // Another token, and none.
    let text = refusal(open(node.address, Some("another token of the tests")));
    assert!(text.contains("wrong token"), "{text}");
    node.log.wait("wrong token");
    let text = refusal(open(node.address, None));
    assert!(text.contains("requires a token"), "{text}");
    // More memory than is free.
    let text = refusal(open(node.address, Some(TOKEN)));
    assert!(
        text.contains("far_bytes") && text.contains("free"),
        "{text}"
    );
    assert!((0..KEYS).all(|number| is_right(&mut handle, number)));
    assert!(node.process.is_alive());
}

#[test]
fn a_node_stopped_under_load_ends_cleanly() {
    let token = TokenFile::new("stopped");
    let mut node = start(&token, "40MiB");
    let engine = open(node.address, Some(TOKEN)).unwrap();
    let mut handle = engine.handle().unwrap();
    write(&mut handle);
    engine.flush().unwrap();
    node.process.signal("TERM");
    // Requests are in flight all the time; each has its value or is unavailable.
    let mut number = 0;
    let mut unavailable = 0;
    while unavailable < 100 {
        unavailable += u32::from(!is_right(&mut handle, number % KEYS));
        number += 7;
    }
    assert_eq!(node.process.end().code(), Some(0));
    let log = node.log.rest();
    assert!(
        log.last().is_some_and(|line| line.ends_with("stopped")),
        "{log:?}"
    );
    let right = (0..KEYS).filter(|&number| is_right(&mut handle, number));
    assert!(right.count() > 0, "what is local can be read still");
}

#[test]
fn memory_that_cannot_be_locked_is_an_error_with_its_size() {
    // Root may lock any amount unless it drops the capability.
    let root = std::fs::read_to_string("/proc/self/status").unwrap();
    let root = root
        .lines()
        .any(|line| line.starts_with("CapEff:") && !line.ends_with("0000"));
    let limited = "ulimit -l 64; exec \"$0\" \"$@\"";
    let mut words = vec![
        "sh",
        "-c",
        limited,
        env!("CARGO_BIN_EXE_farcore"),
        "memnode",
    ];
    if root {
        words.splice(
            0..0,
            [
                "setpriv",
                "--bounding-set",
                "-ipc_lock",
                "--inh-caps",
                "-ipc_lock",
            ],
        );
    }
    words.extend([
        "--memory",
        "1MiB",
        "--listen",
        "tcp://127.0.0.1:0",
        "--require-lock",
    ]);
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: needs {}: {error}", words[0]);
            return;
        }
    };
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    // Regions are registered in parallel: the table's may have been reported before the other
    // failed.
    let (registered, errors): (Vec<&str>, Vec<&str>) = text
        .lines()
        .partition(|line| line.contains("region registered"));
    assert!(registered.len() <= 1 && errors.len() == 1, "{text}");
    assert!(
        errors[0].contains("cannot lock 1048576 bytes") && errors[0].contains("ulimit -l"),
        "{text}"
    );
}
