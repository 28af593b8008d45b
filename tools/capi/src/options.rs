//! What a client is made with.

#![allow(unsafe_code)] // reads the caller's memory

use std::ffi::{OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use farcore_client::{ClientOptions, Token};

use crate::boundary::{bytes, guard, guard_free, is_null, take_back, text, utf8};
use crate::error::{Code, Failure};

/// Options of a client, which `farcore_connect` copies.
#[derive(Debug, Default)]
pub struct Options(pub(crate) ClientOptions);

/// How values that do not fit a message come to the client.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// The server writes them into this side's memory: one round trip. The default.
    Landing = 0,
    /// The client reads them from the server's memory: two round trips.
    Read = 1,
}

/// Changes one option.
///
/// # Safety
/// Unless it is null, `options` came from [`farcore_options_new`], is not freed, and no other
/// thread uses it.
unsafe fn set(
    options: *mut Options,
    change: impl FnOnce(&mut ClientOptions) -> Result<(), Failure>,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { options.as_mut() }.ok_or_else(|| is_null("options"))?;
        change(&mut options.0)?;
        Ok(Code::Ok)
    })
}

/// The token in the caller's memory.
///
/// # Safety
/// `token` points to `length` bytes.
pub(crate) unsafe fn token_of(token: *const c_void, length: usize) -> Result<Token, Failure> {
    // SAFETY: the caller's promise.
    let token = unsafe { bytes("token", token, length) }?;
    Token::new(token).map_err(|error| Failure::invalid(error.to_string()))
}

/// The token in a file.
///
/// # Safety
/// `path` is ended by a zero.
pub(crate) unsafe fn token_of_file(path: *const c_char) -> Result<Token, Failure> {
    // SAFETY: the caller's promise.
    let path = unsafe { text("path", path) }?;
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    Token::read(path).map_err(|error| Failure::invalid(error.to_string()))
}

/// The name of an RDMA device.
///
/// # Safety
/// `device` is ended by a zero.
pub(crate) unsafe fn device_of(device: *const c_char) -> Result<Option<String>, Failure> {
    // SAFETY: the caller's promise.
    let device = unsafe { utf8("device", device) }?;
    if device.is_empty() {
        return Err(Failure::invalid(
            "`device` is empty: name one, as `ibv_devices` lists them",
        ));
    }
    Ok(Some(device.to_owned()))
}

/// An RDMA device's port, or an entry of its GID table.
pub(crate) fn byte(option: &str, value: u32, min: u8) -> Result<Option<u8>, Failure> {
    let byte = u8::try_from(value).ok().filter(|byte| *byte >= min);
    let refused = || Failure::invalid(format!("{option} is {value}: must be {min} to {}", u8::MAX));
    byte.map(Some).ok_or_else(refused)
}

fn short(option: &str, value: u32) -> Result<u16, Failure> {
    let short = u16::try_from(value);
    short
        .map_err(|_| Failure::invalid(format!("{option} is {value}: must be at most {}", u16::MAX)))
}

/// Options with their defaults. Never null. The caller owns them, and frees them with
/// `farcore_options_free`. Any thread may use them, one at a time. Cannot fail. Cost: an
/// allocation.
#[unsafe(no_mangle)]
pub extern "C" fn farcore_options_new() -> *mut Options {
    Box::into_raw(Box::default())
}

/// Frees options; null is left alone. Clients that were made with them are not affected. Cannot
/// fail.
///
/// # Safety
/// `options` is null, or came from `farcore_options_new` and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_free(options: *mut Options) {
    // SAFETY: the caller's promise.
    guard_free(|| unsafe { take_back(options) });
}

