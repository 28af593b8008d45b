//! Scripts in an interpreter whose commands a test answers, and hostile ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use farcore_script::{Event, Interpreter, Job, Script, Step, Words};

/// Slices that a hostile script may have.
const SLICES_MAX: usize = 200;

fn words(all: &[&str]) -> Words {
    let mut words = Words::default();
    all.iter().for_each(|word| words.push(word.as_bytes()));
    words
}

fn job(text: &str) -> Job {
    Job {
        script: Arc::new(Script::new(text.as_bytes()).unwrap()),
        words: words(&["key", "first", "2"]),
        keys: 1,
        buffer: Vec::new(),
        is_resp3: false,
        memory_bytes: 4 << 20,
        slice: 100_000,
        only_compiles: false,
    }
}

/// Runs a script whose commands reply what they are called with, and ends it after a while.
fn run_in(interpreter: &mut Interpreter, text: &str) -> String {
    let mut event = interpreter.resume(Step::Run(Box::new(job(text))));
    let mut slices = 0;
    loop {
        event = match event {
            Event::Call { command, .. } if command.ends_with(b"$4\r\nfail\r\n") => {
                interpreter.resume(Step::Reply(b"-WRONG kind\r\n".to_vec()))
            }
            // A command is written as a list of texts is.
            Event::Call { command, .. } => interpreter.resume(Step::Reply(command)),
            Event::Slice if slices < SLICES_MAX => {
                slices += 1;
                interpreter.resume(Step::GoOn)
            }
            Event::Slice => interpreter.resume(Step::End("ERR too long".to_owned())),
            Event::Log(..) => interpreter.resume(Step::GoOn),
            Event::Ended { reply, .. } => return String::from_utf8_lossy(&reply).into_owned(),
            Event::Idle => panic!("it runs"),
        };
    }
}

fn run(text: &str) -> String {
    run_in(&mut Interpreter::new().unwrap(), text)
}

#[test]
fn values_become_replies() {
    for (text, reply) in [
        ("return 1", ":1\r\n"),
        ("return 3.9", ":3\r\n"),
        ("return 'a'", "$1\r\na\r\n"),
        ("return true", ":1\r\n"),
        ("return false", "$-1\r\n"),
        ("return nil", "$-1\r\n"),
        (
            "return {1,'x',{2},nil,5}",
            "*3\r\n:1\r\n$1\r\nx\r\n*1\r\n:2\r\n",
        ),
        ("return {ok='fine'}", "+fine\r\n"),
        ("return {err='My mistake'}", "-My mistake\r\n"),
        ("return redis.error_reply('mistake')", "-ERR mistake\r\n"),
        ("return redis.status_reply('fine')", "+fine\r\n"),
        (
            "return {KEYS[1],ARGV[1],#ARGV}",
            "*3\r\n$3\r\nkey\r\n$5\r\nfirst\r\n:2\r\n",
        ),
        ("return {map={a=1}}", "*2\r\n$1\r\na\r\n:1\r\n"),
        (
            "return redis.sha1hex('a')",
            "$40\r\n86f7e437faa5a7fce15d1ddcb9eaeaea377667b8\r\n",
        ),
    ] {
        assert_eq!(run(text), reply, "{text}");
    }
}

#[test]
fn commands_are_called_wherever_the_script_is() {
    for text in [
        "return redis.call('a', 1, 2.5)",
        "local ok, value = pcall(redis.call, 'a', 1, 2.5) return value",
        "local _, value = xpcall(function() return redis.call('a', 1, 2.5) end, print_error or error) return value",
        "return coroutine.wrap(function() return redis.call('a', 1, 2.5) end)()",
        "local t = {2, 1} local r table.sort(t, function(x, y) r = redis.call('a', 1, 2.5) return x < y end) return r",
        "local r string.gsub('x', 'x', function() r = redis.call('a', 1, 2.5) end) return r",
        "for r in function() return redis.call('a', 1, 2.5) end do return r end",
        "return setmetatable({}, {__index = function() return redis.call('a', 1, 2.5) end}).x",
    ] {
        let text = text.replace("print_error or ", "");
        assert_eq!(
            run(&text),
            "*3\r\n$1\r\na\r\n$1\r\n1\r\n$3\r\n2.5\r\n",
            "{text}"
        );
    }
}

