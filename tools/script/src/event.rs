//! What an interpreter and its caller tell each other.

use std::sync::Arc;

use crate::script::Script;

/// A script to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The script.
    pub script: Arc<Script>,
    /// Its keys, and its other arguments behind them.
    pub words: Words,
    /// How many keys there are.
    pub keys: usize,
    /// A buffer that its commands and its reply may use.
    pub buffer: Vec<u8>,
    /// The client speaks RESP3.
    pub is_resp3: bool,
    /// Bytes that the state of Lua may take.
    pub memory_bytes: usize,
    /// Work of a slice, in instructions about.
    pub slice: usize,
    /// It is compiled, and not run.
    pub only_compiles: bool,
}

/// Texts in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Words {
    /// Forgets all; keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Memory that they take.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Makes room for this many more, which have these bytes together.
    pub fn reserve(&mut self, count: usize, bytes: usize) {
        self.bytes.reserve_exact(bytes);
        self.ends.reserve_exact(count);
    }

    /// Adds a text.
    pub fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let word = self.bytes.get(start..end).unwrap_or_default();
            start = end;
            word
        })
    }
}

/// How an interpreter goes on.
#[derive(Debug)]
pub enum Step {
    /// With a script: it was idle.
    Run(Box<Job>),
    /// With the reply of the command that it called.
    Reply(Vec<u8>),
    /// With its next slice.
    GoOn,
    /// With the end of the script, for this reason, which is the text of an error.
    End(String),
}

/// Why an interpreter came back.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// It waits for a script.
    Idle,
    /// The script calls a command, whose reply is to be of RESP3 or not.
    Call {
        /// The command's name and arguments, as a client would send them.
        command: Vec<u8>,
        /// The reply is of RESP3.
        is_resp3: bool,
    },
    /// The script logs a text, from the least level 0 to 3. It goes on with `GoOn`.
    Log(i64, Vec<u8>),
    /// A slice is over.
    Slice,
    /// The script has ended.
    Ended {
        /// What the client reads.
        reply: Vec<u8>,
        /// The script was compiled: it is no more than text if not.
        is_compiled: bool,
        /// The reply is the error of a command that it called, which was counted there.
        is_counted: bool,
    },
}
