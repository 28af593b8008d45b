//! Functions of C that run a script and call its commands. What a script mostly calls and replies
//! takes no other: each layer between costs as much as a command.
//!
//! - I1: a function of C may leave its frame at each call of Lua that can fail. So what it reads
//!   and writes lies at the switch, and no frame owns something then.
//! - I2: a reply that lies at the switch stays there until the next command is called.

#![allow(
    unsafe_code,
    reason = "a function of C takes its arguments from the state of Lua"
)]

use std::ffi::{CStr, c_int};
use std::ptr::{self, NonNull};

use mlua::{Function, Lua, Table, ffi};

use crate::event::{Event, Job, Step};
use crate::numbers::{general, integer};
use crate::replies::{write_bulk, write_head, write_number};
use crate::switch::Switch;

/// Elements of a list that is made or written here.
const ELEMENTS_MAX: usize = 64;
/// Bytes of a text of a reply that is written here.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// The fields of an error, and of a status.
const ERROR: &CStr = c"err";
const COUNTED: &CStr = c"ignore_error_stats_update";
const STATUS: &CStr = c"ok";

const NO_ARGUMENT: &str = "ERR Please specify at least one argument for this redis lib call";
const TOO_LONG: &str = "ERR the command is too long";
const NO_WORD: &str = "ERR Lua redis lib command arguments must be strings or integers";

/// The functions that `prelude.lua` is given.
pub(crate) struct Calls {
    pub(crate) call: Function,
    pub(crate) pcall: Function,
}

/// The functions that call commands. `read` makes a value of a reply that lies at the switch.
pub(crate) fn calls(lua: &Lua, switch: &Switch, read: &Function) -> mlua::Result<Calls> {
    let place = ptr::from_ref(switch).cast_mut().cast();
    let closure = |function: ffi::lua_CFunction| {
        // SAFETY: the two upvalues are on top of the stack. The switch outlives the state: its
        // interpreter holds both.
        unsafe {
            lua.exec_raw::<Function>(read, |state| {
                ffi::lua_pushlightuserdata(state, place);
                ffi::lua_insert(state, -2);
                ffi::lua_pushcclosure(state, function, 2);
            })
        }
    };
    Ok(Calls {
        call: closure(call)?,
        pcall: closure(pcall)?,
    })
}

/// The function that runs a script: with its keys and arguments among what scripts see, and a
/// handler of errors.
pub(crate) fn runner(
    lua: &Lua,
    switch: &Switch,
    (globals, handler): (&Table, &Function),
) -> mlua::Result<Function> {
    let place = ptr::from_ref(switch).cast_mut().cast();
    // SAFETY: as in `calls`.
    unsafe {
        lua.exec_raw((globals, handler), |state| {
            ffi::lua_pushlightuserdata(state, place);
            ffi::lua_insert(state, -3);
            ffi::lua_pushcclosure(state, run, 3);
        })
    }
}

/// Notes the job whose script runs until the guard is dropped.
pub(crate) struct Running<'a>(&'a Switch);

impl<'a> Running<'a> {
    pub(crate) fn begin(switch: &'a Switch, job: &'a Job) -> Self {
        switch.job.set(Some(NonNull::from(job)));
        Self(switch)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.job.set(None);
    }
}

/// The switch of a closure.
///
/// # Safety
/// The state runs a closure of this file.
unsafe fn switch_of<'a>(state: *mut ffi::lua_State) -> &'a Switch {
    // SAFETY: it is the first upvalue, and outlives the state.
    unsafe { &*ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast::<Switch>() }
}

/// `redis.call`.
unsafe extern "C-unwind" fn call(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls it with a state and its arguments.
    unsafe { run_command(state, true) }
}

/// `redis.pcall`.
unsafe extern "C-unwind" fn pcall(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as in `call`.
    unsafe { run_command(state, false) }
}