/// Scripts and the errors that their clients read.
const ERRORS: &[(&str, &str)] = &[
    (
        "return x",
        "ERR user_script:1: Script attempted to access nonexistent global variable 'x' script: SHA, on @user_script:1.",
    ),
    (
        "x = 1",
        "ERR user_script:1: Attempt to modify a readonly table script: SHA, on @user_script:1.",
    ),
    (
        "\nerror('foo')",
        "ERR user_script:2: foo script: SHA, on @user_script:2.",
    ),
    (
        "error({err='X foo'})",
        "X foo script: SHA, on @user_script:1.",
    ),
    (
        "return redis.call('fail')",
        "WRONG kind script: SHA, on @user_script:1.",
    ),
    (
        "redis.call('fail')",
        "WRONG kind script: SHA, on @user_script:1.",
    ),
    (
        "redis.call()",
        "ERR Please specify at least one argument for this redis lib call script: SHA, on @user_script:1.",
    ),
    (
        "redis.call({})",
        "ERR Lua redis lib command arguments must be strings or integers script: SHA, on @user_script:1.",
    ),
    ("return redis.pcall('fail')", "WRONG kind"),
    (
        "local ok, e = pcall(redis.call, 'fail') return {err=e}",
        "WRONG kind",
    ),
    (
        "foo bar",
        "ERR Error compiling script (new function): user_script:1: '=' expected near 'bar'",
    ),
    (
        "string.x = 1",
        "ERR user_script:1: Attempt to modify a readonly table script: SHA, on @user_script:1.",
    ),
    (
        "rawset(_G, 'x', 1)",
        "ERR Attempt to modify a readonly table script: SHA, on @user_script:1.",
    ),
    (
        "setmetatable(_G, {})",
        "ERR Attempt to modify a readonly table script: SHA, on @user_script:1.",
    ),
    (
        "cjson.decode('{')",
        "ERR user_script:1: Expected object key string but found T_END at character 2 script: SHA, on @user_script:1.",
    ),
    (
        "return string.find('a', '[a')",
        "ERR user_script:1: malformed pattern (missing ']') script: SHA, on @user_script:1.",
    ),
    (
        "redis.sha1hex()",
        "ERR wrong number of arguments script: SHA, on @user_script:1.",
    ),
    (
        "redis.log(1)",
        "ERR redis.log() requires two arguments or more. script: SHA, on @user_script:1.",
    ),
    (
        "redis.setresp(4)",
        "ERR RESP version must be 2 or 3. script: SHA, on @user_script:1.",
    ),
];

#[test]
fn errors_are_those_of_redis() {
    for &(text, error) in ERRORS {
        let sha = farcore_script::sha_of(text.as_bytes());
        assert_eq!(
            run(text),
            format!("-{}\r\n", error.replace("SHA", &sha)),
            "{text}"
        );
    }
}

#[test]
fn nothing_of_a_script_is_seen_by_the_next() {
    let interpreter = &mut Interpreter::new().unwrap();
    for text in [
        "return os.execute",
        "return io",
        "return debug",
        "return require",
        "return loadfile",
        "return dofile",
        "return newproxy",
        "return getfenv",
        "return setfenv",
        "return print",
        "return string.dump and 1 or x",
    ] {
        let reply = run_in(interpreter, text);
        assert!(
            reply.starts_with("-ERR") || reply == "$-1\r\n",
            "{text}: {reply}"
        );
    }
    for text in [
        "local f, s = pairs(string) if s then s.find = nil end return 1",
        "cjson.encode_max_depth(1) collectgarbage('stop') math.randomseed(7) return 1",
        "redis.setresp(3) return 1",
        "KEYS[1] = 'x' ARGV = nil return 1",
        "getmetatable('').__index = nil return 1",
        "coroutine.wrap(function() coroutine.yield() end)() return 1",
    ] {
        run_in(interpreter, text);
        let check = "return {KEYS[1], cjson.encode({{{1}}}), ('a'):find('a')}";
        let reply = run_in(interpreter, check);
        assert_eq!(reply, run(check), "{text}");
    }
    assert!(interpreter.is_reusable());
    run_in(interpreter, "pcall(table.insert, string, 1) return 1");
    assert!(!interpreter.is_reusable());
}

