//! Events of keys, channels and monitors: what is published, who has subscribed, and what waits to
//! be delivered. What a core does with them stands in `turn/`.

pub(crate) mod classes;
pub(crate) mod deliveries;
pub(crate) mod key_events;
pub(crate) mod monitors;
pub(crate) mod operation_events;
pub(crate) mod publication;
pub(crate) mod removed_keys;
pub(crate) mod subscriptions;
pub(crate) mod tracking;
pub(crate) mod tree_events;
