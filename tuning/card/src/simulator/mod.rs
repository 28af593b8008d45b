//! The simulator: drives a card's tiers with a workload in virtual time.
//!
//! The tiers, the directory and the queue of misses are the real ones; what is modelled is time:
//! the card starts a message at its rate, memories and links have latencies and bandwidths, and a
//! message goes on when the token that it needs is there. `card` has the state; `hot`,
//! `batch` and `expand` are the three ways to a token; `migration` and `maintenance` move
//! tokens. `steady` tests whether a run has come to rest, and the figures of an outcome are those
//! of its steady part.
//!
//! - I1: the same settings give the same outcome, byte for byte. One thread runs a simulation, and
//!   events of one moment happen in the order in which they were added.
//! - I2: no update of relaxed fields is lost, and no strict change: the tests compare every token
//!   with a model after the run.
//! - I3: a message that needs no other tier is served in one step, a few nanoseconds before events
//!   between its start and its end.

mod arrival;
mod batch;
mod card;
mod events;
mod expand;
mod fit;
mod heat;
mod hot;
mod idle;
mod jobs;
mod limit;
mod link;
mod maintenance;
mod migration;
mod outcome;
mod presets;
mod settings;
mod staging;
mod statistics;
mod steady;
mod thresholds;
mod time;
mod window;

use std::ops::ControlFlow;
use std::sync::Arc;

pub use self::arrival::Arrival;
use self::card::Card;
use self::events::Event;
pub use self::fit::{
    Fit, FitAnswer, FitCurve, FitObject, FitPoint, FitPolicy, FitSettings, Saturated,
};
use self::idle::Idle;
use self::jobs::Job;
pub use self::limit::largest;
use self::maintenance::Before;
pub use self::outcome::{Outcome, POINTS_MAX, SimulationSettings};
pub use self::presets::Preset;
pub use self::settings::{
    BatchSettings, CardSettings, LinkSettings, MaintenanceSettings, ThresholdSettings, Treatment,
};
pub use self::statistics::{
    BatchCounts, ExpandCounts, HotCounts, MigrationCounts, Point, Served, StagingCounts, Statistics,
};
pub use self::steady::Verdict;
use self::steady::{Course, Judged, Segment};
use self::time::{NS, Ps};
use self::window::Window;
use super::handle::Handle;
use super::settings::SettingError;
use super::token::Token;
use super::trace::Recording;
use super::workload::{Message, Population, Workload};

/// Messages and events between two calls of the observer.
const STEPS_MAX: u64 = 1 << 16;
const DAY_NS: u64 = 86_400_000_000_000;
/// What recorded times may last: virtual time of 2^64 ps, with room for what follows the last
/// message.
const RECORDED_NS_MAX: u64 = 200 * DAY_NS;
const _: () = assert!(RECORDED_NS_MAX < u64::MAX / NS - 10 * DAY_NS);

/// How far a simulation is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Messages that were started, those of the warm-up included.
    pub started: u64,
    /// Messages that will be.
    pub total: u64,
    /// The last point of the series, if there is one by now.
    pub point: Option<&'a Point>,
}

/// A simulation.
#[derive(Debug)]
pub struct Simulation {
    settings: SimulationSettings,
    workload: Workload,
    card: Card,
    window: Window,
    /// Time between two starts of the card.
    gap: Ps,
    /// When the card can start the next message.
    ready: Ps,
    started: u64,
    maintenance: Before,
    counted_since: Mark,
    point_since: Mark,
    series: Vec<Point>,
    course: Course,
    is_over: bool,
    idle: Idle,
    /// Messages, events and other work since the observer was called.
    steps: u64,
}

/// How the next message fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Started,
    /// There is none.
    Ended,
    /// The observer broke.
    Interrupted,
}

/// The load of a link. A transfer counts when it is scheduled, so that the last ones of an interval
/// may end after it.
fn load(busy: Ps, passed: f64) -> f64 {
    (busy as f64 / passed).min(1.0)
}

/// Figures at the beginning of an interval.
#[derive(Clone, Debug, Default)]
struct Mark {
    at: Ps,
    messages: u64,
    served: Served,
    migrations: u64,
    cxl_busy: Ps,
    host_busy: Ps,
    cxl_bytes: u64,
    host_bytes: u64,
}

