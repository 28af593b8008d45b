//! Jobs that change several keys of several shards at once, under sections, and a check that what
//! they saw is strictly serializable.
//!
//! A value is a list of numbers, to which each change appends its own: bytes of a plain value, or
//! the elements of a collection. So a value read is the whole history of its key, and says which
//! changes came before the read. A collection that is read in several pages is that of the moment
//! of the last one, because elements are added at its end alone. All changes and reads are nodes
//! of a graph: by each key's list, and by time, one comes before another. A cycle is a fault.
//!
//! A change whose outcome is not known (its job gave it up, its section was lost, far memory was
//! away) may have happened in part: each of its appends is a node of its own, without an end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use farcore::{
    Client, Core, Error, Operation, Result, SimulatedEngine, TreeGuard, TreeOp, TreePage,
    TreeValues,
};
use farcore_rdma::simulation::Sleep;
use farcore_tuning::simulated;

use crate::plan::Plan;
use crate::random::Random;

/// The keys, which lie in several shards where there are some.
const KEYS: usize = 4;
/// From here on they are collections.
const FIRST_COLLECTION: usize = 2;
/// Times that one is deleted while that fails: a node may have to be connected again.
const DELETES: usize = 1_000;
/// The pause between two of them.
const DELETE_NAP: Duration = Duration::from_millis(10);
/// Elements of a page that is read of one.
const PAGE_ELEMENTS: u32 = 50;
/// Rounds of one job.
const ROUNDS: u64 = 60;
/// The longest pause of a job.
const NAP_NS: u64 = 40_000;
/// Bytes of a number in a list.
const NUMBER_BYTES: usize = 4;

/// What a job has done or seen.
#[derive(Clone, Debug, Default)]
struct Done {
    begun_ns: u64,
    /// `None` if its outcome is not known.
    ended_ns: Option<u64>,
    /// By key, the list that was read.
    read: BTreeMap<usize, Vec<u32>>,
    /// Keys to which its number was appended, after the reads.
    appended: Vec<usize>,
    /// The reads and appends are one: they were under a section, or on one key.
    is_whole: bool,
}

#[derive(Debug, Default)]
struct Log {
    done: Vec<Done>,
    running: usize,
    ends: bool,
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::default();
}

fn log<T>(work: impl FnOnce(&mut Log) -> T) -> T {
    LOG.with_borrow_mut(work)
}

fn now_ns() -> u64 {
    simulated::now_ns().unwrap_or(0)
}

fn name(key: usize) -> Vec<u8> {
    text(key).into_bytes()
}

fn text(key: usize) -> String {
    format!("section-{key}")
}

/// The names of the keys.
pub(crate) fn names() -> impl Iterator<Item = String> {
    (0..KEYS).map(text)
}

/// Starts the jobs of a plan. Where keys may be evicted, lists end, and there are none.
pub(crate) fn begin(engine: &SimulatedEngine, plan: &Plan) -> std::result::Result<(), String> {
    LOG.set(Log::default());
    let count = if plan.evicts { 0 } else { plan.seed / 3 % 4 };
    for place in 0..count {
        let client = match plan.shared > 0 && place % 2 == 1 {
            true => Some(
                engine
                    .engine()
                    .client()
                    .map_err(|error| error.to_string())?,
            ),
            false => None,
        };
        let random = Random::new(plan.seed ^ (place + 1) << 32);
        start(engine, plan, place, move |core| work(core, client, random))?;
    }
    Ok(())
}

fn start<F: Future<Output = ()>>(
    engine: &SimulatedEngine,
    plan: &Plan,
    place: u64,
    job: impl FnOnce(Core) -> F + Send + 'static,
) -> std::result::Result<(), String> {
    log(|log| log.running += 1);
    let core = usize::try_from(place).unwrap_or(0) % plan.cores;
    let job = engine.engine().run_on_core(core, async move |core| {
        job(core).await;
        log(|log| log.running -= 1);
    });
    drop(job.map_err(|error| error.to_string())?);
    Ok(())
}