/// Scripts that want too much, and what their replies say.
const HOSTILE: &[(&str, &str)] = &[
    ("while true do end", "ERR too long"),
    (
        "while true do pcall(function() while true do end end) end",
        "ERR too long",
    ),
    (
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "ERR too long",
    ),
    (
        "coroutine.wrap(function() while true do pcall(function() while true do end end) end end)()",
        "ERR too long",
    ),
    ("while true do redis.pcall('a') end", "a"),
    (
        "local t = {} while true do t[#t + 1] = {} end",
        "bytes of memory",
    ),
    (
        "local s = 'x' while true do s = s .. s end",
        "bytes of memory",
    ),
    ("return string.rep('x', 1e9)", "bytes of memory"),
    ("while true do pcall(string.rep, 'x', 1e9) end", "ERR"),
    (
        "local function f() return f() + 1 end return f()",
        "stack overflow",
    ),
    (
        "local function f() return pcall(f) end f() return {err='ERR ended'}",
        "ERR",
    ),
    (
        "local function f() return coroutine.wrap(f)() end return f()",
        "stack overflow",
    ),
    (
        "local function f() return string.gsub('x', 'x', f) end return f()",
        "stack overflow",
    ),
    (
        "local function f(x) return cjson.decode(string.rep('[', 100000)) end return f()",
        "too many nested",
    ),
    (
        "local t = {} t[1] = t return cjson.encode(t)",
        "excessive nesting",
    ),
    ("local t = {} t[1] = t return t", "*1"),
    (
        "local t = {} for i = 1, 1000 do t = {t} end return #cmsgpack.pack(t)",
        ":",
    ),
    ("return cmsgpack.unpack(string.rep('\\145', 100000))", "ERR"),
    (
        "return cmsgpack.unpack('\\221\\255\\255\\255\\255')",
        "Missing bytes",
    ),
    (
        "return string.find(string.rep('a', 100000), string.rep('.-', 100000))",
        "ERR",
    ),
    (
        "return string.find(string.rep('a', 50), string.rep('a*', 50) .. 'b')",
        "too many steps",
    ),
    ("return string.rep('(', 1000)", "$1000"),
    ("return loadstring(string.rep('(', 100000))", "$-1"),
    ("return loadstring('\\27Lua')", "$-1"),
    ("return struct.pack('i99', 1)", "larger than limit"),
    ("return struct.pack('c99999999', 'x')", "ERR"),
    ("return struct.unpack('c0', 'x')", "ERR"),
    (
        "return tostring(setmetatable({}, {__tostring = function() error('x') end}))",
        "ERR",
    ),
    (
        "error(setmetatable({}, {__tostring = function() while true do end end}))",
        "ERR",
    ),
    ("error()", "ERR nil"),
    ("return table.concat({}, 'x', 1, 1e8)", "ERR"),
    // A text that is named often is one in the state of Lua alone.
    (
        "local s, t = string.rep('x', 1e5), {} for i = 1, 7000 do t[i] = s end \
         return redis.call(unpack(t))",
        "the command is too long",
    ),
    (
        "local s, t = string.rep('x', 1e5), {} for i = 1, 7000 do t[i] = s end return t",
        "bytes of memory",
    ),
    (
        "local s, t = string.rep('x', 1e5), {} for i = 1, 7000 do t[i] = {err = s} end return t",
        "bytes of memory",
    ),
    (
        "local s, t = string.rep('x', 1e6), {} for i = 1, 500 do t = {s, s, t} end return t",
        "bytes of memory",
    ),
    (
        "local s, t = string.rep('x', 1e5), {} for i = 1, 7000 do t[i] = s end \
         return cjson.encode(t)",
        "bytes of memory",
    ),
    (
        "local s, t = string.rep('x', 1e5), {} for i = 1, 7000 do t[i] = s end \
         return cmsgpack.pack(t)",
        "bytes of memory",
    ),
    (
        "local s, t = string.rep('x', 1e5), {} for i = 1, 7000 do t[i] = s end \
         return table.concat(t)",
        "bytes of memory",
    ),
    (
        "return #string.gsub(string.rep('x', 1e5), '.+', string.rep('%0', 1e5))",
        "bytes of memory",
    ),
    ("return unpack({}, 1, 1e8)", "too many results"),
    ("return unpack({}, -2, 2147483647)", "too many results"),
    ("return unpack({}, -2147483648, -2)", "too many results"),
    ("return unpack({}, 0/0, 2147483647)", "too many results"),
    ("return #string.rep('', 2147483647)", ":0"),
    ("return table.insert({}, -2147483647, 1)", "out of bounds"),
    ("return table.insert({}, 2147483648, 1)", "out of bounds"),
    (
        "local t = {} for i = 1, 30000 do t[i] = (i * 7919) % 30011 end \
         while true do table.sort(t) end",
        "ERR too long",
    ),
    (
        "local t = {} for i = 1, 20000 do t[i] = {} end while true do collectgarbage() end",
        "ERR too long",
    ),
];

