//! An interpreter: a state of Lua on a stack of its own, which runs one script after the other.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaString, Value};

use crate::event::{Event, Job, Step};
use crate::library::{self, Library};
use crate::replies;
use crate::script::{SCRIPT_BYTES_MAX, Script};
use crate::switch::Switch;

/// Bytes of a stack; the system gives memory for what of it is used. Lua nests 200 calls of its
/// interpreter, and coroutines of a script nest a few times as deep (`prelude.lua`).
const STACK_BYTES: usize = 16 << 20;
/// Bytes of a state from which it is not kept for another script.
const KEPT_BYTES_MAX: usize = 512 << 10;
/// Compiled scripts of a state.
const COMPILED_MAX: usize = 64;
/// Name of scripts in texts of errors.
const CHUNK: &str = "@user_script";

/// An interpreter of scripts.
pub struct Interpreter {
    stack: Coroutine<Step, Event, ()>,
    lua: Lua,
    switch: Rc<Switch>,
    is_idle: bool,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interpreter")
            .field("is_idle", &self.is_idle)
            .finish_non_exhaustive()
    }
}

impl Interpreter {
    /// An idle interpreter.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new() -> io::Result<Self> {
        let switch = Rc::new(Switch::default());
        let lua = library::state().map_err(io::Error::other)?;
        let library =
            Library::open(&lua, &switch).map_err(|error| io::Error::other(error.to_string()))?;
        let stack = DefaultStack::new(STACK_BYTES)?;
        let (state, inner) = (lua.clone(), Rc::clone(&switch));
        let body = move |out: &Yielder<Step, Event>, step: Step| {
            inner.enter(out);
            serve(&state, &library, &inner, step);
            inner.leave();
        };
        Ok(Self {
            stack: Coroutine::with_stack(stack, body),
            lua,
            switch,
            is_idle: true,
        })
    }

    /// Goes on with a step until the next event.
    pub fn resume(&mut self, step: Step) -> Event {
        if self.stack.done() {
            return Event::Idle;
        }
        match self.stack.resume(step) {
            CoroutineResult::Yield(event) => {
                self.is_idle = matches!(event, Event::Idle | Event::Ended { .. });
                event
            }
            CoroutineResult::Return(()) => {
                self.is_idle = true;
                Event::Idle
            }
        }
    }

    /// Takes the job that has ended: its buffers may be used again.
    pub fn take_job(&mut self) -> Option<Box<Job>> {
        self.switch.ended_job.take()
    }

    /// Bytes that its state of Lua takes.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// True if it may run another script: what the last one has left is little.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        self.is_idle
            && self.switch.is_clean.get()
            && !self.stack.done()
            && self.used_bytes() <= KEPT_BYTES_MAX
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        // A stack that is in the middle of C code cannot be unwound: the script ends first.
        while !self.is_idle && !self.stack.done() {
            self.resume(Step::End("ERR the server ends the script".to_owned()));
        }
        // An idle one ends.
        while self.stack.started() && !self.stack.done() {
            self.resume(Step::GoOn);
        }
    }
}

/// Runs scripts as they come; ends with any other step.
fn serve(lua: &Lua, library: &Library, switch: &Switch, mut step: Step) {
    let mut compiled = Compiled::default();
    while let Step::Run(mut job) = step {
        if job.buffer.capacity() > 0 {
            switch.reply.replace(std::mem::take(&mut job.buffer));
        }
        let event = run(lua, library, switch, &mut compiled, &job);
        switch.ended_job.replace(Some(job));
        if switch.is_suspect.get() {
            // Else it would show the next script what this one did.
            switch.is_clean.set(library.is_clean());
        }
        // The look itself fails in one that was ended.
        debug_assert!(
            !switch.is_clean.get() || switch.is_ended() || library.is_clean(),
            "nothing else changes what others see"
        );
        step = switch.suspend(event);
    }
}

/// Scripts after which garbage is collected anew: after each one that would take much of its time.
const RUNS_A_COLLECTION: u64 = 16;

/// The functions of scripts that were compiled.
#[derive(Default)]
struct Compiled {
    by_sha: HashMap<String, Function>,
    /// The last one: most scripts are followed by themselves.
    last: Option<(Arc<Script>, Function)>,
    /// Scripts that were run.
    runs: u64,
}

