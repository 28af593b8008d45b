//! The core-pinned benchmark of Farcore: one driver, several engines, every value verified.
//!
//! - Requests: [`record`] keys and values; [`phase`] which keys when; [`skew`] hot keys; [`load`]
//!   requests and their verdicts; [`trace`] replays of cache traces
//! - Driver: [`cli`] flags; [`plan`] every setting of a run; [`worker`] one thread; [`stats`] its
//!   statistics, [`failures`] its errors, [`doubts`] keys that they leave unknown; [`run`] one
//!   engine's run; [`child`] each run in its own process; [`compare`] all engines, `untimed` a
//!   pass before them
//! - Engines: [`store`] the traits; [`engines`] the implementations
//! - Results: [`report`], [`table`] and its [`contrast`]s, [`parts`], [`plot`], [`progress`];
//!   [`figures`] files of a command; [`ending`] exit statuses; [`resident`] measured memory;
//!   [`events`] of the processor; [`line_trip`] between two cores
//! - [`experiments`]: measurements with drivers of their own, for farcore alone or beside maps

pub mod block_on;
pub mod child;
pub mod cli;
pub mod compare;
pub mod contrast;
pub mod doubts;
pub mod ending;
pub mod engines;
pub mod events;
pub mod experiments;
pub mod failures;
pub mod figures;
pub mod line_trip;
pub mod load;
pub mod parts;
pub mod phase;
pub mod plan;
pub mod plot;
pub mod progress;
pub mod record;
pub mod report;
pub mod resident;
pub mod run;
pub mod series;
pub mod skew;
pub mod stats;
pub mod store;
pub mod table;
pub mod trace;
mod untimed;
pub mod worker;
