//! The task of a memory node: keeps its connections, claims and frees its extents, and performs
//! what the pool asks of it.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use farcore_rdma::control::{Grant, Refused, SessionError};
use farcore_rdma::{
    Change, Claim, Claims, ConnectionSlot, ExtentRun, FabricEndpoint, FabricOptions, Initiator,
    InitiatorOptions, Lock, ManagerError, NodeConnections, OwnerId, PoolNode, QueuePairState,
    RemoteSlice,
};

use super::turn::{Next, TICK, next};
use crate::allocation::Lingering;
use crate::command::{CallError, Command, Granted};
use crate::error::{PoolError, Result};
use crate::heap::Run;
use crate::shared::Shared;
use crate::word::Count;

/// How often a node's free extents are counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// How often exported memory is looked at whose exporter has no use for it.
const LINGER_EVERY: Duration = Duration::from_millis(500);
/// How many of it are looked at once.
const LINGERING_AT_ONCE: usize = 32;

/// What a procedure answers, or why it failed.
type CallAnswer = std::result::Result<Vec<u8>, String>;

/// Passes on how a call ended.
async fn answer_call(
    called: impl Future<Output = std::result::Result<CallAnswer, SessionError>>,
    answer: Sender<std::result::Result<Vec<u8>, CallError>>,
) {
    let done = match called.await {
        Ok(done) => done.map_err(CallError::Failed),
        Err(SessionError::Refused(late @ Refused::LateCall { .. })) => {
            Err(CallError::Late(late.to_string()))
        }
        Err(SessionError::Refused(refused)) => Err(CallError::Failed(refused.to_string())),
        Err(_) => Err(CallError::Unknown),
    };
    let _ = answer.try_send(done);
}

/// A memory node's connections and claims.
pub(super) struct RemoteSource {
    connections: NodeConnections,
    claims: Option<NodeClaims>,
    /// Exported memory whose reference word is on this node.
    lingering: VecDeque<Lingering>,
    /// Swaps to be performed, after a failure: word, expected, desired.
    swaps: Vec<(RemoteSlice, u64, u64)>,
    /// Shares to be given up, after a failure.
    unshared: Vec<(Option<RemoteSlice>, Vec<ExtentRun>)>,
    /// Of the queue pair that claims.
    fabric: FabricOptions,
}

/// The claims of one session.
struct NodeClaims {
    claims: Claims<FabricEndpoint>,
    slot: Option<ConnectionSlot>,
    held: HashMap<u32, Claim>,
}

impl RemoteSource {
    pub(super) fn new(connections: NodeConnections, fabric: &FabricOptions) -> Self {
        Self {
            connections,
            claims: None,
            lingering: VecDeque::new(),
            unshared: Vec::new(),
            swaps: Vec::new(),
            fabric: FabricOptions {
                queues: 1,
                ..fabric.clone()
            },
        }
    }

    /// Serves until the pool is closed.
    pub(super) async fn keep(
        mut self: Box<Self>,
        node: usize,
        shared: &Shared,
        commands: &Receiver<Command>,
    ) {
        let mut counted = Instant::now();
        let mut due = counted + TICK;
        let mut lingered = Instant::now();
        loop {
            match next(commands, &mut due).await {
                Next::Command(command) => self.perform(node, shared, command).await,
                Next::Tick => {
                    self.tend(node, shared).await;
                    if !self.swaps.is_empty() && shared.nodes[node].is_up() {
                        self.swap_all(shared.lanes.len()).await;
                    }
                    if lingered.elapsed() >= LINGER_EVERY && shared.nodes[node].is_up() {
                        lingered = Instant::now();
                        self.unshare(node, shared).await;
                        self.free_lingering(node, shared).await;
                    }
                    if counted.elapsed() >= COUNT_EVERY {
                        counted = Instant::now();
                        self.count(node, shared).await;
                    }
                }
                Next::Close => break,
            }
        }
        drop(self.claims);
        self.connections.close().await;
    }

