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
    let served = Served::roomy(2);
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
    assert!(assert_equal(&mut replica, &mut source) > 100);
}
