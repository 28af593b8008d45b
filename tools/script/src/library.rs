//! The functions of scripts that are not written in Lua, and what `prelude.lua` makes of them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, Variadic,
    VmState,
};

use crate::calls::{Calls, Running, calls, runner};
use crate::event::{Event, Job, Step};
use crate::interpreter::{compile_text, out_of_memory};
use crate::json::{Decoder, Encoder, Failure, Settings, SharedSettings};
use crate::message_pack::{Unpacker, pack};
use crate::numbers::general;
use crate::patterns::{Capture, Matcher};
use crate::replies::{Protocols, read};
use crate::script::sha_of;
use crate::shim::{bounded, protected_calls, shim};
use crate::switch::Switch;
use crate::{bits, replies, structs};

/// Instructions between two looks whether a slice is over.
const INSTRUCTIONS: u32 = 1000;
/// Frames of the stack that are looked at for the line of an error.
const FRAMES_MAX: usize = 40;
/// The name of `prelude.lua` in frames.
const PRELUDE: &str = "=prelude";
/// What Lua says when there is no memory.
const LACKS_MEMORY: &str = "not enough memory";
/// The field of an error that was counted; as Redis.
const COUNTED: &str = "ignore_error_stats_update";

/// A new state of Lua.
pub(crate) fn state() -> Result<Lua, String> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    Lua::new_with(libraries, LuaOptions::new()).map_err(|error| error.to_string())
}

/// What the prelude gives.
#[derive(Debug)]
pub(crate) struct Library {
    environment: Table,
    /// Runs a script (`calls.rs`).
    run: Function,
    forget: Function,
    is_clean: Function,
    settings: Rc<SharedSettings>,
    /// The script before may have left something.
    has_left: Cell<bool>,
}

impl Library {
    /// Makes the functions of a state.
    pub(crate) fn open(lua: &Lua, switch: &Rc<Switch>) -> mlua::Result<Self> {
        let host = lua.create_table()?;
        let settings = Rc::new(Cell::new(Settings::default()));
        add_calls(lua, &host, switch)?;
        add_strings(lua, &host, switch)?;
        add_codecs(lua, &host, switch, &settings)?;
        add_structs(lua, &host, switch)?;
        let chunk = lua.load(include_str!("prelude.lua")).set_name(PRELUDE);
        let made: Table = chunk.call(host)?;
        let ended = Rc::clone(switch);
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS);
        lua.set_global_hook(triggers, move |_, _| {
            let instructions = usize::try_from(INSTRUCTIONS).unwrap_or(usize::MAX);
            match ended.work(instructions) {
                Ok(()) => Ok(VmState::Continue),
                Err(reason) => Err(mlua::Error::RuntimeError(reason)),
            }
        })?;
        Ok(Self {
            environment: made.raw_get("environment")?,
            run: runner(
                lua,
                switch,
                (&made.raw_get("globals")?, &made.raw_get("handler")?),
            )?,
            forget: made.raw_get("forget")?,
            is_clean: made.raw_get("is_clean")?,
            settings,
            has_left: Cell::new(false),
        })
    }

    /// What scripts see.
    pub(crate) fn globals(&self) -> Table {
        self.environment.clone()
    }

    /// Forgets what the script before has left.
    fn forget(&self) {
        let _ = self.forget.call::<()>(());
    }

    /// True if no script has changed what others see.
    pub(crate) fn is_clean(&self) -> bool {
        self.is_clean.call(()).unwrap_or(false)
    }

    /// Runs a compiled script; its reply, and whether that is the error of a command, which was
    /// counted there.
    pub(crate) fn call(
        &self,
        switch: &Switch,
        script: &Function,
        job: &Job,
    ) -> mlua::Result<(Vec<u8>, bool)> {
        if self.has_left.replace(false) {
            self.forget();
        }
        let running = Running::begin(switch, job);
        let ended = self.run.call::<(Option<bool>, Value)>(script);
        drop(running);
        self.settings.set(Settings::default());
        // Nothing of Lua runs in one that was ended, so the next one forgets it.
        self.has_left.set(!matches!(ended, Ok((None, _))));
        let (ok, value) = match ended? {
            (None, _) => return Ok((switch.made.take(), false)),
            (Some(ok), value) => (ok, value),
        };
        let mut reply = Vec::new();
        let is_counted = is_counted(&value)?;
        if ok {
            let protocols = Protocols {
                switch,
                is_resp3: job.is_resp3,
                script_is_resp3: switch.protocol.get() == 3,
            };
            protocols.write(&mut reply, &value)?;
            return Ok((reply, is_counted));
        }
        Ok((replies::error(&failure(switch, job, &value)?), is_counted))
    }
}