/// Has the jobs end.
pub(crate) fn end() {
    log(|log| log.ends = true);
}

/// True once no job runs.
pub(crate) fn have_ended() -> bool {
    log(|log| log.running == 0)
}

/// Reads all keys once more: what was changed and acknowledged must be there. Then it deletes the
/// collections, if all nodes are well.
pub(crate) fn read_all(
    engine: &SimulatedEngine,
    plan: &Plan,
    are_all_well: bool,
) -> std::result::Result<(), String> {
    start(engine, plan, 0, async move |mut core: Core| {
        for key in 0..KEYS {
            let begun = begin_one(&[], true);
            if let Ok(list) = read(&mut core, key).await {
                note_read(begun, key, list);
                end_one(begun);
            }
        }
        if are_all_well {
            delete_collections(&mut core).await;
        }
    })
}

/// Deletes the collections: those that are left in the end are counted.
pub(crate) fn delete_all(engine: &SimulatedEngine, plan: &Plan) -> std::result::Result<(), String> {
    start(engine, plan, 0, async |mut core: Core| {
        delete_collections(&mut core).await;
    })
}

async fn delete_collections(core: &mut Core) {
    for key in FIRST_COLLECTION..KEYS {
        for _ in 0..DELETES {
            if core.delete(&name(key)).await.is_ok() {
                break;
            }
            Sleep::new(DELETE_NAP).await;
        }
    }
}

fn begin_one(appended: &[usize], is_whole: bool) -> usize {
    log(|log| {
        log.done.push(Done {
            begun_ns: now_ns(),
            appended: appended.to_vec(),
            is_whole,
            ..Done::default()
        });
        log.done.len() - 1
    })
}

fn note_read(of: usize, key: usize, list: Vec<u32>) {
    log(|log| log.done[of].read.insert(key, list));
}

fn end_one(of: usize) {
    log(|log| log.done[of].ended_ns = Some(now_ns()));
}

fn list_of(value: &[u8]) -> Vec<u32> {
    let (numbers, rest) = value.as_chunks::<NUMBER_BYTES>();
    assert!(rest.is_empty(), "a list of {} bytes", value.len());
    numbers
        .iter()
        .map(|bytes| u32::from_le_bytes(*bytes))
        .collect()
}

fn is_collection(key: usize) -> bool {
    key >= FIRST_COLLECTION
}

/// Adds the elements of a page to a list. True if there are more.
fn add_page(list: &mut Vec<u32>, page: &TreePage) -> bool {
    list.extend(page.iter().flat_map(|(_, value)| list_of(value)));
    page.has_more()
}

async fn read(core: &mut Core, key: usize) -> Result<Vec<u32>> {
    let name = name(key);
    if !is_collection(key) {
        let value = core.get(&name).await?;
        return Ok(value.map_or(Vec::new(), |value| list_of(&value)));
    }
    let (mut list, mut tree) = (Vec::new(), core.tree(&name));
    loop {
        let start = list.len() as u64;
        let page = tree.range_by_rank(start, u64::MAX, false, PAGE_ELEMENTS);
        if !add_page(&mut list, &page.await?) {
            return Ok(list);
        }
    }
}

/// As [`read`], with a client that others share.
async fn read_with(client: &Client, key: usize) -> Result<Vec<u32>> {
    let name = name(key);
    if !is_collection(key) {
        let value = client.get(&name).await?;
        return Ok(value.map_or(Vec::new(), |value| list_of(&value)));
    }
    let (mut list, tree) = (Vec::new(), client.tree(&name));
    loop {
        let start = list.len() as u64;
        let page = tree.range_by_rank(start, u64::MAX, false, PAGE_ELEMENTS);
        if !add_page(&mut list, &page.await?) {
            return Ok(list);
        }
    }
}

