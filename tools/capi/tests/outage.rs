//! A server that ends, and a client that is closed while threads use it.

#![allow(unsafe_code)] // calls the interface as C does

mod support;

use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use farcore_capi::{
    Client, Code, Operation, farcore_client_close, farcore_client_free, farcore_connect,
    farcore_error_message, farcore_exists, farcore_operation_free, farcore_operation_version,
    farcore_options_free, farcore_options_new, farcore_options_set_timeout_ms,
    farcore_options_set_token_file, farcore_poll, farcore_put, farcore_submit_get, farcore_wait,
};

use crate::support::{PATIENCE, Served};

/// A client, for the threads of a test.
struct Connected(*mut Client);

// SAFETY: any number of threads may use a client, as its documents say.
unsafe impl Sync for Connected {}

impl Connected {
    fn to(served: &Served, timeout_ms: u64) -> Self {
        let address = CString::new(served.address.as_str()).expect("no zero");
        let token = CString::new(served.token().as_os_str().as_encoded_bytes()).expect("no zero");
        let mut client = ptr::null_mut();
        // SAFETY: texts that end with a zero, and things of the library that are not freed yet.
        unsafe {
            let options = farcore_options_new();
            let set = farcore_options_set_timeout_ms(options, timeout_ms);
            assert_eq!(set, Code::Ok);
            let set = farcore_options_set_token_file(options, token.as_ptr());
            assert_eq!(set, Code::Ok);
            let code = farcore_connect(address.as_ptr(), options, &raw mut client);
            assert_eq!(code, Code::Ok, "{}", said());
            farcore_options_free(options);
        }
        Self(client)
    }

    fn exists(&self) -> Code {
        // SAFETY: the client is freed when this is dropped.
        unsafe { farcore_exists(self.0, b"k".as_ptr().cast(), 1) }
    }

    fn close(&self) {
        // SAFETY: as above.
        assert_eq!(unsafe { farcore_client_close(self.0) }, Code::Ok);
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // SAFETY: no thread has it any more.
        unsafe { farcore_client_free(self.0) }
    }
}

fn said() -> String {
    // SAFETY: it is never null, and ends with a zero.
    let text = unsafe { CStr::from_ptr(farcore_error_message()) };
    text.to_string_lossy().into_owned()
}

#[test]
fn an_operation_without_a_server_pends_until_its_client_is_closed() {
    let mut served = Served::start();
    let client = Connected::to(&served, 20_000);
    assert_eq!(client.exists(), Code::NotFound);
    served.stop();
    let mut operation: *mut Operation = ptr::null_mut();
    let mut version = 7;
    // SAFETY: the client and the operation are not freed yet.
    unsafe {
        let key = b"k".as_ptr().cast();
        let code = farcore_submit_get(client.0, key, 1, &raw mut operation);
        assert_eq!(code, Code::Ok);
        assert_eq!(farcore_wait(operation, 0), Code::Pending);
        assert_eq!(farcore_poll(operation), Code::Pending);
        let code = farcore_operation_version(operation, &raw mut version);
        assert_eq!((code, version), (Code::Pending, 7));
        client.close();
        assert_eq!(farcore_poll(operation), Code::Closed);
        farcore_operation_free(operation);
    }
}

#[test]
fn the_time_limit_of_a_client_ends_what_has_no_answer() {
    let mut served = Served::start();
    let client = Connected::to(&served, 500);
    served.stop();
    let start = Instant::now();
    assert_eq!(client.exists(), Code::TimedOut, "{}", said());
    assert!(said().contains("500 ms"), "{}", said());
    assert!(start.elapsed() < PATIENCE);
    let (key, mut version) = (b"k".as_ptr().cast(), 7);
    // SAFETY: the client is not freed yet.
    let code = unsafe { farcore_put(client.0, key, 1, key, 1, &raw mut version) };
    // It has not been sent, since no connection is left to send it on.
    assert_eq!((code, version), (Code::TimedOut, 7), "{}", said());
    assert!(said().contains("nothing has changed"), "{}", said());
}

#[test]
fn threads_that_use_a_client_which_is_closed_get_its_code() {
    let served = Served::start();
    let client = Connected::to(&served, 20_000);
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    match client.exists() {
                        Code::NotFound => done.fetch_add(1, Ordering::Relaxed),
                        code => break assert_eq!(code, Code::Closed, "{}", said()),
                    };
                }
            });
        }
        let start = Instant::now();
        while done.load(Ordering::Relaxed) < 100 {
            assert!(start.elapsed() < PATIENCE, "no thread had an answer");
            thread::yield_now();
        }
        client.close();
    });
    assert_eq!(client.exists(), Code::Closed);
}
