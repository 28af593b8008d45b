//! A memory node in a simulated world: its sessions, table and control protocol, without sockets
//! and threads.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::memory::NodeMemory;
use super::serve::{Ended, Worker};
use super::service::{self, MaintenanceState, Service};
use super::session::{Admission, NodeLine};
use super::sessions::{Sessions, Terms};
use super::start::{NodeOptions, StartError};
use crate::control::{Join, NodeGreeted, NodeStatistics, Reply};
use crate::executor::Timer;
use crate::pool::OwnerId;
use crate::simulation::{self, SimulatedLine, SimulatedTask, spawn};
use crate::tcp::{ConnectRequest, MessageChannel, Purpose, Refusal, RemoteRange};
use crate::work::RemoteSlice;
use farcore_tuning::simulated;

/// Interval at which the node looks for ended leases.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which it looks whether a line has to end.
const LINE_INTERVAL: Duration = Duration::from_micros(200);

/// The tasks of a node's connections.
type Tasks = Rc<RefCell<Vec<SimulatedTask<()>>>>;

/// A memory node of a world. Its tasks run in a group of their own.
#[derive(Debug)]
pub struct SimulatedNode {
    service: Arc<Service>,
    group: u32,
}

/// Ends a node when it is dropped: its memory is gone.
#[derive(Debug)]
pub struct SimulatedNodeGuard {
    address: SocketAddr,
    number: usize,
    service: Arc<Service>,
    _maintenance: SimulatedTask<()>,
    tasks: Tasks,
}

thread_local! {
    /// The tasks of the nodes of this thread, by service.
    static TASKS: RefCell<Vec<(usize, Tasks)>> =
        const { RefCell::new(Vec::new()) };
}

/// Forgets the tasks of all nodes.
#[allow(
    clippy::mem_forget,
    reason = "tasks of a world that failed may not be droppable"
)]
pub(crate) fn abandon() {
    std::mem::forget(TASKS.take());
}

fn identity(service: &Arc<Service>) -> usize {
    Arc::as_ptr(service).addr()
}

fn keep(service: &Arc<Service>, task: SimulatedTask<()>) {
    TASKS.with_borrow(|all| {
        let known = all.iter().find(|(one, _)| *one == identity(service));
        match known {
            Some((_, tasks)) => {
                let mut tasks = tasks.borrow_mut();
                tasks.retain(|task| !task.has_ended());
                tasks.push(task);
            }
            None => drop(task),
        }
    });
}

impl Drop for SimulatedNodeGuard {
    fn drop(&mut self) {
        simulation::register_node(self.address, None);
        let service = identity(&self.service);
        TASKS.with_borrow_mut(|all| all.retain(|(one, _)| *one != service));
        let tasks = self.tasks.take();
        drop(tasks);
    }
}

impl SimulatedNodeGuard {
    /// Its number on the network.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Its figures.
    #[must_use]
    pub fn statistics(&self) -> NodeStatistics {
        self.service.statistics()
    }

    /// The extents that are claimed, with their owners.
    #[must_use]
    pub fn owners(&self) -> Vec<(u32, OwnerId)> {
        self.service.memory().table().owners()
    }

    /// The owner of the extent at a place of the memory that it lends, if it is claimed.
    #[must_use]
    pub fn owner_at(&self, place: RemoteSlice) -> Option<OwnerId> {
        let map = self.service.memory().map();
        let mut first = 0;
        for region in &map.regions {
            if region.key == place.key {
                let extent = first + place.offset / map.extent_bytes;
                let table = self.service.memory().table();
                return u32::try_from(extent).ok().and_then(|one| table.owner(one));
            }
            first += region.bytes / map.extent_bytes;
        }
        None
    }

    /// The memory that it lends, by region, for tests that search it.
    pub fn each_region(&self, mut each: impl FnMut(&[u8])) {
        self.service.memory().exposed().each_region(&mut each);
    }

    /// Has the bit of an extent wrong for a while, whose owner word alone counts.
    pub fn clear_bit(&self, extent: u32) {
        self.service.memory().table().clear_bit(extent);
    }

    /// Flips a bit of the memory that it lends.
    pub fn damage(&self, bit: u64) {
        let memory = self.service.memory();
        if let Some(region) = memory.map().regions.first() {
            let byte = RemoteRange {
                key: region.key,
                offset: bit / 8 % region.bytes,
                bytes: 1,
            };
            memory.exposed().damage(byte, bit);
        }
    }
}