    async fn perform(&mut self, node: usize, shared: &Shared, command: Command) {
        let is_current = |session| session == shared.nodes[node].session();
        match command {
            Command::Claim { count, answer } => {
                let granted = self.claim(node, shared, count).await;
                if let Err(unsent) = answer.try_send(granted)
                    && let Some(granted) = unsent.into_inner()
                {
                    self.free(node, shared, granted.run.first).await;
                }
            }
            Command::Free { session, first } => {
                if is_current(session) {
                    self.free(node, shared, first).await;
                }
            }
            Command::Share { grant, answer } => self.share(grant, &answer).await,
            Command::Unshare {
                session,
                word,
                runs,
            } => {
                if is_current(session) {
                    self.unshared.push((word, runs));
                    self.unshare(node, shared).await;
                }
            }
            Command::Swap {
                session,
                word,
                expected,
                desired,
            } => {
                if is_current(session) {
                    self.swaps.push((word, expected, desired));
                    self.swap_all(shared.lanes.len()).await;
                }
            }
            Command::Attach {
                first,
                anchor,
                answer,
            } => {
                let _ = answer.try_send(self.attach(node, shared, first, anchor).await);
            }
            Command::IsOver { session, answer } => {
                let _ = answer.try_send(self.is_over(session).await);
            }
            Command::Call {
                session: Some(session),
                answer,
                ..
            } if !is_current(session) => {
                let _ = answer.try_send(Err(CallError::Renewed));
            }
            Command::Call { call, answer, .. } => {
                // Commands that ask the node nothing do not wait for it.
                let called = answer_call(self.connections.call(call), answer);
                drop(farcore_rdma::spawn_task(called));
            }
            Command::Linger(lingering) => {
                let left = self.lingered(node, shared, lingering).await;
                self.lingering.extend(left);
            }
        }
    }

    /// Joins the lanes to an open session.
    pub(super) async fn join(&mut self, node: usize, shared: &Shared) -> Result<()> {
        if !self.connections.is_open() {
            let error = self.connections.take_error();
            let error = error.map(|error| error.to_string());
            shared.nodes[node].set_down(error);
            return Ok(());
        }
        self.begin(node, shared);
        if let Err(error) = self.connections.connect().await {
            if error.is_final() {
                return Err(PoolError::Connect(error.to_string()));
            }
            // It may have been restarted since: it is connected again as any other that is lost.
            shared.nodes[node].set_down(Some(error.to_string()));
            return Ok(());
        }
        self.renew(node, shared);
        self.count(node, shared).await;
        Ok(())
    }

    /// Begins a session that holds nothing.
    fn begin(&mut self, node: usize, shared: &Shared) {
        self.claims = None;
        self.lingering.clear();
        self.unshared.clear();
        self.swaps.clear();
        if let Some(session) = self.connections.session() {
            let map = session.map();
            shared.nodes[node].set_facts(session.clone());
            let lent_bytes = u64::from(map.extents()) * map.extent_bytes;
            let session = shared.nodes[node].begin(map.extent_bytes, lent_bytes);
            shared.begin(node, session);
        }
    }

    async fn tend(&mut self, node: usize, shared: &Shared) {
        let change = self.connections.tend().await;
        let address = self.connections.address();
        match change {
            None => {}
            Some(Change::Opened) => {
                tracing::info!(node = %address, "a memory node has joined the pool");
                self.begin(node, shared);
            }
            Some(Change::Renewed) => {
                tracing::warn!(node = %address, "a memory node's session was renewed: what was allocated there is lost");
                self.begin(node, shared);
            }
            Some(Change::Down(error)) => {
                tracing::warn!(node = %address, %error, "a memory node does not answer");
                shared.nodes[node].set_down(Some(error.to_string()));
            }
            Some(Change::Up) => {
                tracing::info!(node = %address, "a memory node answers again");
                shared.nodes[node].set_up();
            }
        }
        let leaves = self.connections.is_leaving();
        if shared.nodes[node].set_leaving(leaves) && leaves {
            let node_address = self.connections.address();
            tracing::warn!(node = %node_address, "a memory node leaves: nothing is allocated there, and what is stays until it is freed");
            shared.leave(node);
        }
        self.renew(node, shared);
    }

