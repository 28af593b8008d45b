//! One thread's endpoint of the `verbs` fabric: a protection domain, one completion queue, and
//! queue pairs of reliable connections.
//!
//! - I1: a registered region stays registered as long as the endpoint lives, and the queue pairs
//!   are dropped first: a buffer cannot be freed while a request names it.
//! - I2: between two polls this code makes no allocation, lock or system call. The device's own
//!   library acts once per chain, at the doorbell: a store on a card, a system call on Soft-RoCE.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::Arc;

#[cfg(feature = "card-trace")]
use super::card_trace::{CardTrace, Known};
use super::chain::Piece;
use super::context::{Access, CompletionQueue, Context, Domain, MemoryRegion};
use super::error::VerbsError;
use super::ffi;
use super::handle::{
    CompletionQueueToken, DomainToken, Handle, Kind, Named, QueuePairToken, RegionToken, Table,
};
use super::mark::{Mark, QUEUES_MAX};
use super::queue::Queue;
use super::queue_pair::QueuePair;
use super::status::status_of;
use crate::fabric::FabricOptions;
use crate::fabric::{Endpoint, PostError, QueuePairState, RegisterError};
use crate::region::Region;
use crate::verbs::slot::{Adapter, Connected, ConnectionSlot, Line};
use crate::work::{Completion, LocalKey, RemoteKey, RemoteSlice, Status, Work, WorkRequest};

/// Completions polled from the device at once.
const BATCH: usize = 32;

/// A region beside its token; a request reads nothing else.
#[derive(Debug)]
struct Registered {
    token: RegionToken,
    /// The region's first byte, for inline payload.
    start: u64,
    region: MemoryRegion,
}

impl Named for Registered {
    const KIND: Kind = Kind::Region;
}

/// All verbs objects of an endpoint, by handle. They are dropped in this order: queue pairs first,
/// and after that the device accesses no memory of the endpoint.
#[derive(Debug, Default)]
struct Objects {
    queue_pairs: Table<QueuePair>,
    completion_queues: Table<Arc<CompletionQueue>>,
    regions: Table<Registered>,
    domains: Table<Arc<Domain>>,
}

/// One thread's endpoint of the `verbs` fabric.
#[derive(Debug)]
pub struct VerbsEndpoint {
    objects: Objects,
    queues: Vec<Queue>,
    adapter: Arc<Adapter>,
    domain: DomainToken,
    completion_queue: CompletionQueueToken,
    completions: Box<[MaybeUninit<ffi::ibv_wc>; BATCH]>,
    limit_ns: u64,
    /// The queue pair whose remaining requests are completed first.
    first: usize,
    #[cfg(feature = "card-trace")]
    card_trace: Option<Box<CardTrace>>,
}

impl VerbsEndpoint {
    /// Opens the device, with unconnected queue pairs. `access` says whether peers may access the
    /// memory registered here.
    ///
    /// # Errors
    /// [`VerbsError`] names what is missing, or the limit and the value.
    pub fn open(options: &FabricOptions, access: Access) -> Result<Self, VerbsError> {
        let context = Context::open(&options.verbs)?;
        Self::on(&context, options, access)
    }

    /// An endpoint on an open device, with unconnected queue pairs. `access` says whether peers may
    /// access the memory registered here.
    ///
    /// # Errors
    /// As [`VerbsEndpoint::open`].
    pub fn on(
        context: &Arc<Context>,
        options: &FabricOptions,
        access: Access,
    ) -> Result<Self, VerbsError> {
        Self::create(context, options, access, CompletionQueue::new)
    }

    /// An endpoint on an open device, as [`VerbsEndpoint::on`] makes it, with a completion channel:
    /// see [`VerbsEndpoint::arm`].
    ///
    /// # Errors
    /// As [`VerbsEndpoint::open`].
    pub fn with_events(
        context: &Arc<Context>,
        options: &FabricOptions,
        access: Access,
    ) -> Result<Self, VerbsError> {
        Self::create(context, options, access, CompletionQueue::with_events)
    }