/// Sets the token: the secret that client and server share, 16 to 4096 bytes without white space
/// around it. Default: none. The library copies it, and overwrites its copies when it frees them.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the length is out of range.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it. `token` points to `length`
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_token(
    options: *mut Options,
    token: *const c_void,
    length: usize,
) -> Code {
    let read = |options: &mut ClientOptions| {
        // SAFETY: the caller's promise.
        options.token = Some(unsafe { token_of(token, length) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, read) }
}

/// Sets the token to the content of a file, which is read now. Cost: the file is read.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, the file cannot be read, or the
/// length of the token is out of range.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it. `path` is ended by a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_token_file(
    options: *mut Options,
    path: *const c_char,
) -> Code {
    let read = |options: &mut ClientOptions| {
        // SAFETY: the caller's promise.
        options.token = Some(unsafe { token_of_file(path) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, read) }
}

/// Sets the time limit of each operation and of connecting, in milliseconds: 1 to 86400000 (a day).
/// Default: 5000. `farcore_connect` checks the range.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_timeout_ms(
    options: *mut Options,
    timeout_ms: u64,
) -> Code {
    let change = |options: &mut ClientOptions| {
        options.timeout = Duration::from_millis(timeout_ms);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets the client's name in the server's log, in UTF-8. Default: none.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the name is not UTF-8.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it. `name` is ended by a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_name(
    options: *mut Options,
    name: *const c_char,
) -> Code {
    let change = |options: &mut ClientOptions| {
        // SAFETY: the caller's promise.
        unsafe { utf8("name", name) }?.clone_into(&mut options.name);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets how many operations may wait to be sent: 1 to 1048576. More end with `FARCORE_QUEUE_FULL`.
/// Default: 4096. Memory: about 200 bytes each. `farcore_connect` checks the range.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_queue(options: *mut Options, queue: u32) -> Code {
    let change = |options: &mut ClientOptions| {
        options.queue = queue as usize;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets how many messages the server may send before the client has taken them: 4 to 1024. Default:
/// 64. Memory: two buffers each, of `small_bytes` and about 1 KiB. `farcore_connect` checks the
/// range.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or the number exceeds 65535.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_credits(options: *mut Options, credits: u32) -> Code {
    let change = |options: &mut ClientOptions| {
        options.credits = short("credits", credits)?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets from which length on values travel beside messages, in bytes: 512 to 49152. The server's
/// `--small-bytes` limits it too. Default: 4096. `farcore_connect` checks the range.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_small_bytes(
    options: *mut Options,
    small_bytes: u32,
) -> Code {
    let change = |options: &mut ClientOptions| {
        options.small_bytes = small_bytes as usize;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets how values of `small_bytes` and more are read: a `farcore_transfer`. Default:
/// `FARCORE_TRANSFER_LANDING`.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or the number is unknown.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_transfer(
    options: *mut Options,
    transfer: u32,
) -> Code {
    let change = |options: &mut ClientOptions| {
        options.transfer = match transfer {
            _ if transfer == Transfer::Landing as u32 => farcore_client::Transfer::Landing,
            _ if transfer == Transfer::Read as u32 => farcore_client::Transfer::Read,
            _ => {
                let text = format!("transfer is {transfer}: must be a farcore_transfer, 0 or 1");
                return Err(Failure::invalid(text));
            }
        };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets the bytes of a landing buffer (4096 to 1048576) and how many there are (1 to 256). They
/// receive values of `FARCORE_TRANSFER_LANDING`; a longer value is read in two round trips.
/// Default: 16 of 65536. Memory: their product. `farcore_connect` checks the ranges.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or `count` exceeds 65535.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_landings(
    options: *mut Options,
    bytes: u32,
    count: u32,
) -> Code {
    let change = |options: &mut ClientOptions| {
        options.landings = short("landings", count)?;
        options.landing_bytes = bytes as usize;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets how long the client's thread polls without work before it sleeps, in microseconds. Longer
/// gives lower latency and takes a processor. Default: 0.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_spin_us(options: *mut Options, spin_us: u64) -> Code {
    let change = |options: &mut ClientOptions| {
        options.spin = Duration::from_micros(spin_us);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets the RDMA device, such as "mlx5_0", of addresses with `rdma://` and `rdma+tcp://`. Default:
/// the device of the route, or the first with an active port. `farcore_connect` looks for it.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, or the name is empty or not UTF-8.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it. `device` is ended by a
/// zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_device(
    options: *mut Options,
    device: *const c_char,
) -> Code {
    let change = |options: &mut ClientOptions| {
        // SAFETY: the caller's promise.
        options.verbs.device = unsafe { device_of(device) }?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets the port of the RDMA device, 1 to 255, of addresses with `rdma+tcp://`; with `rdma://` the
/// route says it. Default: the first active one.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or the port is out of range.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_port(options: *mut Options, port: u32) -> Code {
    let change = |options: &mut ClientOptions| {
        options.verbs.port = byte("port", port, 1)?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets the entry of the port's GID table, 0 to 255, of addresses with `rdma+tcp://`; with
/// `rdma://` the route says it. Default: that of RoCE v2 over IPv4, or the best there is.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null or the index is out of range.
///
/// # Safety
/// `options` came from `farcore_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_options_set_gid_index(
    options: *mut Options,
    gid_index: u32,
) -> Code {
    let change = |options: &mut ClientOptions| {
        options.verbs.gid_index = byte("gid_index", gid_index, 0)?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}
