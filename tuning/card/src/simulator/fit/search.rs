//! A search for what fits: which simulations come next, and threads that run them.
//!
//! First come all counts of a grid, then bisections between the last count that fits and the first
//! that does not. The rate is taken to fall with the number.
//!
//! - I1: the plan depends on the figures alone, not on the order in which they come.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::curve::{FitAnswer, FitCurve, FitPoint, FitRun};
use super::{FitPolicy, FitSettings, GRID, POINTS};
use crate::settings::SettingError;
use crate::simulator::Simulation;

/// The answer is known to one part in this many.
const PARTS: u32 = 32;
/// Bisections from a factor of two to that.
const BISECTIONS: u64 = 5;

/// One simulation of a [`Fit`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FitJob {
    policy: usize,
    count: u32,
    repeat: u32,
}

/// A search for what fits.
#[derive(Clone, Debug)]
pub struct Fit {
    settings: FitSettings,
    /// The simulations of each policy, by count and repeat.
    runs: Vec<BTreeMap<u32, BTreeMap<u32, FitRun>>>,
}

impl Fit {
    /// A search.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn new(mut settings: FitSettings) -> Result<Self, SettingError> {
        settings.validate()?;
        settings.base.points = POINTS;
        Ok(Self {
            runs: vec![BTreeMap::new(); settings.policies.len()],
            settings,
        })
    }

    /// What is looked for.
    #[must_use]
    pub fn settings(&self) -> &FitSettings {
        &self.settings
    }

    /// Whether all is known.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.jobs().is_empty()
    }

    /// The simulations that can be run now, in any order; none when all is known.
    fn jobs(&self) -> Vec<FitJob> {
        let policies = 0..self.settings.policies.len();
        let missing = |policy: usize, count: u32| {
            let done = self.runs[policy].get(&count);
            (0..self.settings.repeats)
                .filter(move |repeat| done.is_none_or(|done| !done.contains_key(repeat)))
                .map(move |repeat| FitJob {
                    policy,
                    count,
                    repeat,
                })
        };
        // Also what is left of a bisection that has begun.
        let counts = |policy: usize| {
            let begun = self.runs[policy].keys().copied();
            GRID.into_iter()
                .chain(begun.filter(|count| !GRID.contains(count)))
        };
        let first = policies
            .clone()
            .flat_map(|policy| counts(policy).flat_map(move |count| missing(policy, count)));
        let first: Vec<FitJob> = first.collect();
        if !first.is_empty() {
            return first;
        }
        let next = policies.flat_map(|policy| {
            let count = self.bisected(&self.answer(policy));
            count
                .into_iter()
                .flat_map(move |count| missing(policy, count))
        });
        next.collect()
    }

    /// The count to look at between what fits and what does not, if they are apart.
    fn bisected(&self, answer: &FitAnswer) -> Option<u32> {
        let slows = answer.slows?;
        let is_near = slows - answer.fits <= answer.fits / PARTS + 1;
        (!is_near).then(|| u32::midpoint(answer.fits, slows))
    }

    /// Simulations that were run, and about how many there will be.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let done = self.runs.iter().flat_map(BTreeMap::values);
        let done: u64 = done.map(|runs| runs.len() as u64).sum();
        if self.is_complete() {
            return (done, done);
        }
        let each = GRID.len() as u64 + BISECTIONS;
        let all = each * u64::from(self.settings.repeats) * self.runs.len() as u64;
        (done, all.max(done + 1))
    }

    /// Runs the simulations of the search on some threads, until all is known, `stop` says so or a
    /// setting is wrong; `observe` is called after each.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn search(
        self,
        threads: usize,
        stop: impl Fn() -> bool + Sync,
        observe: impl Fn(&Self) + Sync,
    ) -> Result<Self, SettingError> {
        let settings = self.settings.clone();
        let work = Work {
            state: Mutex::new(Searching {
                queue: VecDeque::new(),
                running: 0,
                error: None,
                fit: self,
            }),
            changed: Condvar::new(),
        };
        thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    while let Some(job) = work.next(&stop) {
                        // Also at a fault, after which the others go on.
                        let ended = Ended(&work);
                        let run = simulated(&settings, job, &stop);
                        let mut state = work.lock();
                        match run {
                            Ok(Some(run)) => {
                                state.fit.add(job, run);
                                observe(&state.fit);
                            }
                            Ok(None) => {}
                            Err(error) => state.error = Some(error),
                        }
                        drop(state);
                        drop(ended);
                    }
                });
            }
        });
        let state = work
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        state.error.map_or(Ok(state.fit), Err)
    }

    /// Takes the figures of a simulation.
    fn add(&mut self, job: FitJob, run: FitRun) {
        if let Some(runs) = self.runs.get_mut(job.policy) {
            runs.entry(job.count).or_default().insert(job.repeat, run);
        }
    }

    fn points(&self, policy: usize) -> Vec<FitPoint> {
        let point = |(&count, runs): (&u32, &BTreeMap<u32, FitRun>)| {
            let runs: Vec<FitRun> = runs.values().copied().collect();
            FitPoint::of(count, &runs)
        };
        self.runs[policy].iter().filter_map(point).collect()
    }

    fn answer(&self, policy: usize) -> FitAnswer {
        let target = self.settings.target();
        let points = self.points(policy);
        let keeps = |point: &&FitPoint| point.messages_s.mean >= target;
        let fitting = points.iter().take_while(keeps);
        let fits = fitting.clone().last().map_or(0, |point| point.count);
        let surely = fitting.take_while(|point| point.messages_s.low >= target);
        let slowing = points.iter().find(|point| !keeps(point));
        FitAnswer {
            fits,
            surely: surely.last().map_or(0, |point| point.count),
            slows: slowing.map(|point| point.count),
            saturated: slowing.map(FitPoint::saturated),
        }
    }

    /// The curves as far as they are known.
    #[must_use]
    pub fn curves(&self) -> Vec<FitCurve> {
        let policies = self.settings.policies.iter().enumerate();
        let curve = |(at, &policy): (usize, &FitPolicy)| FitCurve {
            policy,
            points: self.points(at),
            answer: self.answer(at),
        };
        policies.map(curve).collect()
    }
}