    fn create(
        context: &Arc<Context>,
        options: &FabricOptions,
        access: Access,
        completion_queue: impl FnOnce(&Arc<Context>, u32) -> Result<Arc<CompletionQueue>, VerbsError>,
    ) -> Result<Self, VerbsError> {
        let over = |what, requested: usize, limit: usize| VerbsError::Limit {
            what,
            asked: requested as u64,
            limit: limit as u64,
            device: context.name().to_owned(),
        };
        let depth = u16::try_from(options.depth).map_err(|_| {
            over(
                "the depth of a queue pair",
                options.depth,
                usize::from(u16::MAX),
            )
        })?;
        if options.queues > QUEUES_MAX {
            return Err(over(
                "the number of queue pairs",
                options.queues,
                QUEUES_MAX,
            ));
        }
        let domain = Domain::new(context)?;
        // Requests and receives of every queue pair.
        let entries = options.queues.saturating_mul(2 * options.depth);
        let entries = u32::try_from(entries).unwrap_or(u32::MAX);
        let completion_queue = completion_queue(context, entries)?;
        let mut objects = Objects::default();
        let domain_token = DomainToken {
            handle: first(&mut objects.domains, Arc::clone(&domain)),
        };
        let completion_queue_token = CompletionQueueToken {
            handle: first(
                &mut objects.completion_queues,
                Arc::clone(&completion_queue),
            ),
            entries,
        };
        let adapter = Arc::new(Adapter::new(
            domain,
            completion_queue,
            options.verbs.clone(),
            access,
            depth,
        ));
        let queue = |index| {
            let connection_slot = Arc::new(ConnectionSlot::new(Arc::clone(&adapter)));
            Queue::new(index, options.depth, connection_slot)
        };
        Ok(Self {
            objects,
            queues: (0..options.queues).map(queue).collect(),
            adapter,
            domain: domain_token,
            completion_queue: completion_queue_token,
            completions: Box::new([const { MaybeUninit::uninit() }; BATCH]),
            limit_ns: options.limit_ns,
            first: 0,
            #[cfg(feature = "card-trace")]
            card_trace: None,
        })
    }

    /// Records which objects work requests use, up to this many requests. A second call begins
    /// anew.
    #[cfg(feature = "card-trace")]
    pub fn record_card_trace(&mut self, messages_max: usize) {
        self.card_trace = Some(Box::new(CardTrace::new(messages_max)));
    }

    /// Ends the recording; returns it with the number of requests that were left out, or `None` if
    /// nothing is recorded. Requests whose doorbell was not rung are not in it.
    #[cfg(feature = "card-trace")]
    pub fn take_card_trace(&mut self) -> Option<(farcore_card::trace::Recording, u64)> {
        let trace = self.card_trace.take()?;
        Some(trace.finish(Known {
            domain: self.domain,
            completion_queue: self.completion_queue,
            regions: self.objects.regions.iter().map(|one| one.token).collect(),
            queue_pairs: self.queues.iter().filter_map(Queue::token).collect(),
            access: self.adapter.access,
        }))
    }

    /// Memory that an endpoint takes besides its regions and the device library's own, in bytes.
    #[must_use]
    pub fn bytes_for(queues: usize, depth: usize) -> u64 {
        (queues * Queue::bytes_for(depth)) as u64
    }

    /// The slot that hands connections to a queue pair.
    #[must_use]
    pub fn connection_slot(&self, queue: usize) -> Arc<ConnectionSlot> {
        Arc::clone(&self.queues[queue].connection_slot)
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        self.adapter.context()
    }