    /// Has the lanes take the connections that were offered.
    fn renew(&mut self, node: usize, shared: &Shared) {
        let session = shared.nodes[node].session();
        for lane in &shared.lanes {
            if lane.initiator().state(node) != Some(QueuePairState::ReadyToSend) {
                lane.initiator().renew_for(node, session);
            }
        }
    }

    /// The claims of this session, with a queue pair that is connected.
    async fn claims(&mut self, lanes: usize) -> std::result::Result<&mut NodeClaims, String> {
        let claims = match self.claims.take() {
            Some(claims) => claims,
            None => NodeClaims::open(&self.connections, &self.fabric).await?,
        };
        let claims = self.claims.insert(claims);
        let initiator = claims.claims.initiator();
        if initiator.state(0) != Some(QueuePairState::ReadyToSend) {
            if let Some(slot) = &claims.slot
                && slot.is_empty()
            {
                let joined = self.connections.join(lanes, slot).await;
                joined.map_err(|error| error.to_string())?;
            }
            initiator.renew(0);
        }
        Ok(claims)
    }

    async fn claim(&mut self, node: usize, shared: &Shared, count: u32) -> Option<Granted> {
        let session = shared.nodes[node].session();
        let lanes = shared.lanes.len();
        let claimed = async {
            let own = self.claims(lanes).await?;
            let claimed = own.claims.claim(count).await;
            let claim = claimed.map_err(|error| error.to_string())?;
            Ok::<_, String>(claim.map(|claim| {
                let run = Run {
                    first: claim.run().first(),
                    slice: claim.slice(),
                    bytes: claim.bytes(),
                };
                own.held.insert(run.first, claim);
                Granted { session, run }
            }))
        };
        let granted = claimed.await.unwrap_or_else(|reason| {
            tracing::debug!(node = %self.connections.address(), reason, "no extent was claimed");
            None
        });
        self.note_free(node, shared);
        granted
    }

    async fn free(&mut self, node: usize, shared: &Shared, first: u32) {
        let Some(own) = &mut self.claims else {
            return;
        };
        let Some(claim) = own.held.remove(&first) else {
            return;
        };
        if shared.take_exported(node, claim.run()) {
            // The node passes on what others share.
            let run = claim.run();
            match self.connections.free_chunk(run).await {
                Ok(()) => own.claims.forget(&claim),
                Err(error) => {
                    tracing::debug!(node = %self.connections.address(), %error, "an extent is freed with its session");
                }
            }
        } else {
            // What fails is in doubt, and freed by a later call.
            let freed = own.claims.free(claim).await;
            if let Err(error) = freed {
                tracing::debug!(node = %self.connections.address(), %error, "an extent is freed later");
            }
        }
    }

    async fn attach(&mut self, node: usize, shared: &Shared, first: u32, anchor: u32) -> bool {
        let Some(own) = &mut self.claims else {
            return false;
        };
        let Some(claim) = own.held.get(&first) else {
            return false;
        };
        // If the answer is lost, the node frees it, and knows whether it was attached.
        shared.note_exported(node, claim.run());
        let attached = self.connections.attach(claim.run(), anchor).await;
        if let Err(error) = &attached {
            tracing::debug!(node = %self.connections.address(), %error, "an extent was not attached");
        } else if let Some(claim) = own.held.remove(&first) {
            own.claims.forget(&claim);
        }
        attached.is_ok()
    }

    async fn is_over(&mut self, session: u32) -> bool {
        let Some(own) = self.connections.session() else {
            return false;
        };
        let number = u64::from(own.incarnation()) << 32 | u64::from(session);
        match OwnerId::new(number) {
            Some(number) => {
                let is_open = self.connections.is_open_session(number).await;
                is_open.is_ok_and(|is_open| !is_open)
            }
            None => true,
        }
    }

