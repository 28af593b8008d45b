//! A server that others follow: a Redis and another server of its kind, under load, whose links are
//! cut. What needs a Redis is left out where none is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::too_many_lines, reason = "a test tells one story")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use self::support::followers::{
    assert_equal, draw, draw_more, figure, follow, said, wait_for, wait_for_link, write_until,
};
use self::support::redis::Redis;
use self::support::{Client, Random, Served};

fn either(random: &mut Random, number: usize) -> Vec<String> {
    match random.below(2) {
        0 => draw(random, number),
        _ => draw_more(random, number),
    }
}

/// Waits until the follower has all that its source has written.
fn wait_for_all(follower: &mut Client, source: &mut Client) {
    assert_eq!(said(source, "WAIT 1 60000"), "1");
    wait_for(follower, "all is applied", |follower| {
        figure(follower, "slave_repl_offset") == figure(source, "master_repl_offset")
    });
}

#[test]
fn a_redis_follows_a_server_through_cut_links_and_is_equal_to_it() {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let served = Served::with(2, |options| options.monitors = true);
    let (mut source, mut replica) = (served.client(), Client::connect(redis.address));
    let mut random = Random::new();
    for number in 0..5000 {
        let command = either(&mut random, number);
        source.ask(&command);
    }
    said(&mut source, "SELECT 0");
    source.ask(&["SET", "long", &"x".repeat(3 << 20)]);
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let (is_over, address) = (Arc::clone(&is_over), served.address);
            let random = Random::of(random.next());
            thread::spawn(move || write_until(address, &is_over, random, either))
        })
        .collect();
    if let Ok(path) = std::env::var("FARCORE_RECORD") {
        use std::io::{Read as _, Write as _};
        let mut socket = std::net::TcpStream::connect(served.address).unwrap();
        socket.write_all(b"PSYNC ? -1\r\n").unwrap();
        let path2 = path.clone();
        thread::spawn(move || {
            let mut file = std::fs::File::create(path).unwrap();
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count) = socket.read(&mut buffer) {
                if count == 0 { break; }
                file.write_all(&buffer[..count]).unwrap();
            }
        });
        let mut monitor = std::net::TcpStream::connect(served.address).unwrap();
        monitor.write_all(b"MONITOR\r\n").unwrap();
        thread::spawn(move || {
            let mut file = std::fs::File::create(path2 + ".monitor").unwrap();
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count) = monitor.read(&mut buffer) {
                if count == 0 { break; }
                file.write_all(&buffer[..count]).unwrap();
            }
        });
    }
    follow(&mut replica, served.address);
    wait_for_link(&mut replica);
    for round in 0..6u32 {
        let before = figure(&mut source, "served_partial_syncs");
        wait_for(&mut replica, "a link is cut", |replica| {
            let killed = match round % 2 {
                0 => said(&mut source, "CLIENT KILL TYPE replica"),
                _ => said(replica, "CLIENT KILL TYPE master"),
            };
            killed != "0"
        });
        wait_for(&mut source, "the stream goes on", |source| {
            figure(source, "served_partial_syncs") != before
                || figure(source, "served_full_syncs") != "1"
        });
        wait_for_link(&mut replica);
    }
    is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().unwrap();
    }
    wait_for_all(&mut replica, &mut source);
    let faults = replica.ask(&["INFO", "errorstats"]).text();
    println!("{faults}\n{}", source.ask(&["INFO", "replication"]).text());
    assert!(assert_equal(&mut replica, &mut source) > 100);
}
