//! What a pool is made with.

#![allow(unsafe_code)] // reads the caller's memory

use std::ffi::{c_char, c_void};
use std::time::Duration;

use farcore_pool::PoolOptions as Settings;

use crate::boundary::{guard, guard_free, is_null, take_back, utf8};
use crate::error::{Code, Failure};
use crate::options::{byte, device_of, token_of, token_of_file};

/// Options of a pool, which `farcore_pool_connect` copies.
#[derive(Debug, Default)]
pub struct PoolOptions(pub(super) Settings);

/// Changes one option.
///
/// # Safety
/// Unless it is null, `options` came from [`farcore_pool_options_new`], is not freed, and no other
/// thread uses it.
unsafe fn set(
    options: *mut PoolOptions,
    change: impl FnOnce(&mut Settings) -> Result<(), Failure>,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { options.as_mut() }.ok_or_else(|| is_null("options"))?;
        change(&mut options.0)?;
        Ok(Code::Ok)
    })
}

/// Options of a pool with their defaults. Never null. The caller owns them, and frees them with
/// `farcore_pool_options_free`. Any thread may use them, one at a time. Cannot fail. Cost: an
/// allocation.
#[unsafe(no_mangle)]
pub extern "C" fn farcore_pool_options_new() -> *mut PoolOptions {
    Box::into_raw(Box::default())
}

/// Frees options of a pool; null is left alone. Pools that were made with them are not affected.
/// Cannot fail.
///
/// # Safety
/// `options` is null, or came from `farcore_pool_options_new` and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_free(options: *mut PoolOptions) {
    // SAFETY: the caller's promise.
    guard_free(|| unsafe { take_back(options) });
}

/// Sets the token: the secret that the pool and its memory nodes share, 16 to 4096 bytes without
/// white space around it. Default: none. The library copies it, and overwrites its copies when it
/// frees them.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the length is out of range.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it. `token` points to
/// `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_token(
    options: *mut PoolOptions,
    token: *const c_void,
    length: usize,
) -> Code {
    let read = |options: &mut Settings| {
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
/// `options` came from `farcore_pool_options_new`; no other thread uses it. `path` is ended by a
/// zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_token_file(
    options: *mut PoolOptions,
    path: *const c_char,
) -> Code {
    let read = |options: &mut Settings| {
        // SAFETY: the caller's promise.
        options.token = Some(unsafe { token_of_file(path) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, read) }
}

/// Sets the pool's name in the logs of the nodes, in UTF-8. Default: "farcore-pool".
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the name is not UTF-8.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it. `name` is ended by a
/// zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_name(
    options: *mut PoolOptions,
    name: *const c_char,
) -> Code {
    let change = |options: &mut Settings| {
        // SAFETY: the caller's promise.
        unsafe { utf8("name", name) }?.clone_into(&mut options.client);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets this program's zone, in UTF-8, a name without `=`: memory is allocated on nodes of this
/// zone first. Default: none. `farcore_pool_connect` checks the name.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the zone is not UTF-8.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it. `zone` is ended by a
/// zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_zone(
    options: *mut PoolOptions,
    zone: *const c_char,
) -> Code {
    let change = |options: &mut Settings| {
        // SAFETY: the caller's promise.
        options.zone = Some(unsafe { utf8("zone", zone) }?.to_owned());
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets the number of connections to each node, 1 to 16, over which threads are spread. Default: 1;
/// more help several threads that work at once. `farcore_pool_connect` checks the range.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_connections(
    options: *mut PoolOptions,
    connections: u32,
) -> Code {
    let change = |options: &mut Settings| {
        options.connections = connections as usize;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets how many requests may be in flight on each connection, 1 to 4096. Default: 64.
/// `farcore_pool_connect` checks the range.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_depth(
    options: *mut PoolOptions,
    depth: u32,
) -> Code {
    let change = |options: &mut Settings| {
        options.depth = depth as usize;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets the longest single transfer, in bytes, 4096 to 16777216; longer ones are split. Default:
/// 524288. `farcore_pool_connect` checks the range.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_transfer_bytes(
    options: *mut PoolOptions,
    transfer_bytes: u32,
) -> Code {
    let change = |options: &mut Settings| {
        options.transfer_bytes = transfer_bytes;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets how long an operation waits for a node that does not answer, in milliseconds, 1 to 3600000
/// (an hour). Default: 5000. `farcore_pool_connect` checks the range.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_timeout_ms(
    options: *mut PoolOptions,
    timeout_ms: u64,
) -> Code {
    let change = |options: &mut Settings| {
        options.timeout = Duration::from_millis(timeout_ms);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets how long a node may leave all requests unanswered before its connection counts as lost, in
/// milliseconds, 1 to 3600000. Default: 1000. `farcore_pool_connect` checks the range.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_silence_ms(
    options: *mut PoolOptions,
    silence_ms: u64,
) -> Code {
    let change = |options: &mut Settings| {
        options.silence = Duration::from_millis(silence_ms);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets how many nodes must answer before `farcore_pool_connect` returns, and for how many
/// milliseconds it waits for them, 0 to 3600000. 0 nodes means all. Default: all, and 5000.
/// `farcore_pool_connect` checks the ranges.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_nodes_min(
    options: *mut PoolOptions,
    nodes_min: u32,
    wait_ms: u64,
) -> Code {
    let change = |options: &mut Settings| {
        options.nodes_min = (nodes_min > 0).then_some(nodes_min as usize);
        options.nodes_wait = Duration::from_millis(wait_ms);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets how long a waiting thread polls before it sleeps, in microseconds. Longer gives lower
/// latency and takes a processor. Default: 50.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `options` is null.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_spin_us(
    options: *mut PoolOptions,
    spin_us: u64,
) -> Code {
    let change = |options: &mut Settings| {
        options.spin = Duration::from_micros(spin_us);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}

/// Sets the RDMA device, such as "mlx5_0", of addresses with `rdma://` and `rdma+tcp://`. Default:
/// the device of the route, or the first with an active port. `farcore_pool_connect` looks for it.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, or the name is empty or not UTF-8.
///
/// # Safety
/// `options` came from `farcore_pool_options_new`; no other thread uses it. `device` is ended by a
/// zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_device(
    options: *mut PoolOptions,
    device: *const c_char,
) -> Code {
    let change = |options: &mut Settings| {
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
/// `options` came from `farcore_pool_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_port(
    options: *mut PoolOptions,
    port: u32,
) -> Code {
    let change = |options: &mut Settings| {
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
/// `options` came from `farcore_pool_options_new`; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_options_set_gid_index(
    options: *mut PoolOptions,
    gid_index: u32,
) -> Code {
    let change = |options: &mut Settings| {
        options.verbs.gid_index = byte("gid_index", gid_index, 0)?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(options, change) }
}
