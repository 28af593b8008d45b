//! A core's far memory: its endpoint, its share of the nodes' extents, and the keepers of its
//! connections.
//!
//! ```text
//! plan (any thread) -> open (on the core): sessions, connections, extents -> shard
//!      |                                \-> a keeper a node: reconnects, claims, sends events
//!      |-> membership (of all cores) <---> a steward: starts and stops keepers
//!      \-> heartbeats: a thread that keeps the sessions of all cores alive
//! ```
//!
//! - I1: a session belongs to one core: cores share nothing, and each holds its own extents.
//! - I2: the shard has processed the end of a session before a connection of the next one is used:
//!   a keeper waits for the reply to each event.
//! - I3: what a session holds is the shard's, except extents that are being claimed. What the shard
//!   cannot use is returned; what it lacks after a loss is claimed again.
//! - I4: a node that did not answer when the engine opened has a share of the places, which is
//!   claimed when it joins.

mod connect;
mod event;
mod keeper;
mod membership;
mod plan;
mod pool;
mod steward;

pub(crate) use self::event::{FarChange, FarEventQueue, far_events};
pub(crate) use self::membership::Membership;
pub use self::membership::{NodeState, NodeStatus};
pub(crate) use self::plan::FarPlan;
pub(crate) use self::steward::Steward;
