//! The part `collections` of `operations`: maps and lists of a few lengths, through a client on the
//! core of their shard, 64 requests at a time. Each round measures all figures, one after the
//! other. Speeds are by the core's processor time: what else the machine does counts little.
//!
//! I1: every answer is compared, within what is timed: a comparison of 16 bytes.
//! I2: a request that ends with an error ends the run: what follows would measure something else.

use farcore::{
    Answer, Core, Engine, Error, Operation, TreeCondition, TreeGuard, TreeOp, TreeValues,
};
use farcore_command::stop;

use super::report::{Row, Run, median};
use super::settings::Part;
use super::sweeps::{on_core, open};
use crate::plan::Plan;
use crate::worker::thread_cpu_ns;

/// Rounds; the first one does not count.
const ROUNDS: usize = 4;
/// Requests that are sent together.
const TOGETHER: usize = 64;
/// Requests of each kind in a round at least: short collections are used several times.
const REQUESTS_MIN: u64 = 100_000;
/// Lengths beside the one that is wanted, in elements.
const LENGTHS: [u64; 2] = [1_000, 100_000];
/// Least speed with a long collection, as a share of that with the shortest.
const LENGTH_RATIO_MIN: f64 = 1.0 / 3.0;

/// What is measured, with the least speed that is wanted, in millions a second.
const KINDS: [(&str, Option<f64>); 5] = [
    ("map insert", Some(1.0)),
    ("map get", Some(2.0)),
    ("map rank", None),
    ("list push", Some(1.0)),
    ("list pop", Some(1.0)),
];

/// Speeds of one length in one round, in the order of [`KINDS`].
type Speeds = [f64; KINDS.len()];

/// What one length showed in one round.
#[derive(Debug, Default)]
struct Seen {
    speeds: Speeds,
    wrong: u64,
    failed: Option<Error>,
}

/// The key of an element: such that ascending numbers arrive in no order.
fn element_of(number: u64) -> [u8; 8] {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^= word >> 29;
    word.wrapping_mul(0xbf58_476d_1ce4_e5b9).to_be_bytes()
}

fn value_of(number: u64) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[8..].copy_from_slice(&(!number).to_le_bytes());
    value
}

/// The client of one length in one round.
struct Client {
    core: Core,
    /// Elements of each collection, and how many collections there are.
    length: u64,
    collections: u64,
    seen: Seen,
}

impl Client {
    /// Makes a request of each element of each collection, and times them all.
    async fn each(
        &mut self,
        kind: usize,
        name: &str,
        op_of: impl for<'a> Fn(&'a [u8; 8], &'a Value<'a>) -> TreeOp<'a>,
        is_right: impl Fn(u64, &[u8]) -> bool,
    ) -> farcore::Result<()> {
        let mut taken_ns = 0;
        for collection in 0..self.collections {
            let key = format!("{name}:{}:{collection}", self.length).into_bytes();
            let mut first = 0;
            while first < self.length {
                let end = (first + TOGETHER as u64).min(self.length);
                let elements: Vec<_> = (first..end).map(element_of).collect();
                let values: Vec<_> = (first..end).map(value_of).collect();
                let slices: Vec<Value<'_>> = values.iter().map(|value| [&value[..]]).collect();
                let operations =
                    elements
                        .iter()
                        .zip(&slices)
                        .map(|(element, values)| Operation::Tree {
                            key: &key,
                            op: op_of(element, values),
                            guard: TreeGuard::default(),
                        });
                let seen = &mut self.seen;
                let judge = |place: usize, answer: Answer<'_>| match answer {
                    Answer::Value { value, .. } if is_right(first + place as u64, value) => {}
                    Answer::Failed(error) => seen.failed = Some(error.clone()),
                    _ => seen.wrong += 1,
                };
                let start_ns = thread_cpu_ns();
                self.core.many(operations, judge).await?;
                taken_ns += thread_cpu_ns() - start_ns;
                first = end;
            }
        }
        let requests = (self.length * self.collections) as f64;
        self.seen.speeds[kind] = requests * 1e3 / taken_ns.max(1) as f64;
        Ok(())
    }

    async fn serve(&mut self) -> farcore::Result<()> {
        let inserted = |_, before: &[u8]| before == [0];
        self.each(0, "map", insert_of, inserted).await?;
        let found = |number, value: &[u8]| value == value_of(number);
        self.each(1, "map", get_of, found).await?;
        let ranked = |_, rank: &[u8]| rank.len() == 8;
        self.each(2, "map", rank_of, ranked).await?;
        let pushed = |number: u64, length: &[u8]| length == (number + 1).to_le_bytes();
        self.each(3, "list", push_of, pushed).await?;
        let popped = |number, page: &[u8]| page.ends_with(&value_of(number));
        self.each(4, "list", pop_of, popped).await?;
        for collection in 0..self.collections {
            let key = format!("map:{}:{collection}", self.length);
            let _ = self.core.delete(key.as_bytes()).await?;
        }
        Ok(())
    }
}

