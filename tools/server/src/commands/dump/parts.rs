//! A payload, as it is gathered.

use farcore::Core;
use farcore_rdb::{Crc64, payload};

use crate::long::copy::send_chunks;
use crate::memory::{Charge, Shortage};
use crate::resp::{Protocol, Writer};
use crate::tasks::output::TaskOutput;

/// Bytes from which a part is full.
const PART_BYTES: usize = 32 << 10;

/// A payload in parts. Its memory is charged.
pub(super) struct Parts {
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
    full_bytes: usize,
    held: Charge,
}

/// A place that is filled later.
#[must_use]
pub(super) struct Place(usize);

impl Parts {
    pub(super) fn new(output: &TaskOutput) -> Self {
        Self {
            full: Vec::new(),
            last: Vec::new(),
            full_bytes: 0,
            held: output.hold(0),
        }
    }

    /// Charges bytes that are about to be added, or taken beside.
    pub(super) fn hold(&mut self, more: usize) -> Result<(), Shortage> {
        let bytes = self.full_bytes + 2 * self.last.len() + more;
        if bytes > self.held.bytes() {
            self.held.grow_to(bytes + bytes / 4)?;
        }
        Ok(())
    }

    /// Where bytes are added.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        if self.last.len() >= PART_BYTES {
            self.end_part();
        }
        &mut self.last
    }

    fn end_part(&mut self) {
        let mut part = std::mem::take(&mut self.last);
        part.shrink_to_fit();
        self.full_bytes += part.len() + size_of::<Vec<u8>>();
        self.full.push(part);
    }

    /// Leaves a place here for what is known later.
    pub(super) fn place(&mut self) -> Place {
        self.end_part();
        self.full.push(Vec::new());
        self.full_bytes += size_of::<Vec<u8>>();
        Place(self.full.len() - 1)
    }

    /// Fills a place.
    pub(super) fn fill(&mut self, place: Place, fill: impl FnOnce(&mut Vec<u8>)) {
        fill(&mut self.full[place.0]);
    }

    /// Writes the payload as the client takes it.
    pub(super) async fn send(mut self, core: &Core, output: &TaskOutput, protocol: Protocol) {
        self.end_part();
        let bytes: usize = self.full.iter().map(Vec::len).sum();
        output.write(|output| {
            Writer::new(output, protocol).bulk_head(bytes + payload::FOOTER_BYTES);
        });
        let mut crc = Crc64::default();
        for part in std::mem::take(&mut self.full) {
            crc.add(&part);
            output.turn(core, part.len()).await;
            send_chunks(core, output, &part).await;
            let left = self.held.bytes().saturating_sub(part.len());
            drop(part);
            self.held.shrink_to(left);
        }
        output.write(|output| {
            output.extend(payload::footer(crc));
            output.extend_from_slice(b"\r\n");
        });
    }
}
