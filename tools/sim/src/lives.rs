//! The lives of an engine with a data directory, over one simulated disk.
//!
//! ```text
//! life: world begins -> engine opens, loads -> all is read and judged -> clients, snapshots, the
//!       disk fails -> the power fails, the process ends, or the engine closes -> next life
//! ```
//!
//! Each life is a world of its own: all that is not on the disk is gone, memory nodes too.
//!
//! - I1: the history of a life is checked by itself; the next one begins with what was read of all
//!   keys and collections, which is judged before (`recovered`).

#![allow(clippy::mem_forget, reason = "a world that has failed is not dropped")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use farcore::{LogPolicy, SimulatedEngine, SnapshotSummary};
use farcore_rdma::simulation;
use farcore_tuning::simulated;

use crate::call::{Answered, Call, Found as FoundInTree, Refusal, TreeCall};
use crate::client;
use crate::collections::{Held, Model};
use crate::disk::DiskFaults;
use crate::disk::store::SimulatedStore;
use crate::history::{Entry, History, Rules};
use crate::memory::ENGINE;
use crate::plan::{DurablePlan, Plan};
use crate::recovered::{Base, Found, Life, Promise, kind_of_number};
use crate::workload::name_of_tree;
use crate::world::{BEGINS_NS, DATA_DIR, Outcome, World, options};

/// Steps between two checks of the shards.
const CHECK_STEPS: u64 = 256;
/// How long the disk is full, or performs nothing, in steps at most.
const WEATHER_STEPS: u64 = 1_500;
/// Steps within which an engine opens.
const OPEN_STEPS: u64 = 400_000;
/// How long a machine is off.
const OFF_NS: u64 = 5_000_000;
/// Elements of a page.
const PAGE: u32 = 200;
/// With a log that is synced each second, what was answered this long before the end is there,
/// unless the disk has failed: marks, and the syncs after them, wait for cores and sections.
const LOG_NS: u64 = 4_000_000_000;
/// Where steps take longer, sections of all shards are lost before all of them have noted a mark.
const MARKED_PACE_MAX: u64 = 300;
/// And this many steps before the end: time may pass at once, and cores must have had their turns.
const LOG_STEPS: u64 = 4_000;

/// What an engine's end leaves.
struct Ended {
    shards: BTreeMap<String, u16>,
    promise: Promise,
    /// A snapshot was completed, or keys were loaded.
    is_begun: bool,
}

/// A snapshot that was requested.
struct Snapshot {
    outcome: Receiver<farcore::Result<SnapshotSummary>>,
    begun: u64,
}

/// How a life ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    PowerFails,
    ProcessEnds,
    Closes,
}

/// Runs the lives of a plan.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let Some(durable) = plan.durable else {
        return World::new(plan).outcome(Some("the plan has no data directory".into()));
    };
    simulated::take_reached();
    let mut world = World::new(plan);
    let store = SimulatedStore::new(plan.seed);
    world.store = Some(store.clone());
    let mut before = None;
    let mut system_ns = BEGINS_NS;
    for life in 0..durable.lives {
        let seed = plan.seed ^ life << 40;
        let inside = simulation::enter(seed, system_ns, options(plan));
        client::begin();
        world.begin_life(system_ns);
        let mut outcome = None;
        let failure = world.caught(|world| {
            outcome = live(world, &store, (durable, life), before.take())?;
            Ok(())
        });
        let now_ns = simulated::now_ns().unwrap_or(0);
        system_ns += now_ns + OFF_NS;
        if failure.is_some() {
            let outcome = world.outcome(failure);
            std::mem::forget(world);
            inside.abandon();
            return outcome;
        }
        drop(inside);
        before = outcome;
        if before.is_none() {
            // The engine did not open, as it should.
            break;
        }
    }
    world.outcome(None)
}

