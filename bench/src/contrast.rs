//! Which engines are compared with which: like with like. An engine whose local memory has a cap is
//! compared with others that have one, an engine that holds everything with others that do.

use clap::ValueEnum;

use crate::plan::EngineName;
use crate::report::RunReport;

/// One of farcore's runs and the baselines it is compared with, by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contrast {
    /// Farcore's run.
    pub ours: usize,
    /// The baselines; never empty.
    pub others: Vec<usize>,
    /// What the runs have in common, for the sentence about the total time.
    pub common: Common,
}

/// What the runs of a contrast have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// A cap on local memory, in bytes.
    Cap(u64),
    /// All data in local memory.
    AllLocal,
}

/// The contrasts of a command.
#[must_use]
pub fn contrasts(runs: &[RunReport]) -> Vec<Contrast> {
    let ours = [EngineName::Farcore, EngineName::FarcoreAllLocal];
    let place = |engine: EngineName| runs.iter().position(|run| run.engine == engine.name());
    let contrasts = ours.into_iter().filter_map(|engine| {
        let ours = place(engine)?;
        let used_far_memory = runs[ours].far_reads > 0 || runs[ours].far_writes > 0;
        let is_capped = engine == EngineName::Farcore && used_far_memory;
        let others: Vec<usize> = (0..runs.len())
            .filter(|&at| at != ours && runs[at].engine != EngineName::FarcoreAllLocal.name())
            .filter(|&at| match engine {
                EngineName::FarcoreAllLocal => !has_cap(&runs[at]),
                // A cap that is not reached does not matter.
                _ => !is_capped || has_cap(&runs[at]),
            })
            .collect();
        let common = if is_capped {
            Common::Cap(runs[ours].local_bytes_cap)
        } else {
            Common::AllLocal
        };
        (!others.is_empty()).then_some(Contrast {
            ours,
            others,
            common,
        })
    });
    contrasts.collect()
}

/// Whether the engine of a run has a cap on its local memory.
fn has_cap(run: &RunReport) -> bool {
    EngineName::from_str(&run.engine, false).is_ok_and(EngineName::has_local_cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(engine: &str, far_reads: u64) -> RunReport {
        RunReport {
            engine: engine.into(),
            far_reads,
            local_bytes_cap: 7,
            ..RunReport::default()
        }
    }

    fn pairs(runs: &[RunReport]) -> Vec<(usize, Vec<usize>, Common)> {
        let all = contrasts(runs).into_iter();
        all.map(|one| (one.ours, one.others, one.common)).collect()
    }

    #[test]
    fn engines_with_a_cap_and_those_without_are_compared_among_themselves() {
        let runs = [
            run("farcore", 5),
            run("locked-lru", 9),
            run("farcore-all-local", 0),
            run("dashmap", 0),
            run("sharded", 0),
        ];
        let expected = [
            (0, vec![1], Common::Cap(7)),
            (2, vec![3, 4], Common::AllLocal),
        ];
        assert_eq!(pairs(&runs), expected);
    }

    #[test]
    fn a_cap_that_is_not_reached_does_not_matter() {
        let runs = [run("farcore", 0), run("locked-lru", 0), run("dashmap", 0)];
        assert_eq!(pairs(&runs), [(0, vec![1, 2], Common::AllLocal)]);
    }

    #[test]
    fn a_capped_run_is_not_compared_with_maps() {
        assert!(contrasts(&[run("farcore", 5), run("dashmap", 0)]).is_empty());
        assert!(contrasts(&[run("dashmap", 0)]).is_empty());
        let remote = [run("farcore", 5), run("farcore-embedded", 5)];
        assert_eq!(pairs(&remote), [(0, vec![1], Common::Cap(7))]);
    }
}
