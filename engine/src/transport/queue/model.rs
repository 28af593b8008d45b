//! Loom models of a request queue: producer and consumer never touch the same bytes at once.

use crate::message::hash::IndexHash;
use crate::message::operation::{OperationKind, RequestParts};
use crate::message::request::Origin;
use crate::transport::queue::*;

/// Sends requests with keys and values of these lengths over a queue of two entries and 64 bytes of
/// room while another thread serves them.
fn never_shares_a_byte(requests: &'static [(usize, usize)]) {
    loom::model(move || {
        let (mut producer, mut consumer) = queue(4 * ENTRY);
        let sender = loom::thread::spawn(move || {
            let mut sent = 0;
            for _ in requests {
                let (key_bytes, value_bytes) = requests[sent];
                let fill = u8::try_from(sent).unwrap();
                let (key, value) = (vec![fill; key_bytes], vec![fill; value_bytes]);
                let parts = RequestParts {
                    kind: OperationKind::Put,
                    key: &key,
                    value: &value,
                    expected: 0,
                };
                if producer.push(IndexHash(sent as u64), 0, Origin::default(), &parts) {
                    sent += 1;
                }
                producer.publish();
            }
            sent
        });
        let mut seen = 0;
        let mut take = |consumer: &mut RequestConsumer| {
            consumer.refresh();
            assert!(consumer.ahead(1).len() <= 1);
            let waiting = consumer.waiting(1);
            let count = waiting.len();
            for request in waiting {
                let (key_bytes, value_bytes) = requests[seen];
                assert_eq!(request.hash.0, seen as u64);
                let fill = u8::try_from(seen).unwrap();
                assert_eq!(request.key(), vec![fill; key_bytes]);
                assert_eq!(request.value(), vec![fill; value_bytes]);
                seen += 1;
            }
            consumer.release(count);
            count > 0
        };
        for _ in 0..requests.len() - 1 {
            take(&mut consumer);
        }
        let sent = sender.join().unwrap();
        while take(&mut consumer) {}
        assert_eq!(seen, sent);
    });
}

#[test]
fn a_queue_of_two_requests_never_shares_an_entry() {
    never_shares_a_byte(&[(4, 4); 3]);
}

#[test]
fn a_request_past_the_end_shares_no_byte() {
    // 40, 32 and 24 bytes of 64: the second continues past the end, and the third may be written
    // while the second is read.
    never_shares_a_byte(&[(24, 16), (16, 16), (8, 16)]);
}

#[test]
fn a_long_value_is_not_freed_while_it_is_read() {
    never_shares_a_byte(&[(4, 17), (4, 17), (4, 4)]);
}