impl SimulatedNode {
    /// Starts a node with fresh memory at an address, with its tasks in a group.
    ///
    /// # Errors
    /// [`StartError::Memory`].
    pub fn start(options: NodeOptions, group: u32) -> Result<SimulatedNodeGuard, StartError> {
        let address = options.listen;
        let incarnation = Sessions::<NodeLine>::random_incarnation().map_err(StartError::Random)?;
        let memory = NodeMemory::register(&options.memory, &|_| {})?;
        let sessions = Sessions::new(
            incarnation,
            Terms {
                lease_ns: service::nanoseconds(options.lease),
                keep_ns: service::nanoseconds(options.keep),
            },
            options.sessions_max,
        );
        let service = Arc::new(Service::new(options, memory, sessions));
        let tasks = Rc::new(RefCell::new(Vec::new()));
        TASKS.with_borrow_mut(|all| all.push((identity(&service), Rc::clone(&tasks))));
        let node = Arc::new(Self {
            service: Arc::clone(&service),
            group,
        });
        let before = simulation::set_group(group);
        let maintenance = spawn(maintain(Arc::clone(&service)));
        simulation::set_group(before);
        let number = simulation::register_node(address, Some(node));
        Ok(SimulatedNodeGuard {
            address,
            number,
            service,
            _maintenance: maintenance,
            tasks,
        })
    }

    /// Serves a control connection.
    pub(crate) fn accept(&self, channel: MessageChannel) {
        // It runs within the client's task.
        let _own = simulated::own(0);
        let before = simulation::set_group(self.group);
        let service = Arc::clone(&self.service);
        let task = spawn(async move {
            let _ = control(&service, channel).await;
        });
        simulation::set_group(before);
        keep(&self.service, task);
    }

    /// Joins a memory connection to its session, once its predecessors have ended.
    pub(crate) async fn join(
        &self,
        number: usize,
        request: &ConnectRequest,
    ) -> Result<Rc<SimulatedLine>, Refusal> {
        let Purpose::Memory {
            session,
            slot,
            counter,
            proof,
            ..
        } = request.purpose
        else {
            return Err(Refusal::Purpose);
        };
        let join = Join {
            session,
            slot,
            counter,
        };
        let (place, ticket) = self.service.join(&join, &proof)?;
        let ended = Ended {
            node: Arc::clone(&self.service),
            maintenance: thread::current(),
            ticket,
        };
        loop {
            // Not across an await: the sessions are locked for one step.
            let admission = self.service.sessions().admission(ticket);
            match admission {
                Admission::Ready => break,
                Admission::Wait => Timer::new(LINE_INTERVAL).await,
                Admission::Refused(refusal) => return Err(refusal),
            };
        }
        let _own = simulated::own(0);
        let exposed = self.service.exposed(ticket.session);
        let (line, end, closer) = SimulatedLine::new(number, exposed);
        let before = simulation::set_group(self.group);
        self.service
            .sessions()
            .served(ticket, NodeLine::Simulated(closer));
        let task = spawn(async move {
            while !end.is_due() {
                Timer::new(LINE_INTERVAL).await;
            }
            // Nothing is performed over it any more when its end is reported.
            drop(end);
            drop((ended, place));
        });
        simulation::set_group(before);
        keep(&self.service, task);
        Ok(line)
    }
}

async fn maintain(service: Arc<Service>) {
    let (mut memory, mut mended_ns) = (MaintenanceState::default(), 0);
    let mend_ns = service::nanoseconds(service.options().mend_pace);
    loop {
        Timer::new(MAINTENANCE_INTERVAL).await;
        service.maintain(&mut memory);
        let now_ns = service.now_ns();
        if now_ns - mended_ns >= mend_ns {
            service.free_stuck(&mut memory);
            service.free_unknown_owners(&memory);
            service.memory().table().mend();
            mended_ns = now_ns;
        }
    }
}

/// A control connection, from the handshake to its end.
async fn control(service: &Arc<Service>, mut channel: MessageChannel) -> io::Result<()> {
    let hello = channel.receive().await?;
    let needs_token = service.options().token.is_some();
    let greeted = match NodeGreeted::hello(&hello, needs_token) {
        Ok((greeted, challenge)) => {
            channel.send(&challenge).await?;
            greeted
        }
        Err(refused) => return channel.send(&Reply::Refused(refused).encode()).await,
    };
    let proof = channel.receive().await?;
    let (speaker, welcome) = match service.open(&greeted, &proof) {
        Ok(opened) => opened,
        Err(refused) => return channel.send(&Reply::Refused(refused).encode()).await,
    };
    let worker = Worker {
        node: Arc::clone(service),
        maintenance: thread::current(),
    };
    worker.control(speaker, channel, &welcome).await
}
