//! The lease of a server in etcd, and the key that it has by it.

use std::time::Duration;

use farcore_etcd::{Condition, Etcd};

use super::fence::Fence;
use super::map::ClusterMap;
use super::map_error::MapError;
use super::store::EtcdStore;
use crate::random::Numbers;

/// The shortest lease of etcd.
const LEAST_SECONDS: u64 = 2;
/// Bytes of another server's address that are shown.
const SHOWN_BYTES: usize = 100;

/// The lease of this server.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) time: Duration,
    pub(super) number: Option<i64>,
    /// What tells this process from others of its address.
    pub(super) process: u64,
}

impl Lease {
    pub(super) fn new(time: Duration) -> Self {
        // etcd counts whole seconds.
        let time = Duration::from_secs(time.as_secs().max(LEAST_SECONDS));
        Self {
            time,
            number: None,
            process: Numbers::new().word(),
        }
    }

    /// Has it hold for its time from now on; returns its number, and whether it is a new one.
    pub(super) fn renew(&mut self, etcd: &Etcd, fence: &Fence) -> Result<(i64, bool), MapError> {
        if let Some(number) = self.number
            && etcd.keep_alive(number)?
        {
            return Ok((number, false));
        }
        // Others may have the slots at once, whether or not there will be another lease.
        fence.close();
        self.number = None;
        let number = etcd.grant(self.time)?;
        self.number = Some(number);
        Ok((number, true))
    }
}

impl EtcdStore {
    /// Forgets the key of this server if etcd does not have it any more, as one that was restored.
    pub(super) fn check_registration(&mut self) -> Result<(), MapError> {
        if let Some(registered) = &self.registration {
            let found = self.etcd.look(&registered.key)?;
            let revision = found.entries.first().map(|entry| entry.revision);
            if revision != Some(registered.revision) {
                self.registration = None;
            }
        }
        Ok(())
    }

    /// Stores the key of an ID under a lease.
    pub(super) fn register(&mut self, id: &str, address: &str, lease: i64) -> Result<(), MapError> {
        let key = ClusterMap::etcd_key_of(&self.etcd, id);
        let found = self.etcd.get(&key)?;
        let found = found.entries.first();
        // That of another process: of one that was killed here, too, whose lease ends soon.
        if let Some(other) = found.filter(|entry| entry.value != address.as_bytes()) {
            let shown = &other.value[..other.value.len().min(SHOWN_BYTES)];
            return Err(MapError::NotHeld(format!(
                "another process has a lease for the ID {id} ({}): it ends soon, unless that serves",
                shown.escape_ascii()
            )));
        }
        let revision = found.map_or(0, |entry| entry.revision);
        let same = Condition {
            key: key.clone(),
            revision,
        };
        let stored = self
            .etcd
            .put_if(&[same], (&key, address.as_bytes()), lease)?;
        let revision = stored
            .ok_or_else(|| MapError::NotHeld(format!("another server takes the ID {id}, too")))?;
        self.registration = Some(Condition { key, revision });
        Ok(())
    }
}