/// One life. `None` if the engine did not open on a disk that was damaged.
fn live(
    world: &mut World,
    store: &SimulatedStore,
    (durable, life): (DurablePlan, u64),
    before: Option<Ended>,
) -> Result<Option<Ended>, String> {
    store.set_faults(
        DiskFaults {
            fail: 0,
            ..durable.faults
        },
        0,
    );
    store.set_full(false);
    store.begin_life();
    world.start_nodes()?;
    world.plan.cores = 1 + world.random.place(durable.cores);
    let mut config = world.config()?;
    config.seed = Some(world.random.next());
    world.note(40, life, || {
        format!("life {life} begins, on the disk {:?}", store.list())
    });
    let begun = {
        let _own = simulated::own(ENGINE);
        SimulatedEngine::begin_on(&config, Some(Arc::new(store.clone())))
    };
    let mut engine = begun.map_err(|error| error.to_string())?;
    if !open(world, store, &mut engine)? {
        drop(engine);
        world.nodes.clear();
        return Ok(None);
    }
    world.begin_clients(&engine)?;
    if let Some(before) = before {
        recover(world, &engine, &before)?;
    }
    let is_last = life + 1 == durable.lives;
    let mut snapshots = Snapshots::default();
    be_busy(world, store, &engine, (durable, &mut snapshots))?;
    let end = match (durable.ends_softly || is_last) && !store.is_off() {
        true => world
            .random
            .of(&[End::PowerFails, End::ProcessEnds, End::Closes]),
        false => End::PowerFails,
    };
    world.note(41, end as u64, || format!("life {life} ends: {end:?}"));
    let closed = (end == End::Closes || is_last) && !store.is_off();
    let mut ended = finish(world, store, &engine, (durable, closed, &snapshots))?;
    match end {
        _ if closed => {}
        End::ProcessEnds => store.end_process(),
        _ => store.crash(),
    }
    if durable.rots && world.random.one_in(2) {
        let name = store.damage();
        world.note(44, 0, || format!("a bit of {name:?} flips"));
    }
    if store.damages() > 0 {
        // What was synced last may be taken for an end that was torn.
        (ended.promise.since, ended.promise.is_one_moment) = (0, false);
        ended.promise.is_damaged = true;
    }
    world.history.abandon_all(world.moment());
    engine.crash();
    world.clients.clear();
    drop(engine);
    world.nodes.clear();
    check_history(world)?;
    ended.promise.ceiling_ms = 0;
    Ok(Some(ended))
}

fn rules(world: &World) -> Rules<'static> {
    Rules {
        vanishes: world.plan.evicts,
        mistakes: None,
    }
}

fn check_history(world: &World) -> Result<(), String> {
    world.history.check(&world.names, rules(world))
}

/// Waits until the engine is open. False if it refuses to open because the disk has damaged what it
/// holds, and names the file.
fn open(
    world: &mut World,
    store: &SimulatedStore,
    engine: &mut SimulatedEngine,
) -> Result<bool, String> {
    for _ in 0..OPEN_STEPS {
        match engine.is_open() {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => {
                let text = error.to_string();
                if store.damages() > 0 && text.contains(DATA_DIR) {
                    world.coverage.fault(REFUSED);
                    return Ok(false);
                }
                return Err(format!("the engine does not open: {text}"));
            }
        }
        world.take_step()?;
    }
    Err(format!("the engine is not open after {OPEN_STEPS} steps"))
}

/// The snapshots of a life.
#[derive(Default)]
struct Snapshots {
    under_way: Vec<Snapshot>,
    /// When the last one was requested that was completed.
    completed: u64,
}

impl Snapshots {
    fn look(&mut self, world: &mut World) -> Result<(), String> {
        let mut failed = Vec::new();
        self.under_way
            .retain(|snapshot| match snapshot.outcome.try_recv() {
                Ok(Ok(_)) => {
                    self.completed = self.completed.max(snapshot.begun);
                    world.coverage.fault(COMPLETED);
                    false
                }
                Ok(Err(error)) => {
                    failed.push(error);
                    false
                }
                Err(TryRecvError::Empty) => true,
                Err(TryRecvError::Disconnected) => false,
            });
        for error in failed {
            world.coverage.error(&crate::call::name_of(&error));
        }
        Ok(())
    }
}

const REFUSED: &str = "damaged disks that are refused";
const COMPLETED: &str = "snapshots completed";