/// Appends a number to the list of a key.
async fn append(core: &mut Core, key: usize, number: &[u8]) -> Result<()> {
    let name = name(key);
    if is_collection(key) {
        core.tree(&name).push_last(&[number]).await?;
    } else {
        core.append(&name, number).await?;
    }
    Ok(())
}

/// As [`append`], as an operation; `values` is the number alone.
fn append_of<'a>(key: usize, name: &'a [u8], values: &'a [&'a [u8]; 1]) -> Operation<'a> {
    if !is_collection(key) {
        return Operation::append(name, values[0]);
    }
    let op = TreeOp::Push {
        front: false,
        exists: false,
        replaces: false,
        values: TreeValues::Slices(values),
    };
    let guard = TreeGuard::default();
    Operation::Tree {
        key: name,
        op,
        guard,
    }
}

/// The job: one change or read after the other.
async fn work(mut core: Core, client: Option<Client>, mut random: Random) {
    for _ in 0..ROUNDS {
        if log(|log| log.ends) {
            return;
        }
        let (first, step) = (random.place(KEYS), 1 + random.place(KEYS - 1));
        let mut keys = [first, (first + step) % KEYS];
        if random.one_in(4) {
            keys.swap(0, 1);
        }
        let kind = random.below(8);
        let outcome = match (kind, &client) {
            (0, _) => append_alone(&mut core, keys[0]).await,
            (1, _) => {
                let begun = begin_one(&[], true);
                read(&mut core, keys[0]).await.map(|list| {
                    note_read(begun, keys[0], list);
                    end_one(begun);
                })
            }
            (_, Some(client)) => {
                let polls = polls(&mut random);
                polled(polls, append_with(client, keys, kind == 2)).await
            }
            (_, None) => {
                let polls = polls(&mut random);
                polled(polls, append_both(&mut core, keys, kind == 2)).await
            }
        };
        if matches!(outcome, Err(Error::Closed)) {
            return;
        }
        match random.one_in(2) {
            true => Sleep::new(Duration::from_nanos(random.below(NAP_NS))).await,
            false => core.yield_now().await,
        }
    }
}

/// Polls after which a change is given up; most never are.
fn polls(random: &mut Random) -> u64 {
    match random.one_in(6) {
        true => random.below(40),
        false => u64::MAX,
    }
}

async fn polled(polls: u64, work: impl Future<Output = Result<()>>) -> Result<()> {
    let (mut work, mut left) = (pin!(work), polls);
    std::future::poll_fn(|context| {
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            return Poll::Ready(result);
        }
        if left == 0 {
            return Poll::Ready(Ok(()));
        }
        left -= 1;
        Poll::Pending
    })
    .await
}

/// A plain change of one key, which waits while others hold its section.
async fn append_alone(core: &mut Core, key: usize) -> Result<()> {
    let begun = begin_one(&[key], true);
    append(core, key, &number_of(begun)).await?;
    end_one(begun);
    Ok(())
}

fn number_of(begun: usize) -> [u8; NUMBER_BYTES] {
    u32::try_from(begun).unwrap_or(u32::MAX).to_le_bytes()
}

/// Reads two keys, and appends to both unless it only reads, under a section.
async fn append_both(core: &mut Core, keys: [usize; 2], only_reads: bool) -> Result<()> {
    let begun = begin_one(if only_reads { &[] } else { &keys }, true);
    let names = keys.map(name);
    let done: Result<()> = core
        .section(&[&names[0], &names[1]], async |core| {
            for key in keys {
                let list = read(core, key).await?;
                note_read(begun, key, list);
            }
            if !only_reads {
                for key in keys {
                    append(core, key, &number_of(begun)).await?;
                }
            }
            Ok(())
        })
        .await?;
    done?;
    end_one(begun);
    Ok(())
}

