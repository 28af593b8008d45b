//! The native protocol over an RDMA device, connected by an exchange over TCP and by RDMA-CM.
//!
//! Needs a device; the lab has one.

#![cfg(feature = "verbs")]

mod support;

use std::time::Duration;

use farcore_client::Transfer;

use crate::support::{Served, device, pattern, wait_until};

/// Puts of every length.
const PUTS: u64 = 20;
/// Small requests that are pipelined while messages without a receive are counted.
const PIPELINED: usize = 3_000;

fn serve(scheme: &str) -> Served {
    Served::at(&format!("{scheme}://{}:0", device::address()), 1, |_| {})
}

fn every_length(scheme: &str) {
    let served = serve(scheme);
    for transfer in [Transfer::Read, Transfer::Landing] {
        let client = served.client_with(|options| options.transfer = transfer);
        client.ping().wait().expect("an answer");
        let before = device::receivers_not_ready();
        for bytes in [0, 64, 4095, 4096, 60_000, 65_536, 300_000, 1 << 20, 3 << 20] {
            let value = pattern(bytes, bytes as u64);
            client.put(b"key", &value).wait().expect("stored");
            let found = client
                .get(b"key")
                .wait()
                .expect("read")
                .expect("it is there");
            assert!(found.bytes == value, "{bytes} bytes differ by {transfer:?}");
        }
        let figures = client.figures();
        assert_eq!(
            figures.landings > 0,
            transfer == Transfer::Landing,
            "{figures:?}"
        );
        assert_eq!(
            device::receivers_not_ready(),
            before,
            "a receive was missing"
        );
    }
    wait_until("every slot is back", || {
        let figures = served.figures();
        (
            figures.connections,
            figures.slots_in_use,
            figures.slot_bytes,
        ) == (0, 0, 0)
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask lab test"]
fn values_travel_over_a_device_by_exchange() {
    every_length("rdma+tcp");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask lab test"]
fn values_travel_over_a_device_by_rdma_cm() {
    every_length("rdma");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask lab test"]
fn a_put_is_one_work_request_and_one_send() {
    let served = serve("rdma+tcp");
    let client = served.client();
    for bytes in [64, 4095, 4096, 16_000, 64_000] {
        let value = pattern(bytes, 1);
        client.put(b"key", &value).wait().expect("stored");
        let (requests, sends) = (
            client.figures().work_requests,
            served.figures().sent_messages,
        );
        let (noops, dones) = (client.figures().noops, client.figures().dones);
        for _ in 0..PUTS {
            client.put(b"key", &value).wait().expect("stored");
        }
        let figures = client.figures();
        assert_eq!((figures.noops, figures.dones), (noops, dones));
        assert_eq!(figures.work_requests - requests, PUTS, "{bytes} bytes");
        assert_eq!(
            served.figures().sent_messages - sends,
            PUTS,
            "{bytes} bytes"
        );
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask lab test"]
fn no_message_finds_its_receive_missing() {
    let served = serve("rdma+tcp");
    // Few credits, so that they run out all the time.
    let client = served.client_with(|options| options.credits = 4);
    client.ping().wait().expect("an answer");
    let before = device::receivers_not_ready();
    let mut pending = std::collections::VecDeque::new();
    for place in 0..PIPELINED {
        let key = format!("key-{}", place % 100);
        pending.push_back(client.put(key.as_bytes(), &pattern(place % 5000, 1)));
        if pending.len() > 500 {
            let oldest = pending.pop_front().expect("one");
            oldest.wait().expect("stored");
        }
    }
    for one in pending {
        one.wait().expect("stored");
    }
    assert_eq!(device::receivers_not_ready(), before);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask lab test"]
fn a_sleeping_core_is_woken_and_the_end_of_a_client_noticed() {
    for scheme in ["rdma+tcp", "rdma"] {
        let served = serve(scheme);
        let client = served.client();
        client.put(b"key", b"value").wait().expect("stored");
        for _ in 0..5 {
            // Long enough for the core to sleep.
            std::thread::sleep(Duration::from_millis(50));
            assert!(client.exists(b"key").wait().expect("an answer"));
        }
        drop(client);
        wait_until("the client's end is noticed", || {
            served.figures().connections == 0
        });
    }
}
