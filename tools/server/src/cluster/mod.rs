//! What a server knows of the cluster that it is a part of: the slots of keys (`slot`), which
//! server owns which (`map`, `slot_set`), what this one serves (`view`), how one map takes the
//! place of another (`current`), where it is kept (`store`), and until when slots are served by it
//! (`fence`; `lease` and `tending`, where etcd keeps it).

mod current;
mod fence;
mod lease;
mod map;
mod map_error;
mod reported;
mod slot;
mod slot_set;
mod store;
mod tending;
mod view;

pub(crate) use self::current::{CoreView, CurrentMap};
pub use self::map::{ClusterMap, MAP_BYTES_MAX, MEMBERS_MAX, Member, is_member_id};
pub(crate) use self::map_error::MapError;
pub use self::slot::{SLOTS, slot_of};
pub use self::slot_set::SlotSet;
pub(crate) use self::store::Store;
pub(crate) use self::view::{Served, SlotUse, View};
