//! The one that holds the gate does not go on: others do. The clock is set by hand.

use std::net::TcpStream;
use std::pin::pin;

use futures_lite::future::poll_once;

use crate::by_hand::{Bench, on_first_core};
use crate::conn::client_filter::ClientFilter;
use crate::exec::transaction::{Added, Queue};
use crate::tasks::gate_hold::HELD_MAX;
use crate::turn::gate_turns::*;

/// A queue of which writes are left to begin, or none.
fn queue(has_writes: bool) -> Queue {
    let mut queue = Queue::default();
    let command = [&b"SET"[..], b"k", b"v"];
    queue.begin(100, command.len());
    let added = queue.add_some(command.len(), |place| command[place]);
    assert!(matches!(added, Added::Whole));
    if has_writes {
        queue.writes_end = queue.bytes.len();
    }
    queue
}

/// A client whose `EXEC` holds the gate, and the number of its connection.
async fn holder(bench: &Bench, serving: &mut Serving, has_writes: bool) -> (TcpStream, usize) {
    let (client, number) = bench.connect(serving);
    let mut closing = pin!(GateHold::take(&bench.core, &bench.shared, 0));
    assert!(poll_once(closing.as_mut()).await.is_none());
    for _ in 0..2 {
        bench.receive(serving);
        serving.gate_turn(&bench.core);
    }
    let hold = poll_once(closing.as_mut()).await.flatten().expect("closed");
    let connection = connection(serving, number);
    connection.replay(queue(has_writes));
    connection.transaction.as_mut().expect("one").hold = Some(hold);
    serving.note_holder(number);
    serving.gate_turn(&bench.core);
    assert!(serving.passes.is_shut() && serving.connections[number].is_some());
    (client, number)
}

fn connection(serving: &mut Serving, number: usize) -> &mut Connection {
    let connection = serving.connections.get_mut(number);
    connection.and_then(Option::as_mut).expect("it is served")
}

/// Longer ago than a limit.
fn before(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(2 * limit).expect("the machine runs longer")
}

/// Sets since when the gate is held.
fn held_since(serving: &mut Serving, number: usize, since: Instant) {
    let transaction = connection(serving, number).transaction.as_mut();
    let hold = transaction.and_then(|transaction| transaction.hold.as_mut());
    hold.expect("it holds the gate").since = since;
}

fn overruns(bench: &Bench) -> u64 {
    bench.shared.counters[0].gate_overruns.get()
}

/// True if the holder's client is connected. Others write, and the next one closes the gate.
async fn is_connected_and_others_go_on(
    bench: &Bench,
    serving: &mut Serving,
    number: usize,
) -> bool {
    bench.receive(serving);
    drop(serving.passes.take(false).expect("the gate is open"));
    let mut next = pin!(GateHold::take(&bench.core, &bench.shared, 0));
    assert!(poll_once(next.as_mut()).await.is_none());
    for _ in 0..3 {
        bench.receive(serving);
        serving.gate_turn(&bench.core);
    }
    drop(poll_once(next.as_mut()).await.flatten().expect("closed"));
    bench.receive(serving);
    let connection = serving.connections[number].as_ref();
    connection.is_some_and(|connection| !connection.is_gone)
}

#[test]
fn a_holder_that_ends_opens_the_gate() {
    on_first_core(1, |bench| async move {
        let ends: [fn(&mut Serving, usize); 2] = [Serving::close, |serving, _| {
            assert_eq!(serving.kill_clients(0, &ClientFilter::default()).found, 1);
        }];
        for end in ends {
            let mut serving = bench.serving(0);
            let (_client, number) = holder(&bench, &mut serving, true).await;
            end(&mut serving, number);
            assert!(!is_connected_and_others_go_on(&bench, &mut serving, number).await);
        }
        assert_eq!(overruns(&bench), 0);
    });
}

#[test]
fn a_holder_that_takes_too_long_is_closed_unless_its_writes_are_done() {
    on_first_core(1, |bench| async move {
        for has_writes in [true, false] {
            let mut serving = bench.serving(0);
            let (_client, number) = holder(&bench, &mut serving, has_writes).await;
            held_since(&mut serving, number, before(HELD_MAX));
            serving.gate_turn(&bench.core);
            let is_connected = is_connected_and_others_go_on(&bench, &mut serving, number).await;
            assert_eq!(is_connected, !has_writes);
        }
        assert_eq!(overruns(&bench), 1);
    });
}

#[test]
fn a_holder_whose_client_does_not_read_is_closed_after_a_while() {
    on_first_core(1, |bench| async move {
        let mut serving = bench.serving(0);
        let (_client, number) = holder(&bench, &mut serving, true).await;
        // A command of several steps has made as much as it may.
        let blocked = connection(&mut serving, number);
        blocked.is_blocked = true;
        blocked.reply(|writer| writer.bulk(&[0; OUTPUT_BYTES_MAX]));
        serving.gate_turn(&bench.core);
        assert!(serving.gate.unread_since.is_some() && serving.passes.is_shut());
        // It reads, and then not again.
        let output = std::mem::take(&mut connection(&mut serving, number).output);
        serving.gate_turn(&bench.core);
        assert_eq!(serving.gate.unread_since, None);
        connection(&mut serving, number).output = output;
        serving.gate_turn(&bench.core);
        bench.receive(&mut serving);
        assert!(serving.passes.is_shut() && overruns(&bench) == 0);
        serving.gate.unread_since = Some(before(UNREAD_MAX));
        serving.gate_turn(&bench.core);
        assert_eq!(overruns(&bench), 1);
        assert!(!is_connected_and_others_go_on(&bench, &mut serving, number).await);
    });
}

#[test]
fn a_holder_whose_writes_are_done_is_read_late_without_the_gate() {
    on_first_core(1, |bench| async move {
        let mut serving = bench.serving(0);
        let (_client, number) = holder(&bench, &mut serving, false).await;
        let blocked = connection(&mut serving, number);
        blocked.is_blocked = true;
        blocked.reply(|writer| writer.bulk(&[0; OUTPUT_BYTES_MAX]));
        serving.gate_turn(&bench.core);
        assert!(is_connected_and_others_go_on(&bench, &mut serving, number).await);
        assert_eq!(overruns(&bench), 0);
    });
}
