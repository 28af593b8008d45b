//! Why a command of several steps did not happen.

use farcore::Error;

use crate::memory::Shortage;
use crate::resp::{Protocol, Writer};
use crate::tasks::output::TaskOutput;
use crate::types::replies::error_text;

/// Why a command of several steps did not happen.
#[derive(Clone, Debug)]
pub(crate) enum TaskFailure {
    Engine(Error),
    /// The client reads this.
    Refused(String),
}

impl From<Error> for TaskFailure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<Shortage> for TaskFailure {
    fn from(shortage: Shortage) -> Self {
        Self::Refused(shortage.to_string())
    }
}

impl From<&str> for TaskFailure {
    fn from(text: &str) -> Self {
        Self::Refused(text.to_owned())
    }
}

impl TaskFailure {
    /// What the client reads.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Engine(error) => error_text(error),
            Self::Refused(text) => text.clone(),
        }
    }

    /// Writes it as the reply.
    pub(crate) fn write(&self, output: &TaskOutput, protocol: Protocol) {
        output.write(|bytes| Writer::new(bytes, protocol).error(&self.text()));
    }
}
