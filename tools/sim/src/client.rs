//! The clients of a run: handles, jobs on cores, and clients that threads and tasks share.
//!
//! A job is a task of its core. The world leaves it calls in a port and collects its answers there,
//! in steps of their own. The calls of a shared client are tasks of no core, which the world polls.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use farcore::{
    CasOutcome, Core, Cursor, Handle, Operation, Refused, ScanOptions, TransactionOutcome,
};

use farcore_rdma::simulation::Sleep;
use farcore_tuning::simulated;

use crate::call::{Answered, Asked, Call, Raw};
use crate::memory::ENGINE;
use crate::random::Random;

/// How long a job sleeps that has nothing to do.
const NAP: Duration = Duration::from_micros(20);

/// An answer with its call's number.
pub(crate) type Arrived = (u64, Raw);

type Working = Pin<Box<dyn Future<Output = Raw>>>;

/// A call of a shared client under way.
pub(crate) struct Pending {
    number: u64,
    work: Working,
    woken: Arc<Woken>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pending").field(&self.number).finish()
    }
}

/// Whether a call was woken since it was polled last.
#[derive(Debug)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client, as the world drives it.
#[derive(Debug)]
pub(crate) enum Client {
    Handle(Box<Handle>),
    /// A job, by its port.
    Job(usize),
    Shared(farcore::Client, Vec<Pending>),
}

/// What a job and the world share.
#[derive(Debug, Default)]
struct Port {
    asked: VecDeque<Asked>,
    arrived: Vec<Arrived>,
    is_asleep: bool,
    /// The job ends once all is answered.
    ends: bool,
    /// The job ends at once.
    stops: bool,
}

thread_local! {
    static PORTS: RefCell<Vec<Port>> = const { RefCell::new(Vec::new()) };
}

/// Forgets the ports of an earlier run.
pub(crate) fn begin() {
    PORTS.set(Vec::new());
}

/// A new port.
pub(crate) fn port() -> usize {
    PORTS.with_borrow_mut(|ports| {
        ports.push(Port::default());
        ports.len() - 1
    })
}

fn at<T>(port: usize, work: impl FnOnce(&mut Port) -> T) -> T {
    PORTS.with_borrow_mut(|ports| work(&mut ports[port]))
}

/// Has a job end once all of its calls are answered.
pub(crate) fn end(port: usize) {
    at(port, |port| port.ends = true);
}

/// Has a job end at once; answers to its calls are discarded.
pub(crate) fn stop(port: usize) {
    at(port, |port| {
        port.stops = true;
        port.arrived.clear();
    });
}

/// How a call was sent.
type Sent = Result<(), Refused>;

/// The job of a port.
pub(crate) async fn work(mut core: Core, port: usize) {
    loop {
        // What an application allocates is not the engine's.
        let own = simulated::own(0);
        let (ends, stops, asleep, next) = at(port, |port| {
            let idle = port.asked.is_empty() && core.in_flight() == 0;
            let next = port.asked.pop_front();
            (port.ends && idle, port.stops, port.is_asleep, next)
        });
        if ends || stops {
            return;
        }
        let mut has_worked = next.is_some();
        if let Some(asked) = next {
            let number = asked.number;
            let sent: Option<Sent> = asked.with(|operation| {
                let _own = simulated::own(ENGINE);
                core.submit(operation, number)
            });
            match sent {
                Some(Err(Refused::Full)) => at(port, |port| port.asked.push_front(asked)),
                Some(Err(Refused::Error(error))) => {
                    at(port, |port| {
                        port.arrived.push((number, Raw::failed(&error)));
                    });
                }
                _ => {}
            }
        }
        if !asleep {
            let mut arrived = Vec::new();
            core.poll(|number, answer| {
                let _own = simulated::own(0);
                arrived.push((number, Raw::of(number, answer)));
            });
            has_worked |= !arrived.is_empty();
            at(port, |port| port.arrived.extend(arrived));
        }
        drop(own);
        if has_worked {
            core.yield_now().await;
        } else {
            // The core sleeps meanwhile, and lends its reactor.
            Sleep::new(NAP).await;
        }
    }
}

