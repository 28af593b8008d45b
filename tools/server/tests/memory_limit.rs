//! `maxmemory` and `MEMORY PURGE`: local memory that holds little is given back.

mod support;

use std::time::Instant;

use support::{PATIENCE, Served, WordClient};

/// The limit, in bytes: less than the engine has.
const LIMIT_BYTES: usize = 4 << 20;

/// The first and the last keys that were stored until the limit was met.
fn fill(client: &mut WordClient) -> u32 {
    let value = "v".repeat(500);
    let start = Instant::now();
    for number in 0.. {
        let said = client.call(&format!("SET key:{number} {value}"));
        if said.starts_with("(error) OOM") {
            return number;
        }
        assert_eq!(said, "OK");
        assert!(start.elapsed() < PATIENCE, "the limit is never met");
    }
    0
}

/// Deletes 99 of 100 keys, some by shorter values.
fn thin_out(client: &mut WordClient, keys: u32) {
    for number in (0..keys).filter(|number| number % 100 > 0) {
        assert_eq!(client.call(&format!("DEL key:{number}")), "1");
    }
}

fn is_refused(client: &mut WordClient) -> bool {
    client.call("SET another value").starts_with("(error) OOM")
}

#[test]
fn a_limit_lets_go_after_a_mass_delete() {
    let served = Served::start(2);
    let mut client = served.word_client();
    let limit = format!("CONFIG SET maxmemory {LIMIT_BYTES}");
    assert_eq!(client.call(&limit), "OK");
    let keys = fill(&mut client);
    assert!(is_refused(&mut client));
    thin_out(&mut client, keys);
    let start = Instant::now();
    while is_refused(&mut client) {
        assert!(start.elapsed() < PATIENCE, "refused for good");
        std::thread::yield_now();
    }
    for number in (0..keys).step_by(100) {
        let value = client.call(&format!("STRLEN key:{number}"));
        assert_eq!(value, "500", "{number}");
    }
}

#[test]
fn a_purge_compacts_at_once() {
    let served = Served::start(2);
    let mut client = served.word_client();
    let limit = format!("CONFIG SET maxmemory {LIMIT_BYTES}");
    assert_eq!(client.call(&limit), "OK");
    let keys = fill(&mut client);
    thin_out(&mut client, keys);
    assert_eq!(client.call("MEMORY PURGE"), "OK");
    assert!(!is_refused(&mut client));
}
