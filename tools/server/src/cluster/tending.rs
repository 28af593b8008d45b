//! How a server keeps up with a map that lies in etcd: its lease is renewed, it has a key by that,
//! and the map is read.
//!
//! - I1: the fence is open only while the lease holds, and after the map was read under it.
//! - I2: the key of the ID that the server has by the map that it goes by is stored under the lease
//!   before the fence opens. So a transaction that finds no such key and changes the map finds the
//!   slots of the server served by none.

use std::sync::Arc;
use std::time::Duration;

use farcore_etcd::Etcd;

use super::current::CurrentMap;
use super::fence::Fence;
use super::map::ClusterMap;
use super::map_error::MapError;
use super::store::Store;

/// How often a lease is renewed in its time, at least, and how long a change is waited for at once,
/// at most: a server that ends waits as long.
const RENEWALS: u32 = 4;
const WATCH_MOST: Duration = Duration::from_secs(1);
/// How much earlier than the lease the fence closes, a part of its time: clocks go unevenly.
const MARGIN_PART: u32 = 10;
/// IDs that the server may have in turn while its key is stored; more, and it tries again later.
const IDS_MAX: usize = 3;

impl CurrentMap {
    /// Renews the lease, and takes the map of etcd. It may take some seconds. Returns the key to
    /// wait for, and since which revision; `None` if it has to be called again soon.
    ///
    /// # Errors
    /// etcd is not reached, another server has this one's ID, or the map is malformed: the fence
    /// closes when the lease ends.
    pub(crate) fn tend(&self) -> Result<Option<(String, i64)>, MapError> {
        let mut store = self.store();
        let Store::Etcd(etcd) = &mut *store else {
            return Ok(None);
        };
        let mut lease = self.lease();
        let asked_ms = Fence::now_ms();
        let (number, is_new) = lease.renew(&etcd.etcd, &self.fence)?;
        if is_new {
            etcd.registration = None;
        }
        etcd.check_registration()?;
        for _ in 0..IDS_MAX {
            let own = self.now().1.own_id().map(str::to_owned);
            if let Some(own) = &own {
                let key = ClusterMap::etcd_key_of(&etcd.etcd, own);
                let registered = etcd.registration.as_ref();
                if registered.is_none_or(|registered| registered.key != key) {
                    self.fence.close();
                    // The key of an ID that the server had before is none's.
                    if let Some(registered) = etcd.registration.take() {
                        etcd.etcd.delete(&registered.key)?;
                    }
                    let who = format!("{} {:016x}", self.address(), lease.process);
                    etcd.register(own, &who, number)?;
                }
            }
            // After the key is there, so that no map is missed that was stored because it was not.
            let map = etcd.read()?;
            if !self.take_stored(&map) {
                // The fence stays as it is: what was read before counts until it closes.
                if map.version > 0 {
                    // Slots are given to this server right now; it is known soon.
                    return Ok(None);
                }
                let text = "etcd has no map any more: `farcore cluster create` writes one";
                return Err(MapError::NotHeld(text.to_owned()));
            }
            if self.now().1.own_id().map(str::to_owned) == own {
                let time = lease.time - lease.time / MARGIN_PART;
                let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                self.fence.open_until(asked_ms.saturating_add(time_ms));
                break;
            }
        }
        Ok(Some(etcd.watched()))
    }

    /// Ends the lease, once nothing is served any more: others need not wait for its end.
    pub(crate) fn end_lease(&self) {
        self.fence.close_if_leased();
        let mut store = self.store();
        let number = self.lease().number.take();
        if let (Store::Etcd(etcd), Some(number)) = (&mut *store, number) {
            etcd.registration = None;
            if let Err(error) = etcd.etcd.revoke(number) {
                tracing::warn!(%error, "the lease of this server is not ended: it ends by itself");
            }
        }
    }

    /// How long a change may be waited for until the lease is renewed.
    pub(crate) fn watch_time(&self) -> Duration {
        (self.lease().time / RENEWALS).min(WATCH_MOST)
    }

    /// The client of etcd, if the map lies there.
    pub(crate) fn etcd(&self) -> Option<Arc<Etcd>> {
        match &*self.store() {
            Store::Etcd(etcd) => Some(Arc::clone(&etcd.etcd)),
            _ => None,
        }
    }

    /// Takes the map of etcd once no change that any server has sent before can be made any more.
    ///
    /// # Errors
    /// etcd is not reached.
    pub(crate) fn settle(&self) -> Result<(), MapError> {
        let mut store = self.store();
        if let Store::Etcd(etcd) = &mut *store {
            self.take_stored(&etcd.settle()?);
        }
        Ok(())
    }
}
