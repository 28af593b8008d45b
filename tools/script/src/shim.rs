//! Functions of C around functions of Lua.
//!
//! - I1: a function of C that fails leaves no frame of Rust that owns something.

#![allow(
    unsafe_code,
    reason = "a function of C takes what it calls from the state of Lua"
)]

use mlua::{Function, Lua, ffi};

/// Calls the function that it was made with.
unsafe extern "C-unwind" fn call(state: *mut ffi::lua_State) -> std::ffi::c_int {
    // SAFETY: Lua calls it with a state and its arguments, with room for some more values; the
    // function is its first upvalue. A failure leaves this frame, which owns nothing (I1).
    unsafe {
        let count = ffi::lua_gettop(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, count, ffi::LUA_MULTRET);
        ffi::lua_gettop(state)
    }
}

/// A function of C that calls one of Lua.
pub(crate) fn shim(lua: &Lua, function: Function) -> mlua::Result<Function> {
    // SAFETY: the function is on top of the stack, and becomes the closure's upvalue.
    unsafe { lua.exec_raw(function, |state| ffi::lua_pushcclosure(state, call, 1)) }
}

/// Says whether a protected call succeeded, before its results, which begin at a place. Lua's own
/// functions do not look whether there is room for it.
///
/// # Safety
/// The state's stack has the results of a call from `place` on.
unsafe fn finish(
    state: *mut ffi::lua_State,
    place: std::ffi::c_int,
    is_ok: bool,
) -> std::ffi::c_int {
    // SAFETY: it has room for the value, or for two once there is nothing else.
    unsafe {
        if ffi::lua_checkstack(state, 1) == 0 {
            ffi::lua_settop(state, 0);
            ffi::lua_pushboolean(state, 0);
            ffi::lua_pushlstring(state, c"stack overflow".as_ptr(), 14);
            return 2;
        }
        ffi::lua_pushboolean(state, i32::from(is_ok));
        ffi::lua_insert(state, place);
        ffi::lua_gettop(state) - place + 1
    }
}

/// `pcall`.
unsafe extern "C-unwind" fn pcall(state: *mut ffi::lua_State) -> std::ffi::c_int {
    // SAFETY: as in `call`.
    unsafe {
        ffi::luaL_checkany(state, 1);
        let count = ffi::lua_gettop(state) - 1;
        let status = ffi::lua_pcall(state, count, ffi::LUA_MULTRET, 0);
        finish(state, 1, status == ffi::LUA_OK)
    }
}

/// `xpcall`.
unsafe extern "C-unwind" fn xpcall(state: *mut ffi::lua_State) -> std::ffi::c_int {
    // SAFETY: as in `call`; the handler lies before the function.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_insert(state, 1);
        let status = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1);
        finish(state, 2, status == ffi::LUA_OK)
    }
}

/// `pcall` and `xpcall`.
pub(crate) fn protected_calls(lua: &Lua) -> mlua::Result<(Function, Function)> {
    // SAFETY: they hold to the conventions of Lua.
    unsafe {
        Ok((
            lua.create_c_function(pcall)?,
            lua.create_c_function(xpcall)?,
        ))
    }
}