/// True of the error of a command, which was counted when it was replied to the script.
fn is_counted(value: &Value) -> mlua::Result<bool> {
    match value {
        Value::Table(table) => Ok(table.raw_get::<Value>(COUNTED)? == Value::Boolean(true)),
        _ => Ok(false),
    }
}

/// What a client reads of an error that a script did not catch.
fn failure(switch: &Switch, job: &Job, value: &Value) -> mlua::Result<String> {
    let sha = &job.script.sha;
    let Value::Table(thrown) = value else {
        let text = match value {
            Value::String(text) => text.to_string_lossy(),
            _ => String::new(),
        };
        let text = switch.ended().unwrap_or_else(|| {
            if text.contains(LACKS_MEMORY) {
                out_of_memory(job.memory_bytes)
            } else {
                format!("ERR Error running script, {text}")
            }
        });
        return Ok(format!("{text} script: {sha}"));
    };
    let text = match (switch.ended(), thrown.raw_get::<Value>("err")?) {
        (Some(reason), _) => reason,
        (None, Value::String(text)) => text.to_string_lossy(),
        (None, _) => "ERR unknown error".to_owned(),
    };
    let lacks_memory = text.ends_with(LACKS_MEMORY) || text.contains("memory error:");
    let text = if lacks_memory {
        out_of_memory(job.memory_bytes)
    } else {
        text
    };
    let source: Option<LuaString> = thrown.raw_get("source").unwrap_or(None);
    let line: Option<i64> = thrown.raw_get("line").unwrap_or(None);
    Ok(match (source, line) {
        (Some(source), Some(line)) => {
            format!(
                "{text} script: {sha}, on {}:{line}.",
                source.to_string_lossy()
            )
        }
        _ => text,
    })
}

/// A result that the prelude makes an error of.
fn checked<T: mlua::IntoLuaMulti>(
    lua: &Lua,
    result: Result<T, Failure>,
) -> mlua::Result<MultiValue> {
    match result {
        Ok(values) => {
            let mut values = values.into_lua_multi(lua)?;
            values.push_front(Value::Boolean(true));
            Ok(values)
        }
        Err(Failure::Text(text)) => {
            let text = Value::String(lua.create_string(text)?);
            Ok(MultiValue::from_vec(vec![Value::Boolean(false), text]))
        }
        Err(Failure::Lua(error)) => Err(error),
    }
}

/// The text of a value; `None` of what has none.
fn word(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(general(*number, 17).into_bytes()),
        _ => None,
    }
}

