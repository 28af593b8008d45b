//! A client of Farcore's server over the fabric.
//!
//! A [`Client`] has one thread, which owns the connection. Any number of threads and tasks submit
//! operations, which are pipelined. An operation returns a [`Pending`]: a future for any runtime,
//! and a thread can wait for it.
//!
//! ```no_run
//! use farcore_client::{Client, ClientOptions};
//!
//! let client = Client::connect(&"tcp://127.0.0.1:7401".parse()?, ClientOptions::default())?;
//! client.put(b"key", b"value").wait()?;
//! let found = client.get(b"key").wait()?;
//! assert_eq!(found.map(|value| value.bytes), Some(b"value".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Values below the server's threshold travel in messages. Longer ones are written into slots that
//! the server lends, and are read from the server's slots, or land in this side's memory
//! ([`Transfer`]).
//!
//! - I1: an operation is answered once: with its outcome, or with an error.
//! - I2: an operation that may have been done is not sent again, unless doing it twice is the same
//!   as once: its error is [`Error::UnknownOutcome`].

mod buffers;
mod client;
mod command;
mod driver;
mod error;
mod figures;
mod flights;
mod many;
mod options;
mod pending;
mod port;
mod session;
mod values;

pub use farcore_protocol::Status;
pub use farcore_rdma::{FabricAddress, Token, VerbsOptions};

pub use self::client::Client;
pub use self::error::{Error, Result};
pub use self::figures::ClientFigures;
pub use self::options::{ClientOptions, Transfer};
pub use self::pending::Pending;
pub use self::values::{
    CasOutcome, Condition, Cursor, Expiry, ExpiryCondition, Metadata, PutOptions, PutOutcome,
    ScanEntry, ScanOptions, ScanPage, Value, Version,
};
