//! Planted breaches: each check of a shard finds that its invariant is broken.
//!
//! What a part of a shard checks by itself is broken in that part's own tests.

use super::{ANSWER_BYTES, LANE, Owned, Reactor, Setting};
use crate::breach::assert_breaks;
use crate::index::{Position, Slot};
use crate::log::Address;
use crate::log::page::DIRECTORY_ENTRY_BYTES;
use crate::message::hash::IndexHash;
use crate::message::operation::Operation;
use crate::shard::far::NodeId;
use crate::shard::local::page_table::{Page, PageKind, PageState};

const KEYS: u64 = 30_000;

/// A shard with pages in all states, and copies of far records.
fn some() -> Reactor {
    let mut reactor = Reactor::new(&Setting {
        nodes: 2,
        ..Setting::default()
    });
    for key in 0..KEYS {
        let put = Operation::Put {
            key: &key.to_le_bytes(),
            value: &[key as u8; 200],
        };
        assert!(matches!(reactor.call(put), Owned::Stored(_)));
    }
    for key in (0..400u64).flat_map(|key| [key, key]) {
        let get = Operation::Get {
            key: &key.to_le_bytes(),
        };
        assert!(matches!(reactor.call(get), Owned::Value(..)));
    }
    while !reactor.shard.is_quiet() {
        reactor.advance();
    }
    reactor.check();
    reactor
}

impl Reactor {
    /// A page of the log in a state that holds records which slots lead to.
    fn page_in(&self, state: PageState) -> u32 {
        let mut pages = self.shard.local.pages.iter();
        let is_one = |&(_, page): &(u32, &Page)| {
            page.kind() == PageKind::Log && page.state() == state && page.live_bytes > 0
        };
        pages.find(is_one).expect("there is one").0
    }