/// What became of a command.
enum Sent {
    /// Its reply lies at the switch.
    Replied,
    /// It was not sent, for this reason.
    Refused(&'static str),
    /// The script is ended.
    Ended,
}

/// Runs the command that the arguments are, and returns its value; an error as one, or thrown.
///
/// # Safety
/// The state runs a closure of `calls`.
unsafe fn run_command(state: *mut ffi::lua_State, throws: bool) -> c_int {
    // SAFETY: as is said; a function of C has room for twenty values.
    unsafe {
        let switch = switch_of(state);
        match send(state, switch) {
            Sent::Replied => {}
            Sent::Refused(text) => return fail(state, text.as_bytes(), false, throws),
            Sent::Ended => return fail(state, switch.ended_bytes(), true, throws),
        }
        let reply: *const [u8] = ptr::from_ref(&switch.reply.borrow()[..]);
        let mut bytes = &*reply;
        if let Some(text) = bytes.strip_prefix(b"-") {
            let end = text.iter().position(|byte| *byte == b'\r');
            return fail(
                state,
                &raw const text[..end.unwrap_or(text.len())],
                true,
                throws,
            );
        }
        let top = ffi::lua_gettop(state);
        if !push_value(state, &mut bytes, true) {
            ffi::lua_settop(state, top);
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
            ffi::lua_call(state, 0, 1);
        }
        1
    }
}

/// Sends the command that the arguments are, and waits for its reply. Nothing that it calls of Lua
/// can fail.
///
/// # Safety
/// The state runs a function of C.
unsafe fn send(state: *mut ffi::lua_State, switch: &Switch) -> Sent {
    if switch.is_ended() {
        return Sent::Ended;
    }
    // SAFETY: its arguments are at the places from 1 on, and texts stay there meanwhile.
    let command = unsafe {
        let count = ffi::lua_gettop(state);
        if count == 0 {
            return Sent::Refused(NO_ARGUMENT);
        }
        let mut bytes = 0;
        for place in 1..=count {
            match ffi::lua_type(state, place) {
                ffi::LUA_TSTRING => bytes += ffi::lua_objlen(state, place),
                ffi::LUA_TNUMBER => {}
                _ => return Sent::Refused(NO_WORD),
            }
        }
        if !switch.may_make(bytes) {
            return Sent::Refused(TOO_LONG);
        }
        let mut command = switch.take_buffer();
        write_head(&mut command, b'*', usize::try_from(count).unwrap_or(0));
        for place in 1..=count {
            if ffi::lua_type(state, place) == ffi::LUA_TSTRING {
                write_bulk(&mut command, text_at(state, place));
            } else {
                let number = ffi::lua_tonumber(state, place);
                write_bulk(&mut command, general(number, 17).as_bytes());
            }
        }
        command
    };
    let is_resp3 = switch.protocol.get() == 3;
    match switch.suspend(Event::Call { command, is_resp3 }) {
        Step::Reply(bytes) => {
            switch.reply.replace(bytes);
            Sent::Replied
        }
        Step::End(reason) => {
            switch.end(reason);
            Sent::Ended
        }
        Step::Run(_) | Step::GoOn => Sent::Refused("ERR no reply"),
    }
}

/// A text at a place of the stack.
///
/// # Safety
/// There is one, which stays there for as long as it is used.
unsafe fn text_at<'a>(state: *mut ffi::lua_State, place: c_int) -> &'a [u8] {
    // SAFETY: as is said; what is a text is not converted.
    unsafe {
        let mut bytes = 0;
        let text = ffi::lua_tolstring(state, place, &raw mut bytes);
        std::slice::from_raw_parts(text.cast(), bytes)
    }
}

/// Returns an error, or throws it. It `is_counted` if a command replied it.
///
/// # Safety
/// The state runs a function of C; the text lies at the switch, or for ever.
unsafe fn fail(
    state: *mut ffi::lua_State,
    text: *const [u8],
    is_counted: bool,
    throws: bool,
) -> c_int {
    // SAFETY: as is said; there is room for some values.
    unsafe {
        ffi::lua_settop(state, 0);
        ffi::lua_createtable(state, 0, 2);
        push_text(state, &*text);
        ffi::lua_setfield(state, -2, ERROR.as_ptr());
        if is_counted {
            ffi::lua_pushboolean(state, 1);
            ffi::lua_setfield(state, -2, COUNTED.as_ptr());
        }
        if throws {
            ffi::lua_error(state);
        }
    }
    1
}

/// # Safety
/// There is room for a value.
unsafe fn push_text(state: *mut ffi::lua_State, text: &[u8]) {
    // SAFETY: as is said; Lua copies the bytes.
    unsafe {
        ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len());
    }
}

