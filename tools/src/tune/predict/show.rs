//! The prediction as text and JSON. The names of the fields are those of the JSON.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use farcore_command::machine::Machine as Here;
use farcore_command::origin::Origin;
use serde::Serialize;

use super::adapter::Adapter;
use super::calibrate::Check;
use super::forecast::{Calibration, Limit, Step};
use super::machine::Machine;

/// Least utilisation of a station that is shown.
pub(super) const SHOWN_MIN: f64 = 0.05;

/// A prediction.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) origin: Origin,
    /// The machine of the calibrating runs, and their seed; absent if a report was given.
    pub(super) calibrated_on: Option<Here>,
    pub(super) seed: Option<u64>,
    /// The host's adapter, if its queue pairs or regions are named.
    pub(super) adapter: Option<Adapter>,
    /// Work requests a second of the host's adapter with few of them.
    pub(super) adapter_messages_s: f64,
    pub(super) machine: Machine,
    pub(super) calibration: Calibration,
    /// The model's errors; empty if a report was given.
    pub(super) checks: Vec<Check>,
    pub(super) limit: Limit,
    pub(super) steps: Vec<Step>,
}

fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(header.iter().copied());
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn millions(rate: f64) -> String {
    format!("{:.2}", rate / 1e6)
}

fn microseconds(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e6)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

impl Answer {
    pub(super) fn text(&self) -> String {
        let mut text = self.workload();
        if !self.checks.is_empty() {
            let _ = write!(text, "\n\n{}", self.errors());
        }
        let _ = write!(text, "\n\n{}", self.machine);
        if let Some(adapter) = &self.adapter {
            let _ = write!(text, "\n{}", adapter.text(self.adapter_messages_s));
        }
        let _ = write!(text, "\n{}\n{}", self.growth(), self.verdict());
        text
    }

    fn workload(&self) -> String {
        let work = &self.calibration.workload;
        format!(
            "a request: {:.0} ns of a core ({:.0} ns alone, {:.0} ns more if it crosses, {:.3} READs of {:.0} ns, {:.0} ns \
             of compaction), {:.0} bytes read from and {:.0} written to far memory, {:.0} bytes of memory traffic; {} in flight on \
             each core",
            work.core_s(self.machine.cores) * 1e9,
            work.own_s * 1e9,
            work.crossing_s * 1e9,
            work.reads,
            work.read_s * 1e9,
            work.compaction_s * 1e9,
            work.read_bytes,
            work.write_bytes,
            work.memory_bytes,
            self.machine.window.unwrap_or(self.calibration.window),
        )
    }

    /// The table of the model's errors.
    fn errors(&self) -> String {
        let row = |check: &Check| {
            vec![
                check.calibrated_on_cores.to_string(),
                check.predicted_cores.to_string(),
                millions(check.requests_s),
                millions(check.requests_measured_s),
                format!("{:+.1} %", check.requests_error * 100.0),
                microseconds(check.p50_s),
                microseconds(check.p50_measured_s),
                format!("{:+.1} %", check.p50_error * 100.0),
            ]
        };
        let header = [
            "calibrated on",
            "predicted",
            "Mops/s",
            "measured",
            "error",
            "p50 us",
            "measured",
            "error",
        ];
        let rows = self.checks.iter().map(row).collect();
        format!(
            "error of the model on this machine, by number of cores:\n{}",
            table(&header, rows)
        )
    }

    fn growth(&self) -> String {
        let names = self.steps.first().map_or(&[][..], |step| &step.loads);
        // Stations with little use have no column.
        let used: Vec<usize> = (0..names.len())
            .filter(|&place| {
                let mut steps = self.steps.iter();
                steps.any(|step| step.loads[place].utilisation >= SHOWN_MIN)
            })
            .collect();
        let mut header = vec!["cores", "Mops/s", "p50 us", "busiest"];
        header.extend(used.iter().map(|&place| names[place].station));
        let row = |step: &Step| {
            let mut row = vec![
                step.cores.to_string(),
                millions(step.requests_s),
                microseconds(step.p50_s),
                step.busiest.to_owned(),
            ];
            row.extend(
                used.iter()
                    .map(|&place| percent(step.loads[place].utilisation)),
            );
            row
        };
        table(&header, self.steps.iter().map(row).collect())
    }

    fn verdict(&self) -> String {
        let limit = &self.limit;
        let first = format!(
            "first to saturate: {}, at {} Mops/s",
            limit.station,
            millions(limit.requests_s)
        );
        match (limit.cores_useful, limit.then) {
            (Some(cores), Some(then)) => {
                format!("{first}; up to {cores} cores the cores are the limit, then: {then}")
            }
            _ => format!("{first}; more cores keep helping"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::forecast::example;
    use super::*;

    #[test]
    fn the_answer_names_what_saturates_first() {
        let machine: Machine = "cores=64,nodes=8,link=25Gb".parse().unwrap();
        let calibration = example();
        let check = Check {
            calibrated_on_cores: 1,
            predicted_cores: 2,
            requests_s: 5e6,
            requests_measured_s: 4e6,
            requests_error: 0.25,
            p50_s: 2e-6,
            p50_measured_s: 4e-6,
            p50_error: -0.5,
        };
        let answer = Answer {
            origin: Origin::default(),
            calibrated_on: None,
            seed: None,
            adapter: None,
            adapter_messages_s: machine.messages_s,
            machine,
            calibration,
            checks: vec![check],
            limit: calibration.limit(&machine),
            steps: calibration.steps(&machine),
        };
        let text = answer.text();
        for words in [
            "first to saturate: host link, in",
            "+25.0 %",
            "-50.0 %",
            "64 in flight on",
            "then: host link, in",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("node adapters"), "{text}");
        let json = serde_json::to_value(&answer).unwrap();
        assert_eq!(json["limit"]["station"], "host link, in");
        assert_eq!(json["steps"][6]["cores"], 64);
        assert_eq!(json["machine"]["nodes"], 8);
    }
}
