//! Every order in which the steps of claim, free, take-back and mend can fall on one bitmap word.
//!
//! The scripts below run the protocol itself over a model of the words, one atomic step at a time.
//! The search visits all schedules; two schedules that led to the same words and gave every script
//! the same results count as one.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::map::{ExtentRun, OwnerId};
use super::protocol::{self, Place, Swap, Tried, Words};
use crate::testing::{block_on, owner};

const EXTENTS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// A claim takes an owner word without reading it.
    OwnerIgnored,
    /// A sweep never finds that a bit had no owner at the previous sweep.
    NothingStale,
}

#[derive(Debug)]
struct World {
    fault: Fault,
    valid: u64,
    bitmap: Cell<u64>,
    owners: [Cell<u64>; EXTENTS],
    /// The script that believes to hold each extent.
    holders: [Cell<u64>; EXTENTS],
    /// What the last sweep saw.
    ownerless: Cell<u64>,
    /// The script that may take one step.
    turn: Cell<Option<usize>>,
    /// The script whose connections were closed.
    dead: Cell<Option<usize>>,
    /// The results that each script received.
    results: RefCell<Vec<Vec<u64>>>,
    wrong: RefCell<Option<String>>,
}

impl World {
    fn cell(&self, place: Place) -> &Cell<u64> {
        match place {
            Place::Bitmap(_) => &self.bitmap,
            Place::Owner(extent) => &self.owners[extent as usize],
        }
    }

    fn complain(&self, what: String) {
        self.wrong.borrow_mut().get_or_insert(what);
    }

    /// A script that believes to hold an extent must be in its owner word.
    fn check(&self) {
        for (extent, holder) in self.holders.iter().enumerate() {
            let owner = self.owners[extent].get();
            if holder.get() != 0 && holder.get() != owner {
                self.complain(format!("{} holds extent {extent} of {owner}", holder.get()));
            }
        }
    }

    fn key(&self) -> Vec<u64> {
        let mut key = vec![self.bitmap.get(), self.ownerless.get()];
        key.push(self.dead.get().map_or(0, |dead| dead as u64 + 1));
        key.extend(self.owners.iter().chain(&self.holders).map(Cell::get));
        for results in self.results.borrow().iter() {
            key.push(results.len() as u64);
            key.extend(results);
        }
        key
    }
}

/// A script's access to the words.
#[derive(Clone, Debug)]
struct Gate {
    world: Rc<World>,
    script: usize,
}

impl Gate {
    /// Waits until the script may take one step.
    async fn step(&self) {
        poll_fn(|_| {
            if self.world.turn.get() == Some(self.script) {
                self.world.turn.set(None);
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    fn record(&self, value: u64) -> u64 {
        self.world.results.borrow_mut()[self.script].push(value);
        value
    }
}

impl Words for Gate {
    type Error = Infallible;

    async fn load(&self, place: Place) -> Result<u64, Infallible> {
        self.step().await;
        Ok(self.record(self.world.cell(place).get()))
    }

    async fn swap(&self, swaps: &[Swap], old: &mut [u64]) -> Result<(), Infallible> {
        for (swap, old) in swaps.iter().zip(old) {
            self.step().await;
            let cell = self.world.cell(swap.place);
            let mut found = cell.get();
            let claims = matches!(swap.place, Place::Owner(_)) && swap.expected == 0;
            if claims && self.world.fault == Fault::OwnerIgnored {
                found = swap.expected;
            }
            if found == swap.expected {
                cell.set(swap.desired);
            }
            *old = self.record(found);
        }
        Ok(())
    }
}

type Script = fn(Gate) -> Pin<Box<dyn Future<Output = ()>>>;

fn id_of(script: usize) -> OwnerId {
    owner(script as u64 + 1)
}

/// Claims the first free run, retrying once if needed; holds it; frees it.
async fn claim_and_free(gate: Gate, count: u32) {
    let (world, id) = (Rc::clone(&gate.world), id_of(gate.script));
    let Ok(mut seen) = gate.load(Place::Bitmap(0)).await;
    for _ in 0..2 {
        let starts = ExtentRun::starts(count);
        let mut runs =
            starts.filter_map(|starts| ExtentRun::find(0, seen | !world.valid, starts, count, 0));
        let Some(run) = runs.next() else {
            return;
        };
        let Ok(tried) = protocol::claim(&gate, id, run, seen).await;
        match tried {
            Tried::Claimed(word) => {
                for extent in run.extents() {
                    let before = world.holders[extent as usize].replace(id.get());
                    if before != 0 {
                        world.complain(format!("{before} and {} hold extent {extent}", id.get()));
                    }
                }
                gate.step().await;
                gate.record(0);
                for extent in run.extents() {
                    world.holders[extent as usize].set(0);
                }
                let Ok(freed) = protocol::free(&gate, id, run, word).await;
                if freed.released != run.mask() {
                    world.complain(format!("{} could free only {:b}", id.get(), freed.released));
                }
                return;
            }
            Tried::Conflict(word) => seen = word,
            Tried::Refused(word) => seen = word | run.mask(),
        }
    }
}

fn one(gate: Gate) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(claim_and_free(gate, 1))
}

fn two(gate: Gate) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(claim_and_free(gate, 2))
}

fn sweep(gate: Gate) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let world = Rc::clone(&gate.world);
        mend(&world, &gate).await;
    })
}

