//! The end of loading.

use super::{Owned, Reactor, Setting};
use crate::journal::{EntryKind, restore_parts};
use crate::log::record;
use crate::message::operation::Operation;

#[test]
fn what_expired_before_files_were_loaded_is_never_read() {
    let mut reactor = Reactor::new(&Setting::default());
    reactor.shard.is_loading = true;
    reactor.shard.note_unix_ms(5_000);
    for (key, at_ms) in [(b"past", 4_000_u64), (b"next", 6_000)] {
        let mut body = record::EXPIRY.to_le_bytes().to_vec();
        body.extend(b"value");
        body.extend(at_ms.to_le_bytes());
        let mut scratch = Vec::new();
        let parts = restore_parts((EntryKind::Put, key, 1), &body, &mut scratch);
        let hash = reactor.hash(key);
        assert_eq!(reactor.call_parts(hash, &parts), Owned::Stored(1));
    }
    // The clock is not read again before the first request.
    reactor.shard.end_loading(1);
    assert_eq!(reactor.call(Operation::Get { key: b"past" }), Owned::Absent);
    let next = reactor.call(Operation::Get { key: b"next" });
    assert!(matches!(next, Owned::Value(1, _)), "{next:?}");
}
