//! Scripts that a core knows, and its interpreters.
//!
//! Each script has an owner: a core that its digest chooses. It keeps the script until `SCRIPT
//! FLUSH`; others ask it for those that they do not know, and keep copies.
//!
//! - I1: a core that has flushed its scripts takes no copy that it has requested before.

use std::collections::HashMap;
use std::sync::Arc;

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

/// A digest, in small letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sha([u8; SHA_DIGITS]);

impl Sha {
    /// That of a word; `None` of what is none.
    pub(crate) fn of(word: &[u8]) -> Option<Self> {
        let mut digits: [u8; SHA_DIGITS] = word.try_into().ok()?;
        digits.make_ascii_lowercase();
        digits
            .iter()
            .all(u8::is_ascii_hexdigit)
            .then_some(Self(digits))
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
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
    /// Memory of a job that has ended, for the next one.
    job: Option<Box<Job>>,
    /// Connections whose scripts run.
    pub(crate) running: Vec<usize>,
    /// Times that scripts have gone on.
    pub(crate) resumes: u64,
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
        self.job = None;
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

    /// A job for a script, with the memory of another one if there is one.
    pub(crate) fn job(&mut self, script: &Arc<Script>) -> Box<Job> {
        let Some(mut job) = self.job.take() else {
            return Box::new(Job {
                script: Arc::clone(script),
                words: Words::default(),
                keys: 0,
                buffer: Vec::new(),
                is_resp3: false,
                memory_bytes: 0,
                slice: SLICE_INSTRUCTIONS,
                only_compiles: false,
            });
        };
        job.words.clear();
        job.only_compiles = false;
        if !Arc::ptr_eq(&job.script, script) {
            job.script = Arc::clone(script);
        }
        job
    }

    /// Takes back the memory of a job, with the buffer of its reply.
    fn keep_job(&mut self, job: Option<Box<Job>>, mut buffer: Vec<u8>) {
        let kept = |bytes: usize| bytes <= SPARE_BYTES_MAX;
        self.job = job.filter(|job| kept(job.words.held_bytes()));
        if let Some(job) = &mut self.job
            && kept(buffer.capacity())
        {
            buffer.clear();
            job.buffer = buffer;
        }
    }

    /// Takes back an interpreter that has ended its script, with its reply.
    pub(crate) fn give_back(&mut self, mut interpreter: Interpreter, reply: Vec<u8>) {
        self.keep_job(interpreter.take_job(), reply);
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
        let mut job = self.job(script);
        (job.memory_bytes, job.keys, job.only_compiles) = (memory_bytes, 0, true);
        let event = interpreter.resume(Step::Run(job));
        self.give_back(interpreter, Vec::new());
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
        let read = Sha::of(sha.to_uppercase().as_bytes());
        assert_eq!(read.as_ref().map(Sha::as_str), Some(&sha[..]));
        assert_eq!(Sha::of(b"e0e1"), None);
        assert!(owner_of(&sha, 3) < 3);
    }
}
