//! `farcore card run --one-tier`: exact counts of misses of policies on one tier.

use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use farcore_card::policy::PolicyName;
use farcore_card::replay::{ReplayCounts, replay};
use farcore_card::simulator::SimulationSettings;
use farcore_card::trace::Recording;
use farcore_card::workload::Workload;
use farcore_command::origin::Origin;
use farcore_command::outputs::print;
use serde::Serialize;

use super::columns::Sheet;
use super::file::Files;
use super::flags::SettingFlags;
use super::plot;
use crate::given::Given;
use crate::text::grouped;

/// Most accesses: 4 bytes each, and 8 more for belady.
const ACCESSES_MAX: u64 = 1 << 30;
/// Flags of a card in time.
const TIMED: [&str; 24] = [
    "policy",
    "pinned",
    "window",
    "rate",
    "warmup",
    "points",
    "recorded_times",
    "card_rate",
    "staging_entries",
    "cxl_pages",
    "cxl_latency",
    "host_latency",
    "host_transfers",
    "host_busy",
    "context_bytes",
    "to_cxl",
    "to_card",
    "window_ns",
    "adaptive",
    "treatment",
    "batch_max",
    "relaxed_share",
    "strict_share",
    "foreign_share",
];

/// Flags of a count.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct OneTierFlags {
    /// Count misses exactly, on one tier of --card-entries places and without time
    #[arg(long)]
    one_tier: bool,
    /// With --one-tier: the policies [default: all, belady included]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Option<Vec<PolicyName>>,
}

/// A policy and its counts.
#[derive(Debug, Serialize)]
struct Row {
    policy: PolicyName,
    miss_ratio: f64,
    /// Misses beyond those of the bound, as a share of them; absent without belady.
    above_bound: Option<f64>,
    counts: ReplayCounts,
}

impl OneTierFlags {
    /// A count is wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.one_tier
    }

    /// Refuses flags of counts beside a simulation.
    ///
    /// # Errors
    /// There is one.
    pub(super) fn refuse(&self, given: &Given) -> Result<()> {
        given.refuse(&["policies"], "without --one-tier")
    }

    /// The settings of a count.
    ///
    /// # Errors
    /// A flag is wrong, or has no effect.
    pub(super) fn settings(
        &self,
        flags: &SettingFlags,
        given: &Given,
    ) -> Result<SimulationSettings> {
        given.refuse(&TIMED, "with --one-tier")?;
        flags.settings()
    }

    /// Counts and shows.
    ///
    /// # Errors
    /// There is too much to count, or an output cannot be written.
    pub(super) fn run(
        &self,
        settings: &SimulationSettings,
        recording: Option<Arc<Recording>>,
        json: bool,
        files: Files,
    ) -> Result<()> {
        let (mut workload, keys) = match recording {
            Some(recording) => {
                let keys = recording.handles().len();
                (Workload::recorded(recording), u32::try_from(keys)?)
            }
            None => (
                Workload::drawn(&settings.workload)?,
                settings.workload.population.keys(),
            ),
        };
        let wanted = settings.messages.saturating_mul(3);
        if wanted > ACCESSES_MAX {
            bail!(
                "--messages is {}: write at most {} with --one-tier",
                settings.messages,
                ACCESSES_MAX / 3
            );
        }
        let accesses = workload.accesses(usize::try_from(wanted)?);
        let places = settings.card.card_entries;
        let policies = self.policies.as_deref().unwrap_or(&PolicyName::ALL);
        let counts: Vec<(PolicyName, ReplayCounts)> = policies
            .iter()
            .map(|&policy| {
                let weights = settings.card.weights;
                (policy, replay(policy, places, keys, &accesses, weights))
            })
            .collect();
        let rows = rows(counts);
        files.write(&sheet(&rows), || {
            let lines = rows
                .iter()
                .map(|row| (row.policy.name(), &row.counts.series[..]));
            plot::hit_ratios(&lines.collect::<Vec<_>>())
        })?;
        if json {
            let origin = Origin::here();
            let answer =
                serde_json::json!({ "origin": origin, "settings": settings, "rows": rows });
            print(serde_json::to_string_pretty(&answer)?)
        } else {
            print(table(&rows, places, keys))
        }
    }
}

fn rows(counts: Vec<(PolicyName, ReplayCounts)>) -> Vec<Row> {
    let bound = counts.iter().find(|one| one.0 == PolicyName::Belady);
    let bound = bound.map(|(_, counts)| counts.misses);
    let row = |(policy, counts): (PolicyName, ReplayCounts)| Row {
        policy,
        miss_ratio: counts.miss_ratio(),
        above_bound: bound.map(|bound| counts.misses as f64 / bound.max(1) as f64 - 1.0),
        counts,
    };
    let mut rows: Vec<Row> = counts.into_iter().map(row).collect();
    rows.sort_by_key(|row| row.counts.misses);
    rows
}

fn sheet(rows: &[Row]) -> Sheet {
    let figure = |name: &str, of: fn(&Row) -> f64| (name.to_owned(), rows.iter().map(of).collect());
    let names = rows.iter().map(|row| row.policy.name().to_owned());
    Sheet {
        texts: vec![("policy".to_owned(), names.collect())],
        figures: vec![
            figure("accesses", |row| row.counts.accesses as f64),
            figure("misses", |row| row.counts.misses as f64),
            figure("first", |row| row.counts.first as f64),
            figure("evictions", |row| row.counts.evictions as f64),
            figure("miss_ratio", |row| row.miss_ratio),
        ],
    }
}

fn table(rows: &[Row], places: u32, keys: u32) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "policy",
        "misses",
        "miss ratio",
        "above the bound",
        "uses before it left, p50",
    ]);
    for row in rows {
        table.add_row([
            row.policy.to_string(),
            grouped(row.counts.misses),
            format!("{:.4}", row.miss_ratio),
            row.above_bound
                .map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            row.counts.uses.quantile(0.5).to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let counted = rows.first().map_or(0, |row| row.counts.accesses);
    format!(
        "{} accesses to {} tokens, {} places\n{}",
        grouped(counted),
        grouped(u64::from(keys)),
        grouped(u64::from(places)),
        table.trim_fmt()
    )
}

#[cfg(test)]
mod tests {
    use farcore_card::policy::HybridWeights;

    use super::*;

    #[test]
    fn rows_are_sorted_and_compared_with_the_bound() {
        let accesses: Vec<u32> = (0..6_000).map(|at| at * 7_919 % 1_009 % 97).collect();
        let counted = [PolicyName::Fifo, PolicyName::Belady].map(|policy| {
            let counts = replay(policy, 20, 97, &accesses, HybridWeights::default());
            (policy, counts)
        });
        let rows = rows(counts_of(&counted));
        assert_eq!(rows[0].policy, PolicyName::Belady);
        assert!(rows[1].above_bound.unwrap() > 0.0);
        let text = table(&rows, 20, 97);
        assert!(
            text.starts_with("6,000 accesses to 97 tokens, 20 places"),
            "{text}"
        );
        assert_eq!(sheet(&rows).rows(), 2);
        let alone = super::rows(counts_of(&counted[..1]));
        assert_eq!(alone[0].above_bound, None);
        assert!(table(&alone, 20, 97).contains(" - "));
    }

    fn counts_of(counted: &[(PolicyName, ReplayCounts)]) -> Vec<(PolicyName, ReplayCounts)> {
        counted.to_vec()
    }
}