/// Functions about commands and about the run of a script.
fn add_calls(lua: &Lua, host: &Table, switch: &Rc<Switch>) -> mlua::Result<()> {
    let out = Rc::clone(switch);
    let read = lua.create_function(move |lua, ()| {
        let reply = out.reply.take();
        read(lua, &out, &reply)
    })?;
    let Calls { call, pcall } = calls(lua, switch, &read)?;
    host.raw_set("call", call)?;
    host.raw_set("pcall_command", pcall)?;
    let out = Rc::clone(switch);
    host.raw_set(
        "is_ended",
        lua.create_function(move |_, ()| Ok(out.is_ended()))?,
    )?;
    let out = Rc::clone(switch);
    let log = lua.create_function(move |_, (level, text): (f64, LuaString)| {
        let level = crate::numbers::integer(level);
        if let Step::End(reason) = out.suspend(Event::Log(level, text.as_bytes().to_vec())) {
            out.end(reason);
        }
        Ok(())
    })?;
    host.raw_set("log", log)?;
    let out = Rc::clone(switch);
    let setresp = lua.create_function(move |_, version: f64| {
        out.protocol.set(if version > 2.0 { 3 } else { 2 });
        Ok(())
    })?;
    host.raw_set("setresp", setresp)?;
    let out = Rc::clone(switch);
    host.raw_set(
        "random",
        lua.create_function(move |_, ()| Ok(out.random()))?,
    )?;
    let out = Rc::clone(switch);
    let seed = lua.create_function(move |_, seed: f64| {
        let low = crate::numbers::integer(seed).to_le_bytes();
        out.seed(i32::from_le_bytes([low[0], low[1], low[2], low[3]]));
        Ok(())
    })?;
    host.raw_set("seed", seed)?;
    let out = Rc::clone(switch);
    let work = lua.create_function(move |_, work: f64| {
        let work = usize::try_from(crate::numbers::integer(work)).unwrap_or(0);
        out.work(work).map_err(mlua::Error::RuntimeError)
    })?;
    host.raw_set("work", work)?;
    add_shims(lua, host, switch)?;
    host.raw_set("where", lua.create_function(|lua, ()| Ok(place(lua)))?)?;
    let out = Rc::clone(switch);
    let compile =
        lua.create_function(move |lua, (text, name): (LuaString, Option<LuaString>)| {
            // A compiler is not interrupted, so its work counts.
            let _ = out.work(text.as_bytes().len());
            let result = compile_text(lua, &text, name.as_ref())?;
            let (function, message) = match result {
                Ok(function) => (function, Value::Nil),
                Err(text) => (Value::Nil, Value::String(lua.create_string(text)?)),
            };
            Ok((function, message))
        })?;
    host.raw_set("compile", compile)?;
    let began = Instant::now();
    host.raw_set(
        "clock",
        lua.create_function(move |_, ()| Ok(began.elapsed().as_secs_f64()))?,
    )?;
    host.raw_set("null", Value::NULL)?;
    Ok(())
}

/// Functions of C, and about them.
fn add_shims(lua: &Lua, host: &Table, switch: &Rc<Switch>) -> mlua::Result<()> {
    let (pcall, xpcall) = protected_calls(lua)?;
    host.raw_set("pcall", pcall)?;
    host.raw_set("xpcall", xpcall)?;
    host.raw_set("shim", lua.create_function(shim)?)?;
    let out = Rc::clone(switch);
    let bounded = lua.create_function(move |lua, of| bounded(lua, &out, of))?;
    host.raw_set("bounded", bounded)?;
    let is_of_c = lua.create_function(|_, function: Function| Ok(function.info().what == "C"))?;
    host.raw_set("is_of_c", is_of_c)?;
    Ok(())
}

/// The line of a script that runs: its source and number.
fn place(lua: &Lua) -> (Option<String>, Option<usize>) {
    for level in 1..FRAMES_MAX {
        let frame = lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let name = source
                .source
                .map(std::borrow::Cow::into_owned)
                .unwrap_or_default();
            let is_script = source.what != "C" && name != PRELUDE && name != "=(tail call)";
            is_script.then(|| (Some(name), frame.current_line()))
        });
        match frame {
            Some(Some(found)) => return found,
            Some(None) => {}
            None => break,
        }
    }
    (None, None)
}

/// A text of a function of `string`; numbers are texts too.
fn text_of(value: Option<&Value>, (place, name): (usize, &str)) -> Result<Vec<u8>, Failure> {
    match value {
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        Some(Value::Integer(number)) => Ok(number.to_string().into_bytes()),
        Some(Value::Number(number)) => Ok(general(*number, 14).into_bytes()),
        other => {
            let kind = other.map_or("no value", Value::type_name);
            let text = format!("bad argument #{place} to '{name}' (string expected, got {kind})");
            Err(Failure::Text(text))
        }
    }
}

/// A place of a text from which a search begins: from 1 on, or from the end if negative.
fn start_of(value: Option<&Value>, len: usize) -> usize {
    let place = match value {
        Some(Value::Number(number)) => crate::numbers::integer(*number),
        Some(Value::Integer(number)) => *number,
        _ => 1,
    };
    let len_signed = i64::try_from(len).unwrap_or(i64::MAX);
    let place = if place < 0 {
        (len_signed + place).max(0)
    } else {
        (place - 1).max(0)
    };
    usize::try_from(place).unwrap_or(0)
}