fn two_sweeps(gate: Gate) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let world = Rc::clone(&gate.world);
        mend(&world, &gate).await;
        mend(&world, &gate).await;
    })
}

async fn mend(world: &World, words: &impl Words<Error = Infallible>) {
    let before = match world.fault {
        Fault::NothingStale => 0,
        _ => world.ownerless.get(),
    };
    let Ok(ownerless) = protocol::mend(words, 0, world.valid, before).await;
    world.ownerless.set(ownerless);
}

/// Closes the first script's connections, wherever it is, and reclaims its extents.
fn reap_first(gate: Gate) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let world = Rc::clone(&gate.world);
        gate.step().await;
        gate.record(0);
        world.dead.set(Some(0));
        for holder in &world.holders {
            if holder.get() == id_of(0).get() {
                holder.set(0);
            }
        }
        let Ok(_) = protocol::take_back(&gate, id_of(0), 0, world.valid).await;
    })
}

/// Closes the first script's connections, wherever it is, keeps its extents, and continues in its
/// name: it still holds the extents that it was granted, and frees those in doubt.
fn revive_first(gate: Gate) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let world = Rc::clone(&gate.world);
        gate.step().await;
        gate.record(0);
        world.dead.set(Some(0));
        for extent in (0..).take_while(|extent| world.valid >> extent & 1 == 1) {
            if world.holders[extent as usize].get() == id_of(0).get() {
                continue;
            }
            let run = ExtentRun::new(extent, 1).expect("one extent");
            let Ok(_) = protocol::free(&gate, id_of(0), run, 0).await;
        }
    })
}

/// Frees extent 1, which it holds from the beginning although its bit is clear.
fn free_unmarked(gate: Gate) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let world = Rc::clone(&gate.world);
        gate.step().await;
        gate.record(0);
        world.holders[1].set(0);
        let run = ExtentRun::new(1, 1).expect("one extent");
        let Ok(freed) = protocol::free(&gate, id_of(gate.script), run, 0).await;
        if freed.released != run.mask() {
            world.complain("the owner's extent was not freed".to_owned());
        }
    })
}

#[derive(Clone)]
struct Scenario {
    extents: u32,
    scripts: Vec<Script>,
    /// Bits that a previous sweep saw without an owner, so that the next one clears them at once.
    ownerless: u64,
    /// The script that holds extent 1 from the beginning, with its bit clear.
    unmarked: Option<usize>,
}

/// The words without scheduling, for the checks at the end.
struct Still<'a>(&'a World);

impl Words for Still<'_> {
    type Error = Infallible;

    async fn load(&self, place: Place) -> Result<u64, Infallible> {
        Ok(self.0.cell(place).get())
    }

    async fn swap(&self, swaps: &[Swap], old: &mut [u64]) -> Result<(), Infallible> {
        for (swap, old) in swaps.iter().zip(old) {
            *old = self.0.cell(swap.place).get();
            if *old == swap.expected {
                self.0.cell(swap.place).set(swap.desired);
            }
        }
        Ok(())
    }
}

