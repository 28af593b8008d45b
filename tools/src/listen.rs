//! Addresses that commands listen at: whether they can, before they do any work.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};

use anyhow::{Error, Result, anyhow};

/// The error of an address that cannot be listened at.
pub(crate) fn cannot_listen(flag: &str, address: impl Display, error: &io::Error) -> Error {
    anyhow!("{flag} {address}: cannot listen there: {error}; give another address or port")
}

/// Checks that an address can be listened at.
///
/// # Errors
/// It cannot.
pub(crate) fn check_address(flag: &str, address: SocketAddr) -> Result<()> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) => Err(cannot_listen(flag, address, &error)),
    }
}