/// The number of a line, and what follows it; `None` if it is none.
fn number_of<'a>(bytes: &mut &'a [u8]) -> Option<i64> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let (line, rest): (&'a [u8], _) = bytes.split_at(end);
    *bytes = rest.get(2..)?;
    let (is_negative, digits) = match line.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, line),
    };
    // More of them may be no number of Lua, or of 64 bits.
    if digits.is_empty() || digits.len() > 15 {
        return None;
    }
    let mut number = 0;
    for digit in digits {
        number = number * 10 + i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    Some(if is_negative { -number } else { number })
}

/// Pushes the value of a plain reply: a text, a number, nothing, a status, or a short list of these
/// but the last. False if it is another; then anything may have been pushed.
///
/// # Safety
/// The state runs a function of C; the bytes lie at the switch, and there is room for some values.
unsafe fn push_value(state: *mut ffi::lua_State, bytes: &mut &[u8], is_whole: bool) -> bool {
    let Some((&kind, rest)) = bytes.split_first() else {
        return false;
    };
    *bytes = rest;
    // SAFETY: as is said.
    unsafe {
        match kind {
            b'$' => {
                let Some(length) = number_of(bytes) else {
                    return false;
                };
                let Ok(length) = usize::try_from(length) else {
                    ffi::lua_pushboolean(state, 0);
                    return true;
                };
                let (Some(text), Some(rest)) = (bytes.get(..length), bytes.get(length + 2..))
                else {
                    return false;
                };
                push_text(state, text);
                *bytes = rest;
            }
            b':' => {
                let Some(number) = number_of(bytes) else {
                    return false;
                };
                #[expect(clippy::cast_precision_loss, reason = "it has 15 digits at most")]
                ffi::lua_pushnumber(state, number as f64);
            }
            b'+' if is_whole => {
                let end = bytes.iter().position(|byte| *byte == b'\r');
                ffi::lua_createtable(state, 0, 1);
                push_text(state, &bytes[..end.unwrap_or(bytes.len())]);
                ffi::lua_setfield(state, -2, STATUS.as_ptr());
            }
            b'*' if is_whole => {
                let count = number_of(bytes).and_then(|count| usize::try_from(count).ok());
                let Some(count) = count.filter(|count| *count <= ELEMENTS_MAX) else {
                    return false;
                };
                ffi::lua_createtable(state, c_int::try_from(count).unwrap_or(0), 0);
                for place in 1..=count {
                    if !push_value(state, bytes, false) {
                        return false;
                    }
                    ffi::lua_rawseti(state, -2, place as _);
                }
            }
            _ => return false,
        }
    }
    true
}

/// Runs the script that it is called with. If it replies something plain, that is written and
/// nothing is returned; else whether it succeeded, and its value.
unsafe extern "C-unwind" fn run(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls it with a state and a function; the job lies at the switch while it runs.
    unsafe {
        let switch = switch_of(state);
        let Some(job) = switch.job.get() else {
            return 0;
        };
        let job = job.as_ref();
        ffi::lua_settop(state, 1);
        let globals = ffi::lua_upvalueindex(2);
        push_words(state, job.words.iter().take(job.keys), job.keys);
        ffi::lua_setfield(state, globals, c"KEYS".as_ptr());
        let others = job.words.len() - job.keys;
        push_words(state, job.words.iter().skip(job.keys), others);
        ffi::lua_setfield(state, globals, c"ARGV".as_ptr());
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
        ffi::lua_insert(state, 1);
        let status = ffi::lua_pcall(state, 0, 1, 1);
        let is_ok = status == ffi::LUA_OK;
        if is_ok && write_value(state, switch, job) {
            return 0;
        }
        ffi::lua_pushboolean(state, c_int::from(is_ok));
        ffi::lua_insert(state, -2);
        2
    }
}