    /// Connects two of its queue pairs to each other, for requests to this process's own memory.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub fn connect_loopback(&mut self, one: usize, other: usize) -> Result<(), VerbsError> {
        let pairs = [self.adapter.queue_pair()?, self.adapter.queue_pair()?];
        let (access, options) = (self.adapter.access, &self.adapter.options);
        let facts = [pairs[0].facts(options), pairs[1].facts(options)];
        pairs[0].connect(access, &facts[1], options)?;
        pairs[1].connect(access, &facts[0], options)?;
        for (queue, queue_pair) in [one, other].into_iter().zip(pairs) {
            self.queues[queue].connection_slot.offer(Connected {
                queue_pair,
                line: Arc::new(Line::Loopback),
            });
            self.renew(queue);
        }
        Ok(())
    }

    /// Connects two of its queue pairs to each other again after a fault. When this returns, the
    /// old queue pairs are destroyed: none of their requests is performed later.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub fn reconnect_loopback(&mut self, one: usize, other: usize) -> Result<(), VerbsError> {
        for queue in [one, other] {
            let queue = &mut self.queues[queue];
            queue.give_up(&mut self.objects.queue_pairs);
            while queue.flush_next().is_some() {}
        }
        self.connect_loopback(one, other)
    }

    /// Registers memory for this side's requests alone, or for its peers' too.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn register_for(
        &mut self,
        region: Arc<Region>,
        access: Access,
    ) -> Result<LocalKey, RegisterError> {
        let refused = |error: VerbsError| RegisterError(error.to_string());
        let region =
            MemoryRegion::register(&self.adapter.domain, region, access).map_err(refused)?;
        let registered = Registered {
            token: RegionToken {
                handle: Handle::default(),
                lkey: region.lkey(),
                bytes: region.region().len() as u64,
            },
            start: region.region().as_ptr().as_ptr() as u64,
            region,
        };
        let regions = &mut self.objects.regions;
        let handle = regions
            .insert(registered)
            .map_err(|_| RegisterError("too many regions: register fewer, longer ones".into()))?;
        if let Some(registered) = regions.get_mut(handle) {
            registered.token.handle = handle;
        }
        Ok(LocalKey(handle.bits()))
    }

    /// Has the completion channel report the next completion. Poll after this.
    pub fn arm(&mut self) {
        self.adapter.completion_queue.arm();
    }

    /// Takes what the completion channel has reported.
    pub fn acknowledge(&mut self) {
        self.adapter.completion_queue.take_events();
    }

    /// The descriptor of the completion channel, and that of the line of the first queue pair. The
    /// latter is readable when the peer has gone.
    #[must_use]
    pub fn descriptors(&self) -> [Option<RawFd>; 2] {
        let line = self.queues.first();
        let line = line.and_then(|queue| queue.connection_slot.line_descriptor());
        [self.adapter.completion_queue.descriptor(), line]
    }

    /// The key of a registered region in peers' requests.
    #[must_use]
    pub fn remote_key(&self, key: LocalKey) -> Option<RemoteKey> {
        let registered = self.objects.regions.get(Handle::from_bits(key.0))?;
        Some(RemoteKey(registered.region.rkey()))
    }

    /// Its protection domain.
    #[must_use]
    pub fn domain(&self) -> DomainToken {
        self.domain
    }

    /// The queue that all its requests complete in.
    #[must_use]
    pub fn completion_queue(&self) -> CompletionQueueToken {
        self.completion_queue
    }

    /// A registered region.
    #[must_use]
    pub fn region(&self, key: LocalKey) -> Option<RegionToken> {
        Some(self.objects.regions.get(Handle::from_bits(key.0))?.token)
    }

    /// A queue pair, while it is connected.
    #[must_use]
    pub fn queue_pair(&self, queue: usize) -> Option<QueuePairToken> {
        self.queues[queue].token()
    }
}

/// Inserts the first object into a new table.
fn first<T: Named>(table: &mut Table<T>, object: T) -> Handle {
    let Ok(handle) = table.insert(object) else {
        unreachable!("an empty table has room");
    };
    handle
}

