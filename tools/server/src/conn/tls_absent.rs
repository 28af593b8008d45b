//! What stands for encrypted connections in a build without the feature `tls`: none can be made.

use std::io::{self, IoSlice};

use crate::options::{TlsClientOptions, TlsOptions};

/// Nothing is sealed.
pub(crate) const SEALED_BYTES_MAX: usize = 0;

/// Nothing is opened.
pub(crate) const OPENING_BYTES: usize = 0;

/// Refuses.
///
/// # Errors
/// Always.
pub(crate) fn load(_: &TlsOptions) -> Result<TlsConfig, String> {
    Err("this program is built without the feature `tls`".to_owned())
}

/// Refuses.
///
/// # Errors
/// Always.
pub(crate) fn load_client(_: &TlsClientOptions) -> Result<TlsClientConfig, String> {
    Err("this program is built without the feature `tls`".to_owned())
}

/// There is none.
#[derive(Debug)]
pub(crate) struct TlsConfig(());

/// There is none.
pub(crate) type TlsClientConfig = TlsConfig;

/// There is none.
#[derive(Debug)]
pub(crate) enum TlsSession {}

impl TlsSession {
    pub(crate) fn new(config: &TlsConfig) -> io::Result<Self> {
        let TlsConfig(()) = config;
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn to(_: &str, config: &TlsClientConfig) -> io::Result<Self> {
        Self::new(config)
    }

    pub(crate) fn is_established(&self) -> bool {
        match *self {}
    }

    pub(crate) fn is_ended(&self) -> bool {
        match *self {}
    }

    pub(crate) fn open(&mut self, _: &[u8], _: &mut Vec<u8>) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn seal(&mut self, _: &[IoSlice<'_>], _: usize) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn end(&mut self) {
        match *self {}
    }

    pub(crate) fn outgoing(&self) -> &[u8] {
        match *self {}
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        match *self {}
    }

    pub(crate) fn outgoing_bytes(&self) -> usize {
        match *self {}
    }

    pub(crate) fn sent(&mut self, _: usize) {
        match *self {}
    }

    pub(crate) fn held_bytes(&self) -> usize {
        match *self {}
    }

    pub(crate) fn release_buffers(&mut self) {
        match *self {}
    }
}