    /// A slot that leads to a local record of the log; `nth` of them.
    fn local_slot(&self, nth: usize) -> (Position, Slot, IndexHash) {
        let shard = &self.shard;
        let mut found = (0..KEYS).rev().filter_map(|key| {
            let hash = self.hash(&key.to_le_bytes());
            let framed = |slot: Slot| shard.framed_of(slot.address());
            let mut slots = shard.index.candidates(hash);
            let (position, slot) = slots.find(|&(_, slot)| framed(slot).is_mutable())?;
            Some((position, slot, hash))
        });
        found.nth(nth).expect("recent keys are local")
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of breaches")]
fn a_planted_breach_of_a_shard_is_found() {
    type Breach = fn(&mut Reactor);
    let breaches: [(&str, Breach); 22] = [
        ("shard I1", |reactor| {
            // A slot that leads to the record of another key.
            let (position, slot, _) = reactor.local_slot(0);
            let (_, other, _) = reactor.local_slot(9);
            let index = &mut reactor.shard.index;
            index.replace(position, slot.class(), other.address());
        }),
        ("shard I1", |reactor| {
            let (position, slot, _) = reactor.local_slot(0);
            let shard = &mut reactor.shard;
            let free = (0..).find(|&page| shard.local.page(page).state() == PageState::Free);
            let freed = Address::new(shard.shape, free.unwrap(), 8);
            shard.index.replace(position, slot.class(), freed);
        }),
        ("shard I2", |reactor| {
            reactor
                .shard
                .local
                .sealed
                .pop_front()
                .expect("one is sealed");
        }),
        ("shard I2", |reactor| {
            let number = reactor.page_in(PageState::Clean);
            reactor.shard.local.clean.push_back(number);
        }),
        ("shard I2", |reactor| {
            let number = reactor.page_in(PageState::Sealed);
            let frame = reactor.shard.local.page(number).frame().unwrap();
            reactor.shard.local.arena.give(frame);
        }),
        ("access I1", |reactor| {
            let (position, slot, _) = reactor.local_slot(0);
            let shard = &mut reactor.shard;
            let page = slot.address().page(shard.shape);
            let beyond = Address::new(shard.shape, page, shard.local.page(page).units);
            shard.index.replace(position, slot.class(), beyond);
        }),
        ("access I2", |reactor| {
            let number = reactor.page_in(PageState::Sealed);
            let local = &reactor.shard.local;
            let directory = local.page(number).units as usize * 16;
            let frame = local.pages.pointer(number);
            // SAFETY: a sealed page's directory lies behind its records.
            unsafe {
                let first = frame.add(directory);
                first.copy_from(first.add(DIRECTORY_ENTRY_BYTES), DIRECTORY_ENTRY_BYTES);
            }
        }),
        ("page table I2", |reactor| {
            let number = reactor.page_in(PageState::Sealed);
            reactor.shard.local.page_mut(number).live_bytes -= 16;
        }),
        ("page table I2", |reactor| {
            let number = reactor.page_in(PageState::Sealed);
            reactor.shard.local.page_mut(number).live_bytes += 16;
        }),
        ("page table I3", |reactor| {
            let number = reactor.page_in(PageState::Far);
            reactor.shard.pin(number);
        }),
        ("pages I2", |reactor| {
            let number = reactor.page_in(PageState::Far);
            reactor.shard.far.release(number);
        }),
        ("extents I1", |reactor| {
            let number = reactor.page_in(PageState::Far);
            let clean = reactor.page_in(PageState::Clean);
            reactor.shard.far.pages.share(number, clean);
        }),
        ("pages I1", |reactor| {
            let number = reactor.page_in(PageState::Far);
            let node = reactor.shard.far.pages.node_of(number).unwrap();
            let other = NodeId::new(1 - node.position());
            reactor.shard.far.pages.misplace(number, other);
        }),
        ("pages I1", |reactor| {
            reactor.shard.metrics.counters.far_used_bytes.set(1);
        }),
        ("victims I1", |reactor| {
            let local = &mut reactor.shard.local;
            assert!(local.victims.take(&mut local.pages, 101).is_some());
        }),
        ("victims I2", |reactor| {
            reactor.shard.local.victims.pages += 1;
        }),
        ("victims I3", |reactor| {
            let number = reactor.page_in(PageState::Far);
            reactor.shard.local.page_mut(number).bin ^= 1;
        }),
        ("cipher I1", |reactor| {
            let (far, clean) = (PageState::Far, PageState::Clean);
            let (one, other) = (reactor.page_in(far), reactor.page_in(clean));
            let local = &mut reactor.shard.local;
            local.page_mut(one).sequence = local.page(other).sequence;
        }),
        ("buffers I2", |reactor| {
            let landing = reactor.shard.far.buffers.messages.allocate(8);
            Box::leak(Box::new(landing.expect("there is room")));
        }),
        ("expire I2", |reactor| {
            let number = reactor.page_in(PageState::Sealed);
            reactor.shard.local.page_mut(number).expiring_units = 3;
        }),
        ("forget L1", |reactor| reactor.shard.lost.note_slots(1)),
        ("long I2", |reactor| {
            let (_, slot, hash) = reactor.local_slot(0);
            let long = &mut reactor.shard.long;
            let id = long.begin(0, 0, 1).unwrap();
            long.adopt(id, hash, slot.address());
        }),
    ];
    for (invariant, plant) in breaches {
        let mut reactor = some();
        plant(&mut reactor);
        assert_breaks(invariant, || reactor.check());
    }
}

#[test]
fn a_planted_breach_of_a_waiting_request_is_found() {
    let wait = || {
        let mut reactor = some();
        let get = Operation::Get {
            key: &900u64.to_le_bytes(),
        };
        reactor.lends = true;
        while !reactor.offer(7, get) {
            reactor.advance();
        }
        assert!(reactor.shard.has_parked(LANE));
        reactor.check();
        reactor
    };
    let mut reactor = wait();
    let flight = reactor
        .shard
        .flights
        .of_hash(reactor.hash(&900u64.to_le_bytes()));
    reactor.shard.flights.get(flight.unwrap()).pinned = None;
    assert_breaks("flight I2", || reactor.shard.check_small());
    let reactor = wait();
    reactor.inbox.reserved.borrow_mut()[LANE.number()] += ANSWER_BYTES;
    assert_breaks("flight I5", || reactor.check());
}