fn one_sided(
    request: &mut ffi::ibv_send_wr,
    opcode: ffi::ibv_wr_opcode::Type,
    remote: RemoteSlice,
) {
    request.opcode = opcode;
    request.wr.rdma = ffi::rdma_t {
        remote_addr: remote.offset,
        rkey: remote.key.0,
    };
}

fn atomic(
    request: &mut ffi::ibv_send_wr,
    opcode: ffi::ibv_wr_opcode::Type,
    remote: RemoteSlice,
    (compare_add, swap): (u64, u64),
) {
    request.opcode = opcode;
    request.wr.atomic = ffi::atomic_t {
        remote_addr: remote.offset,
        compare_add,
        swap,
        rkey: remote.key.0,
    };
}

impl Endpoint for VerbsEndpoint {
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError> {
        self.register_for(region, self.adapter.access)
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one match over the operations, on the hot path"
    )]
    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError> {
        #[cfg(feature = "card-trace")]
        let number = queue;
        let queue = &mut self.queues[queue];
        if !queue.is_up() {
            return Err(PostError::Down(request));
        }
        let local = request.work.local();
        let regions = &self.objects.regions;
        let registered = regions.get(Handle::from_bits(local.key.0));
        let inside = |one: &&Registered| {
            let end = local.offset.checked_add(local.bytes.into());
            end.is_some_and(|end| end <= one.token.bytes)
        };
        let Some(registered) = registered.filter(inside) else {
            let reason = "the local buffer is outside its region";
            return Err(PostError::Invalid { request, reason });
        };
        let mut piece = Piece {
            address: local.offset,
            bytes: local.bytes,
            lkey: registered.token.lkey,
            inline: false,
        };
        use ffi::ibv_wr_opcode as opcode;
        match request.work {
            Work::Receive { .. } => {
                if queue.receive_room() == 0 {
                    return Err(PostError::Full(request));
                }
                queue.push_receive(request.id, piece);
                return Ok(());
            }
            Work::CompareAndSwap { .. } | Work::FetchAdd { .. } if local.bytes != 8 => {
                let reason = "an atomic works on 8 bytes";
                return Err(PostError::Invalid { request, reason });
            }
            Work::Write { .. } | Work::WriteImmediate { .. } | Work::Send { .. } => {
                if (1..=queue.inline_bytes()).contains(&local.bytes) {
                    piece.address += registered.start;
                    piece.inline = true;
                }
            }
            Work::CompareAndSwap { .. } | Work::FetchAdd { .. } | Work::Read { .. } => {}
        }
        if queue.room() == 0 {
            return Err(PostError::Full(request));
        }
        #[cfg(feature = "card-trace")]
        if let (Some(trace), Some(pair)) = (&mut self.card_trace, queue.token()) {
            trace.post(number, &pair, registered.token.handle);
        }
        queue.push(request.id, request.signalled, piece, |raw| {
            match request.work {
                Work::Read { remote, .. } => one_sided(raw, opcode::IBV_WR_RDMA_READ, remote),
                Work::Write { remote, .. } => one_sided(raw, opcode::IBV_WR_RDMA_WRITE, remote),
                Work::WriteImmediate {
                    remote, immediate, ..
                } => {
                    one_sided(raw, opcode::IBV_WR_RDMA_WRITE_WITH_IMM, remote);
                    raw.imm_data_invalidated_rkey_union.imm_data = immediate.to_be();
                }
                Work::CompareAndSwap {
                    remote,
                    expected,
                    desired,
                    ..
                } => {
                    let words = (expected, desired);
                    atomic(raw, opcode::IBV_WR_ATOMIC_CMP_AND_SWP, remote, words);
                }
                Work::FetchAdd { remote, addend, .. } => {
                    atomic(
                        raw,
                        opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
                        remote,
                        (addend, 0),
                    );
                }
                Work::Send { .. } | Work::Receive { .. } => raw.opcode = opcode::IBV_WR_SEND,
            }
        });
        Ok(())
    }

    fn ring_doorbell(&mut self, queue: usize, now_ns: u64) {
        #[cfg(feature = "card-trace")]
        if let Some(trace) = &mut self.card_trace {
            trace.ring(queue, now_ns);
        }
        self.queues[queue].ring(&mut self.objects.queue_pairs, now_ns);
    }

    fn room(&self, queue: usize) -> usize {
        self.queues[queue].room()
    }

    fn state(&self, queue: usize) -> QueuePairState {
        let queue = &self.queues[queue];
        if queue.is_up() {
            return QueuePairState::ReadyToSend;
        }
        if queue.failed || queue.token().is_some() {
            return if queue.failed && queue.is_empty() {
                QueuePairState::Drained
            } else {
                QueuePairState::Error
            };
        }
        if queue.connection_slot.is_connecting() {
            QueuePairState::ReadyToReceive
        } else {
            QueuePairState::Init
        }
    }

    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        let pairs = &mut self.objects.queue_pairs;
        let mut count = 0;
        while count < completions.len() {
            let wanted = (completions.len() - count).min(BATCH);
            let Some(taken) = self
                .adapter
                .completion_queue
                .poll(&mut self.completions[..wanted])
            else {
                tracing::error!("cannot poll the completion queue: giving up its queue pairs");
                for queue in &mut self.queues {
                    queue.give_up(pairs);
                }
                break;
            };
            let few = taken.len() < wanted;
            for wc in taken {
                let mark = Mark::from_bits(wc.wr_id);
                let Some(queue) = self.queues.get_mut(mark.queue()) else {
                    debug_assert!(false, "a completion of no queue pair");
                    continue;
                };
                let status = status_of(wc.status);
                if let Some(completion) = queue.complete(mark, wc, status, now_ns) {
                    completions[count] = completion;
                    count += 1;
                }
                // A completion of a queue pair that was given up says nothing about its successor.
                let is_its = queue.token().is_some_and(|token| token.number == wc.qp_num);
                if status != Status::Success && is_its {
                    queue.fail(pairs);
                }
            }
            if few {
                break;
            }
        }
        let (limit_ns, queues) = (self.limit_ns, self.queues.len());
        for step in 0..queues {
            let index = (self.first + step) % queues;
            let queue = &mut self.queues[index];
            queue.look_after(pairs, now_ns, limit_ns);
            while queue.failed && count < completions.len() {
                let Some(completion) = queue.flush_next() else {
                    break;
                };
                completions[count] = completion;
                count += 1;
            }
            if count == completions.len() {
                self.first = index;
                break;
            }
        }
        count
    }

    fn next_due_ns(&self) -> Option<u64> {
        (self.outstanding() > 0).then_some(0)
    }

    fn outstanding(&self) -> usize {
        self.queues.iter().map(Queue::outstanding).sum()
    }

    fn outstanding_on(&self, queue: usize) -> usize {
        self.queues[queue].outstanding()
    }

    fn renew(&mut self, queue: usize) {
        let pairs = &mut self.objects.queue_pairs;
        let queue = &mut self.queues[queue];
        if queue.connection_slot.take_broken() {
            queue.fail(pairs);
        }
        if !queue.is_empty() || (queue.token().is_some() && !queue.failed) {
            return;
        }
        queue.release(pairs);
        let Some(connected) = queue.connection_slot.take_offered() else {
            return;
        };
        let pair = connected.queue_pair;
        let mut token = QueuePairToken {
            handle: Handle::default(),
            number: pair.number(),
            depth: pair.depth(),
            inline_bytes: u16::try_from(pair.inline_bytes()).unwrap_or(u16::MAX),
            completion_queue: self.completion_queue.handle,
        };
        match pairs.insert(pair) {
            Ok(handle) => token.handle = handle,
            Err(_) => return,
        }
        queue.adopt(token, connected.line);
    }
}
