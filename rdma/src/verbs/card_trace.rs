//! Records which objects each work request uses, as a trace for `farcore card`. In a build with the
//! feature `card-trace` only: without it, a request pays nothing.
//!
//! A request is recorded when it is posted and gets the time of its doorbell. It uses its queue
//! pair, whose packet numbers change, its region and the completion queue. What is known of an
//! object goes into its token: numbers that libibverbs does not show are the index of the handle.
//!
//! - I1: no more than a limit is kept; what comes later is counted and left out.

use farcore_card::token::{
    Access as CardAccess, CompletionQueueToken as CardQueue, DomainToken as CardDomain, Fields,
    QueuePairState, QueuePairToken as CardPair, RegionToken as CardRegion, Transport,
};
use farcore_card::trace::{Recording, RecordingBuilder};
use farcore_card::workload::Operation;

use super::context::Access;
use super::handle::{CompletionQueueToken, DomainToken, Handle, QueuePairToken, RegionToken};

/// The least page of a host, as a power of two.
const PAGE_BITS: u8 = 12;

/// A posted request that has no time yet.
#[derive(Clone, Copy, Debug)]
struct Posted {
    queue: usize,
    handles: [Handle; 3],
}

/// A trace that is being recorded.
#[derive(Debug, Default)]
pub(super) struct CardTrace {
    builder: RecordingBuilder,
    posted: Vec<Posted>,
    messages_max: usize,
    left_out: u64,
}

/// What is known of an endpoint's objects.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) domain: DomainToken,
    pub(super) completion_queue: CompletionQueueToken,
    pub(super) regions: Vec<RegionToken>,
    pub(super) queue_pairs: Vec<QueuePairToken>,
    pub(super) access: Access,
}

impl CardTrace {
    pub(super) fn new(messages_max: usize) -> Self {
        Self {
            messages_max,
            ..Self::default()
        }
    }

    /// A request was posted to a queue.
    pub(super) fn post(&mut self, queue: usize, pair: &QueuePairToken, region: Handle) {
        if self.builder.messages() + self.posted.len() >= self.messages_max {
            self.left_out += 1;
            return;
        }
        self.posted.push(Posted {
            queue,
            handles: [pair.handle, region, pair.completion_queue],
        });
    }

    /// The doorbell of a queue was rung.
    pub(super) fn ring(&mut self, queue: usize, now_ns: u64) {
        let builder = &mut self.builder;
        self.posted.retain(|posted| {
            let is_rung = posted.queue == queue;
            if is_rung {
                builder.add(now_ns, Operation::Relaxed, &posted.handles);
            }
            !is_rung
        });
    }

    /// The recording, and how many requests were left out.
    pub(super) fn finish(mut self, known: Known) -> (Recording, u64) {
        let access = card_access(known.access);
        let index = |handle: Handle| u32::from(handle.index());
        let (domain, queue) = (known.domain, known.completion_queue);
        let mut fields = vec![
            Fields::Domain(CardDomain {
                handle: domain.handle,
                number: index(domain.handle),
            }),
            Fields::CompletionQueue(CardQueue {
                handle: queue.handle,
                number: index(queue.handle),
                entries: queue.entries,
                vector: 0,
                flags: 0,
            }),
        ];
        fields.extend(known.regions.iter().map(|region| {
            Fields::Region(CardRegion {
                handle: region.handle,
                lkey: region.lkey,
                access,
                page_bits: PAGE_BITS,
                pages: region.bytes.div_ceil(1 << PAGE_BITS),
            })
        }));
        fields.extend(known.queue_pairs.iter().map(|pair| {
            Fields::QueuePair(CardPair {
                handle: pair.handle,
                number: pair.number,
                transport: Transport::ReliableConnection,
                state: QueuePairState::ReadyToSend,
                domain: domain.handle.index(),
                send_queue: pair.completion_queue.index(),
                receive_queue: pair.completion_queue.index(),
                access,
            })
        }));
        // Fields beyond their bits are left out: their objects are known by name then.
        for token in fields.iter().filter_map(|fields| fields.pack().ok()) {
            self.builder.add_token(token);
        }
        (self.builder.finish(), self.left_out)
    }
}

fn card_access(access: Access) -> CardAccess {
    match access {
        Access::Local => CardAccess::LOCAL_WRITE,
        Access::Remote => {
            CardAccess::LOCAL_WRITE | CardAccess::REMOTE_READ | CardAccess::REMOTE_WRITE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::handle::Kind;
    use super::*;

    fn pair(index: u16) -> QueuePairToken {
        QueuePairToken {
            handle: Handle::new(Kind::QueuePair, 0, index),
            number: 0x100 + u32::from(index),
            depth: 64,
            inline_bytes: 0,
            completion_queue: Handle::new(Kind::CompletionQueue, 0, 0),
        }
    }

    fn region(index: u16) -> RegionToken {
        RegionToken {
            handle: Handle::new(Kind::Region, 0, index),
            lkey: 77,
            bytes: 5_000,
        }
    }

    #[test]
    fn requests_have_the_time_of_their_doorbell() {
        let mut trace = CardTrace::new(3);
        trace.post(0, &pair(0), region(0).handle);
        trace.post(1, &pair(1), region(0).handle);
        trace.ring(1, 50);
        trace.post(1, &pair(1), region(1).handle);
        trace.post(1, &pair(1), region(1).handle);
        trace.ring(0, 70);
        trace.ring(1, 90);
        let (recording, left_out) = trace.finish(Known {
            domain: DomainToken {
                handle: Handle::new(Kind::Domain, 0, 0),
            },
            completion_queue: CompletionQueueToken {
                handle: Handle::new(Kind::CompletionQueue, 0, 0),
                entries: 128,
            },
            regions: vec![region(0), region(1)],
            queue_pairs: vec![pair(0), pair(1)],
            access: Access::Remote,
        });
        assert_eq!(left_out, 1);
        let times: Vec<u64> = recording.messages().iter().map(|one| one.time_ns).collect();
        assert_eq!(times, [50, 70, 90]);
        // A domain, two regions, a completion queue, two queue pairs, all with tokens.
        assert_eq!(recording.tokens().iter().flatten().count(), 6);
        let used = |message: usize| {
            let keys = recording.messages()[message].keys().iter();
            keys.map(|&key| recording.handles()[key as usize])
                .collect::<Vec<_>>()
        };
        let queue = Handle::new(Kind::CompletionQueue, 0, 0);
        assert_eq!(used(0), [pair(1).handle, region(0).handle, queue]);
        assert_eq!(used(2), [pair(1).handle, region(1).handle, queue]);
    }
}
