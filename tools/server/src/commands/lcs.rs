//! `LCS`: the longest common subsequence of two strings.
//!
//! A table of lengths of all pairs of beginnings is filled row by row, then walked back from its
//! end. Cost: the product of the lengths in time, and two bytes of it each in memory, which is
//! bounded, on the client's account, and given back at the end.

use farcore::Core;

use super::arguments::{integer, is_option};
use super::{Call, Flow, Refusal, SYNTAX, read_of};
use crate::events::classes::EventClasses;
use crate::long::copy::{ValueUse, hold_value};
use crate::memory::Shortage;
use crate::resp::Writer;
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::replies::error_text;

type Result = std::result::Result<Flow, Refusal>;

/// Entries of the table, at most. So the shorter string has fewer than 2048 bytes, and what they
/// have in common too.
const ENTRIES_MAX: usize = 4 << 20;
/// Bytes of an entry.
const ENTRY_BYTES: usize = size_of::<u16>();
/// Entries after which the core's other work goes on.
const ENTRIES_A_TURN: usize = 256 << 10;

/// What is replied.
#[derive(Clone, Copy, Default, Debug)]
struct LcsOptions {
    is_length: bool,
    is_matches: bool,
    has_lengths: bool,
    /// Shorter matches are left out.
    length_min: usize,
}

impl LcsOptions {
    fn of(call: &Call<'_>) -> std::result::Result<Self, Refusal> {
        let mut options = Self::default();
        let mut place = 3;
        while place < call.count() {
            let option = call.argument(place);
            if is_option(option, "idx") {
                options.is_matches = true;
            } else if is_option(option, "len") {
                options.is_length = true;
            } else if is_option(option, "withmatchlen") {
                options.has_lengths = true;
            } else if is_option(option, "minmatchlen") && place + 1 < call.count() {
                place += 1;
                let length = integer(call.argument(place))?;
                options.length_min = usize::try_from(length).unwrap_or(0);
            } else {
                return Err(SYNTAX.into());
            }
            place += 1;
        }
        if options.is_matches && options.is_length {
            return Err("ERR If you want both the length and indexes, please just use IDX.".into());
        }
        Ok(options)
    }
}

pub(super) fn lcs(call: &mut Call<'_>) -> Result {
    let options = LcsOptions::of(call);
    let keys = [1, 2].map(|place| call.argument(place).to_vec());
    Ok(call.task(move |mut core, output, protocol| async move {
        let reply = common_of(&mut core, &keys, options, &output).await;
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match reply {
                Ok((common, options)) => common.write(options, &mut writer),
                Err(Refusal(text)) => writer.error(&text),
            }
        });
        core
    }))
}

async fn common_of(
    core: &mut Core,
    keys: &[Vec<u8>; 2],
    options: std::result::Result<LcsOptions, Refusal>,
    output: &TaskOutput,
) -> std::result::Result<(Common, LcsOptions), Refusal> {
    let mut values = [Vec::new(), Vec::new()];
    let mut held = Vec::new();
    let lacks = |shortage: Shortage| Refusal(shortage.to_string());
    for (key, value) in keys.iter().zip(&mut values) {
        let charge = hold_value(core, output, key, ValueUse::Read).await;
        held.push(charge.map_err(lacks)?);
        match read_of(core.get(key).await) {
            Ok(Some(read)) => *value = read.to_vec(),
            Ok(None) => output.notify(EventClasses::MISSED, "keymiss", key),
            Err(farcore::Error::Collection) => {
                return Err("ERR The specified keys must contain string values".into());
            }
            Err(error) => return Err(Refusal(error_text(&error))),
        }
    }
    // As Redis, which looks at its options last.
    let options = options?;
    let [first, second] = values;
    let entries = Table::entries(&first, &second)
        .ok_or("ERR Insufficient memory, transient memory for LCS exceeds its limit")?;
    let charge = output.hold_when_free(core, entries * ENTRY_BYTES).await;
    held.push(charge.map_err(lacks)?);
    let mut table = Table::new(&second, entries);
    while !table.fill(&first, &second) {
        steps::count(ENTRIES_A_TURN / 16);
        core.yield_now().await;
    }
    Ok((table.walk(&first, &second), options))
}

/// Lengths of the longest common subsequences of beginnings.
#[derive(Debug)]
struct Table {
    lengths: Vec<u16>,
    width: usize,
    /// The next row to fill.
    row: usize,
}

impl Table {
    /// Entries of a table; `None` if it would be too large.
    fn entries(first: &[u8], second: &[u8]) -> Option<usize> {
        let entries = (second.len() + 1).checked_mul(first.len() + 1)?;
        (entries <= ENTRIES_MAX).then_some(entries)
    }

    /// A table of `entries` with its first row.
    fn new(second: &[u8], entries: usize) -> Self {
        Self {
            lengths: vec![0; entries],
            width: second.len() + 1,
            row: 1,
        }
    }

