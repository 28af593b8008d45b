//! What a client does with answers of a gateway that is away, refuses, or is something else. The
//! gateway is a socket with fixed answers; beside a real etcd see `tools/tests/etcd.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use farcore_etcd::{Condition, Etcd, EtcdAddress, EtcdError, EtcdOptions};

/// What was asked: the path, the token, and the body.
type Asked = (String, Option<String>, String);

/// A gateway that answers requests in turn, a status and a body each; returns its port.
fn gateway(answers: &[(u16, &str)]) -> (u16, Receiver<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, asked) = mpsc::channel();
    let answers: Vec<_> = answers
        .iter()
        .map(|(status, body)| (*status, (*body).to_owned()))
        .collect();
    thread::spawn(move || {
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut path, mut token, mut length) = (String::new(), None, 0);
            reader.read_line(&mut path).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let Some((name, value)) = line.trim_end().split_once(": ") else {
                    break;
                };
                match &name.to_ascii_lowercase()[..] {
                    "content-length" => length = value.parse().unwrap(),
                    "authorization" => token = Some(value.to_owned()),
                    _ => {}
                }
            }
            let mut sent = vec![0; length];
            reader.read_exact(&mut sent).unwrap();
            let path = path.split(' ').nth(1).unwrap().to_owned();
            sender
                .send((path, token, String::from_utf8(sent).unwrap()))
                .unwrap();
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    (port, asked)
}

fn client(ports: &[u16], user: Option<(&str, &str)>) -> Etcd {
    let hosts: Vec<_> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    let address = format!("etcd://{}/p", hosts.join(","));
    Etcd::new(EtcdOptions {
        address: EtcdAddress::parse(&address).unwrap(),
        user: user.map(|(name, password)| (name.to_owned(), password.to_owned().into())),
        tls: None,
        time_limit: Duration::from_secs(20),
        answer_bytes_max: 4096,
    })
    .unwrap()
}

const FOUND: &str = r#"{"header":{"revision":"7"},"kvs":[{"key":"cC9h","mod_revision":"3","value":"AP8="}],"count":"1"}"#;
const NONE: &str = r#"{"header":{"revision":"7"}}"#;

