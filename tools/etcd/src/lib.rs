//! What Farcore needs of [etcd](https://etcd.io): keys that change only under conditions, leases,
//! and watches.
//!
//! It speaks etcd's JSON gateway over HTTP/1.1 (`/v3/..`, etcd 3.4 and later) with blocking calls,
//! since its users ask a few times a second. A client of gRPC would bring an executor and a
//! compiler of protocols to each build.
//!
//! Each call tries the endpoints in turn, that which answered last first, and returns within
//! [`EtcdOptions::time_limit`] for each.

mod address;
mod client;
mod error;
mod reply;

pub use self::address::{ADDRESS_FORMAT, EtcdAddress};
pub use self::client::{ANSWER_BYTES_MAX, Condition, Etcd, EtcdOptions, EtcdTls};
pub use self::error::EtcdError;
pub use self::reply::{Entries, Entry};
