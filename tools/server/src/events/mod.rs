//! Events of keys, and the channels and monitors that send them.

pub(crate) mod classes;
pub(crate) mod deliveries;
pub(crate) mod key_events;
pub(crate) mod monitors;
pub(crate) mod operation_events;
pub(crate) mod removed_keys;
pub(crate) mod subscriptions;