#[test]
fn keys_are_read_and_stored_under_conditions() {
    let answers = [
        (200, FOUND),
        (200, NONE),
        (200, r#"{"header":{"revision":"9"},"succeeded":true}"#),
        (200, r#"{"header":{"revision":"9"}}"#),
        (200, r#"{"header":{"revision":"9"},"ID":"-5","TTL":"10"}"#),
        (
            200,
            r#"{"result":{"header":{"revision":"9"},"ID":"5","TTL":"10"}}"#,
        ),
        (200, r#"{"result":{"header":{"revision":"9"},"ID":"5"}}"#),
    ];
    let (port, asked) = gateway(&answers);
    let etcd = client(&[port], None);
    let found = etcd.get(&etcd.key("a")).unwrap();
    assert_eq!(found.revision, 7);
    assert_eq!(
        (&found.entries[0].key[..], found.entries[0].revision),
        ("p/a", 3)
    );
    assert_eq!(found.entries[0].value, [0, 255]);
    assert!(etcd.list("p/").unwrap().entries.is_empty());
    let absent = Condition {
        key: "p/a".to_owned(),
        revision: 0,
    };
    let same = std::slice::from_ref(&absent);
    assert_eq!(etcd.put_if(same, ("p/a", b"x"), 5).unwrap(), Some(9));
    assert_eq!(etcd.put_if(same, ("p/a", b"x"), 5).unwrap(), None);
    assert_eq!(etcd.grant(Duration::from_secs(10)).unwrap(), -5);
    assert!(etcd.keep_alive(5).unwrap());
    assert!(!etcd.keep_alive(5).unwrap());
    let asked: Vec<_> = asked.try_iter().collect();
    assert_eq!(asked[0].0, "/v3/kv/range");
    assert!(
        asked[1].2.contains(r#""range_end":"cDA=""#),
        "{:?}",
        asked[1]
    );
    assert!(
        asked[2].2.contains(r#""mod_revision":"0""#),
        "{:?}",
        asked[2]
    );
}

#[test]
fn another_endpoint_is_tried_and_a_refusal_is_final() {
    // One at which none listens, one without a leader, one that is no etcd, and one that answers.
    let (leaderless, _asked) = gateway(&[(503, r#"{"error":"no leader","code":14}"#)]);
    let (other, _asked_of_other) = gateway(&[(200, "<html>")]);
    let (right, _asked_of_right) = gateway(&[
        (200, FOUND),
        (
            400,
            r#"{"error":"etcdserver: duplicate key","message":"duplicate key","code":3}"#,
        ),
    ]);
    let etcd = client(&[1, leaderless, other, right], None);
    assert_eq!(etcd.get("p/a").unwrap().entries.len(), 1);
    let refused = etcd.put_if(&[], ("p/a", b"x"), 0);
    assert!(
        matches!(&refused, Err(EtcdError::Refused { error, .. }) if error == "duplicate key"),
        "{refused:?}"
    );
    // Now none answers, so it is not known whether it is done.
    let lost = etcd.put_if(&[], ("p/a", b"x"), 0);
    assert!(
        matches!(lost, Err(EtcdError::Unreachable { .. })),
        "{lost:?}"
    );
}

#[test]
fn a_token_is_got_again_once_it_is_not_valid() {
    let answers = [
        (200, r#"{"header":{"revision":"7"},"token":"one"}"#),
        (200, NONE),
        (
            401,
            r#"{"error":"etcdserver: invalid auth token","code":16}"#,
        ),
        (200, r#"{"header":{"revision":"7"},"token":"two"}"#),
        (200, NONE),
        (
            401,
            r#"{"error":"etcdserver: invalid auth token","code":16}"#,
        ),
        (
            400,
            r#"{"error":"etcdserver: authentication failed","code":3}"#,
        ),
    ];
    let (port, asked) = gateway(&answers);
    let etcd = client(&[port], Some(("me", "secret")));
    etcd.get("p/a").unwrap();
    etcd.get("p/a").unwrap();
    let refused = etcd.get("p/a");
    assert!(
        matches!(refused, Err(EtcdError::Refused { .. })),
        "{refused:?}"
    );
    let asked: Vec<_> = asked.try_iter().collect();
    let tokens: Vec<_> = asked.iter().map(|(_, token, _)| token.as_deref()).collect();
    let [one, two] = [Some("one"), Some("two")];
    assert_eq!(tokens, [None, one, one, None, two, two, None]);
    assert!(asked[0].2.contains("secret") && !format!("{etcd:?}").contains("secret"));
}

#[test]
fn what_is_no_answer_is_an_error() {
    for answer in [
        "{}",
        "[]",
        "7",
        r#"{"header":{"revision":"0"}}"#,
        r#"{"header":{"revision":"x"}}"#,
        r#"{"header":{"revision":"7"},"kvs":7}"#,
        r#"{"header":{"revision":"7"},"kvs":[{"key":"?"}]}"#,
        r#"{"header":{"revision":"7"},"kvs":[{"key":"cC9h","mod_revision":{}}]}"#,
    ] {
        let (port, _asked) = gateway(&[(200, answer)]);
        let got = client(&[port], None).get("p/a");
        assert!(
            matches!(got, Err(EtcdError::Malformed(_))),
            "{answer}: {got:?}"
        );
    }
}

#[test]
fn an_answer_that_is_too_long_is_an_error() {
    let spaces = " ".repeat(4096 - NONE.len());
    let (longest, longer) = (format!("{NONE}{spaces}"), format!("{NONE} {spaces}"));
    let (port, _asked) = gateway(&[(200, &longest), (200, &longer)]);
    let etcd = client(&[port], None);
    assert!(etcd.get("p/a").is_ok());
    let said = etcd.get("p/a").unwrap_err().to_string();
    assert!(said.contains("more than 4096 bytes"), "{said}");
}

#[test]
fn a_key_that_is_not_utf_8_hides_no_other_one() {
    let answer = r#"{"header":{"revision":"7"},"kvs":[{"key":"/w=="},{"key":"cC9h"}]}"#;
    let (port, _asked) = gateway(&[(200, answer)]);
    let found = client(&[port], None).list("p/").unwrap();
    let keys: Vec<_> = found.entries.iter().map(|entry| &entry.key[..]).collect();
    assert_eq!(keys, ["\u{fffd}", "p/a"]);
}

#[test]
fn a_watch_ends_with_a_change_or_its_time() {
    let quiet = r#"{"result":{"header":{"revision":"7"},"created":true}}"#;
    let change = r#"{"result":{"header":{"revision":"8"},"events":[{"kv":{"key":"cC9h"}}]}}"#;
    let compacted = r#"{"result":{"header":{"revision":"8"},"canceled":true}}"#;
    let both = format!("{quiet}\n{change}\n");
    let gone = format!("{quiet}\n{compacted}\n");
    let (port, asked) = gateway(&[(200, &both), (200, &gone), (200, &format!("{quiet}\n"))]);
    let etcd = client(&[port], None);
    let limit = Duration::from_secs(20);
    assert!(etcd.wait("p/", 7, limit).unwrap());
    assert!(etcd.wait("p/", 7, limit).unwrap());
    let ended = etcd.wait("p/", 7, limit);
    assert!(
        matches!(ended, Err(EtcdError::Unreachable { .. })),
        "{ended:?}"
    );
    let first = asked.try_iter().next().unwrap();
    assert!(first.2.contains(r#""start_revision":"8""#), "{first:?}");
}