/// As [`append_both`], with a client that others share.
async fn append_with(client: &Client, keys: [usize; 2], only_reads: bool) -> Result<()> {
    let begun = begin_one(if only_reads { &[] } else { &keys }, true);
    let names = keys.map(name);
    let number = number_of(begun);
    let done: Result<()> = client
        .section(&[&names[0], &names[1]], async |client| {
            for key in keys {
                let list = read_with(client, key).await?;
                note_read(begun, key, list);
            }
            if !only_reads {
                let values = [&number[..]];
                let of = |(key, name)| append_of(key, name, &values);
                let appends = keys
                    .into_iter()
                    .zip(names.iter().map(|name| &name[..]))
                    .map(of);
                let answers = client.many(appends).await?;
                let failed = answers.iter().find_map(|answer| match answer {
                    farcore::Answer::Failed(error) => Some(error.clone()),
                    _ => None,
                });
                failed.map_or(Ok(()), Err)?;
            }
            Ok(())
        })
        .await?;
    done?;
    end_one(begun);
    Ok(())
}

/// Checks what all jobs have seen.
pub(crate) fn check() -> std::result::Result<(), String> {
    judge(&log(|log| std::mem::take(&mut log.done)))
}

/// The order of each key's changes: the longest list that was read. All others are its beginnings.
fn orders(done: &[Done]) -> std::result::Result<Vec<Vec<u32>>, String> {
    let mut orders = vec![Vec::new(); KEYS];
    let reads = || done.iter().flat_map(|done| &done.read);
    for (&key, list) in reads() {
        if list.len() > orders[key].len() {
            orders[key].clone_from(list);
        }
    }
    for (key, list) in reads() {
        if !orders[*key].starts_with(list) {
            return Err(format!(
                "of {key}, {list:?} was read, and {:?}",
                orders[*key]
            ));
        }
    }
    Ok(orders)
}

/// The nodes of the graph, and which come before which by the lists.
#[derive(Debug, Default)]
struct Graph {
    /// By node: when it began and ended.
    times: Vec<(u64, Option<u64>)>,
    edges: Vec<Vec<usize>>,
    /// By number and key, the node of an append.
    appends: BTreeMap<(usize, usize), usize>,
    /// By number, the node of its reads.
    reads: BTreeMap<usize, usize>,
}

impl Graph {
    fn add(&mut self, begun_ns: u64, ended_ns: Option<u64>) -> usize {
        self.times.push((begun_ns, ended_ns));
        self.edges.push(Vec::new());
        self.times.len() - 1
    }

    fn of(done: &[Done]) -> Self {
        let mut graph = Self::default();
        for (number, one) in done.iter().enumerate() {
            if one.ended_ns.is_some() && one.is_whole {
                let node = graph.add(one.begun_ns, one.ended_ns);
                graph.reads.insert(number, node);
                for &key in &one.appended {
                    graph.appends.insert((number, key), node);
                }
            } else {
                for &key in &one.appended {
                    let node = graph.add(one.begun_ns, None);
                    graph.appends.insert((number, key), node);
                }
            }
        }
        graph
    }

    fn before(&mut self, first: usize, second: usize) {
        if first != second {
            self.edges[first].push(second);
        }
    }

    /// A node that no order has room for; `None` if there is one for all.
    fn in_a_cycle(&self) -> Option<usize> {
        let count = self.times.len();
        let is_before = |first: usize, second: usize| {
            let ended = self.times[first].1;
            ended.is_some_and(|ended| ended < self.times[second].0)
        };
        let mut waits_for = vec![0; count];
        for first in 0..count {
            for &second in &self.edges[first] {
                waits_for[second] += 1;
            }
            for (second, waits) in waits_for.iter_mut().enumerate() {
                *waits += usize::from(is_before(first, second));
            }
        }
        let mut ready: Vec<_> = (0..count).filter(|&node| waits_for[node] == 0).collect();
        let mut ordered = 0;
        while let Some(node) = ready.pop() {
            ordered += 1;
            let by_time = (0..count).filter(|&second| is_before(node, second));
            let after: Vec<_> = self.edges[node].iter().copied().chain(by_time).collect();
            for second in after {
                waits_for[second] -= 1;
                if waits_for[second] == 0 {
                    ready.push(second);
                }
            }
        }
        (ordered < count).then(|| (0..count).find(|&node| waits_for[node] > 0).unwrap_or(0))
    }
}

