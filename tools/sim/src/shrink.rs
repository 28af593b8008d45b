//! Makes the plan of a run that fails smaller: faults, kinds of calls and settings are taken away
//! as long as it fails in the same way.
//!
//! A smaller plan takes other steps, so a few variants of each are tried.

use crate::plan::{Faults, Mix, Plan};
use crate::world;

/// Variants of a plan that are tried.
const VARIANTS: u64 = 6;

/// Something that can be taken away from a plan, by name.
type Part = (&'static str, fn(&mut Plan));

/// All that can be taken away.
const PARTS: [Part; 42] = [
    ("faults", |plan| plan.faults = Faults::default()),
    ("failures", |plan| plan.faults.fail = Faults::default().fail),
    ("false-failures", |plan| {
        plan.faults.done_but_fails = Faults::default().fail;
    }),
    ("late-writes", |plan| plan.faults.late = 0),
    ("damage-on-the-way", |plan| {
        plan.faults.damage_on_the_way = 0;
    }),
    ("damage", |plan| plan.faults.damage = 0),
    ("wrong-bits", |plan| plan.faults.wrong_bit = 0),
    ("cuts-in-flush", |plan| plan.faults.cut_in_flush = 0),
    ("restarts-in-flush", |plan| plan.faults.restart_in_flush = 0),
    ("partitions", |plan| plan.faults.partition = 0),
    ("restarts", |plan| plan.faults.restart = 0),
    ("clock-steps", |plan| plan.faults.clock = 0),
    ("naps", |plan| plan.faults.nap = 0),
    ("stops", |plan| plan.faults.stop = 0),
    ("slow-node", |plan| plan.faults.slow = 0),
    ("bursts", |plan| plan.bursts = false),
    ("long-steps", |plan| plan.pace = 1),
    ("sleeper", |plan| plan.sleeper = false),
    ("closing", |plan| plan.closes = false),
    ("cores", |plan| plan.cores = 1),
    ("moving-nodes", |plan| plan.moving = None),
    ("copies", |plan| plan.copies = (1, 1)),
    ("nodes", |plan| (plan.nodes, plan.copies) = (1, (1, 1))),
    ("jobs", |plan| plan.jobs = 0),
    ("shared-clients", |plan| plan.shared = 0),
    ("handles", |plan| plan.handles = 1),
    ("collisions", |plan| plan.collides = false),
    ("tight-tables", |plan| plan.tight = None),
    ("eviction", |plan| plan.evicts = false),
    ("isolation", |plan| plan.isolate = false),
    ("shared-endpoints", |plan| plan.movable = false),
    ("read-ahead", |plan| plan.read_ahead = false),
    ("cache", |plan| plan.cache_percent = 0),
    ("encryption", |plan| plan.encryption = None),
    ("batches", |plan| plan.batch = 1),
    ("shallow-queues", |plan| plan.depth = usize::MAX),
    ("collections", |plan| plan.mix.tree = 0),
    ("transactions", |plan| plan.mix.transaction = 0),
    ("long-values", |plan| plan.mix.long = 0),
    ("scans", |plan| plan.mix.scan = 0),
    ("expiry", |plan| plan.mix.expiring = 0),
    ("changes", |plan| {
        plan.mix = Mix {
            delete: 0,
            swap: 0,
            ..plan.mix
        };
    }),
];

/// The names of all that can be taken away.
#[must_use]
pub fn parts() -> Vec<&'static str> {
    PARTS.iter().map(|part| part.0).collect()
}

/// Takes parts away from a plan, by name.
///
/// # Errors
/// A name that is unknown.
pub(crate) fn without(plan: &mut Plan, names: &[String]) -> Result<(), String> {
    for name in names {
        let part = PARTS.iter().find(|part| part.0 == name);
        let part = part.ok_or_else(|| format!("no such part: {name}"))?;
        (part.1)(plan);
    }
    Ok(())
}

