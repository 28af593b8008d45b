//! A pool over memory nodes that this process starts, on sockets of this machine.

mod allocations;
mod bytes;
mod local;
mod nodes;
mod procedures;
mod shares;
mod structures;
mod typed;