/// Pushes a table of texts.
///
/// # Safety
/// There is room for two values; the texts do not lie in a frame.
unsafe fn push_words<'w>(
    state: *mut ffi::lua_State,
    words: impl Iterator<Item = &'w [u8]>,
    count: usize,
) {
    // SAFETY: as is said.
    unsafe {
        ffi::lua_createtable(state, c_int::try_from(count).unwrap_or(0), 0);
        for (place, word) in words.enumerate() {
            push_text(state, word);
            ffi::lua_rawseti(state, -2, (place + 1) as _);
        }
    }
}

/// Writes the value on top of the stack as the reply of the script, if it is plain: a text, a
/// number, nothing, or a short list of these. Nothing that it calls of Lua can fail.
///
/// # Safety
/// There is one, and room for some values.
unsafe fn write_value(state: *mut ffi::lua_State, switch: &Switch, job: &Job) -> bool {
    let mut made = switch.take_buffer();
    // SAFETY: as is said.
    let is_plain = unsafe {
        if ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
            write_list(state, &mut made, (switch, job))
        } else {
            write_plain(state, &mut made, (switch, job))
        }
    };
    if is_plain {
        switch.made.replace(made);
    }
    is_plain
}

/// Writes the value on top of the stack, if it is no table.
///
/// # Safety
/// There is one.
unsafe fn write_plain(
    state: *mut ffi::lua_State,
    made: &mut Vec<u8>,
    (switch, job): (&Switch, &Job),
) -> bool {
    let null: &[u8] = if job.is_resp3 { b"_\r\n" } else { b"$-1\r\n" };
    // SAFETY: as is said; the text is copied at once.
    unsafe {
        match ffi::lua_type(state, -1) {
            ffi::LUA_TSTRING => {
                let text = text_at(state, -1);
                let is_short = text.len() <= TEXT_BYTES_MAX && made.len() <= TEXT_BYTES_MAX;
                if is_short {
                    write_bulk(made, text);
                }
                is_short
            }
            ffi::LUA_TNUMBER => {
                write_number(made, b':', integer(ffi::lua_tonumber(state, -1)));
                true
            }
            ffi::LUA_TNIL => {
                made.extend_from_slice(null);
                true
            }
            ffi::LUA_TBOOLEAN if switch.protocol.get() != 3 => {
                let is_true = ffi::lua_toboolean(state, -1) != 0;
                made.extend_from_slice(if is_true { b":1\r\n" } else { null });
                true
            }
            _ => false,
        }
    }
}

/// Writes the table on top of the stack, if it is a short list and nothing else.
///
/// # Safety
/// There is one, and room for some values.
unsafe fn write_list(state: *mut ffi::lua_State, made: &mut Vec<u8>, of: (&Switch, &Job)) -> bool {
    // SAFETY: as is said; a table is walked without its metatable, and nothing is allocated.
    unsafe {
        let count = ffi::lua_objlen(state, -1);
        if count > ELEMENTS_MAX {
            return false;
        }
        write_head(made, b'*', count);
        let mut walked = 0;
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, -2) != 0 {
            walked += 1;
            // A list comes in its order, unless part of it lies among fields.
            let is_next = walked <= count
                && ffi::lua_type(state, -2) == ffi::LUA_TNUMBER
                && ffi::lua_tointeger(state, -2) == walked as _
                && ffi::lua_tonumber(state, -2).fract() == 0.0;
            if !is_next || !write_plain(state, made, of) {
                ffi::lua_pop(state, 2);
                return false;
            }
            ffi::lua_pop(state, 1);
        }
        walked == count
    }
}