    /// Shares another session's extents, and says why the node refuses.
    async fn share(&mut self, grant: Grant, answer: &Sender<std::result::Result<(), String>>) {
        let shared_run = self.connections.share(grant).await;
        let done = shared_run.as_ref().map(|_| ());
        let done = done.map_err(ToString::to_string);
        // Refused, it shares nothing; if the answer was lost, it may.
        let is_shared = !matches!(
            shared_run,
            Err(ManagerError::Session {
                source: SessionError::Refused(_),
                ..
            })
        );
        let is_lost = done.is_err();
        if (answer.try_send(done).is_err() || is_lost)
            && is_shared
            && let Some(run) = grant.chunk.run()
        {
            self.unshared.push((None, vec![run]));
        }
    }

    /// Performs swaps, as far as the node answers. Their values are not used again, so one whose
    /// answer was lost is performed again without harm.
    async fn swap_all(&mut self, lanes: usize) {
        while let Some(&(word, expected, desired)) = self.swaps.last() {
            let Ok(own) = self.claims(lanes).await else {
                return;
            };
            let initiator = own.claims.initiator();
            let swapped = initiator.compare_and_swap(0, word, expected, desired);
            if swapped.await.is_err() {
                return;
            }
            self.swaps.pop();
        }
    }

    /// Gives up shares, as far as the node answers.
    async fn unshare(&mut self, node: usize, shared: &Shared) {
        let lanes = shared.lanes.len();
        while let Some((word, runs)) = self.unshared.last().cloned() {
            if let Some(word) = word {
                let Ok(own) = self.claims(lanes).await else {
                    return;
                };
                let lowered = lower(&own.claims, word).await;
                if lowered.is_err() {
                    return;
                }
                shared.end_own_import(node, word);
                if let Some(last) = self.unshared.last_mut() {
                    last.0 = None;
                }
            }
            for run in runs {
                // Refused if the node has given it up already: its answer was lost.
                let done = self.connections.unshare(run).await;
                if let Err(error) = done
                    && !matches!(
                        error,
                        ManagerError::Session {
                            source: SessionError::Refused(_),
                            ..
                        }
                    )
                {
                    return;
                }
                if let Some(last) = self.unshared.last_mut() {
                    last.1.retain(|one| *one != run);
                }
            }
            self.unshared.pop();
        }
    }

    /// Frees exported memory whose last owner has gone.
    async fn free_lingering(&mut self, node: usize, shared: &Shared) {
        // A few at once, in turn: the node's task has others to serve.
        for _ in 0..self.lingering.len().min(LINGERING_AT_ONCE) {
            let Some(lingering) = self.lingering.pop_front() else {
                return;
            };
            let left = self.lingered(node, shared, lingering).await;
            self.lingering.extend(left);
        }
    }

    /// Frees exported memory if its last owner has gone; else returns it.
    async fn lingered(
        &mut self,
        node: usize,
        shared: &Shared,
        mut lingering: Lingering,
    ) -> Option<Lingering> {
        if lingering.word.session != shared.nodes[node].session() {
            return None;
        }
        match self.is_dead(node, shared, &mut lingering).await {
            Ok(true) => {
                shared.give_spans(&lingering.spans);
                shared.give_spans(&[lingering.word]);
                None
            }
            Ok(false) => Some(lingering),
            Err(reason) => {
                tracing::debug!(node = %self.connections.address(), reason, "exported memory is freed later");
                Some(lingering)
            }
        }
    }