/// Clients make calls, snapshots are requested, and the disk fails, for some steps.
fn be_busy(
    world: &mut World,
    store: &SimulatedStore,
    engine: &SimulatedEngine,
    (durable, snapshots): (DurablePlan, &mut Snapshots),
) -> Result<(), String> {
    (world.is_faulty, world.is_busy) = (true, true);
    store.set_faults(durable.faults, durable.call_fails);
    let steps = world.plan.steps / 2 + world.random.below(world.plan.steps);
    let end = world.step + steps;
    if durable.snapshot > 0 && world.random.one_in(2) {
        store.crash_after(world.random.below(40));
    }
    // Until when the disk is full, or performs nothing.
    let mut until = 0;
    while world.step < end && !store.is_off() {
        world.take_step()?;
        if world.step.is_multiple_of(CHECK_STEPS) {
            engine.check();
            world.check_time(engine)?;
        }
        let mut happens = |often: u64| often > 0 && world.random.one_in(often);
        if happens(durable.snapshot) && snapshots.under_way.len() < 2 {
            let outcome = engine.begin_snapshot().map_err(|error| error.to_string())?;
            let begun = world.step;
            snapshots.under_way.push(Snapshot { outcome, begun });
            world.note(42, 0, || "a snapshot is requested".into());
        } else if until == 0 && happens(durable.full) {
            store.set_full(true);
            until = world.step + world.random.below(WEATHER_STEPS);
        } else if until == 0 && happens(durable.hang) {
            let hangs = DiskFaults {
                delay: 1,
                ..durable.faults
            };
            store.set_faults(hangs, durable.call_fails);
            until = world.step + world.random.below(WEATHER_STEPS);
        } else if until > 0 && world.step >= until {
            store.set_full(false);
            store.set_faults(durable.faults, durable.call_fails);
            until = 0;
        }
        snapshots.look(world)?;
    }
    Ok(())
}

/// Ends what a life does; what it leaves.
fn finish(
    world: &mut World,
    store: &SimulatedStore,
    engine: &SimulatedEngine,
    (durable, closes, snapshots): (DurablePlan, bool, &Snapshots),
) -> Result<Ended, String> {
    let names = world.names.iter().cloned();
    let names = names.chain((0..world.plan.trees).map(name_of_tree));
    let shards = names.map(|name| {
        let (shard, _) = engine.place_of(name.as_bytes());
        (name, shard)
    });
    let shards = shards.collect();
    let mut since = snapshots.completed;
    if closes {
        // The power stays on.
        store.begin_life();
        (world.is_faulty, world.is_busy) = (false, false);
        store.set_full(false);
        store.set_faults(DiskFaults::default(), 0);
        // A log that was given up is begun anew after a while.
        world.let_time_flow(true);
        let answered = world.until_answered();
        let stats = engine.engine().durable_stats();
        answered
            .map_err(|error| format!("{error}; journals: {:?}; {stats:?}", engine.journals()))?;
        // What a log that was given up lacks is lost where no base was written since.
        let is_failing = stats.is_some_and(|stats| stats.is_failing);
        match durable.log {
            LogPolicy::Always => since = u64::MAX,
            LogPolicy::EverySecond if !is_failing => since = u64::MAX,
            _ => {}
        }
        engine.check();
        world.note_figures(engine);
        world.close(engine)?;
    } else {
        world.note_figures(engine);
        let (journals, stats) = (engine.journals(), engine.engine().durable_stats());
        world.note(43, 0, || {
            format!("{stats:?}, journals {journals:?}, disk {:?}", store.list())
        });
        // What has been published is answered.
        for place in 0..world.clients.len() {
            world.receive(place)?;
        }
        match durable.log {
            LogPolicy::Always => since = u64::MAX,
            LogPolicy::EverySecond
                if store.failures() == 0
                    && durable.hang == 0
                    && world.plan.pace <= MARKED_PACE_MAX =>
            {
                let now_ns = simulated::now_ns().unwrap_or(0);
                let early = world.history.since(0).iter().filter_map(|entry| {
                    let (ended, _) = entry.ended.as_ref()?;
                    let is_old = ended.ns + LOG_NS < now_ns && ended.step + LOG_STEPS < world.step;
                    is_old.then_some(ended.step + 1)
                });
                since = since.max(early.max().unwrap_or(0));
            }
            _ => {}
        }
    }
    let promise = Promise {
        since,
        is_one_moment: durable.log == LogPolicy::EverySecond,
        vanishes: world.plan.evicts,
        is_damaged: false,
        ceiling_ms: 0,
    };
    Ok(Ended {
        shards,
        promise,
        is_begun: snapshots.completed > 0 || world.history.has_base(),
    })
}