fn capture_value(lua: &Lua, capture: Capture<'_>) -> Result<Value, Failure> {
    Ok(match capture {
        #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
        Capture::Place(place) => Value::Number(place as f64),
        Capture::Bytes(bytes) => Value::String(lua.create_string(bytes)?),
    })
}

/// The captures of a match, or all of it if there are none.
fn captured(
    lua: &Lua,
    matcher: &Matcher<'_>,
    whole: &[u8],
    has_whole: bool,
) -> Result<Vec<Value>, Failure> {
    let captures = matcher.captures()?;
    if captures.is_empty() && has_whole {
        return Ok(vec![capture_value(lua, Capture::Bytes(whole))?]);
    }
    captures
        .into_iter()
        .map(|one| capture_value(lua, one))
        .collect()
}

/// `find` and `match`.
fn find(
    lua: &Lua,
    switch: &Switch,
    values: &[Value],
    is_find: bool,
) -> Result<Vec<Value>, Failure> {
    let name = if is_find { "find" } else { "match" };
    let text = text_of(values.first(), (1, name))?;
    let pattern = text_of(values.get(1), (2, name))?;
    let start = start_of(values.get(2), text.len());
    let none = || Ok(vec![Value::Nil]);
    if start > text.len() {
        // As Lua 5.1, which searches from the end then.
        return none();
    }
    #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
    let bounds =
        |from: usize, to: usize| vec![Value::Number((from + 1) as f64), Value::Number(to as f64)];
    let is_plain = values
        .get(3)
        .is_some_and(|plain| !matches!(plain, Value::Nil | Value::Boolean(false)));
    let has_special = pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte));
    if is_find && (is_plain || !has_special) {
        let _ = switch.work(text.len() / 8);
        return match position(&text[start..], &pattern) {
            Some(found) => Ok(bounds(start + found, start + found + pattern.len())),
            None => none(),
        };
    }
    let is_anchored = pattern.first() == Some(&b'^');
    let mut matcher = Matcher::new(&text, &pattern);
    for at in start..=text.len() {
        if let Some(end) = matcher.match_at(at, usize::from(is_anchored))? {
            let _ = switch.work(matcher.steps());
            let mut values = if is_find { bounds(at, end) } else { Vec::new() };
            values.extend(captured(lua, &matcher, &text[at..end], !is_find)?);
            return Ok(values);
        }
        if is_anchored {
            break;
        }
    }
    let _ = switch.work(matcher.steps());
    none()
}

/// Where a text has another one.
fn position(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let Some((&first, rest)) = wanted.split_first() else {
        return Some(0);
    };
    let last = text.len().checked_sub(wanted.len())?;
    let mut from = 0;
    while from <= last {
        let found = text[from..=last].iter().position(|byte| *byte == first)?;
        from += found;
        if &text[from + 1..from + wanted.len()] == rest {
            return Some(from);
        }
        from += 1;
    }
    None
}