    fn at(&self, row: usize, column: usize) -> u16 {
        self.lengths[row * self.width + column]
    }

    /// Fills some rows; true if all are filled.
    fn fill(&mut self, first: &[u8], second: &[u8]) -> bool {
        let rows = (ENTRIES_A_TURN / self.width).max(1);
        let end = (self.row + rows).min(first.len() + 1);
        for row in self.row..end {
            for column in 1..self.width {
                let length = if first[row - 1] == second[column - 1] {
                    self.at(row - 1, column - 1) + 1
                } else {
                    self.at(row - 1, column).max(self.at(row, column - 1))
                };
                self.lengths[row * self.width + column] = length;
            }
        }
        self.row = end;
        end == first.len() + 1
    }

    /// Finds the subsequence, from its end.
    fn walk(&self, first: &[u8], second: &[u8]) -> Common {
        let (mut row, mut column) = (first.len(), second.len());
        let mut common = Common::default();
        while row > 0 && column > 0 {
            if first[row - 1] == second[column - 1] {
                row -= 1;
                column -= 1;
                common.add(first[row], row, column);
            } else if self.at(row - 1, column) > self.at(row, column - 1) {
                row -= 1;
            } else {
                column -= 1;
            }
        }
        common.bytes.reverse();
        common
    }
}

/// A run of equal bytes: where it begins in both strings, and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Match {
    starts: [usize; 2],
    length: usize,
}

/// The subsequence, and its runs from the last to the first.
#[derive(Debug, Default)]
struct Common {
    bytes: Vec<u8>,
    matches: Vec<Match>,
}

impl Common {
    /// Adds the byte before all others.
    fn add(&mut self, byte: u8, row: usize, column: usize) {
        self.bytes.push(byte);
        match self.matches.last_mut() {
            Some(run) if run.starts == [row + 1, column + 1] => {
                run.starts = [row, column];
                run.length += 1;
            }
            _ => self.matches.push(Match {
                starts: [row, column],
                length: 1,
            }),
        }
    }

    fn write(&self, options: LcsOptions, writer: &mut Writer<'_>) {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let length = number(self.bytes.len());
        if options.is_length {
            return writer.integer(length);
        }
        if !options.is_matches {
            return writer.bulk(&self.bytes);
        }
        let is_wanted = |run: &&Match| run.length >= options.length_min;
        writer.map(2);
        writer.bulk(b"matches");
        writer.array(self.matches.iter().filter(is_wanted).count());
        for run in self.matches.iter().filter(is_wanted) {
            writer.array(2 + usize::from(options.has_lengths));
            for start in run.starts {
                writer.array(2);
                writer.integer(number(start));
                writer.integer(number(start + run.length - 1));
            }
            if options.has_lengths {
                writer.integer(number(run.length));
            }
        }
        writer.bulk(b"len");
        writer.integer(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(first: &[u8], second: &[u8]) -> Common {
        let entries = Table::entries(first, second).unwrap();
        let mut table = Table::new(second, entries);
        while !table.fill(first, second) {}
        table.walk(first, second)
    }

    #[test]
    fn the_subsequence_is_one_of_both_and_none_is_longer() {
        let is_subsequence = |part: &[u8], whole: &[u8]| {
            let mut rest = whole.iter();
            part.iter().all(|byte| rest.any(|one| one == byte))
        };
        let texts: Vec<Vec<u8>> = (0..3_usize.pow(6))
            .step_by(7)
            .map(|seed| {
                let digit =
                    |place: u32| b'a' + u8::try_from(seed / 3_usize.pow(place) % 3).unwrap();
                (0..6).map(digit).collect()
            })
            .collect();
        for pair in texts.windows(2) {
            let found = common(&pair[0], &pair[1]);
            let longest = (0..1_u32 << 6)
                .map(|mask| {
                    let kept = (0..6).filter(|place| mask & (1 << place) != 0);
                    kept.map(|place| pair[0][place]).collect::<Vec<_>>()
                })
                .filter(|part| is_subsequence(part, &pair[1]))
                .map(|part| part.len())
                .max();
            assert_eq!(Some(found.bytes.len()), longest, "{pair:?}");
            assert!(pair.iter().all(|text| is_subsequence(&found.bytes, text)));
            let lengths: usize = found.matches.iter().map(|run| run.length).sum();
            assert_eq!(lengths, found.bytes.len());
        }
    }

    #[test]
    fn matches_are_those_of_the_manual_of_redis() {
        let found = common(b"ohmytext", b"mynewtext");
        assert_eq!(found.bytes, b"mytext");
        let runs = [([4, 5], 4), ([2, 0], 2)];
        let runs = runs.map(|(starts, length)| Match { starts, length });
        assert_eq!(found.matches, runs);
        assert!(common(b"", b"x").bytes.is_empty());
        assert!(Table::entries(&[0; 4 << 10], &[0; 4 << 10]).is_none());
    }
}
