//! What commands of several clients see of each other in the order in which they are sent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use self::support::client::request;
use self::support::{Client, Served};

/// Ends the clients that keep cores busy, also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keeps the core of a client busy, so that messages come while sockets are served.
fn keep_busy(mut client: Client, ends: &AtomicBool) {
    let pings = request(&["PING"]).repeat(200);
    while !ends.load(Ordering::Relaxed) {
        client.write(&pings);
        for _ in 0..200 {
            assert_eq!(client.read().unwrap().to_string(), "+PONG");
        }
    }
}

/// The message of `PUBLISH` to the core of a subscriber does not overtake what that one has sent.
#[test]
fn who_has_ended_a_subscription_gets_no_message_that_is_published_then() {
    const ROUNDS: usize = 1000;
    let served = Served::roomy(2);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            let client = served.client();
            scope.spawn(|| keep_busy(client, &ends));
        }
        let _end = End(&ends);
        let mut subscribers: Vec<_> = (0..2).map(|_| served.client()).collect();
        let mut publishers: Vec<_> = (0..2).map(|_| served.client()).collect();
        for round in 0..ROUNDS {
            for subscriber in &mut subscribers {
                for publisher in &mut publishers {
                    subscriber.say("SUBSCRIBE news");
                    subscriber.send(&["UNSUBSCRIBE", "news"]);
                    let reached = publisher.say("PUBLISH news text");
                    assert_eq!(reached, ":0", "in round {round}");
                    let reply = subscriber.read().unwrap().to_string();
                    assert!(reply.contains("unsubscribe"), "{reply}");
                }
            }
        }
    });
}
