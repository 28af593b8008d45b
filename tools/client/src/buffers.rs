//! The memory of a connection at the client: message buffers, what uploads are written from, and
//! what values are read into or land in.
//!
//! ```text
//! messages: | receive 0 .. | receive n-1 | send 0 .. | send n-1 |
//! ```
//!
//! - I1: a buffer is free again only when no work request and no write of the server can touch it.

use farcore_protocol::handshake::SlotFacts;
use farcore_rdma::{
    LocalKey, LocalSlice, PeerEndpoint, PeerMemory, RegionError, RegisterError, RemoteKey,
    RemoteSlice,
};

/// Why memory cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error(transparent)]
    Map(#[from] RegionError),
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// Message buffers.
#[derive(Debug)]
pub(crate) struct Messages {
    memory: PeerMemory,
    key: LocalKey,
    count: u16,
    bytes: usize,
    free_sends: Vec<u16>,
}

impl Messages {
    pub(crate) fn new(
        endpoint: &mut PeerEndpoint,
        count: u16,
        bytes: usize,
    ) -> Result<Self, MemoryError> {
        let bytes = bytes.next_multiple_of(64);
        let memory = PeerMemory::map(2 * usize::from(count) * bytes)?;
        let key = endpoint.register(memory.region())?;
        Ok(Self {
            memory,
            key,
            count,
            bytes,
            free_sends: (0..count).rev().collect(),
        })
    }

    fn slice(&self, place: usize, bytes: usize) -> LocalSlice {
        LocalSlice {
            key: self.key,
            offset: (place * self.bytes) as u64,
            bytes: u32::try_from(bytes).unwrap_or(0),
        }
    }

    pub(crate) fn receive(&self, number: u16) -> LocalSlice {
        self.slice(number.into(), self.bytes)
    }

    /// Copies a received message out.
    pub(crate) fn read(&self, number: u16, bytes: usize, message: &mut Vec<u8>) {
        message.clear();
        let offset = self.receive(number).offset;
        self.memory.read_to(offset, bytes.min(self.bytes), message);
    }

    pub(crate) fn has_send(&self) -> bool {
        !self.free_sends.is_empty()
    }

    /// Takes a send buffer, and copies the parts of a message into it.
    pub(crate) fn write(&mut self, parts: [&[u8]; 3]) -> Option<(u16, LocalSlice)> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > self.bytes {
            return None;
        }
        let number = self.free_sends.pop()?;
        let slice = self.slice(usize::from(self.count) + usize::from(number), bytes);
        let mut offset = slice.offset;
        for part in parts {
            self.memory.write(offset, part);
            offset += part.len() as u64;
        }
        Some((number, slice))
    }

    pub(crate) fn free_send(&mut self, number: u16) {
        self.free_sends.push(number);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Buffers of one length.
#[derive(Debug)]
struct Area {
    memory: PeerMemory,
    key: LocalKey,
    remote: RemoteKey,
}

/// A buffer of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    area: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// The server's slot that is written from here.
    pub(crate) slot: Option<RemoteSlice>,
    is_free: bool,
}

/// Buffers for transfers, of several lengths.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    areas: Vec<Area>,
    buffers: Vec<Buffer>,
}

impl Pool {
    /// Adds buffers, one behind the other. The server may access them if `exposed`.
    pub(crate) fn add(
        &mut self,
        endpoint: &mut PeerEndpoint,
        (count, bytes): (u16, usize),
        exposed: bool,
    ) -> Result<(), MemoryError> {
        let memory = PeerMemory::map(usize::from(count) * bytes)?;
        let (key, remote) = if exposed {
            endpoint.expose(memory.region())?
        } else {
            (endpoint.register(memory.region())?, RemoteKey(0))
        };
        let area = self.areas.len();
        self.areas.push(Area {
            memory,
            key,
            remote,
        });
        for place in 0..usize::from(count) {
            self.buffers.push(Buffer {
                area,
                offset: (place * bytes) as u64,
                bytes,
                slot: None,
                is_free: true,
            });
        }
        Ok(())
    }

    /// Adds a buffer for each upload slot of the server's. The numbers of the slots are those of
    /// the buffers. False if they do not continue them.
    pub(crate) fn add_uploads(
        &mut self,
        endpoint: &mut PeerEndpoint,
        facts: &SlotFacts,
    ) -> Result<bool, MemoryError> {
        let first = self.buffers.len();
        if usize::from(facts.first) != first {
            return Ok(false);
        }
        self.add(endpoint, (facts.slots, facts.slot_bytes as usize), false)?;
        for buffer in &mut self.buffers[first..] {
            buffer.slot = Some(RemoteSlice {
                key: RemoteKey(facts.memory_key),
                offset: buffer.offset,
            });
        }
        Ok(true)
    }

    pub(crate) fn get(&self, number: u16) -> Option<Buffer> {
        self.buffers.get(usize::from(number)).copied()
    }

    /// Takes the shortest free buffer that holds `bytes`.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<(u16, Buffer)> {
        let fits = self.buffers.iter_mut().enumerate();
        let fits = fits.filter(|(_, buffer)| buffer.is_free && buffer.bytes >= bytes);
        let (place, buffer) = fits.min_by_key(|(_, buffer)| buffer.bytes)?;
        buffer.is_free = false;
        Some((u16::try_from(place).ok()?, *buffer))
    }

    pub(crate) fn free(&mut self, number: u16) {
        if let Some(buffer) = self.buffers.get_mut(usize::from(number)) {
            buffer.is_free = true;
        }
    }

    /// Bytes of the longest buffer.
    pub(crate) fn longest(&self) -> usize {
        self.buffers.iter().map(|one| one.bytes).max().unwrap_or(0)
    }

    pub(crate) fn write(&mut self, buffer: Buffer, offset: usize, bytes: &[u8]) {
        let place = buffer.offset + offset as u64;
        self.areas[buffer.area].memory.write(place, bytes);
    }

    /// Copies bytes of a buffer behind others.
    pub(crate) fn read_to(
        &self,
        buffer: Buffer,
        (offset, bytes): (usize, usize),
        target: &mut Vec<u8>,
    ) {
        let place = buffer.offset + offset as u64;
        let memory = &self.areas[buffer.area].memory;
        memory.read_to(place, bytes.min(buffer.bytes - offset), target);
    }

    pub(crate) fn local(&self, buffer: Buffer, bytes: usize) -> LocalSlice {
        LocalSlice {
            key: self.areas[buffer.area].key,
            offset: buffer.offset,
            bytes: u32::try_from(bytes).unwrap_or(0),
        }
    }

    /// The key by which the server accesses a buffer.
    pub(crate) fn remote(&self, buffer: Buffer) -> RemoteKey {
        self.areas[buffer.area].remote
    }
}