#[test]
fn functions_with_bounds_are_those_of_lua() {
    for (text, reply) in [
        ("return {unpack({1, 2, 3})}", "*3\r\n:1\r\n:2\r\n:3\r\n"),
        ("return {unpack({1, 2, 3}, 2, 3)}", "*2\r\n:2\r\n:3\r\n"),
        ("return select('#', unpack({1}, -1, 5))", ":7\r\n"),
        (
            "local t = {1, 3} table.insert(t, 2, 2) return t",
            "*3\r\n:1\r\n:2\r\n:3\r\n",
        ),
        ("local t = {} table.insert(t, 9) return t", "*1\r\n:9\r\n"),
        (
            "local t = {3, 1, 2} table.sort(t) return t",
            "*3\r\n:1\r\n:2\r\n:3\r\n",
        ),
        (
            "local t = {} for i = 1, 3000 do t[i] = (i * 7) % 3001 end table.sort(t) \
             for i = 1, 3000 do if t[i] ~= i then return i end end return 'sorted'",
            "$6\r\nsorted\r\n",
        ),
        (
            "local a = {} for i = 1, 7999 do a[i] = i end return select('#', unpack(a))",
            ":7999\r\n",
        ),
        ("return collectgarbage()", ":0\r\n"),
        (
            "return setmetatable({}, {__index = function() return redis.call('x') end})",
            "*0\r\n",
        ),
        ("return _G", "*0\r\n"),
    ] {
        assert_eq!(run(text), reply, "{text}");
    }
    let text = "return unpack(1)";
    let sha = farcore_script::sha_of(text.as_bytes());
    let error = format!(
        "-ERR user_script:1: bad argument #1 to 'unpack' (table expected, got number) script: \
         {sha}, on @user_script:1.\r\n"
    );
    assert_eq!(run(text), error);
}

#[test]
fn hostile_scripts_end() {
    let interpreter = &mut Interpreter::new().unwrap();
    for &(text, ends) in HOSTILE {
        if !interpreter.is_reusable() {
            *interpreter = Interpreter::new().unwrap();
        }
        let mut slices = 0;
        let reply = if text.contains("redis.pcall('a')") {
            // Each command is a chance to end it.
            let mut event = interpreter.resume(Step::Run(Box::new(job(text))));
            while !matches!(event, Event::Ended { .. }) {
                slices += 1;
                let step = match event {
                    Event::Call { .. } if slices < 100 => Step::Reply(b":1\r\n".to_vec()),
                    Event::Slice if slices < 100 => Step::GoOn,
                    _ => Step::End("ERR a".to_owned()),
                };
                event = interpreter.resume(step);
            }
            "a".to_owned()
        } else {
            run_in(interpreter, text)
        };
        assert!(
            reply.contains(ends),
            "{text}: {}",
            &reply[..reply.len().min(300)]
        );
        assert!(interpreter.used_bytes() < 8 << 20);
    }
}

#[test]
fn one_that_is_dropped_amid_a_script_ends() {
    for text in [
        "while true do end",
        "redis.call('a')",
        "while true do pcall(redis.call, 'a') end",
        "return 1",
    ] {
        let mut interpreter = Interpreter::new().unwrap();
        interpreter.resume(Step::Run(Box::new(job(text))));
        drop(interpreter);
    }
    drop(Interpreter::new().unwrap());
}

#[test]
fn one_that_was_ended_leaves_nothing_to_the_next() {
    let mut interpreter = Interpreter::new().unwrap();
    let deep = "local function f() return coroutine.wrap(f)() end return f()";
    let within =
        "coroutine.wrap(function() coroutine.wrap(function() while true do end end)() end)()";
    let fits =
        "return coroutine.wrap(function() return coroutine.wrap(function() return 1 end)() end)()";
    for _ in 0..20 {
        for text in [deep, within] {
            assert!(run_in(&mut interpreter, text).starts_with("-ERR"));
            assert_eq!(run_in(&mut interpreter, fits), ":1\r\n");
        }
    }
}
