//! The protocol of a Farcore server.

pub mod resp;
