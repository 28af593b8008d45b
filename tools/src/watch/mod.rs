//! Watching running engines from another process: where reports come from, and what happened
//! between two of them. Shared by `farcore top` and every other view of an engine.
//!
//! - [`source`]: reads reports from a statistics socket, given by path or found in the default
//!   folder
//! - [`rates`]: rates, shares and states from two reports of one engine
//! - [`data`]: those of its data directory
//! - [`cluster`]: by which map its server goes
//! - [`copies`]: whether copies of far pages are missing, and how fast they are made
//! - [`replication`]: those of its server's replicas, and of its link to a source
//!
//! - I1: a source reads one report an interval and sends nothing else to the engine.
//! - I2: rates are computed only between two reports of the same engine.

pub(crate) mod cluster;
pub(crate) mod copies;
pub(crate) mod data;
pub(crate) mod rates;
pub(crate) mod replication;
pub(crate) mod source;