/// Another run of the same plan.
pub(crate) fn vary(plan: &mut Plan, variant: u64) {
    plan.seed ^= variant << 48;
}

/// What kind of failure it is: the text without its numbers and values.
fn kind(failure: &str) -> String {
    let letters = failure.chars().filter(|c| c.is_alphabetic() || *c == ' ');
    // What differs between two runs comes late.
    let text: String = letters.collect();
    let end = text
        .find(" was answered")
        .or(text.find(" failed"))
        .unwrap_or(text.len());
    let start = text[..end].rfind(':').map_or(0, |colon| colon + 1);
    text[start..]
        .split_whitespace()
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

/// What is left of a plan that fails.
#[derive(Debug)]
pub(crate) struct Shrunk {
    pub(crate) plan: Plan,
    /// What was taken away.
    pub(crate) without: Vec<&'static str>,
    pub(crate) variant: u64,
    pub(crate) steps: u64,
    pub(crate) runs: u64,
}

/// The failure's kind, if a run of the plan fails, and the step at which it was found.
fn fails(plan: &Plan) -> Option<(String, u64)> {
    let outcome = world::run(plan);
    Some((kind(&outcome.failure?), outcome.steps))
}

/// Makes a plan that fails smaller. Cost: hundreds of runs.
pub(crate) fn shrink(plan: &Plan) -> Option<Shrunk> {
    let (wanted, _) = fails(plan)?;
    let mut shrunk = Shrunk {
        plan: plan.clone(),
        without: Vec::new(),
        variant: 0,
        steps: plan.steps,
        runs: 1,
    };
    for (name, take) in PARTS {
        let mut smaller = shrunk.plan.clone();
        take(&mut smaller);
        if smaller == shrunk.plan {
            continue;
        }
        if let Some(variant) = shrunk.find(&smaller, plan.seed, &wanted) {
            shrunk.keep(smaller, plan.seed, variant);
            shrunk.without.push(name);
        }
    }
    while shrunk.steps > 200 {
        let mut smaller = shrunk.plan.clone();
        smaller.steps = shrunk.steps / 2;
        let Some(variant) = shrunk.find(&smaller, plan.seed, &wanted) else {
            break;
        };
        shrunk.steps = smaller.steps;
        shrunk.keep(smaller, plan.seed, variant);
    }
    Some(shrunk)
}

impl Shrunk {
    /// A variant of a plan that fails in the same way.
    fn find(&mut self, plan: &Plan, seed: u64, wanted: &str) -> Option<u64> {
        // The variant that failed before comes first.
        let variants = std::iter::once(self.variant).chain(0..VARIANTS);
        for variant in variants {
            let mut plan = plan.clone();
            plan.seed = seed;
            vary(&mut plan, variant);
            self.runs += 1;
            if fails(&plan).is_some_and(|(kind, _)| kind == wanted) {
                return Some(variant);
            }
        }
        None
    }

    fn keep(&mut self, mut plan: Plan, seed: u64, variant: u64) {
        plan.seed = seed;
        vary(&mut plan, variant);
        (self.plan, self.variant) = (plan, variant);
    }

    /// The flags that run it again.
    pub(crate) fn flags(&self) -> String {
        let mut flags = String::new();
        if !self.without.is_empty() {
            flags += &format!(" --without {}", self.without.join(","));
        }
        if self.variant > 0 {
            flags += &format!(" --variant {}", self.variant);
        }
        flags + &format!(" --steps {}", self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_taken_away_are_gone() {
        let mut plan = Plan::draw(3, false);
        without(&mut plan, &["faults".into(), "cores".into()]).unwrap();
        assert_eq!((plan.faults, plan.cores), (Faults::default(), 1));
        assert!(without(&mut plan, &["nothing".into()]).is_err());
        let one = kind("key 12 ({1}key-9): call 8 of client 3 was answered Is(4)");
        assert_eq!(
            one,
            kind("key 7 ({0}key-1): call 99 of client 1 was answered Absent")
        );
    }
}