/// Runs one schedule. Returns the world and the scripts that can continue.
fn replay(scenario: &Scenario, fault: Fault, schedule: &[usize]) -> (Rc<World>, Vec<usize>) {
    let world = Rc::new(World {
        fault,
        valid: (1 << scenario.extents) - 1,
        bitmap: Cell::new(!((1 << scenario.extents) - 1)),
        owners: Default::default(),
        holders: Default::default(),
        ownerless: Cell::new(scenario.ownerless),
        turn: Cell::new(None),
        dead: Cell::new(None),
        results: RefCell::new(vec![Vec::new(); scenario.scripts.len()]),
        wrong: RefCell::new(None),
    });
    if let Some(script) = scenario.unmarked {
        world.owners[1].set(id_of(script).get());
        world.holders[1].set(id_of(script).get());
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut scripts: Vec<_> = (0..)
        .zip(&scenario.scripts)
        .map(|(index, script)| {
            let world = Rc::clone(&world);
            Some(script(Gate {
                world,
                script: index,
            }))
        })
        .collect();
    let mut poll = |index: usize| {
        if let Some(script) = &mut scripts[index]
            && script.as_mut().poll(&mut context).is_ready()
        {
            scripts[index] = None;
        }
        scripts[index].is_some()
    };
    let mut going: Vec<bool> = (0..scenario.scripts.len()).map(&mut poll).collect();
    for &index in schedule {
        world.turn.set(Some(index));
        going[index] = poll(index);
        world.check();
    }
    let alive = |&index: &usize| going[index] && world.dead.get() != Some(index);
    let enabled = (0..going.len()).filter(alive).collect();
    (world, enabled)
}

/// Visits all schedules. Returns the number of distinct states, or the first violation.
fn explore(scenario: &Scenario, fault: Fault) -> Result<usize, String> {
    let mut seen = HashSet::new();
    let mut open = vec![Vec::new()];
    while let Some(schedule) = open.pop() {
        let (world, enabled) = replay(scenario, fault, &schedule);
        let wrong = |what: &str| Err(format!("{what}; schedule {schedule:?}, {world:?}"));
        if let Some(what) = &*world.wrong.borrow() {
            return wrong(what);
        }
        if !seen.insert(world.key()) {
            continue;
        }
        if enabled.is_empty() {
            block_on(mend(&world, &Still(&world)));
            block_on(mend(&world, &Still(&world)));
            let owners = world.owners.iter().map(Cell::get);
            if !owners.eq(world.holders.iter().map(Cell::get)) {
                return wrong("an owner word is not its holder's");
            }
            let owned = (0..).zip(&world.owners).fold(0, |bits, (bit, owner)| {
                bits | u64::from(owner.get() != 0) << bit
            });
            if world.bitmap.get() & world.valid != owned {
                return wrong("two sweeps did not mend the bitmap");
            }
        }
        for index in enabled {
            open.push([&schedule[..], &[index]].concat());
        }
    }
    Ok(seen.len())
}

fn scenario(extents: u32, scripts: &[Script], ownerless: u64) -> Scenario {
    Scenario {
        extents,
        scripts: scripts.to_vec(),
        ownerless,
        unmarked: None,
    }
}

fn scenarios() -> Vec<Scenario> {
    let with_unmarked = |scenario: Scenario, script| Scenario {
        unmarked: Some(script),
        ..scenario
    };
    vec![
        scenario(1, &[one, one, two_sweeps], 0),
        scenario(1, &[one, one, two_sweeps], 1),
        scenario(2, &[two, one, sweep], 0b11),
        scenario(2, &[two, two, sweep], 0b11),
        scenario(1, &[one, one, sweep, reap_first], 1),
        scenario(2, &[two, one, reap_first], 0),
        scenario(1, &[one, one, sweep, revive_first], 1),
        scenario(2, &[two, one, revive_first], 0),
        with_unmarked(scenario(3, &[two, sweep, free_unmarked], 0), 2),
        with_unmarked(scenario(2, &[two, one, free_unmarked], 0), 2),
    ]
}

#[test]
fn no_order_of_steps_makes_two_owners_or_loses_an_extent() {
    for (index, scenario) in scenarios().iter().enumerate() {
        let states =
            explore(scenario, Fault::None).unwrap_or_else(|wrong| panic!("{index}: {wrong}"));
        assert!(
            states > 100,
            "scenario {index} went through only {states} states"
        );
    }
}

#[test]
fn a_claim_that_ignores_the_owner_word_is_noticed() {
    let wrong = explore(&scenarios()[1], Fault::OwnerIgnored).unwrap_err();
    assert!(wrong.contains("hold"), "{wrong}");
}

#[test]
fn a_sweep_that_clears_nothing_is_noticed() {
    let wrong = explore(&scenarios()[4], Fault::NothingStale).unwrap_err();
    assert!(wrong.contains("two sweeps did not mend"), "{wrong}");
}