/// Matches of a text from left to right, of which `each` takes where one begins and ends; returns
/// what is behind the last one.
fn each_match(
    switch: &Switch,
    (text, pattern): (&[u8], &[u8]),
    most: usize,
    mut each: impl FnMut(&Matcher<'_>, usize, usize, usize) -> Result<(), Failure>,
) -> Result<usize, Failure> {
    let is_anchored = pattern.first() == Some(&b'^');
    let mut matcher = Matcher::new(text, pattern);
    let (mut at, mut behind, mut count) = (0, 0, 0);
    while count < most && at <= text.len() {
        match matcher.match_at(at, usize::from(is_anchored))? {
            Some(end) => {
                count += 1;
                each(&matcher, behind, at, end)?;
                behind = end;
                at = if end > at { end } else { at + 1 };
            }
            None => at += 1,
        }
        if is_anchored {
            break;
        }
    }
    let _ = switch.work(matcher.steps());
    Ok(behind)
}

fn count_of(value: Option<&Value>, len: usize) -> usize {
    match value {
        Some(Value::Number(number)) => {
            usize::try_from(crate::numbers::integer(*number)).unwrap_or(0)
        }
        Some(Value::Integer(number)) => usize::try_from(*number).unwrap_or(0),
        _ => len + 1,
    }
}

/// `gsub` by a text.
fn gsub(switch: &Switch, values: &[Value]) -> Result<(Vec<u8>, usize), Failure> {
    let text = text_of(values.first(), (1, "gsub"))?;
    let pattern = text_of(values.get(1), (2, "gsub"))?;
    let by = text_of(values.get(2), (3, "gsub"))?;
    let (mut out, mut count) = (Vec::new(), 0);
    let most = count_of(values.get(3), text.len());
    let behind = each_match(
        switch,
        (&text, &pattern),
        most,
        |matcher, behind, at, end| {
            count += 1;
            out.extend_from_slice(&text[behind..at]);
            replace((switch, &mut out), &by, matcher, &text[at..end])
        },
    )?;
    out.extend_from_slice(&text[behind..]);
    Ok((out, count))
}

/// Adds what a match is replaced by.
fn replace(
    (switch, out): (&Switch, &mut Vec<u8>),
    by: &[u8],
    matcher: &Matcher<'_>,
    whole: &[u8],
) -> Result<(), Failure> {
    let captures = matcher.captures()?;
    let mut place = 0;
    while let Some(&byte) = by.get(place) {
        place += 1;
        if !switch.may_make(out.len()) {
            return Err(Failure::Text("not enough memory".to_owned()));
        }
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let Some(&digit) = by.get(place) else {
            out.push(0);
            break;
        };
        place += 1;
        if !digit.is_ascii_digit() {
            out.push(digit);
            continue;
        }
        match usize::from(digit - b'0').checked_sub(1) {
            None => out.extend_from_slice(whole),
            Some(0) if captures.is_empty() => out.extend_from_slice(whole),
            Some(number) => match captures.get(number) {
                Some(Capture::Bytes(bytes)) => out.extend_from_slice(bytes),
                Some(Capture::Place(at)) => out.extend_from_slice(at.to_string().as_bytes()),
                None => return Err("invalid capture index".to_owned().into()),
            },
        }
    }
    Ok(())
}

/// All matches of `gsub` by what is no text: each a table of what is before it, of it, and of its
/// captures; and what is behind the last one.
fn matches(lua: &Lua, switch: &Switch, values: &[Value]) -> Result<(Table, LuaString), Failure> {
    let text = text_of(values.first(), (1, "gsub"))?;
    let pattern = text_of(values.get(1), (2, "gsub"))?;
    let all = lua.create_table()?;
    let most = count_of(values.get(2), text.len());
    let behind = each_match(
        switch,
        (&text, &pattern),
        most,
        |matcher, behind, at, end| {
            let one = lua.create_table()?;
            one.raw_set(1, lua.create_string(&text[behind..at])?)?;
            one.raw_set(2, lua.create_string(&text[at..end])?)?;
            let captures = captured(lua, matcher, &text[at..end], true)?;
            one.raw_set("n", captures.len() + 2)?;
            for (place, value) in captures.into_iter().enumerate() {
                one.raw_set(place + 3, value)?;
            }
            all.raw_push(one)?;
            Ok(())
        },
    )?;
    Ok((all, lua.create_string(&text[behind..])?))
}

/// The next match of `gmatch` from a place on: where to go on, and its captures.
fn next_match(lua: &Lua, switch: &Switch, values: &[Value]) -> Result<Vec<Value>, Failure> {
    let text = text_of(values.first(), (1, "gmatch"))?;
    let pattern = text_of(values.get(1), (2, "gmatch"))?;
    let start = start_of(values.get(2), text.len());
    let mut matcher = Matcher::new(&text, &pattern);
    for at in start..=text.len() {
        if let Some(end) = matcher.match_at(at, 0)? {
            let _ = switch.work(matcher.steps() + text.len() / 64);
            let next = if end > at { end } else { end + 1 };
            #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
            let mut values = vec![Value::Number((next + 1) as f64)];
            values.extend(captured(lua, &matcher, &text[at..end], true)?);
            return Ok(values);
        }
    }
    let _ = switch.work(matcher.steps());
    Ok(vec![Value::Nil])
}

fn multi(values: Vec<Value>) -> MultiValue {
    MultiValue::from_vec(values)
}

/// Functions about texts.
fn add_strings(lua: &Lua, host: &Table, switch: &Rc<Switch>) -> mlua::Result<()> {
    for (name, is_find) in [("find", true), ("match", false)] {
        let out = Rc::clone(switch);
        let function = lua.create_function(move |lua, values: Variadic<Value>| {
            checked(lua, find(lua, &out, &values, is_find).map(multi))
        })?;
        host.raw_set(name, function)?;
    }
    let out = Rc::clone(switch);
    let function = lua.create_function(move |lua, values: Variadic<Value>| {
        let result = gsub(&out, &values);
        let made = result.and_then(|(text, count)| Ok((lua.create_string(text)?, count)));
        checked(lua, made)
    })?;
    host.raw_set("gsub", function)?;
    let out = Rc::clone(switch);
    let function = lua.create_function(move |lua, values: Variadic<Value>| {
        checked(lua, matches(lua, &out, &values))
    })?;
    host.raw_set("matches", function)?;
    let out = Rc::clone(switch);
    let function = lua.create_function(move |lua, values: Variadic<Value>| {
        checked(lua, next_match(lua, &out, &values).map(multi))
    })?;
    host.raw_set("gmatch", function)?;
    let function = lua.create_function(|lua, values: Variadic<Value>| {
        let both = text_of(values.first(), (1, "gmatch"))
            .and_then(|text| Ok((text, text_of(values.get(1), (2, "gmatch"))?)));
        Ok(match both {
            Ok((text, pattern)) => (
                Value::String(lua.create_string(text)?),
                lua.create_string(pattern)?,
            ),
            Err(Failure::Text(text)) => (Value::Nil, lua.create_string(text)?),
            Err(Failure::Lua(error)) => return Err(error),
        })
    })?;
    host.raw_set("texts", function)?;
    let function = lua.create_function(|lua, value: Value| {
        lua.create_string(sha_of(&word(&value).unwrap_or_default()))
    })?;
    host.raw_set("sha1hex", function)?;
    let function = lua
        .create_function(|lua, text: LuaString| lua.create_string(error_text(&text.as_bytes())))?;
    host.raw_set("error_text", function)
}

/// The text of an error that a script makes: it begins with a code.
fn error_text(text: &[u8]) -> Vec<u8> {
    let is_end = |byte: &u8| *byte == b'\r' || *byte == b'\n';
    let end = text
        .iter()
        .rposition(|byte| !is_end(byte))
        .map_or(0, |last| last + 1);
    let text = &text[..end];
    let text = text.strip_prefix(b"-").unwrap_or(text);
    if text.contains(&b' ') {
        return text.to_vec();
    }
    [b"ERR ", text].concat()
}

/// Functions of JSON and MessagePack.
fn add_codecs(
    lua: &Lua,
    host: &Table,
    switch: &Rc<Switch>,
    settings: &Rc<SharedSettings>,
) -> mlua::Result<()> {
    let (shared, bounds) = (Rc::clone(settings), Rc::clone(switch));
    let encode = lua.create_function(move |lua, values: Variadic<Value>| {
        let Some(value) = values.first().filter(|_| values.len() == 1) else {
            let text = "bad argument #1 to 'encode' (expected 1 argument)".to_owned();
            return checked::<()>(lua, Err(Failure::Text(text)));
        };
        let limits = (shared.get(), bounds.bytes_max());
        let encoded = Encoder::encode(lua, limits, value);
        checked(lua, encoded.and_then(|json| Ok(lua.create_string(json)?)))
    })?;
    host.raw_set("json_encode", encode)?;
    let shared = Rc::clone(settings);
    let decode = lua.create_function(move |lua, values: Variadic<Value>| {
        let Some(value) = values.first().filter(|_| values.len() == 1) else {
            let text = "bad argument #1 to 'decode' (expected 1 argument)".to_owned();
            return checked::<()>(lua, Err(Failure::Text(text)));
        };
        let text = text_of(Some(value), (1, "decode"));
        checked(
            lua,
            text.and_then(|text| Decoder::decode(lua, shared.get(), &text)),
        )
    })?;
    host.raw_set("json_decode", decode)?;
    let shared = Rc::clone(settings);
    let setting = lua.create_function(move |lua, (name, values): (String, Variadic<Value>)| {
        let set = set_json(&shared, &name, &values);
        checked(lua, set.map(multi))
    })?;
    host.raw_set("json_setting", setting)?;
    let bounds = Rc::clone(switch);
    let function = lua.create_function(move |lua, values: Variadic<Value>| {
        let mut out = Vec::new();
        if values.is_empty() {
            let text = "bad argument #0 to 'pack' (MessagePack pack needs input.)".to_owned();
            return checked::<()>(lua, Err(Failure::Text(text)));
        }
        let most = bounds.bytes_max();
        let mut all = values.iter();
        let packed = all.try_for_each(|value| pack((&mut out, most), lua, value, 0));
        checked(lua, packed.and_then(|()| Ok(lua.create_string(&out)?)))
    })?;
    host.raw_set("message_pack", function)?;
    for (name, kind) in [
        ("message_unpack", 0),
        ("message_unpack_one", 1),
        ("message_unpack_limit", 2),
    ] {
        let function = lua.create_function(move |lua, values: Variadic<Value>| {
            checked(lua, unpacked(lua, &values, kind).map(multi))
        })?;
        host.raw_set(name, function)?;
    }
    Ok(())
}

/// Unpacks all values, one (1), or as many as are wanted (2), which return where they end.
fn unpacked(lua: &Lua, values: &[Value], kind: usize) -> Result<Vec<Value>, Failure> {
    let data = text_of(values.first(), (1, "unpack"))?;
    let integer_at = |place: usize, default: i64| match values.get(place) {
        Some(Value::Number(number)) => crate::numbers::integer(*number),
        Some(Value::Integer(number)) => *number,
        _ => default,
    };
    let (limit, offset) = match kind {
        0 => (0, 0),
        1 => (1, integer_at(1, 0)),
        _ => (integer_at(1, 0), integer_at(2, 0)),
    };
    if limit < 0 || offset < 0 {
        let text = format!(
            "Invalid request to unpack with offset of {offset} and limit of {}.",
            data.len()
        );
        return Err(text.into());
    }
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let Some(rest) = data.get(from..) else {
        let text = format!(
            "Start offset {offset} greater than input length {}.",
            data.len()
        );
        return Err(text.into());
    };
    let takes_all = limit == 0;
    let limit = usize::try_from(limit).unwrap_or(0);
    let mut unpacker = Unpacker { lua, bytes: rest };
    let mut read = Vec::new();
    while !unpacker.bytes.is_empty() && (takes_all || read.len() < limit) {
        read.push(unpacker.value(0)?);
        if read.len() > 7000 {
            return Err("too many values to unpack".to_owned().into());
        }
    }
    if !takes_all {
        let end = data.len() - unpacker.bytes.len();
        #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
        let end = if unpacker.bytes.is_empty() {
            -1.0
        } else {
            end as f64
        };
        read.insert(0, Value::Number(end));
    }
    Ok(read)
}

/// Changes a setting of JSON, if there are values; returns what it is.
fn set_json(shared: &SharedSettings, name: &str, values: &[Value]) -> Result<Vec<Value>, Failure> {
    let mut settings = shared.get();
    let number = |place: usize, least: i64, most: i64| match values.get(place) {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Integer(number)) if (least..=most).contains(number) => {
            Ok(usize::try_from(*number).ok())
        }
        Some(Value::Number(number))
            if (least..=most).contains(&crate::numbers::integer(*number)) =>
        {
            Ok(usize::try_from(crate::numbers::integer(*number)).ok())
        }
        _ => {
            let text = format!("expected integer between {least} and {most}");
            Err(Failure::Text(format!(
                "bad argument #{} to '{name}' ({text})",
                place + 1
            )))
        }
    };
    let flag = |place: usize| match values.get(place) {
        Some(Value::Boolean(value)) => Some(*value),
        Some(Value::String(text)) => Some(text.to_string_lossy() == "on"),
        _ => None,
    };
    let depth = crate::json::DEPTH_MAX;
    let most = i64::from(i32::MAX);
    #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
    let shown = |number: usize| Value::Number(number as f64);
    let shown_values = match name {
        "encode_max_depth" => {
            settings.encode_depth = number(0, 1, most)?
                .unwrap_or(settings.encode_depth)
                .min(depth);
            vec![shown(settings.encode_depth)]
        }
        "decode_max_depth" => {
            settings.decode_depth = number(0, 1, most)?
                .unwrap_or(settings.decode_depth)
                .min(depth);
            vec![shown(settings.decode_depth)]
        }
        "encode_sparse_array" => {
            let (converts, ratio, safe) = settings.sparse;
            settings.sparse = (
                flag(0).unwrap_or(converts),
                number(1, 0, most)?.unwrap_or(ratio),
                number(2, 0, most)?.unwrap_or(safe),
            );
            let (converts, ratio, safe) = settings.sparse;
            vec![Value::Boolean(converts), shown(ratio), shown(safe)]
        }
        "encode_number_precision" => {
            settings.precision = number(0, 1, 16)?.unwrap_or(settings.precision);
            vec![shown(settings.precision)]
        }
        "encode_invalid_numbers" => {
            settings.encodes_invalid = flag(0).unwrap_or(settings.encodes_invalid);
            vec![Value::Boolean(settings.encodes_invalid)]
        }
        "decode_invalid_numbers" => {
            settings.decodes_invalid = flag(0).unwrap_or(settings.decodes_invalid);
            vec![Value::Boolean(settings.decodes_invalid)]
        }
        _ => vec![Value::Boolean(true)],
    };
    shared.set(settings);
    Ok(shown_values)
}

