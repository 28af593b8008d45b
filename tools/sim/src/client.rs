//! The clients of a run: handles, and jobs on cores, which crossings and loans concern.
//!
//! A job is a task of its core. The world leaves it calls in a port and collects its answers there,
//! in steps of their own.

use std::cell::RefCell;
use std::collections::VecDeque;

use farcore::{Answer, Core, Error, Handle, Operation, Refused};
use farcore_tuning::simulated;

use crate::history::{Answered, Call};
use crate::random::Random;

/// What every value repeats, and what must not be read in far memory.
pub(crate) const MARK: &[u8; 8] = b"plaintxt";

/// An answer with its call's number, or what is wrong with it.
pub(crate) type Arrived = (u64, Result<Answered, String>);

/// A call on its way to a client.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) call: Call,
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
}

impl Asked {
    pub(crate) fn operation(&self) -> Operation<'_> {
        let (key, value) = (self.key.as_bytes(), &*self.value);
        match self.call {
            Call::Get => Operation::Get { key },
            Call::Put => Operation::Put { key, value },
            Call::Delete => Operation::Delete { key },
            Call::Swap(expected) => Operation::CompareAndSwap {
                key,
                value,
                expected,
            },
        }
    }
}

/// A client, as the world drives it.
pub(crate) enum Client {
    Handle(Box<Handle>),
    /// A job, by its port.
    Job(usize),
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

/// The job of a port.
pub(crate) async fn work(mut core: Core, port: usize, bytes_max: u64) {
    loop {
        let (ends, stops, asleep, next) = at(port, |port| {
            let idle = port.asked.is_empty() && core.in_flight() == 0;
            let next = port.asked.front().cloned();
            (port.ends && idle, port.stops, port.is_asleep, next)
        });
        if ends || stops {
            return;
        }
        if let Some(asked) = next {
            let done = match core.submit(asked.operation(), asked.number) {
                Ok(()) => None,
                Err(Refused::Full) => Some(Err(())),
                Err(Refused::Error(error)) => Some(Ok(Answered::Failed(name_of(&error)))),
            };
            at(port, |port| match done {
                None => drop(port.asked.pop_front()),
                Some(Ok(answered)) => {
                    port.asked.pop_front();
                    port.arrived.push((asked.number, Ok(answered)));
                }
                Some(Err(())) => {}
            });
        }
        if !asleep {
            let mut arrived = Vec::new();
            core.poll(|number, answer| arrived.push((number, owned(number, answer, bytes_max))));
            at(port, |port| port.arrived.extend(arrived));
        }
        core.yield_now().await;
    }
}

impl Client {
    /// Sends a call; false if it was refused, and then with the error's name if there is one.
    pub(crate) fn send(&mut self, asked: Asked) -> Result<(), Option<String>> {
        match self {
            Self::Handle(handle) => match handle.submit(asked.operation(), asked.number) {
                Ok(()) => Ok(()),
                Err(Refused::Full) => Err(None),
                Err(Refused::Error(error)) => Err(Some(name_of(&error))),
            },
            Self::Job(port) => at(*port, |port| {
                if port.ends {
                    return Err(None);
                }
                port.asked.push_back(asked);
                Ok(())
            }),
        }
    }

    /// The answers that have arrived.
    pub(crate) fn receive(&mut self, bytes_max: u64) -> Vec<Arrived> {
        match self {
            Self::Handle(handle) => {
                let mut arrived = Vec::new();
                handle.poll(|number, answer| {
                    arrived.push((number, owned(number, answer, bytes_max)));
                });
                arrived
            }
            Self::Job(port) => at(*port, |port| std::mem::take(&mut port.arrived)),
        }
    }

    /// Whether a job reads its answers.
    pub(crate) fn set_asleep(&mut self, is_asleep: bool) {
        if let Self::Job(port) = self {
            at(*port, |port| port.is_asleep = is_asleep);
        }
    }
}

/// The bytes of a call's value: its number, then the mark, to a length that the number decides.
pub(crate) fn value_of(number: u64, bytes_max: u64) -> Vec<u8> {
    let bytes = Random::new(number).below(bytes_max);
    let mut value = number.to_le_bytes().to_vec();
    value.extend(
        MARK.iter()
            .cycle()
            .take(usize::try_from(bytes).unwrap_or(0)),
    );
    value
}

/// The name of an error.
pub(crate) fn name_of(error: &Error) -> String {
    let text = format!("{error:?}");
    let end = text.find(|c: char| !c.is_ascii_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

/// An answer to a call, with its value checked.
fn owned(number: u64, answer: Answer<'_>, bytes_max: u64) -> Result<Answered, String> {
    Ok(match answer {
        Answer::Value { version, value } => {
            let Some(first) = value.first_chunk() else {
                return Err(format!("call {number} read a short value: {value:?}"));
            };
            let stored = u64::from_le_bytes(*first);
            if value != value_of(stored, bytes_max) {
                return Err(format!("call {number} read a value that was never stored"));
            }
            Answered::Value(version, stored)
        }
        Answer::Absent => Answered::Absent,
        Answer::Stored { version } => Answered::Stored(version),
        Answer::Deleted => {
            let version = simulated::take_version(number);
            Answered::Deleted(version.ok_or("a delete drew no version")?)
        }
        Answer::Mismatch { current } => Answered::Mismatch(current),
        Answer::Failed(error) => Answered::Failed(name_of(error)),
        other => return Err(format!("call {number} was answered {other:?}")),
    })
}
