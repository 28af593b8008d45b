//! What a core does in a turn, one file a step: it receives and parses, runs commands, answers,
//! sends, and in between does what other cores and its own tasks, waits and events need.
//!
//! Each step is a method of [`Serving`](crate::serving::Serving); their order stands in
//! `core_loop.rs`.

pub(crate) mod accepting;
pub(crate) mod admitting;
pub(crate) mod answering;
pub(crate) mod client_walks;
pub(crate) mod closing;
pub(crate) mod core_loop;
pub(crate) mod delivering;
pub(crate) mod draining;
pub(crate) mod encrypted;
pub(crate) mod event_sending;
pub(crate) mod evicting;
pub(crate) mod messages;
pub(crate) mod monitoring;
pub(crate) mod password_delays;
pub(crate) mod pausing;
pub(crate) mod receiving;
pub(crate) mod removal_turns;
pub(crate) mod replaying;
#[cfg_attr(
    not(feature = "scripts"),
    allow(dead_code, reason = "no command runs any")
)]
pub(crate) mod script_turns;
#[cfg_attr(
    not(feature = "scripts"),
    allow(dead_code, reason = "no command runs any")
)]
pub(crate) mod scripting;
pub(crate) mod section_turns;
pub(crate) mod sending;
pub(crate) mod subscribing;
pub(crate) mod task_turns;
pub(crate) mod tracking;
pub(crate) mod trimming;
pub(crate) mod upkeep;
pub(crate) mod waiting;
