//! Scripts that a core knows, and its interpreters.
//!
//! Each script has an owner: a core that its digest chooses. It keeps the script until `SCRIPT
//! FLUSH`; others ask it for those that they do not know, and keep copies.
//!
//! - I1: a core that has flushed its scripts takes no copy that it has requested before.

use std::collections::HashMap;
use std::sync::Arc;

use crate::exec::script_run::Called;
use crate::limits::SPARE_BYTES_MAX;
use farcore_script::{Event, Interpreter, Job, Script, Step, Words};

/// Bytes of the scripts that a core owns, and of its copies, at most.
const OWNED_BYTES_MAX: usize = 4 << 20;
const COPIED_BYTES_MAX: usize = 1 << 20;
/// Digits of a digest.
const SHA_DIGITS: usize = 40;
/// Interpreters without a script that are kept.
const IDLE_MAX: usize = 4;
/// Instructions of a slice.
pub(crate) const SLICE_INSTRUCTIONS: usize = 50_000;

/// The place of the core that owns a script, among some.
pub(crate) fn owner_of(sha: &str, cores: usize) -> usize {
    let digits = sha.get(..4).unwrap_or_default();
    usize::from_str_radix(digits, 16).unwrap_or(0) % cores.max(1)
}

/// A digest as it is kept; `None` of what is none.
pub(crate) fn sha_of_words(word: &[u8]) -> Option<String> {
    let is_sha = word.len() == SHA_DIGITS && word.iter().all(u8::is_ascii_hexdigit);
    let sha = is_sha.then(|| String::from_utf8_lossy(word).to_ascii_lowercase())?;
    Some(sha)
}

/// Scripts by their digests.
#[derive(Debug, Default)]
struct Known {
    all: HashMap<String, Arc<Script>>,
    bytes: usize,
}

impl Known {
    fn insert(&mut self, script: &Arc<Script>, bytes_max: usize) -> bool {
        let bytes = script.held_bytes();
        if self.all.contains_key(&script.sha) {
            return true;
        }
        if self.bytes + bytes > bytes_max {
            return false;
        }
        self.bytes += bytes;
        self.all.insert(script.sha.clone(), Arc::clone(script));
        true
    }
}

/// What a core has of scripts.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    owned: Known,
    copied: Known,
    idle: Vec<Interpreter>,
    /// What the next command of a script is kept in.
    called: Option<Box<Called>>,
    /// Connections whose scripts run.
    pub(crate) running: Vec<usize>,
    /// Times that scripts were forgotten.
    pub(crate) generation: u64,
}

impl Scripts {
    /// A script that the core knows.
    pub(crate) fn find(&self, sha: &str) -> Option<&Arc<Script>> {
        self.owned.all.get(sha).or_else(|| self.copied.all.get(sha))
    }

    /// Keeps a script as its owner; false if there is no room.
    pub(crate) fn own(&mut self, script: &Arc<Script>) -> bool {
        self.owned.insert(script, OWNED_BYTES_MAX)
    }

    /// Keeps a copy of a script.
    pub(crate) fn copy(&mut self, script: &Arc<Script>) {
        if !self.copied.insert(script, COPIED_BYTES_MAX) {
            // Their owners have them.
            self.copied = Known::default();
            self.copied.insert(script, COPIED_BYTES_MAX);
        }
    }

    /// Forgets all scripts.
    pub(crate) fn forget(&mut self) {
        self.owned = Known::default();
        self.copied = Known::default();
        self.idle = Vec::new();
        self.generation += 1;
    }

    /// Scripts that the core owns, and bytes of all.
    pub(crate) fn figures(&self) -> (usize, usize) {
        (self.owned.all.len(), self.owned.bytes + self.copied.bytes)
    }

    /// Bytes of interpreters that run nothing.
    pub(crate) fn idle_bytes(&self) -> usize {
        self.idle.iter().map(Interpreter::used_bytes).sum()
    }

    /// An interpreter.
    ///
    /// # Errors
    /// There is no memory for one: the text of the error.
    pub(crate) fn interpreter(&mut self) -> Result<Interpreter, String> {
        match self.idle.pop() {
            Some(interpreter) => Ok(interpreter),
            None => Interpreter::new().map_err(|error| format!("ERR no script can run: {error}")),
        }
    }

    /// Where a command of a script is kept.
    pub(crate) fn take_called(&mut self) -> Box<Called> {
        self.called.take().unwrap_or_default()
    }

    /// Takes back where a command was kept, if that takes little.
    pub(crate) fn give_called(&mut self, called: Box<Called>) {
        let bytes = called.queue.bytes.capacity() + called.parsing.arguments.held_bytes();
        self.called = (bytes <= SPARE_BYTES_MAX).then_some(called);
    }

    /// Takes back an interpreter that has ended its script.
    pub(crate) fn give_back(&mut self, interpreter: Interpreter) {
        if self.idle.len() < IDLE_MAX && interpreter.is_reusable() {
            self.idle.push(interpreter);
        }
    }

    /// Compiles a script; the reply, and whether it is one.
    ///
    /// # Errors
    /// There is no interpreter.
    pub(crate) fn compile(
        &mut self,
        script: &Arc<Script>,
        memory_bytes: usize,
    ) -> Result<(Vec<u8>, bool), String> {
        let mut interpreter = self.interpreter()?;
        let job = Job {
            script: Arc::clone(script),
            words: Words::default(),
            keys: 0,
            is_resp3: false,
            memory_bytes,
            slice: SLICE_INSTRUCTIONS,
            only_compiles: true,
        };
        let event = interpreter.resume(Step::Run(Box::new(job)));
        self.give_back(interpreter);
        match event {
            Event::Ended {
                reply, is_compiled, ..
            } => Ok((reply, is_compiled)),
            _ => Err("ERR the script was not compiled".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_scripts_is_bounded() {
        let mut scripts = Scripts::default();
        let mut count = 0;
        for number in 0..100 {
            let text = format!("return {number} --{}", "x".repeat(200_000));
            let script = Arc::new(Script::new(text.as_bytes()).expect("a script"));
            count += usize::from(scripts.own(&script));
            scripts.copy(&script);
        }
        let (owned, bytes) = scripts.figures();
        assert!(owned == count && (10..30).contains(&count), "{count}");
        assert!(bytes <= OWNED_BYTES_MAX + COPIED_BYTES_MAX, "{bytes}");
        scripts.forget();
        assert_eq!(scripts.figures(), (0, 0));
    }

    #[test]
    fn digests_are_read_in_letters_of_any_size() {
        let sha = farcore_script::sha_of(b"return 1");
        assert_eq!(
            sha_of_words(sha.to_uppercase().as_bytes()),
            Some(sha.clone())
        );
        assert_eq!(sha_of_words(b"e0e1"), None);
        assert!(owner_of(&sha, 3) < 3);
    }
}