/// True of a place before the first one.
fn is_before_start(place: Option<&Value>) -> bool {
    match place {
        Some(Value::Number(place)) => *place < 1.0,
        Some(Value::Integer(place)) => *place < 1,
        _ => false,
    }
}

/// Functions of `struct` and `bit`.
fn add_structs(lua: &Lua, host: &Table, switch: &Rc<Switch>) -> mlua::Result<()> {
    let bounds = Rc::clone(switch);
    let function = lua.create_function(move |lua, values: Variadic<Value>| {
        let packed = text_of(values.first(), (1, "pack")).and_then(|format| {
            let values = values.get(1..).unwrap_or_default();
            structs::pack(&format, values, bounds.bytes_max())
        });
        checked(lua, packed.and_then(|bytes| Ok(lua.create_string(bytes)?)))
    })?;
    host.raw_set("struct_pack", function)?;
    let function = lua.create_function(|lua, values: Variadic<Value>| {
        let unpacked = text_of(values.first(), (1, "unpack")).and_then(|format| {
            let data = text_of(values.get(1), (2, "unpack"))?;
            if is_before_start(values.get(2)) {
                let text = "bad argument #3 to 'unpack' (offset must be 1 or greater)".to_owned();
                return Err(Failure::Text(text));
            }
            structs::unpack(lua, &format, &data, start_of(values.get(2), data.len()))
        });
        checked(lua, unpacked.map(multi))
    })?;
    host.raw_set("struct_unpack", function)?;
    let function = lua.create_function(|lua, values: Variadic<Value>| {
        checked(
            lua,
            text_of(values.first(), (1, "size")).and_then(|format| structs::size(&format)),
        )
    })?;
    host.raw_set("struct_size", function)?;
    let function = lua.create_function(|lua, (name, values): (String, Variadic<Value>)| {
        match bits::run(&name, &values) {
            Ok(Ok(number)) => checked(lua, Ok(number)),
            Ok(Err(text)) => checked(lua, Ok(text)),
            Err(text) => checked::<()>(lua, Err(Failure::Text(text))),
        }
    })?;
    host.raw_set("bit", function)
}
