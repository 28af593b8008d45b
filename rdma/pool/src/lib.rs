//! Remote memory: a program allocates, shares and looks up memory of Farcore's memory nodes.
//!
//! [`RemotePool`] opens sessions at nodes and keeps them. What it allocates is typed: a
//! [`RemoteBox`] or a [`RemoteSlice`] owns values, and a [`RemotePtr`] points to one. Each
//! operation is an [`Op`]: a thread waits for it, or a task awaits it on any runtime.
//!
//! ```no_run
//! use farcore_pool::{PoolOptions, RemotePool};
//!
//! let pool = RemotePool::connect(["tcp://10.0.0.1", "tcp://10.0.0.2"], PoolOptions::default())?;
//! let counter = pool.alloc_box(0_u64).wait()?;
//! counter.fetch_add(1).wait()?;
//! # Ok::<(), farcore_pool::PoolError>(())
//! ```
//!
//! - [`structures`]: counters, locks, stacks, queues and tables that processes share.
//! - [`procedures`]: what nodes' hosts do for programs; `local`: memory as the program that hosts
//!   its node accesses it.
//! - [`plain`]: the values that remote memory may hold.
//! - `pool`, `options`, `error`, `op`: what a program calls; `slice`, `boxed`, `twin`,
//!   `ptr`: what it holds.
//! - `allocate`, `heap`, `allocation`, `table`: where memory comes from, and what is alive.
//! - `bytes`: memory without types, for callers whose types this crate does not know.
//! - `export`, `share`, `word`: pointers that leave their process.
//! - `access`: requests, and when they are repeated; `lane`, `caller`: the connections and the
//!   threads that drive them; `service`, `command`, `node`, `ticks`: the thread that keeps
//!   sessions; `shared`: what all of them share.
//!
//! This crate knows no keys and no engine.

extern crate self as farcore_pool;

mod access;
mod allocate;
mod allocation;
mod boxed;
mod bytes;
mod caller;
mod command;
mod error;
mod export;
mod heap;
mod lane;
mod local;
mod node;
mod op;
mod options;
pub mod plain;
mod pool;
pub mod procedures;
mod ptr;
mod service;
mod share;
mod shared;
mod slice;
pub mod structures;
mod table;
mod ticks;
mod twin;
mod word;

pub use farcore_pool_derive::Plain;
pub use farcore_rdma::{FabricAddress, NodeAddress, Token, VerbsOptions};

pub use self::boxed::RemoteBox;
pub use self::bytes::{BytesRead, BytesWrite};
pub use self::error::{PoolError, Result};
pub use self::export::{Access, Exported};
pub use self::local::LocalSlice;
pub use self::op::{Awaited, Op};
pub use self::options::{Placement, PoolOptions};
pub use self::plain::Plain;
pub use self::pool::{NodeFigures, RemotePool};
pub use self::ptr::RemotePtr;
pub use self::slice::RemoteSlice;
pub use self::twin::RemoteTwin;