type Value<'a> = [&'a [u8]; 1];

fn insert_of<'a>(key: &'a [u8; 8], value: &'a Value<'a>) -> TreeOp<'a> {
    TreeOp::Insert {
        key,
        value: value[0],
        condition: TreeCondition::Always,
    }
}

fn get_of<'a>(key: &'a [u8; 8], _: &'a Value<'a>) -> TreeOp<'a> {
    TreeOp::Get { key }
}

fn rank_of<'a>(key: &'a [u8; 8], _: &'a Value<'a>) -> TreeOp<'a> {
    TreeOp::Rank { key }
}

fn push_of<'a>(_: &'a [u8; 8], value: &'a Value<'a>) -> TreeOp<'a> {
    TreeOp::Push {
        front: false,
        exists: false,
        replaces: false,
        values: TreeValues::Slices(value),
    }
}

fn pop_of<'a>(_: &'a [u8; 8], _: &'a Value<'a>) -> TreeOp<'a> {
    TreeOp::Pop {
        last: false,
        limit: 1,
    }
}

/// One length in one round.
async fn measure(core: Core, length: u64) -> farcore::Result<Seen> {
    let mut client = Client {
        core,
        length,
        collections: REQUESTS_MIN.div_ceil(length),
        seen: Seen::default(),
    };
    client.serve().await?;
    Ok(client.seen)
}

/// The part `collections`.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Run> {
    let engine = open(plan, |_| {})?;
    let mut lengths: Vec<u64> = LENGTHS.into_iter().filter(|&l| l < plan.keys()).collect();
    lengths.push(plan.keys());
    let mut run = Run::of(Part::Collections);
    let mut rounds = Vec::new();
    let end = all_rounds(&engine, &lengths, &mut run, &mut rounds);
    engine.close();
    run.rows = rows(&lengths, &rounds);
    run.faults.end(end);
    Ok(run)
}

fn all_rounds(
    engine: &Engine,
    lengths: &[u64],
    run: &mut Run,
    rounds: &mut Vec<Vec<Speeds>>,
) -> anyhow::Result<()> {
    for number in 0..ROUNDS {
        let mut speeds = Vec::new();
        for &length in lengths {
            if stop::is_requested() {
                run.faults.partial = true;
                return Ok(());
            }
            let seen = on_core(engine, 0, move |core| measure(core, length))?;
            run.faults.wrong_values += seen.wrong;
            if let Some(error) = seen.failed {
                return Err(error.into());
            }
            speeds.push(seen.speeds);
        }
        if number > 0 {
            rounds.push(speeds);
        }
    }
    Ok(())
}

/// The figures: of each kind, with each length.
fn rows(lengths: &[u64], rounds: &[Vec<Speeds>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (kind, (name, figure_min)) in KINDS.into_iter().enumerate() {
        for (place, length) in lengths.iter().enumerate() {
            let figures = rounds.iter().map(|round| round[place][kind]);
            let Some(figure) = median(figures.collect()) else {
                continue;
            };
            let ratios = rounds
                .iter()
                .map(|round| round[place][kind] / round[0][kind]);
            let is_first = place == 0;
            rows.push(Row {
                name: format!("{name}, {length} elements"),
                figure,
                unit: "Mops/s".to_owned(),
                beside: (!is_first).then(|| format!("{} elements", lengths[0])),
                ratio: median(ratios.collect()).filter(|_| !is_first),
                ratio_min: (!is_first).then_some(LENGTH_RATIO_MIN),
                figure_min: figure_min.filter(|_| is_first),
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::operations::sweeps::tests::plan;

    #[test]
    fn every_kind_has_a_figure_for_each_length_and_no_answer_is_wrong() {
        let mut plan = plan(Part::Collections);
        plan.keys_per_core = 2_000;
        let run = run(&plan).unwrap();
        assert_eq!(run.rows.len(), 2 * KINDS.len());
        assert_eq!(run.faults.wrong_values, 0);
        assert!(run.rows.iter().all(|row| row.figure > 0.0));
    }
}
