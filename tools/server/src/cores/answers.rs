//! What every core of a server was asked, and their answers.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crossbeam_queue::SegQueue;
use farcore::Core;

/// Where a core answers a question. Who waits learns of a drop without an answer.
#[derive(Debug)]
pub(crate) struct Answers<T>(Arc<SegQueue<T>>);

impl<T> Answers<T> {
    /// Answers the question.
    pub(crate) fn put(&self, answer: T) {
        self.0.push(answer);
    }
}

/// The answers of all cores, as they come.
#[derive(Debug)]
pub(crate) struct CoreAnswers<T> {
    answers: Arc<SegQueue<T>>,
    cores: usize,
}

impl<T> CoreAnswers<T> {
    /// No answer yet, of no core.
    pub(crate) fn new() -> Self {
        Self {
            answers: Arc::default(),
            cores: 0,
        }
    }

    /// Where one more core puts its answer.
    pub(crate) fn expect(&mut self) -> Answers<T> {
        self.cores += 1;
        Answers(Arc::clone(&self.answers))
    }

    /// The answer of one core: `None` if it may come, `Some(None)` if it does not.
    pub(crate) fn take_one(&self) -> Option<Option<T>> {
        let may_come = Arc::strong_count(&self.answers) > 1;
        // ORDERING: as in `wait`.
        fence(Ordering::Acquire);
        match self.answers.pop() {
            Some(answer) => Some(Some(answer)),
            None => (!may_come).then_some(None),
        }
    }

    /// Waits for all of them, but not for those of cores that have ended.
    pub(crate) async fn wait(self, core: &Core) -> Vec<T> {
        let mut all = Vec::with_capacity(self.cores);
        while all.len() < self.cores {
            let may_come = Arc::strong_count(&self.answers) > 1;
            // ORDERING: a core drops its reference after it has put its answer there.
            fence(Ordering::Acquire);
            match self.answers.pop() {
                Some(answer) => all.push(answer),
                None if may_come => core.yield_now().await,
                None => break,
            }
        }
        all
    }
}
