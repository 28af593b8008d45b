//! The core-pinned benchmark of Farcore: one driver, several engines, every value verified.
//!
//! - what is asked: [`record`] keys and values · [`phase`] which keys when · [`skew`] hot keys ·
//!   [`load`] requests and their judgement
//! - [`trace`] replays real ones
//! - [`fairness`] what one client waits beside others: a driver of its own, for this project's
//!   engine only
//! - who asks: [`plan`] every choice · [`worker`] one thread · [`desk`] its notes · [`run`] one
//!   engine's run · [`child`] each run in its own process · [`compare`] all engines
//! - who answers: [`store`] the traits · [`engines`] the engines
//! - what is shown: [`report`] · [`table`] · [`plot`] · [`progress`] · [`resident`] measured memory
//!   · [`machine`] · [`watch`] the running engine's figures · [`events`] of the processor ·
//!   [`line_trip`] between its cores

pub mod block_on;
pub mod child;
pub mod cli;
pub mod compare;
pub mod desk;
pub mod engines;
pub mod events;
pub mod fairness;
pub mod line_trip;
pub mod load;
pub mod machine;
pub mod phase;
pub mod plan;
pub mod plot;
pub mod progress;
pub mod record;
pub mod report;
pub mod resident;
pub mod run;
pub mod skew;
pub mod store;
pub mod table;
pub mod trace;
pub mod watch;
pub mod worker;