impl Simulation {
    /// A simulation of drawn messages.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn new(settings: SimulationSettings) -> Result<Self, SettingError> {
        settings.validate()?;
        if settings.arrival == Arrival::Recorded {
            return Err(SettingError::Conflict {
                name: "arrival",
                why: "only a trace has recorded times: write a window or a rate".to_owned(),
            });
        }
        let workload = Workload::drawn(&settings.workload)?;
        let population = settings.workload.population;
        let tokens = population.tokens();
        Ok(Self::with(settings, workload, population, &tokens))
    }

    /// A simulation of recorded messages, at most as many as the settings say. Objects of which
    /// only the handle is known have tokens with made fields.
    ///
    /// # Errors
    /// A setting is wrong, or the recording has no message.
    pub fn of_recording(
        mut settings: SimulationSettings,
        recording: Arc<Recording>,
    ) -> Result<Self, SettingError> {
        settings.validate()?;
        let count = recording.messages().len() as u64;
        if count <= settings.warmup {
            return Err(SettingError::Conflict {
                name: "warmup",
                why: format!("the trace has {count} messages: write fewer than that"),
            });
        }
        let (first, last) = (recording.messages().first(), recording.messages().last());
        let origin_ns = first.map_or(0, |message| message.time_ns);
        let lasts_ns = last.map_or(0, |message| message.time_ns - origin_ns);
        if settings.arrival == Arrival::Recorded && lasts_ns > RECORDED_NS_MAX {
            let [days, most] = [lasts_ns, RECORDED_NS_MAX].map(|ns| ns / DAY_NS);
            return Err(SettingError::Conflict {
                name: "arrival",
                why: format!(
                    "the trace lasts {days} days, and recorded times may last {most}: cut it, or write a window or a rate"
                ),
            });
        }
        settings.messages = settings.messages.min(count - settings.warmup);
        let of_handle = |handle: Handle| Population::default().token(handle);
        let known = recording.handles().iter().zip(recording.tokens());
        let tokens: Vec<Token> = known
            .map(|(&handle, token)| token.unwrap_or_else(|| of_handle(handle)))
            .collect();
        let workload = Workload::recorded(recording);
        let mut simulation = Self::with(settings, workload, Population::default(), &tokens);
        if let Window::Recorded(origin) = &mut simulation.window {
            *origin = origin_ns;
        }
        Ok(simulation)
    }

    fn with(
        settings: SimulationSettings,
        workload: Workload,
        population: Population,
        tokens: &[Token],
    ) -> Self {
        Self {
            card: Card::new(settings.card.clone(), population, tokens),
            window: Window::new(&settings.arrival),
            gap: time::from_ns(1e9 / settings.card.messages_s),
            ready: 0,
            started: 0,
            maintenance: Before::default(),
            counted_since: Mark::default(),
            point_since: Mark::default(),
            series: Vec::new(),
            course: Course::new(&settings),
            is_over: false,
            idle: Idle::default(),
            steps: 0,
            workload,
            settings,
        }
    }

    /// Messages that will be started, those of the warm-up included: of a recording, no more than
    /// it has.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.settings.warmup + self.settings.messages
    }

    /// Runs to the end, or until `observe` breaks, which is called at every point of the series and
    /// at least every 65 536 messages or events, also where time passes without messages. What is
    /// under way when it breaks is not counted. A run that ends has a point at least.
    pub fn run(self, observe: impl FnMut(Progress<'_>) -> ControlFlow<()>) -> Outcome {
        let most = self.settings.messages;
        self.run_until_steady(most, observe)
    }

    /// Runs as [`run`](Self::run) does. Unless it is steady at the end, it goes on to twice as many
    /// counted messages, again and again, but not to more than `most`. The outcome is that of a
    /// simulation whose settings have that many.
    pub fn run_until_steady(
        mut self,
        most: u64,
        mut observe: impl FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Outcome {
        let every = self.card.durations.maintenance;
        self.card.events.add(every, Event::Maintenance);
        let mut is_interrupted = self.run_to_end(&mut observe).is_break();
        while !is_interrupted && !self.is_over && self.settings.messages <= most / 2 {
            if self.judged().verdict == Verdict::Steady {
                break;
            }
            self.settings.messages *= 2;
            self.course.coarsen();
            is_interrupted = self.run_to_end(&mut observe).is_break();
        }
        if !is_interrupted {
            is_interrupted = self.drain(&mut observe).is_break();
        }
        // All messages of a short run may be under way when the last one starts.
        if !is_interrupted && self.series.is_empty() {
            self.add_point();
            is_interrupted = self.report(&mut observe).is_break();
        }
        self.finish(is_interrupted)
    }

    /// Runs until all messages of the settings were started; breaks if `observe` does.
    fn run_to_end(
        &mut self,
        observe: &mut impl FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let per_point = (self.settings.messages / u64::from(self.settings.points)).max(1);
        while self.started < self.total() {
            match self.start_next(observe) {
                Next::Started => {}
                Next::Ended => {
                    self.is_over = true;
                    break;
                }
                Next::Interrupted => return ControlFlow::Break(()),
            }
            let counted = self.card.statistics.messages;
            if self.started > self.settings.warmup && self.course.is_due(counted) {
                self.add_segment();
            }
            let ended = self.card.statistics.messages - self.point_since.messages;
            let is_point = ended >= per_point && self.started > self.settings.warmup;
            if is_point {
                self.add_point();
                self.report(observe)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn add_segment(&mut self) {
        let at = self.card.last_end.max(self.counted_since.at + 1);
        self.course.add(Segment {
            mark: self.mark(at),
            latency: self.card.latencies.messages.snapshot(),
        });
    }

    fn judged(&self) -> Judged {
        self.course.judge(&self.settings, &self.counted_since)
    }

    /// Counts steps, and calls the observer when it is time.
    #[inline]
    fn step(
        &mut self,
        steps: u64,
        observe: &mut impl FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.steps += steps;
        if self.steps < STEPS_MAX {
            return ControlFlow::Continue(());
        }
        self.report(observe)
    }

    fn report(
        &mut self,
        observe: &mut impl FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.steps = 0;
        observe(Progress {
            started: self.started,
            total: self.total(),
            point: self.series.last(),
        })
    }

    /// Starts the next message when there is one, after all that happens before it.
    fn start_next(&mut self, observe: &mut impl FnMut(Progress<'_>) -> ControlFlow<()>) -> Next {
        let Some(message) = self.workload.next_message() else {
            return Next::Ended;
        };
        let at = loop {
            let at = self.start_at(&message);
            let steps = match (at, self.card.events.next_at()) {
                (Some(at), next) if next.is_none_or(|next| next > at) => break at,
                (Some(at), Some(_)) if self.card.events.is_quiet() => self.idle(at),
                (_, Some(_)) => {
                    self.happen(true);
                    1
                }
                (_, None) => unreachable!("messages in flight have events"),
            };
            if self.step(steps, observe).is_break() {
                return Next::Interrupted;
            }
        };
        self.window.take();
        // An open workload counts the time that a message waits for the card.
        let since = match self.window {
            Window::Closed(..) => at,
            Window::Open(_) | Window::Recorded(_) => self.arrives_at(&message),
        };
        self.ready = at + self.gap;
        if self.started == self.settings.warmup {
            self.begin_counting(at);
        }
        self.started += 1;
        self.idle.has_begun = false;
        if let Some(end) = self.card.run(Job::new(&message, since), at, false) {
            self.window.add(end);
        }
        match self.step(1, observe) {
            ControlFlow::Continue(()) => Next::Started,
            ControlFlow::Break(()) => Next::Interrupted,
        }
    }

    /// When a message arrives that does not wait for others to end.
    #[inline]
    fn arrives_at(&self, message: &Message) -> Ps {
        match self.window {
            Window::Closed(..) => 0,
            Window::Open(gap) => self.started * gap,
            Window::Recorded(origin_ns) => (message.time_ns - origin_ns) * NS,
        }
    }

    /// When a message starts; `None` while it must wait for another's end.
    #[inline]
    fn start_at(&self, message: &Message) -> Option<Ps> {
        let at = match self.window {
            Window::Closed(..) => self.window.next()?,
            Window::Open(_) | Window::Recorded(_) => self.arrives_at(message),
        };
        Some(at.max(self.ready))
    }

    /// Lets the next event happen.
    fn happen(&mut self, goes_on: bool) {
        let Some((at, event)) = self.card.events.pop() else {
            return;
        };
        if event == Event::Maintenance {
            if goes_on {
                self.card.maintain(&mut self.maintenance, at);
                let next = at + self.card.durations.maintenance;
                self.card.events.add(next, Event::Maintenance);
            }
        } else {
            self.card.handle(event, at);
        }
        for end in std::mem::take(&mut self.card.ended) {
            self.window.add(end);
        }
    }

    /// Lets all happen that is under way.
    fn drain(
        &mut self,
        observe: &mut impl FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        while self.card.events.next_at().is_some() {
            self.happen(false);
            self.step(1, observe)?;
        }
        debug_assert_eq!(self.card.waiters.count(), 0, "a message waits for ever");
        ControlFlow::Continue(())
    }

    fn mark(&self, at: Ps) -> Mark {
        let card = &self.card;
        Mark {
            at,
            messages: card.statistics.messages,
            served: card.statistics.served,
            migrations: card.statistics.migration.total(),
            cxl_busy: card.cxl_link.busy(),
            host_busy: card.host_link.busy(),
            cxl_bytes: card.cxl_link.bytes(),
            host_bytes: card.host_link.bytes(),
        }
    }

    /// Forgets the counts of the warm-up.
    fn begin_counting(&mut self, at: Ps) {
        self.card.statistics = Statistics::default();
        self.card.latencies = card::Latencies::default();
        self.maintenance.forget_served();
        self.counted_since = self.mark(at);
        self.point_since = self.counted_since.clone();
    }

    fn add_point(&mut self) {
        let at = self.card.last_end.max(self.point_since.at + 1);
        let (mark, before) = (self.mark(at), &self.point_since);
        let passed = (at - before.at) as f64;
        let latency = std::mem::take(&mut self.card.latencies.interval);
        let latency = latency.snapshot();
        let moved = std::mem::take(&mut self.card.latencies.moves_interval);
        let moved = moved.snapshot();
        let messages = mark.messages - before.messages;
        self.series.push(Point {
            at_ns: at / NS,
            messages,
            messages_s: messages as f64 / (passed * 1e-12),
            served: mark.served.since(&before.served),
            p50_ns: latency.quantile(0.5),
            p99_ns: latency.quantile(0.99),
            p999_ns: latency.quantile(0.999),
            migrations: mark.migrations - before.migrations,
            migration_p50_ns: moved.quantile(0.5),
            migration_p99_ns: moved.quantile(0.99),
            cxl_load: load(mark.cxl_busy - before.cxl_busy, passed),
            host_load: load(mark.host_busy - before.host_busy, passed),
            card_tokens: u64::from(self.card.table.slots()) - self.card.free_slots.len() as u64,
            staging_tokens: self.card.staging.len(),
            cxl_tokens: self.card.cxl.tokens(),
            cxl_pages: self.card.cxl.used_pages(),
            waiting: self.card.waiters.count(),
            to_cxl: self.card.thresholds.to_cxl(),
            to_card: self.card.thresholds.to_card(),
        });
        self.point_since = mark;
    }

    fn finish(mut self, is_interrupted: bool) -> Outcome {
        let judged = self.judged();
        let end = self.card.last_end.max(self.counted_since.at + 1);
        let (all, whole) = (&self.counted_since, self.mark(end));
        let latencies = &self.card.latencies;
        let mut statistics = std::mem::take(&mut self.card.statistics);
        statistics.latency = latencies.messages.snapshot();
        statistics.batch_latency = latencies.batch.snapshot();
        statistics.expand_latency = latencies.expand.snapshot();
        statistics.migration_latency = latencies.moves.snapshot();
        statistics.cxl_bytes = whole.cxl_bytes - all.cxl_bytes;
        statistics.host_bytes = whole.host_bytes - all.host_bytes;
        let before = self.course.before(judged);
        let since = before.map_or(all, |segment| &segment.mark);
        let latency = before.map_or_else(
            || statistics.latency.clone(),
            |segment| statistics.latency.since(&segment.latency),
        );
        let passed = (end - since.at) as f64;
        Outcome {
            is_interrupted,
            verdict: judged.verdict,
            steady_since_ns: since.at / NS,
            virtual_ns: (end - all.at) / NS,
            messages_s: (whole.messages - since.messages) as f64 / (passed * 1e-12),
            hit_ratio: whole.served.since(&since.served).hit_ratio(),
            p50_ns: latency.quantile(0.5),
            p99_ns: latency.quantile(0.99),
            p999_ns: latency.quantile(0.999),
            cxl_load: load(whole.cxl_busy - since.cxl_busy, passed),
            host_load: load(whole.host_busy - since.host_busy, passed),
            statistics,
            series: self.series,
            settings: self.settings,
        }
    }
}

#[cfg(test)]
mod tests;