impl Compiled {
    /// The function of a script, which is compiled unless it was.
    ///
    /// # Errors
    /// It is no Lua: the text of the error.
    fn function(
        &mut self,
        lua: &Lua,
        library: &Library,
        script: &Arc<Script>,
    ) -> Result<&Function, String> {
        if !(self.last.as_ref()).is_some_and(|(last, _)| Arc::ptr_eq(last, script)) {
            let function = if let Some(function) = self.by_sha.get(&script.sha) {
                function.clone()
            } else {
                let function = compile(lua, library, script.code())?;
                if self.by_sha.len() >= COMPILED_MAX {
                    self.by_sha.clear();
                }
                self.by_sha.insert(script.sha.clone(), function.clone());
                function
            };
            self.last = Some((Arc::clone(script), function));
        }
        let last = self.last.as_ref().map(|(_, function)| function);
        last.ok_or_else(String::new)
    }
}

/// Runs a script.
fn run(lua: &Lua, library: &Library, switch: &Switch, compiled: &mut Compiled, job: &Job) -> Event {
    switch.begin(job.slice, job.memory_bytes);
    let limit = job.memory_bytes.max(lua.used_memory() + (64 << 10));
    // Those of the interpreter itself know a limit.
    let _ = lua.set_memory_limit(limit);
    // So memory stays near what is needed, also after a script that has stopped the collector.
    compiled.runs += 1;
    if compiled.runs.is_multiple_of(RUNS_A_COLLECTION) {
        lua.gc_restart();
    }
    let function = match compiled.function(lua, library, &job.script) {
        Ok(function) => function,
        Err(text) => {
            let text = format!("ERR Error compiling script (new function): {text}");
            return Event::Ended {
                reply: replies::error(&text),
                is_compiled: false,
                is_counted: false,
            };
        }
    };
    if job.only_compiles {
        return Event::Ended {
            reply: replies::bulk(job.script.sha.as_bytes()),
            is_compiled: true,
            is_counted: false,
        };
    }
    let (reply, is_counted) = match library.call(switch, function, job) {
        Ok(replied) => replied,
        Err(error) => {
            let reason = switch.ended();
            let reason = reason.unwrap_or_else(|| match error {
                mlua::Error::MemoryError(_) => out_of_memory(job.memory_bytes),
                error => format!("ERR {error}"),
            });
            let text = format!("{reason} script: {}", job.script.sha);
            (replies::error(&text), false)
        }
    };
    // A limit would fail what ends the state.
    let _ = lua.set_memory_limit(0);
    Event::Ended {
        reply,
        is_compiled: true,
        is_counted,
    }
}

/// Why a script ends that takes too much memory.
pub(crate) fn out_of_memory(bytes: usize) -> String {
    format!("ERR The script takes more than {bytes} bytes of memory, see --client-memory.")
}

/// Compiles text; the text of an error if it is no Lua.
fn compile(lua: &Lua, library: &Library, code: &[u8]) -> Result<Function, String> {
    let chunk = lua.load(code).set_name(CHUNK).set_mode(ChunkMode::Text);
    let chunk = chunk.set_environment(library.globals());
    chunk.into_function().map_err(|error| match error {
        mlua::Error::SyntaxError { message, .. } => message,
        error => error.to_string(),
    })
}

/// Compiles text that a script has made, for `loadstring`.
pub(crate) fn compile_text(
    lua: &Lua,
    code: &LuaString,
    name: Option<&LuaString>,
) -> mlua::Result<Result<Value, String>> {
    let bytes = code.as_bytes();
    if bytes.len() > SCRIPT_BYTES_MAX {
        return Ok(Err(format!(
            "a script takes at most {SCRIPT_BYTES_MAX} bytes"
        )));
    }
    let name = match name {
        Some(name) => name.to_string_lossy(),
        None => code.to_string_lossy(),
    };
    let chunk = lua.load(&bytes[..]).set_name(name.replace('\0', "?"));
    match chunk.set_mode(ChunkMode::Text).into_function() {
        Ok(function) => Ok(Ok(Value::Function(function))),
        Err(mlua::Error::SyntaxError { message, .. }) => Ok(Err(message)),
        Err(error) => Err(error),
    }
}
