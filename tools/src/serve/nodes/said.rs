//! What was logged last of each subject, so that it is logged once.

use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Said(HashMap<String, String>);

impl Said {
    /// True if this was not what was said last of a subject; it is from now on.
    pub(super) fn is_new(&mut self, subject: &str, what: &str) -> bool {
        if self.0.get(subject).is_some_and(|last| last == what) {
            return false;
        }
        self.0.insert(subject.to_owned(), what.to_owned());
        true
    }

    /// Whatever is said next of a subject is new.
    pub(super) fn forget(&mut self, subject: &str) {
        self.0.remove(subject);
    }

    /// Forgets the subjects that are not to be kept.
    pub(super) fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.0.retain(|subject, _| is_kept(subject));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_new_once() {
        let mut said = Said::default();
        assert!(said.is_new("a", "x") && !said.is_new("a", "x"));
        assert!(said.is_new("b", "x") && said.is_new("a", "y"));
        said.forget("a");
        assert!(said.is_new("a", "y"));
        said.keep(|subject| subject == "b");
        assert!(said.is_new("a", "y") && !said.is_new("b", "x"));
    }
}