fn judge(done: &[Done]) -> std::result::Result<(), String> {
    let orders = orders(done)?;
    let mut graph = Graph::of(done);
    for (key, order) in orders.iter().enumerate() {
        let mut writers = Vec::new();
        for &number in order {
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            let writer = graph.appends.get(&(number, key)).copied();
            let writer = writer.ok_or_else(|| format!("of {key}, {number} never was appended"))?;
            if writers.contains(&writer) {
                return Err(format!("of {key}, {number} was appended twice: {order:?}"));
            }
            if let Some(&before) = writers.last() {
                graph.before(before, writer);
            }
            writers.push(writer);
        }
        for (number, one) in done.iter().enumerate() {
            let (Some(list), Some(&node)) = (one.read.get(&key), graph.reads.get(&number)) else {
                continue;
            };
            if let Some(last) = list.len().checked_sub(1) {
                graph.before(writers[last], node);
            }
            if let Some(&next) = writers.get(list.len()) {
                graph.before(node, next);
            }
        }
        // What was acknowledged before a list was read is in it.
        for (number, one) in done.iter().enumerate() {
            let is_seen = writers
                .iter()
                .any(|&writer| graph.appends.get(&(number, key)) == Some(&writer));
            let Some(ended_ns) = one
                .ended_ns
                .filter(|_| one.appended.contains(&key) && !is_seen)
            else {
                continue;
            };
            let late = done
                .iter()
                .find(|read| read.begun_ns > ended_ns && read.read.contains_key(&key));
            if let Some(late) = late {
                return Err(format!(
                    "of {key}, {number} was appended and {late:?} lacks it"
                ));
            }
        }
    }
    match graph.in_a_cycle() {
        None => Ok(()),
        Some(node) => {
            let number = graph.reads.iter().find(|it| *it.1 == node).map(|it| *it.0);
            Err(format!(
                "under sections, {number:?} is in no order: {:?}",
                number.map(|number| &done[number])
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(times: (u64, u64), read: &[(usize, &[u32])], appended: &[usize]) -> Done {
        Done {
            begun_ns: times.0,
            ended_ns: Some(times.1),
            read: read
                .iter()
                .map(|(key, list)| (*key, list.to_vec()))
                .collect(),
            appended: appended.to_vec(),
            is_whole: true,
        }
    }

    #[test]
    fn histories_are_told_apart() {
        let first = one((0, 10), &[(0, &[]), (1, &[])], &[0, 1]);
        let second = one((5, 20), &[(0, &[0]), (1, &[0])], &[0, 1]);
        let all = one((30, 40), &[(0, &[0, 1]), (1, &[0, 1])], &[]);
        assert_eq!(judge(&[first.clone(), second.clone(), all.clone()]), Ok(()));
        // Seen half done.
        let half = one((5, 20), &[(0, &[0]), (1, &[])], &[]);
        assert!(judge(&[first.clone(), half.clone(), all.clone()]).is_err());
        let mut unknown = first.clone();
        unknown.ended_ns = None;
        let only_first = one((30, 40), &[(0, &[0]), (1, &[0])], &[]);
        assert_eq!(
            judge(&[unknown, half, only_first]),
            Ok(()),
            "it may be in part"
        );
        // Another came between its read and its append.
        let late = one((5, 20), &[(0, &[])], &[0]);
        let order = one((30, 40), &[(0, &[0, 1])], &[]);
        assert!(judge(&[first.clone(), late, order]).is_err());
        // A read that is late, and an append that is lost.
        let late = one((50, 60), &[(0, &[0])], &[]);
        assert!(judge(&[first.clone(), second, all, late]).is_err());
        let lost = one((30, 40), &[(0, &[])], &[]);
        assert!(judge(&[first, lost]).is_err());
    }
}
