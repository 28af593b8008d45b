//! `dashmap`: one concurrent map of boxed keys and values. Everything lies in local memory; there is no far tier.

use std::sync::Arc;

use dashmap::DashMap;
use farcore::{Answer, Operation};
use hashbrown::DefaultHashBuilder;

use super::pinned::{start_pinned, unsupported};
use crate::plan::Plan;
use crate::store::{Running, Session, Store, Usage};
use crate::worker::Worker;

type Map = DashMap<Box<[u8]>, Box<[u8]>, DefaultHashBuilder>;

/// The store.
#[derive(Debug)]
pub struct Dashmap {
    map: Arc<Map>,
}

/// A thread's way into it.
#[derive(Debug)]
pub(super) struct DashmapSession {
    map: Arc<Map>,
}

impl Store for Dashmap {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        let keys = usize::try_from(plan.keys_max())?;
        let map = DashMap::with_capacity_and_hasher(keys, DefaultHashBuilder::default());
        Ok(Self { map: Arc::new(map) })
    }

    fn start(&self, _position: usize, core: usize, worker: Worker) -> anyhow::Result<Running> {
        start_pinned(
            core,
            worker,
            DashmapSession {
                map: self.map.clone(),
            },
        )
    }

    fn usage(&self) -> Usage {
        Usage {
            keys: self.map.len() as u64,
            ..Usage::default()
        }
    }

    fn far_resident_bytes(&self) -> u64 {
        0
    }
}

impl Session for DashmapSession {
    #[inline]
    fn submit(
        &mut self,
        operation: Operation<'_>,
        token: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) {
        match operation {
            Operation::Get { key } => match self.map.get(key) {
                Some(value) => sink(
                    token,
                    Answer::Value {
                        version: 0,
                        value: &value,
                    },
                ),
                None => sink(token, Answer::Absent),
            },
            Operation::Put { key, value } => {
                // Same length: in place, without an allocation.
                match self.map.get_mut(key) {
                    Some(mut held) if held.len() == value.len() => held.copy_from_slice(value),
                    Some(mut held) => *held = value.into(),
                    None => {
                        self.map.insert(key.into(), value.into());
                    }
                }
                sink(token, Answer::Stored { version: 0 });
            }
            Operation::Delete { key } => {
                let removed = self.map.remove(key).is_some();
                sink(
                    token,
                    if removed {
                        Answer::Deleted
                    } else {
                        Answer::Absent
                    },
                );
            }
            Operation::CompareAndSwap { .. } => sink(token, unsupported()),
        }
    }

    #[inline]
    fn poll(&mut self, _sink: &mut impl FnMut(u64, Answer<'_>)) {}

    fn in_flight(&self) -> usize {
        0
    }

    async fn rest(&mut self) {
        std::thread::yield_now();
    }
}
