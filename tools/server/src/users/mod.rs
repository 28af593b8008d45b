//! Users: who may run which commands, with which keys and channels; as Redis's `ACL`.
//!
//! A user's rules are compiled when they are set: a bit for each command, lists of patterns, and
//! the text that describes them. All cores share one table of users, which is replaced and never
//! changed; each core has its own view of it, which it renews when a message says that there is a
//! newer one. So a command takes no lock, and one of a user who may do everything costs a branch.
//!
//! - I1: a user's rules do not change. A new version of a user replaces it.
//! - I2: users of one name who were made at different times differ in their birth: clients of the
//!   earlier one are not clients of the later one.
//! - I3: passwords are kept as SHA-256 alone, and compared in constant time.

pub(crate) mod catalogue;
pub(crate) mod denials;
pub(crate) mod file;
pub(crate) mod key_use;
pub(crate) mod of_core;
pub(crate) mod password;
pub(crate) mod selector;
pub(crate) mod table;
pub(crate) mod user;
