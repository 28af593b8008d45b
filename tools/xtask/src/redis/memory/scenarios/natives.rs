//! Clients of the native protocol.

use std::time::Duration;

use super::List;
use super::Protocol::Native;
use crate::redis::memory::crowd::{Crowd, Entrance, Turn, always};
use crate::redis::memory::data::Data;
use crate::redis::memory::native::{Deed, NativeCrowd};

/// Native clients: fewer than the server takes, so that there are places for others.
const CLIENTS: usize = 100;
/// Those without a token, more than the server takes.
const STRANGERS: usize = 200;
/// A client that acknowledges nothing is disconnected after 5 s.
const PATIENT: Duration = Duration::from_secs(6);
/// The life of one that is ended in the middle of everything.
const BRIEF: Duration = Duration::from_millis(100);

fn crowd(deed: Deed) -> NativeCrowd {
    NativeCrowd {
        count: CLIENTS,
        deed,
        life: PATIENT,
    }
}

fn brief(deed: Deed) -> NativeCrowd {
    NativeCrowd {
        life: BRIEF,
        ..crowd(deed)
    }
}

pub(super) fn add(list: &mut List) {
    let small = Data::Values {
        count: 1000,
        bytes: 4000,
    };
    list.add("gets-unread", &[Native], |one| {
        one.native(crowd(Deed::Gets)).of_tenth()
    });
    list.add("gets-unread-2-cores", &[Native], |one| {
        one.on_two_cores().native(crowd(Deed::Gets))
    });
    list.add("gets-killed", &[Native], |one| {
        one.native(brief(Deed::Gets))
    });
    list.add("uploads-stalled", &[Native], |one| {
        one.native(crowd(Deed::Uploads))
    });
    list.add("uploads-killed", &[Native], |one| {
        one.native(brief(Deed::Uploads))
    });
    list.add("slots-unused", &[Native], |one| {
        one.native(crowd(Deed::Grows))
    });
    list.add("scans-unread", &[Native], |one| {
        one.data(small).native(crowd(Deed::Scans))
    });
    list.add("batches-unread", &[Native], |one| {
        one.data(small).native(crowd(Deed::Batches))
    });
    list.add("gets-beside-redis", &[Native], |one| {
        let get = always(&[b"GET", b"v:1000000:0"]);
        one.native(crowd(Deed::Gets)).crowd(Crowd::deaf(100, get))
    });
    list.add("native-strangers", &[Native], |one| {
        let unproved = NativeCrowd {
            count: STRANGERS,
            ..crowd(Deed::Unproved)
        };
        one.with_strangers().native(unproved)
    });
    list.add("native-garbage", &[Native], |one| {
        let talk = |turn: Turn, out: &mut Vec<u8>| {
            if turn.number == 0 {
                out.extend_from_slice(b"FARC");
            }
        };
        let garbage = Crowd::deaf(STRANGERS, talk).by(Entrance::AtNative);
        one.with_strangers().crowd(garbage)
    });
}