    /// Whether no one has a use for exported memory.
    async fn is_dead(
        &mut self,
        node: usize,
        shared: &Shared,
        lingering: &mut Lingering,
    ) -> std::result::Result<bool, String> {
        let word = lingering.word.slice;
        let lanes = shared.lanes.len();
        let own = self.claims(lanes).await?;
        if lingering.is_counted {
            lower(&own.claims, word).await?;
            lingering.is_counted = false;
        }
        let count = load(&own.claims, word).await?;
        if count.is_dead() && !lingering.has_readers {
            return Ok(true);
        }
        if shared.has_own_imports(node, word) {
            return Ok(false);
        }
        let sharers = self.sharers(word).await?;
        if sharers > 0 || count.is_on_its_way() {
            return Ok(false);
        }
        if count.is_dead() {
            return Ok(true);
        }
        if count.word() >> 32 != u64::from(lingering.generation) {
            return Err("its reference word was overwritten".to_owned());
        }
        // The owners that it counts have died. One that shares the extent meanwhile finds it dead,
        // or has raised it: then it is looked at again.
        let own = self.claims(lanes).await?;
        let swapped =
            own.claims
                .initiator()
                .compare_and_swap(0, word, count.word(), count.dead().word());
        swapped.await.map_err(|error| error.to_string())?;
        Ok(false)
    }

    /// How many other sessions share the extent of a word.
    async fn sharers(&self, word: RemoteSlice) -> std::result::Result<u32, String> {
        let session = self.connections.session().ok_or("no session is open")?;
        let extent = session.map().extent_of(word).ok_or("no such extent")?.0;
        let run = ExtentRun::new(extent, 1).ok_or("no such extent")?;
        let counted = self.connections.count_shares(run).await;
        counted.map_err(|error| error.to_string())
    }

    /// Counts the free extents, and frees those in doubt.
    async fn count(&mut self, node: usize, shared: &Shared) {
        if !shared.nodes[node].is_up() {
            return;
        }
        if let Ok(own) = self.claims(shared.lanes.len()).await {
            let _ = own.claims.settle().await;
            let _ = own.claims.refresh().await;
        }
        self.note_free(node, shared);
    }

    fn note_free(&self, node: usize, shared: &Shared) {
        if let (Some(own), Some(session)) = (&self.claims, self.connections.session()) {
            let bytes = own.claims.free_count() * session.map().extent_bytes;
            shared.nodes[node].set_free_bytes(bytes);
        }
    }
}

async fn load(
    claims: &Claims<FabricEndpoint>,
    word: RemoteSlice,
) -> std::result::Result<Count, String> {
    let mut bytes = [0; 8];
    let read = claims.initiator().read(0, word, &mut bytes).await;
    read.map_err(|error| error.to_string())?;
    Ok(Count::of(u64::from_le_bytes(bytes)))
}

/// Lowers a reference word by one owner. If the connection breaks meanwhile, it may stay as it was:
/// lowered twice it would free what another uses, and one that is too high is mended once no one
/// shares the extent.
async fn lower(
    claims: &Claims<FabricEndpoint>,
    word: RemoteSlice,
) -> std::result::Result<(), String> {
    let mut seen = load(claims, word).await?;
    loop {
        let (expected, desired) = (seen.word(), seen.left().word());
        let swapped = claims
            .initiator()
            .compare_and_swap(0, word, expected, desired);
        let Ok(old) = swapped.await else {
            return Ok(());
        };
        if old == expected {
            return Ok(());
        }
        seen = Count::of(old);
    }
}

impl NodeClaims {
    async fn open(
        connections: &NodeConnections,
        fabric: &FabricOptions,
    ) -> std::result::Result<Self, String> {
        let session = connections.session().ok_or("no session is open")?;
        let nodes = std::slice::from_ref(connections.address());
        let endpoint = FabricEndpoint::open(nodes, fabric).await;
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        let slot = endpoint.connection_slot(0);
        let options = InitiatorOptions {
            lock: Lock::Off,
            ..InitiatorOptions::default()
        };
        let initiator = Initiator::new(endpoint, options).map_err(|error| error.to_string())?;
        let place = PoolNode {
            queue: 0,
            owner: session.owner(),
            map: session.map().clone(),
        };
        let claims = Claims::new(Rc::new(initiator), vec![place], session.owner().get());
        Ok(Self {
            claims: claims.map_err(|error| error.to_string())?,
            slot,
            held: HashMap::new(),
        })
    }
}