/// Has a shared client carry out a call.
async fn perform(client: farcore::Client, asked: Asked) -> Raw {
    let key = asked.name();
    let answered = match &asked.call {
        Call::Get { is_long: true, .. } => {
            let mut read = Vec::new();
            match client.get_long(key, &mut read).await {
                Ok(Some(version)) => return Raw::Value(version, read),
                Ok(None) => Ok(Answered::Absent),
                Err(error) => Err(error),
            }
        }
        Call::Get { .. } | Call::GetTree { .. } => match client.get(key).await {
            Ok(Some(read)) => return Raw::Value(read.version(), read.to_vec()),
            Ok(None) => Ok(Answered::Absent),
            Err(error) => Err(error),
        },
        Call::Put { is_long: true, .. } => client
            .put_long(key, &asked.value())
            .await
            .map(Answered::Stored),
        Call::Put { .. } => client.put(key, &asked.value()).await.map(Answered::Stored),
        Call::Swap { expected, .. } => {
            let value = asked.value();
            let swapped = client.compare_and_swap(key, *expected, &value).await;
            swapped.map(|outcome| match outcome {
                CasOutcome::Stored(version) => Answered::Stored(version),
                CasOutcome::Mismatch(version) => Answered::Mismatch(version),
            })
        }
        Call::Scan { entries } => return scan(&client, *entries, &asked).await,
        Call::Transaction(parts) => {
            let value = asked.value();
            let transaction = asked.transaction(parts, &value);
            let outcome = client.transaction(&transaction).await;
            outcome.map(|outcome| match outcome {
                TransactionOutcome::Committed { last } => Answered::Stored(last),
                TransactionOutcome::Conflict { place, current } => {
                    Answered::Conflict(place, current)
                }
            })
        }
        Call::Tree { call, guard, .. } => {
            let bytes = asked.tree_bytes(*call);
            let parts = bytes.parts();
            let (op, guard) = (bytes.op(*call, &parts), *guard);
            // A batch of one, whose answer is as the shard gave it.
            match client.many([Operation::Tree { key, op, guard }]).await {
                Ok(answers) => return Raw::of(0, answers.at(0)),
                Err(error) => Err(error),
            }
        }
        Call::Delete { .. }
        | Call::DeleteTree { .. }
        | Call::PutTree { .. }
        | Call::ExpireTree { .. }
        | Call::SetExpiry { .. } => {
            unreachable!("the version that a delete draws is known by its token alone")
        }
    };
    match answered {
        Ok(answered) => Raw::Plain(answered),
        Err(error) => Raw::failed(&error),
    }
}

/// Lists all keys.
async fn scan(client: &farcore::Client, entries: usize, asked: &Asked) -> Raw {
    let options = ScanOptions {
        values: entries.is_multiple_of(2),
        entries,
    };
    let (mut cursor, mut listed, mut unreadable) = (Cursor::default(), Vec::new(), 0);
    loop {
        let page = match client.scan(cursor, options).await {
            Ok(page) => page,
            Err(error) => return Raw::failed(&error),
        };
        unreadable += page.unreadable();
        for entry in page.entries() {
            let name = String::from_utf8_lossy(entry.key).into_owned();
            let number = match entry.value.map(|value| asked.lengths.number_of(value)) {
                Some(Ok(number)) => Some(number),
                Some(Err(_)) => Some(u64::MAX),
                None => None,
            };
            listed.push((name, entry.version, number));
        }
        match page.next() {
            Some(next) => cursor = next,
            None => return Raw::Plain(Answered::Scanned(listed, unreadable)),
        }
    }
}

impl Client {
    /// Sends a call; an error if it was refused, with its name if it has one.
    pub(crate) fn send(&mut self, asked: Asked) -> Result<(), Option<String>> {
        match self {
            Self::Handle(handle) => {
                let number = asked.number;
                match asked.with(|operation| handle.submit(operation, number)) {
                    Some(Ok(())) => Ok(()),
                    Some(Err(Refused::Error(error))) => Err(Some(crate::call::name_of(&error))),
                    Some(Err(Refused::Full)) | None => Err(None),
                }
            }
            Self::Job(port) => at(*port, |port| {
                if port.ends {
                    return Err(None);
                }
                port.asked.push_back(asked);
                Ok(())
            }),
            Self::Shared(client, pending) => {
                pending.push(Pending {
                    number: asked.number,
                    work: Box::pin(perform(client.clone(), asked)),
                    woken: Arc::new(Woken(AtomicBool::new(true))),
                });
                Ok(())
            }
        }
    }

    /// The answers that have arrived.
    pub(crate) fn receive(&mut self, random: &mut Random) -> Vec<Arrived> {
        let mut arrived = Vec::new();
        match self {
            Self::Handle(handle) => {
                handle.poll(|number, answer| arrived.push((number, Raw::of(number, answer))));
            }
            Self::Job(port) => arrived = at(*port, |port| std::mem::take(&mut port.arrived)),
            Self::Shared(_, pending) => pending.retain_mut(|call| {
                // Some polls come without a reason.
                if !call.woken.0.swap(false, Ordering::Relaxed) && !random.one_in(16) {
                    return true;
                }
                let waker = Waker::from(Arc::clone(&call.woken));
                let polled = call.work.as_mut().poll(&mut Context::from_waker(&waker));
                if let Poll::Ready(raw) = polled {
                    arrived.push((call.number, raw));
                    return false;
                }
                true
            }),
        }
        arrived
    }

    /// Gives up one of a shared client's calls; its number.
    pub(crate) fn give_up(&mut self, random: &mut Random) -> Option<u64> {
        match self {
            Self::Shared(_, pending) if !pending.is_empty() => {
                let call = pending.swap_remove(random.place(pending.len()));
                Some(call.number)
            }
            _ => None,
        }
    }

    /// True if its calls on one key keep their order.
    pub(crate) fn is_ordered(&self) -> bool {
        !matches!(self, Self::Shared(..))
    }

    /// Whether a job reads its answers.
    pub(crate) fn set_asleep(&mut self, is_asleep: bool) {
        if let Self::Job(port) = self {
            at(*port, |port| port.is_asleep = is_asleep);
        }
    }
}