/// What the threads of a search share.
struct Searching {
    fit: Fit,
    queue: VecDeque<FitJob>,
    running: usize,
    error: Option<SettingError>,
}

struct Work {
    state: Mutex<Searching>,
    /// A simulation has ended, or others came up.
    changed: Condvar,
}

/// Counts a simulation as ended when it is dropped.
struct Ended<'a>(&'a Work);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.changed.notify_all();
    }
}

impl Work {
    fn lock(&self) -> MutexGuard<'_, Searching> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next simulation; nothing at the end.
    fn next(&self, stop: &impl Fn() -> bool) -> Option<FitJob> {
        let mut state = self.lock();
        loop {
            if stop() || state.error.is_some() {
                return None;
            }
            if let Some(job) = state.queue.pop_front() {
                state.running += 1;
                return Some(job);
            }
            if state.running > 0 {
                // What comes next depends on all that run.
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.queue = state.fit.jobs().into();
            self.changed.notify_all();
            if state.queue.is_empty() {
                return None;
            }
        }
    }
}

/// Runs a simulation; nothing if it was stopped.
fn simulated(
    settings: &FitSettings,
    job: FitJob,
    stop: &impl Fn() -> bool,
) -> Result<Option<FitRun>, SettingError> {
    let Some(&policy) = settings.policies.get(job.policy) else {
        return Ok(None);
    };
    let simulation = Simulation::new(settings.settings(policy, job.count, job.repeat))?;
    let outcome = simulation.run_until_steady(settings.messages_max, |_| match stop() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    Ok((!outcome.is_interrupted).then(|| FitRun::of(&outcome)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::policy::PolicyName;
    use crate::simulator::{Arrival, FitPolicy, Saturated};
    use crate::workload::{Pattern, Population};

    fn settings() -> FitSettings {
        let mut settings = FitSettings {
            policies: vec![FitPolicy::Plain(PolicyName::Lru)],
            repeats: 2,
            messages_max: 20_000,
            ..FitSettings::default()
        };
        let base = &mut settings.base;
        base.card.card_entries = 1_000;
        base.card.staging_entries = 16;
        base.workload.pattern = Pattern::Uniform;
        base.workload.population = Population {
            queue_pairs: 0,
            regions: 0,
            completion_queues: 0,
            domains: 1,
        };
        base.arrival = Arrival::Closed { window: 32 };
        (base.messages, base.warmup) = (20_000, 70_000);
        settings
    }

    fn searched(settings: FitSettings) -> Fit {
        let before = Mutex::new(0);
        let observe = |fit: &Fit| {
            let (done, all) = fit.progress();
            let before = std::mem::replace(&mut *before.lock().unwrap(), done);
            assert!(done == before + 1 && done <= all, "{before} {done} {all}");
        };
        let fit = Fit::new(settings).unwrap();
        fit.search(2, || false, observe).unwrap()
    }

    #[test]
    fn about_as_many_fit_as_the_card_has_places_and_the_reason_says_why() {
        let fit = searched(settings());
        let [curve] = &fit.curves()[..] else {
            panic!("one policy");
        };
        let answer = curve.answer;
        assert!((950..1_250).contains(&answer.fits), "{answer:?}");
        assert!(answer.surely <= answer.fits, "{answer:?}");
        assert_eq!(answer.saturated, Some(Saturated::HostLink));
        let reason = curve.reason(fit.settings());
        assert!(reason.contains("1000 places are 100 % full"), "{reason}");
        assert!(reason.contains("link to the host is"), "{reason}");
        assert!(curve.points.len() > GRID.len());
        assert!(curve.points.is_sorted_by_key(|point| point.count));
    }

    #[test]
    fn a_target_that_all_keep_or_none_has_an_answer() {
        let mut settings = settings();
        settings.kept = 0.01;
        let fit = searched(settings.clone());
        let curve = &fit.curves()[0];
        assert_eq!((curve.answer.fits, curve.answer.slows), (65_536, None));
        assert!(
            curve
                .reason(fit.settings())
                .starts_with("all 65536 queue pairs")
        );
        // A link that lets one message through at a time, and no place for 256.
        settings.kept = 1.0;
        settings.base.card.card_entries = 16;
        settings.base.card.host.transfers_max = 1;
        let answer = searched(settings).curves()[0].answer;
        assert!(answer.fits < 64 && answer.slows.is_some(), "{answer:?}");
    }

    #[test]
    fn a_search_that_is_stopped_has_what_is_known() {
        let done = AtomicU64::new(0);
        let fit = Fit::new(settings()).unwrap();
        let stop = || done.load(Ordering::Relaxed) >= 3;
        let observe = |fit: &Fit| done.store(fit.progress().0, Ordering::Relaxed);
        let fit = fit.search(1, stop, observe).unwrap();
        assert_eq!(fit.progress().0, 3);
        assert_eq!(fit.curves()[0].points.len(), 2);
        assert!(!fit.is_complete());
    }
}
