//! What runs have reached.

use std::collections::BTreeMap;
use std::fmt;

/// Counts of what was reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    faults: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
    reached: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub(crate) fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// How many faults have happened whose names begin so.
    pub(crate) fn faults_of(&self, begin: &str) -> u64 {
        let faults = self.faults.iter();
        faults
            .filter(|(kind, _)| kind.starts_with(begin))
            .map(|(_, count)| count)
            .sum()
    }

    pub(crate) fn error(&mut self, name: &str) {
        *self.errors.entry(name.to_owned()).or_default() += 1;
    }

    pub(crate) fn reached(&mut self, reached: BTreeMap<&'static str, u64>) {
        for (what, count) in reached {
            *self.reached.entry(what).or_default() += count;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (name, count) in &other.errors {
            *self.errors.entry(name.clone()).or_default() += count;
        }
        self.reached(other.reached.clone());
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults:")?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {count:>9} {kind}")?;
        }
        writeln!(f, "errors:")?;
        for (name, count) in &self.errors {
            writeln!(f, "  {count:>9} {name}")?;
        }
        writeln!(f, "reached:")?;
        for (what, count) in &self.reached {
            writeln!(f, "  {count:>9} {what}")?;
        }
        Ok(())
    }
}
