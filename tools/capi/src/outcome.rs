//! How an operation ended, and what it returned.

use crate::batch::Batch;
use crate::error::{Code, Failure};
use crate::pool::Memory;
use crate::value::{Metadata, Value};

/// How an operation ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Why it was not done.
    pub(crate) failure: Option<Failure>,
    /// The key's version, which some failures have too.
    pub(crate) version: Option<u64>,
    pub(crate) result: Returned,
}

/// What an operation returned beside a version.
#[derive(Debug)]
pub(crate) enum Returned {
    Nothing,
    Value(Vec<u8>),
    Metadata(Metadata),
    Sum(i64),
    Batch(Batch),
    /// The old value of a word in remote memory.
    Word(u64),
    /// Remote memory, which is freed unless the caller takes it.
    Memory(Memory),
    /// An exported pointer.
    Text(String),
    /// The caller has it.
    Taken,
}

impl Outcome {
    pub(crate) fn done() -> Self {
        Self::returned(Returned::Nothing)
    }

    pub(crate) fn returned(result: Returned) -> Self {
        Self {
            failure: None,
            version: None,
            result,
        }
    }

    pub(crate) fn failed(failure: Failure) -> Self {
        Self {
            failure: Some(failure),
            ..Self::done()
        }
    }

    pub(crate) fn with_version(self, version: u64) -> Self {
        Self {
            version: Some(version),
            ..self
        }
    }

    /// The code of the whole operation.
    pub(crate) fn code(&self) -> Result<Code, Failure> {
        match &self.failure {
            None => Ok(Code::Ok),
            Some(failure) => Err(failure.clone()),
        }
    }

    /// Why there is no such result: the operation's own failure comes first.
    fn lacks(&self, result: &str) -> Failure {
        if let Some(failure) = &self.failure {
            return failure.clone();
        }
        if matches!(self.result, Returned::Taken) {
            return Failure::new(
                Code::Taken,
                c"the operation's result was taken before: keep what the first call returned",
            );
        }
        Failure::invalid(format!(
            "the operation returns no {result}: use the function of its kind"
        ))
    }

    pub(crate) fn version(&self) -> Result<u64, Failure> {
        self.version.ok_or_else(|| self.lacks("version"))
    }

    pub(crate) fn metadata(&self) -> Result<Metadata, Failure> {
        match self.result {
            Returned::Metadata(found) => Ok(found),
            _ => Err(self.lacks("metadata")),
        }
    }

    pub(crate) fn sum(&self) -> Result<i64, Failure> {
        match self.result {
            Returned::Sum(sum) => Ok(sum),
            _ => Err(self.lacks("sum")),
        }
    }

    pub(crate) fn word(&self) -> Result<u64, Failure> {
        match self.result {
            Returned::Word(word) => Ok(word),
            _ => Err(self.lacks("word")),
        }
    }

    pub(crate) fn take_memory(&mut self) -> Result<Memory, Failure> {
        match std::mem::replace(&mut self.result, Returned::Taken) {
            Returned::Memory(memory) => Ok(memory),
            other => {
                self.result = other;
                Err(self.lacks("pointer"))
            }
        }
    }

    pub(crate) fn bytes(&self) -> Result<&[u8], Failure> {
        match &self.result {
            Returned::Value(bytes) => Ok(bytes),
            Returned::Text(text) => Ok(text.as_bytes()),
            _ => Err(self.lacks("value")),
        }
    }

    pub(crate) fn take_value(&mut self) -> Result<Value, Failure> {
        match std::mem::replace(&mut self.result, Returned::Taken) {
            Returned::Value(bytes) => Ok(Value::new(bytes, self.version.unwrap_or(0))),
            Returned::Text(text) => Ok(Value::text(text)),
            other => {
                self.result = other;
                Err(self.lacks("value"))
            }
        }
    }

    pub(crate) fn take_batch(&mut self) -> Result<Batch, Failure> {
        match std::mem::replace(&mut self.result, Returned::Taken) {
            Returned::Batch(batch) => Ok(batch),
            other => {
                self.result = other;
                Err(self.lacks("batch"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T: std::fmt::Debug>(result: Result<T, Failure>) -> Code {
        result.expect_err("it lacks that").code
    }

    #[test]
    fn a_value_is_taken_once() {
        let mut outcome = Outcome::returned(Returned::Value(b"abc".to_vec())).with_version(7);
        assert_eq!(code(outcome.take_batch()), Code::InvalidArgument);
        assert_eq!(outcome.bytes(), Ok(&b"abc"[..]));
        let mut value = outcome.take_value().expect("it has one");
        assert_eq!((value.length, value.version), (3, 7));
        #[allow(unsafe_code)]
        // SAFETY: this crate's.
        unsafe {
            crate::value::farcore_value_free(&raw mut value);
        }
        assert_eq!(code(outcome.take_value()), Code::Taken);
        assert_eq!(code(outcome.bytes()), Code::Taken);
        assert_eq!(outcome.version(), Ok(7));
        assert_eq!(outcome.code(), Ok(Code::Ok));
    }

    #[test]
    fn a_result_that_is_missing_has_the_operations_code() {
        let outcome = Outcome::failed(Failure::not_found());
        assert_eq!(code(outcome.bytes()), Code::NotFound);
        assert_eq!(code(outcome.version()), Code::NotFound);
        assert_eq!(code(Outcome::done().sum()), Code::InvalidArgument);
        assert_eq!(code(Outcome::done().metadata()), Code::InvalidArgument);
    }
}
