//! Which nodes one core has sessions at, so that two addresses of one node are noticed.
//!
//! Owns a list of addresses and incarnations. All handles of one core share it.

use std::sync::{Arc, Mutex};

use super::locked;
use crate::address::FabricAddress;

/// The nodes that one core has sessions at, each with its incarnation.
#[derive(Clone, Debug, Default)]
pub struct Siblings(Arc<Mutex<Vec<(FabricAddress, u32)>>>);

impl Siblings {
    /// Forgets an address, whose session has ended for good: its node may be named otherwise.
    pub fn dismiss(&self, address: &FabricAddress) {
        locked(&self.0).retain(|one| one.0 != *address);
    }

    /// Records that an address leads to a node, in place of the node that it led to before.
    ///
    /// # Errors
    /// The other address that leads to the same node.
    pub(super) fn admit(
        &self,
        address: &FabricAddress,
        incarnation: u32,
    ) -> Result<(), FabricAddress> {
        let mut known = locked(&self.0);
        let twin = |one: &&(FabricAddress, u32)| one.1 == incarnation && one.0 != *address;
        if let Some((other, _)) = known.iter().find(twin) {
            return Err(other.clone());
        }
        known.retain(|one| one.0 != *address);
        known.push((address.clone(), incarnation));
        Ok(())
    }
}
