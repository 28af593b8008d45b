//! The structures of a card that any number of threads use.

#[path = "../../../tuning/src/metadata_cache/atomics.rs"]
mod atomics;
#[path = "../../../tuning/src/metadata_cache/card_table.rs"]
mod card_table;
#[path = "../../../tuning/src/metadata_cache/directory.rs"]
mod directory;
#[path = "../../../tuning/src/metadata_cache/handle.rs"]
mod handle;
#[path = "../../../tuning/src/metadata_cache/miss_queue.rs"]
mod miss_queue;
#[path = "../../../tuning/src/metadata_cache/place.rs"]
mod place;
#[path = "../../../tuning/src/metadata_cache/token/mod.rs"]
mod token;
