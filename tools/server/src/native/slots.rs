//! The transfer slots of a connection.
//!
//! An upload slot is lent to the client, which writes requests into it. A lend slot has a value
//! that the client reads, or that is written into a landing buffer of the client's.
//!
//! ```text
//! upload: free (the client's) -> used (a request) -> free, with the answer
//! lend:   free -> lent -> free, by DONE
//!              -> staged -> free, by the completion of the write
//! ```
//!
//! - I1: the bytes of all slots are on their clients' accounts, until their connections end.
//! - I2: a client that says DONE for a slot that it has not, or uploads to a slot that is used,
//!   violates the protocol.

use farcore_protocol::handshake::SlotFacts;
use farcore_protocol::{TRANSFER_SLOT_BYTES, TRANSFER_SLOT_BYTES_MAX};
use farcore_rdma::{LocalKey, PeerEndpoint, PeerMemory};

use crate::memory::{Account, Charge};
use crate::options::SLOTS_MAX;

/// Upload slots that a connection begins with.
pub(super) const UPLOADS: u16 = 2;

/// Memory of several slots, registered with one connection.
#[derive(Debug)]
struct Area {
    memory: PeerMemory,
    local: LocalKey,
    remote: u32,
    _held: Charge,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotState {
    /// With the client, or unused.
    Free,
    /// An upload has a request; a lend slot's value is being written to the client.
    Used,
    /// A value that the client reads.
    Lent,
}

/// The place of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    area: usize,
    pub(super) offset: u64,
    pub(super) bytes: usize,
    pub(super) state: SlotState,
}

/// The slots of one kind of a connection.
#[derive(Debug, Default)]
pub(super) struct Slots {
    areas: Vec<Area>,
    slots: Vec<Slot>,
    /// Those that are not free.
    in_use: usize,
    /// A slot has become free since the owner looked.
    has_freed: bool,
}

impl Slots {
    /// Those that are not free.
    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Whether a slot has become free since the last call.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.has_freed)
    }

    /// A slot by the number that a peer gave.
    pub(super) fn get(&self, number: u16) -> Option<Slot> {
        self.slots.get(usize::from(number)).copied()
    }

    pub(super) fn set(&mut self, number: u16, state: SlotState) {
        if let Some(slot) = self.slots.get_mut(usize::from(number)) {
            self.in_use -= usize::from(slot.state != SlotState::Free);
            slot.state = state;
            self.has_freed |= state == SlotState::Free;
            self.in_use += usize::from(state != SlotState::Free);
        }
    }

    /// Adds slots; `None` if the account, the limit or the system has no more.
    pub(super) fn add(
        &mut self,
        endpoint: &mut PeerEndpoint,
        account: &Account,
        slots: u16,
        slot_bytes: usize,
    ) -> Option<SlotFacts> {
        if self.slots.len() + usize::from(slots) > SLOTS_MAX {
            return None;
        }
        let bytes = usize::from(slots) * slot_bytes;
        // The first upload slots are part of every connection.
        let held = match (self.slots.is_empty(), slots) {
            (true, UPLOADS) => account.try_charge_first(bytes)?,
            _ => account.try_charge(bytes).ok()?,
        };
        let memory = PeerMemory::map(bytes);
        let memory = memory.map_err(|error| tracing::warn!(%error, "no transfer slots"));
        let memory = memory.ok()?;
        let exposed = endpoint.expose(memory.region());
        let exposed = exposed.map_err(|error| tracing::warn!(%error, "no transfer slots"));
        let (local, remote) = exposed.ok()?;
        let facts = SlotFacts {
            memory_key: remote.0,
            first: u16::try_from(self.slots.len()).ok()?,
            slots,
            slot_bytes: u32::try_from(slot_bytes).ok()?,
        };
        let area = self.areas.len();
        self.areas.push(Area {
            memory,
            local,
            remote: remote.0,
            _held: held,
        });
        for place in 0..usize::from(slots) {
            self.slots.push(Slot {
                area,
                offset: (place * slot_bytes) as u64,
                bytes: slot_bytes,
                state: SlotState::Free,
            });
        }
        Some(facts)
    }

    /// The shortest free slot of `bytes` or more.
    fn free(&self, bytes: usize) -> Option<u16> {
        let fits = self.slots.iter().enumerate();
        let fits = fits.filter(|(_, slot)| slot.state == SlotState::Free && slot.bytes >= bytes);
        let (place, _) = fits.min_by_key(|(_, slot)| slot.bytes)?;
        u16::try_from(place).ok()
    }

    /// Bytes of the longest slot, used or not.
    fn longest(&self) -> usize {
        self.slots.iter().map(|slot| slot.bytes).max().unwrap_or(0)
    }

    /// A free lend slot of `bytes`, added if there is none.
    pub(super) fn lend(
        &mut self,
        endpoint: &mut PeerEndpoint,
        account: &Account,
        bytes: usize,
    ) -> Lend {
        let wanted = bytes.min(TRANSFER_SLOT_BYTES_MAX);
        if let Some(number) = self.free(wanted) {
            return Lend::Slot(number);
        }
        let (slots, slot_bytes) = if wanted <= TRANSFER_SLOT_BYTES {
            (4, TRANSFER_SLOT_BYTES)
        } else if wanted <= TRANSFER_SLOT_BYTES_MAX / 4 {
            (2, TRANSFER_SLOT_BYTES_MAX / 4)
        } else {
            (2, TRANSFER_SLOT_BYTES_MAX)
        };
        let before = self.slots.len();
        for slots in [slots, 1] {
            if self.add(endpoint, account, slots, slot_bytes).is_some() {
                return Lend::Slot(u16::try_from(before).unwrap_or(u16::MAX));
            }
        }
        if self.longest() >= wanted {
            return Lend::Later;
        }
        // The longest that there are serve a part of the value.
        match self.free(self.longest().max(1)) {
            Some(number) => Lend::Slot(number),
            None if self.slots.is_empty() => Lend::None,
            None => Lend::Later,
        }
    }

    /// Copies bytes into a slot.
    pub(super) fn write(&mut self, slot: Slot, offset: usize, bytes: &[u8]) {
        let area = &mut self.areas[slot.area];
        area.memory.write(slot.offset + offset as u64, bytes);
    }

    /// Copies bytes out of a slot.
    pub(super) fn read(&self, slot: Slot, offset: usize, bytes: &mut [u8]) {
        self.areas[slot.area]
            .memory
            .read(slot.offset + offset as u64, bytes);
    }

    /// The keys of a slot's memory: this side's and the peer's.
    pub(super) fn keys(&self, slot: Slot) -> (LocalKey, u32) {
        let area = &self.areas[slot.area];
        (area.local, area.remote)
    }
}

/// Where a value can be lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lend {
    /// In this slot, perhaps only a part of it.
    Slot(u16),
    /// When a slot is free again.
    Later,
    /// Never: there is no memory for a slot.
    None,
}
