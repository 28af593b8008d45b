//! What runs have reached.

use std::collections::BTreeMap;
use std::fmt;

use crate::faults::KINDS;

/// Errors that the calls of a run may be answered by, as [`farcore::Error`] names them.
const ERRORS: [&str; 17] = [
    "Closed",
    "Collection",
    "CollectionKind",
    "CollectionTag",
    "CollectionVersion",
    "Collections",
    "Damaged",
    "FarFull",
    "IndexFull",
    "KeysApart",
    "LocalMemory",
    "LongValue",
    "LongValueGone",
    "LongValues",
    "NoCollection",
    "TransactionTooLong",
    "Unavailable",
];
/// Those of calls that no client of a run makes, of sections, which count their own, and of engines
/// that do not open.
#[cfg(test)]
const OTHER_ERRORS: [&str; 42] = [
    "BaseIncomplete",
    "Config",
    "Core",
    "CounterOverflow",
    "Cursor",
    "Descriptors",
    "Fabric",
    "Handles",
    "IoUring",
    "JobPanicked",
    "JournalFailed",
    "Key",
    "KeyEmpty",
    "KeyTooLong",
    "KeyTwice",
    "LongValueLength",
    "LongValueTooLong",
    "LongValuesKept",
    "Memory",
    "NoDataDirectory",
    "NodeNeeded",
    "NodeUnknown",
    "NodesMax",
    "NotANumber",
    "Position",
    "RepairInterrupted",
    "RepairNeedsLog",
    "SectionEnded",
    "SectionInside",
    "SectionKeys",
    "SectionLost",
    "SectionOutside",
    "SectionRefused",
    "SectionShards",
    "SnapshotStalled",
    "SystemCall",
    "Threads",
    "TimedOut",
    "TooManyElements",
    "TransactionEmpty",
    "TransactionKeys",
    "ValueTooLong",
];
/// States of pages, and work of the engine.
const REACHED: [&str; 14] = [
    "an open page",
    "a sealed page",
    "a flushing page",
    "a clean page",
    "a far page",
    "a page of copies",
    "a node's extents lost",
    "a node left by a core",
    "pages flushed",
    "pages evicted",
    "pages compacted",
    "far reads",
    "requests served on loan",
    "keys lost",
];

/// Counts of what was reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    faults: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
    reached: BTreeMap<&'static str, u64>,
    most: BTreeMap<&'static str, u64>,
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

    /// Notes a figure of which the highest counts.
    pub(crate) fn most(&mut self, what: &'static str, figure: u64) {
        let most = self.most.entry(what).or_default();
        *most = (*most).max(figure);
    }

    /// What could have been reached and was not.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        let faults = KINDS.into_iter().filter(|kind| self.faults_of(kind) == 0);
        let errors = ERRORS.into_iter();
        let errors = errors.filter(|name| !self.errors.contains_key(*name));
        let is_missed = |what: &&str| self.reached.get(what).copied().unwrap_or(0) == 0;
        let reached = REACHED.into_iter().filter(is_missed);
        faults.chain(errors).chain(reached).collect()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (name, count) in &other.errors {
            *self.errors.entry(name.clone()).or_default() += count;
        }
        self.reached(other.reached.clone());
        for (what, figure) in &other.most {
            self.most(what, *figure);
        }
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
        writeln!(f, "at most:")?;
        for (what, figure) in &self.most {
            writeln!(f, "  {figure:>9} {what}")?;
        }
        match self.missed().join(", ") {
            missed if missed.is_empty() => writeln!(f, "never reached: nothing"),
            missed => writeln!(f, "never reached: {missed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_one_of_a_run_or_of_none() {
        let source = include_str!("../../../engine/src/error/mod.rs");
        let (_, source) = source.split_once("pub enum Error {").unwrap();
        let (variants, _) = source.split_once("\n}").unwrap();
        let named = variants.lines().filter_map(|line| {
            let line = line.strip_prefix("    ")?;
            let name = line.trim_end_matches([' ', '{', ',']);
            let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.chars().all(|c| c.is_ascii_alphanumeric());
            is_name.then_some(name)
        });
        let mut named: Vec<_> = named.collect();
        named.sort_unstable();
        let mut known: Vec<_> = ERRORS.into_iter().chain(OTHER_ERRORS).collect();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn what_was_never_reached_is_listed() {
        let mut coverage = Coverage::default();
        let all = coverage.missed();
        assert_eq!(all.len(), KINDS.len() + ERRORS.len() + REACHED.len());
        coverage.fault(KINDS[0]);
        coverage.error(ERRORS[0]);
        coverage.reached(BTreeMap::from([(REACHED[0], 1), (REACHED[1], 0)]));
        assert_eq!(coverage.missed().len(), all.len() - 3);
        assert!(coverage.to_string().contains("never reached: "));
    }
}
