//! A finding: one checked property, its verdict, the reason and the remedy.

use serde::Serialize;

/// The verdict on a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Fine,
    /// It cannot be read.
    Unknown,
    /// The engine runs, but could run better.
    Weak,
    /// The engine cannot run.
    Broken,
}

/// A checked property. The names of the fields are those of the JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Finding {
    /// The property.
    pub(super) what: &'static str,
    pub(super) verdict: Verdict,
    /// Its value.
    pub(super) seen: String,
    /// What is wrong with it; empty if nothing is.
    pub(super) why: String,
    /// The remedy: a command or a setting; empty if there is none.
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
        let mut finding = Self::new(Verdict::Unknown, what, "unknown");
        finding.why = format!("{source} cannot be read");
        finding
    }

    pub(super) fn weak(what: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Verdict::Weak, what, seen)
    }

    pub(super) fn broken(what: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Verdict::Broken, what, seen)
    }

    /// Adds what is wrong.
    pub(super) fn because(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// Adds the remedy.
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

    /// A line for the property, and one each for the reason and the remedy.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{:<7} {:<24} {}", self.mark(), self.what, self.seen);
        for (head, line) in [("", &self.why), ("fix: ", &self.mend)] {
            if !line.is_empty() {
                text.push_str(&format!("\n{:<32} {head}{line}", ""));
            }
        }
        text
    }
}
