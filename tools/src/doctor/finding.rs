//! One thing that was looked at.

use serde::Serialize;

/// How it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Fine,
    /// The machine does not tell.
    Unknown,
    /// It works, and could work better.
    Weak,
    /// The engine cannot run.
    Broken,
}

/// What was seen, what is wrong with it, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) what: &'static str,
    pub(super) verdict: Verdict,
    pub(super) seen: String,
    /// Empty if all is well.
    pub(super) why: String,
    /// A command or a setting; empty if there is nothing to do.
    pub(super) mend: String,
}

impl Finding {
    fn new(verdict: Verdict, what: &'static str, seen: impl Into<String>) -> Self {
        Self {
            what,
            verdict,
            seen: seen.into(),
            why: String::new(),
            mend: String::new(),
        }
    }

    pub(super) fn fine(what: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Verdict::Fine, what, seen)
    }

    pub(super) fn unknown(what: &'static str, source: &str) -> Self {
        let mut finding = Self::new(Verdict::Unknown, what, "not known");
        finding.why = format!("{source} is not readable");
        finding
    }

    pub(super) fn weak(what: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Verdict::Weak, what, seen)
    }

    pub(super) fn broken(what: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Verdict::Broken, what, seen)
    }

    /// What is wrong with it.
    pub(super) fn because(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// What to do.
    pub(super) fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = mend.into();
        self
    }

    fn mark(&self) -> &'static str {
        match self.verdict {
            Verdict::Fine => "ok",
            Verdict::Unknown => "?",
            Verdict::Weak => "weak",
            Verdict::Broken => "BROKEN",
        }
    }

    /// A line, and one each for why and what to do.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{:<7} {:<24} {}", self.mark(), self.what, self.seen);
        for (head, line) in [("", &self.why), ("mend: ", &self.mend)] {
            if !line.is_empty() {
                text.push_str(&format!("\n{:<32} {head}{line}", ""));
            }
        }
        text
    }
}
