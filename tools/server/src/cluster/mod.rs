//! What a server knows of the cluster that it is a part of: the slots of keys (`slot`), and which
//! server owns which (`map`). It performs no I/O.

mod map;
mod slot;

pub use self::map::{ClusterMap, MEMBERS_MAX, Member};
pub use self::slot::{SLOTS, slot_of};