/// Reads all that is there, judges it, and begins a history with it.
fn recover(world: &mut World, engine: &SimulatedEngine, before: &Ended) -> Result<(), String> {
    let store_damages = world.store.as_ref().map_or(0, SimulatedStore::damages);
    let next = world.history.next();
    world.count_calls();
    let life = std::mem::replace(&mut world.history, History::from(next));
    let found = read_all(world)?;
    engine.check();
    let names = world.names.clone();
    let shards = &before.shards;
    let shard_of = |name: &str| shards.get(name).copied().unwrap_or(0);
    let judged = Life {
        entries: &life.all(),
        names: &names,
        name_of_tree,
        trees: life.trees(),
        shard_of: &shard_of,
    };
    let promise = Promise {
        ceiling_ms: world.moment().ceiling_ms,
        ..before.promise
    };
    let base = judged.judge(&found, promise)?;
    let is_empty = found.keys.is_empty() && found.trees.is_empty();
    if is_empty && before.is_begun && store_damages > 0 && world.plan.keys > 10 && !promise.vanishes
    {
        return Err("a damaged disk is taken for an empty one".into());
    }
    world.coverage.reached(BTreeMap::from([
        ("keys recovered", found.keys.len() as u64),
        ("collections recovered", found.trees.len() as u64),
        ("unanswered changes recovered", base.happened),
        ("answered changes left out", base.left_out),
    ]));
    begin_history(world, base)
}

/// Begins a history with what was found.
fn begin_history(world: &mut World, base: Base) -> Result<(), String> {
    world.history.set_base(base.entries, base.trees);
    let deletes = base
        .unclear_keys
        .into_iter()
        .map(|key| Call::Delete { key });
    let trees = base.unclear_trees.into_iter();
    let deletes = deletes.chain(trees.map(|tree| Call::DeleteTree { tree }));
    world.call_all_by(0, deletes.collect())?;
    Ok(())
}

fn answers(world: &World, first: usize) -> impl Iterator<Item = (&Entry, &Answered)> {
    let entries = world.history.since(first).iter();
    entries.filter_map(|entry| Some((entry, &entry.ended.as_ref()?.1)))
}

/// Reads every key and every collection.
fn read_all(world: &mut World) -> Result<Found, String> {
    let mut found = Found::default();
    // Handles come first, then shared clients, which read values of any length.
    let reader = world.plan.handles;
    let keys = (0..world.plan.keys).map(|key| Call::Get { key, is_long: true });
    let first = world.call_all_by(reader, keys.collect())?;
    for (entry, answered) in answers(world, first) {
        let Call::Get { key, .. } = entry.call else {
            continue;
        };
        match answered {
            Answered::Value(version, value) => drop(found.keys.insert(key, (*version, *value))),
            Answered::Absent => {}
            other => return Err(format!("key {key} was answered {other:?} after a restart")),
        }
    }
    for tree in 0..world.plan.trees {
        if let Some(model) = read_tree(world, tree)? {
            found.trees.insert(tree, model);
        }
    }
    Ok(found)
}

/// What a collection holds; `None` if it is absent.
fn read_tree(world: &mut World, tree: u64) -> Result<Option<Model>, String> {
    let wrong =
        |what: &Answered| format!("collection {tree} was answered {what:?} after a restart");
    let ask = |world: &mut World, call: TreeCall, tag: u8| {
        let guard = farcore::TreeGuard { tag, version: None };
        let first = world.call_all_by(0, vec![Call::Tree { tree, call, guard }])?;
        let answered = answers(world, first).next().map(|one| one.1.clone());
        answered.ok_or("no answer".to_owned())
    };
    let (kind, tag, version) = match ask(world, TreeCall::Len, 0)? {
        Answered::Tree(_, FoundInTree::Len(0, ..)) | Answered::Absent => return Ok(None),
        Answered::Tree(version, FoundInTree::Len(_, kind, tag)) => (kind, tag, version),
        Answered::Refused(Refusal::NoCollection) => {
            let first = world.call_all_by(0, vec![Call::GetTree { tree }])?;
            let answered = answers(world, first).next().map(|one| one.1.clone());
            return match answered {
                Some(Answered::Value(version, _)) => Ok(Some(Model {
                    held: Held::Plain,
                    version,
                    ..Model::ABSENT
                })),
                Some(Answered::Absent) => Ok(None),
                other => Err(format!("collection {tree} was answered {other:?}")),
            };
        }
        other => return Err(wrong(&other)),
    };
    let mut elements = Vec::new();
    loop {
        let start = elements.len() as u64;
        let call = TreeCall::Ranks(start, u64::MAX, false, PAGE);
        match ask(world, call, tag)? {
            Answered::Tree(_, FoundInTree::Page(more, page)) => {
                elements.extend(page);
                if !more {
                    break;
                }
            }
            // It has expired meanwhile.
            Answered::Absent => return Ok(None),
            other => return Err(wrong(&other)),
        }
    }
    Ok(Some(Model::of(
        kind_of_number(kind),
        tag,
        version,
        &elements,
    )))
}
