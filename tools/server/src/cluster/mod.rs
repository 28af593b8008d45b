//! What a server knows of the cluster that it is a part of: the slots of keys (`slot`), which
//! server owns which (`map`, `slot_set`), what this one serves (`view`), and how one map takes the
//! place of another (`current`, which alone reads and writes the file).

mod current;
mod map;
mod slot;
mod slot_set;
mod view;

pub(crate) use self::current::{CoreView, CurrentMap, MapError};
pub use self::map::{ClusterMap, MAP_BYTES_MAX, MEMBERS_MAX, Member, is_member_id};
pub use self::slot::{SLOTS, slot_of};
pub use self::slot_set::SlotSet;
pub(crate) use self::view::{Served, SlotUse, View};
