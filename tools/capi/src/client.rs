//! A client's handle: connect, close, free.
//!
//! - I1: closing leaves the handle. What uses it afterwards, also in another thread, fails with
//!   [`Code::Closed`]; only freeing ends its memory.

#![allow(unsafe_code)] // reads the caller's memory

use std::ffi::c_char;
use std::ptr;
use std::sync::{PoisonError, RwLock};

use farcore_client as native;

use crate::boundary::{give, guard, guard_free, handle, store, take_back_here, utf8, wanted};
use crate::error::{Code, Failure};
use crate::options::Options;
use crate::process::Process;

/// A connection to a server, for any number of threads.
#[derive(Debug)]
pub struct Client {
    process: Process,
    native: RwLock<Option<native::Client>>,
}

impl Client {
    /// Gives the client to a function that submits something, unless it is closed. The function
    /// does not wait: closing waits for it.
    pub(crate) fn submit<T>(
        &self,
        submit: impl FnOnce(&native::Client) -> T,
    ) -> Result<T, Failure> {
        self.process.check()?;
        let client = self.native.read().unwrap_or_else(PoisonError::into_inner);
        client.as_ref().map(submit).ok_or_else(|| {
            Failure::new(
                Code::Closed,
                c"the client is closed: connect again with farcore_connect",
            )
        })
    }

    fn close(&self) {
        if !self.process.is_this() {
            return;
        }
        let client = self
            .native
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // Waits for the client's thread, so the lock is given back before.
        drop(client);
    }
}

/// Connects to a server, as `tcp://host:port`, `rdma://host:port` or `rdma+tcp://host:port`.
///
/// The caller owns `*client`, closes it with `farcore_client_close` and frees it with
/// `farcore_client_free`. `options` may be null, which means the defaults; they are copied. Starts
/// one thread, which connects again whenever the connection is lost. Any number of threads may use
/// the client. To a child of `fork` it is closed. Cost: a handshake of two round trips, and buffers
/// as the options say, 1.6 MiB by default. Blocks for the time limit of the options at most.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` (a pointer is null, the address is none, an option is out
/// of range), `FARCORE_UNREACHABLE`, `FARCORE_REFUSED`, `FARCORE_WRONG_TOKEN` or
/// `FARCORE_CANNOT_START`. Then `*client` is null.
///
/// # Safety
/// `address` is ended by a zero. `options` is null or came from `farcore_options_new`. `client` can
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_connect(
    address: *const c_char,
    options: *const Options,
    client: *mut *mut Client,
) -> Code {
    guard(|| {
        let place = wanted("client", client)?;
        // SAFETY: not null, and the caller promises that it can be written.
        unsafe { store(place, ptr::null_mut()) };
        // SAFETY: the caller's promise.
        let address = unsafe { utf8("address", address) }?;
        let address = address.parse::<native::FabricAddress>();
        let address = address.map_err(|error| Failure::invalid(error.to_string()))?;
        // SAFETY: the caller's promise.
        let options = unsafe { options.as_ref() };
        let options = options.map_or_else(Default::default, |options| options.0.clone());
        let connected = native::Client::connect(&address, options)?;
        // SAFETY: as above.
        unsafe {
            let (process, native) = (Process::this(), RwLock::new(Some(connected)));
            give(place, Client { process, native });
        }
        Ok(Code::Ok)
    })
}

/// Closes a client: ends what is under way, then the connection and the thread.
///
/// The handle stays: calls that use it fail with `FARCORE_CLOSED`, and `farcore_client_free` frees
/// it. Operations under way keep their outcomes. Any thread may close a client, while others use it
/// and more than once. Blocks until what is under way has ended, for the time limit of the options
/// at most.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `client` is null.
///
/// # Safety
/// `client` is null, or came from `farcore_connect` and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_client_close(client: *mut Client) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle("client", client) }?.close();
        Ok(Code::Ok)
    })
}

/// Closes a client, and frees its handle; null, and what is of a parent process, are left alone.
/// Operations under way keep their outcomes, and are freed on their own. Blocks as
/// `farcore_client_close`. Cannot fail.
///
/// # Safety
/// `client` is null, or came from `farcore_connect`. No other thread uses it, and it is not used
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_client_free(client: *mut Client) {
    // SAFETY: the caller's promise.
    guard_free(|| unsafe { take_back_here(client, |client| client.process) });
}
