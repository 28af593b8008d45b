//! Addresses that commands listen at: whether they can, before they do any work.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};

use anyhow::{Error, Result, anyhow};

/// The error of an address that cannot be listened at.
pub(crate) fn cannot_listen(flag: &str, address: impl Display, error: &io::Error) -> Error {
    anyhow!("{flag} {address}: cannot listen there: {error}; give another address or port")
}

/// Checks that an address can be listened at. Until the listener is dropped, no other flag can have
/// the same address.
///
/// # Errors
/// It cannot.
pub(crate) fn check_address(flag: &str, address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| cannot_listen(flag, address, &error))
}
