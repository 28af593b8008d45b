//! Functions of C around functions of Lua.
//!
//! - I1: a function of C that fails leaves no frame of Rust that owns something.

#![allow(
    unsafe_code,
    reason = "a function of C takes what it calls from the state of Lua"
)]

use std::ffi::c_int;

use mlua::{Function, Lua, ffi};

use crate::switch::Switch;

/// Values that `unpack` gives at once, fewer than: a function of C has room for as many.
const UNPACKED_MAX: i64 = 8000;
/// Places before a table's first that `table.insert` moves values to, at most.
const MOVED_MAX: i64 = 100_000;
/// Values that are sorted without a look at the clock.
const SORTED_MAX: usize = 1000;

/// Calls the function that it was made with.
unsafe extern "C-unwind" fn call(state: *mut ffi::lua_State) -> c_int {
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
unsafe fn finish(state: *mut ffi::lua_State, place: c_int, is_ok: bool) -> c_int {
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
unsafe extern "C-unwind" fn pcall(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as in `call`.
    unsafe {
        ffi::luaL_checkany(state, 1);
        let count = ffi::lua_gettop(state) - 1;
        let status = ffi::lua_pcall(state, count, ffi::LUA_MULTRET, 0);
        finish(state, 1, status == ffi::LUA_OK)
    }
}

/// `xpcall`.
unsafe extern "C-unwind" fn xpcall(state: *mut ffi::lua_State) -> c_int {
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

/// Calls the function of Lua's own that a closure bounds, in its frame.
///
/// # Safety
/// The state runs a closure of `bounded`.
unsafe fn call_own(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: its first upvalue is a function of C, which finds its arguments in this frame.
    unsafe {
        match ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1)) {
            Some(own) => own(state),
            None => 0,
        }
    }
}

/// An integer argument as Lua's own functions cut it, or another if there is none.
///
/// # Safety
/// The state runs a function of C.
unsafe fn argument(state: *mut ffi::lua_State, place: c_int, otherwise: usize) -> i64 {
    // SAFETY: a place beyond the arguments has none.
    unsafe {
        if ffi::lua_isnoneornil(state, place) != 0 {
            return i64::try_from(otherwise).unwrap_or(i64::MAX);
        }
        let bytes = (ffi::lua_tointeger(state, place) as i64).to_le_bytes();
        i64::from(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

/// `unpack`, whose count overflows in Lua's own.
unsafe extern "C-unwind" fn unpack_table(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as in `call`.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        let from = argument(state, 2, 1);
        let to = argument(state, 3, ffi::lua_objlen(state, 1));
        if to - from + 1 >= UNPACKED_MAX {
            return ffi::luaL_error(state, c"too many results to unpack".as_ptr());
        }
        call_own(state)
    }
}

/// `table.insert`, which moves values in a loop that nothing interrupts. It is the only function
/// that sets what a table with a metatable says that it does not have.
unsafe extern "C-unwind" fn insert(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as in `call`; the third upvalue is the switch, which outlives the state.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        if ffi::lua_getmetatable(state, 1) != 0 {
            ffi::lua_pop(state, 1);
            let switch = ffi::lua_touserdata(state, ffi::lua_upvalueindex(3));
            (*switch.cast::<Switch>()).is_suspect.set(true);
        }
        if ffi::lua_gettop(state) == 3 && argument(state, 2, 1) < -MOVED_MAX {
            let text = c"position out of bounds";
            return ffi::luaL_argerror(state, 2, text.as_ptr());
        }
        call_own(state)
    }
}

/// `table.sort`: a comparison in Lua, the closure's second upvalue, counts as work of the script.
unsafe extern "C-unwind" fn sort(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as in `call`.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        let is_plain = ffi::lua_isnoneornil(state, 2) != 0;
        if is_plain && ffi::lua_objlen(state, 1) > SORTED_MAX {
            ffi::lua_settop(state, 1);
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        }
        call_own(state)
    }
}

/// A function of Lua's own that cannot hold its core, by its name; `compare` compares two values.
pub(crate) fn bounded(
    lua: &Lua,
    switch: &Switch,
    (name, own, compare): (String, Function, Function),
) -> mlua::Result<Function> {
    let function = match &name[..] {
        "insert" => insert,
        "sort" => sort,
        _ => unpack_table,
    };
    let place = std::ptr::from_ref(switch).cast_mut().cast();
    // SAFETY: the two functions are on top of the stack, and become the closure's upvalues. The
    // switch outlives the state: its interpreter holds both.
    unsafe {
        lua.exec_raw((own, compare), |state| {
            ffi::lua_pushlightuserdata(state, place);
            ffi::lua_pushcclosure(state, function, 3);
        })
    }
}
