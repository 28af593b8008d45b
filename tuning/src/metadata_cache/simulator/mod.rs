//! The simulator: drives a card's tiers with a workload in virtual time.
//!
//! The tiers, the directory and the queue of misses are the real ones; what is modelled is time:
//! the card starts a message at its rate, memories and links have latencies and bandwidths, and a
//! message goes on when the token that it needs is there. [`card`] has the state; [`hot`],
//! [`batch`] and [`expand`] are the three ways to a token; [`migration`] and [`maintenance`] move
//! tokens. [`steady`] tests whether a run has come to rest, and the figures of an outcome are those
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

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

pub use self::arrival::Arrival;
use self::card::Card;
use self::events::Event;
pub use self::fit::{
    Fit, FitAnswer, FitCurve, FitObject, FitPoint, FitPolicy, FitSettings, Saturated,
};
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
use super::handle::Handle;
use super::settings::SettingError;
use super::token::Token;
use super::trace::Recording;
use super::workload::{Message, Population, Workload};

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

/// When the host may start further messages.
#[derive(Debug)]
enum Window {
    /// When messages in flight end: those that ended in order, and others.
    Closed(VecDeque<Ps>, BinaryHeap<Reverse<Ps>>),
    /// Time between two messages.
    Open(Ps),
    Recorded,
}

impl Window {
    fn new(arrival: &Arrival) -> Self {
        match *arrival {
            Arrival::Closed { window } => {
                Self::Closed((0..window).map(|_| 0).collect(), BinaryHeap::new())
            }
            Arrival::Open { messages_s } => Self::Open(time::from_ns(1e9 / messages_s)),
            Arrival::Recorded => Self::Recorded,
        }
    }

    /// When the next message may start; `None` while all are in flight.
    #[inline]
    fn next(&self) -> Option<Ps> {
        let Self::Closed(ordered, others) = self else {
            return Some(0);
        };
        let other = others.peek().map(|&Reverse(at)| at);
        match (ordered.front(), other) {
            (Some(&one), Some(other)) => Some(one.min(other)),
            (one, other) => one.copied().or(other),
        }
    }

    fn take(&mut self) {
        if let Self::Closed(ordered, others) = self {
            let other = others.peek().map(|&Reverse(at)| at);
            let first = ordered.front().copied();
            if first.is_some_and(|first| other.is_none_or(|other| first <= other)) {
                ordered.pop_front();
            } else {
                others.pop();
            }
        }
    }

    #[inline]
    fn add(&mut self, end: Ps) {
        if let Self::Closed(ordered, others) = self {
            if ordered.back().is_none_or(|&last| last <= end) {
                ordered.push_back(end);
            } else {
                others.push(Reverse(end));
            }
        }
    }
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
        settings.messages = settings.messages.min(count - settings.warmup);
        let of_handle = |handle: Handle| Population::default().token(handle);
        let known = recording.handles().iter().zip(recording.tokens());
        let tokens: Vec<Token> = known
            .map(|(&handle, token)| token.unwrap_or_else(|| of_handle(handle)))
            .collect();
        let workload = Workload::recorded(recording);
        Ok(Self::with(
            settings,
            workload,
            Population::default(),
            &tokens,
        ))
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
            workload,
            settings,
        }
    }

    fn total(&self) -> u64 {
        self.settings.warmup + self.settings.messages
    }

    /// Runs to the end, or until `observe` breaks, which is called at every point of the series and
    /// at least every 65 536 messages.
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
        self.drain();
        self.finish(is_interrupted)
    }

    /// Runs until all messages of the settings were started; breaks if `observe` does.
    fn run_to_end(
        &mut self,
        observe: &mut impl FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let per_point = (self.settings.messages / u64::from(self.settings.points)).max(1);
        while self.started < self.total() {
            if !self.start_next() {
                self.is_over = true;
                break;
            }
            let counted = self.card.statistics.messages;
            if self.started > self.settings.warmup && self.course.is_due(counted) {
                self.add_segment();
            }
            let ended = self.card.statistics.messages - self.point_since.messages;
            let is_point = ended >= per_point && self.started > self.settings.warmup;
            if is_point {
                self.add_point();
            }
            if is_point || self.started.is_multiple_of(1 << 16) {
                let progress = Progress {
                    started: self.started,
                    total: self.total(),
                    point: self.series.last(),
                };
                observe(progress)?;
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

    /// Starts the next message when there is one, after all that happens before it; false at the
    /// end.
    fn start_next(&mut self) -> bool {
        let Some(message) = self.workload.next_message() else {
            return false;
        };
        let at = loop {
            let at = self.start_at(&message);
            match (at, self.card.events.next_at()) {
                (Some(at), next) if next.is_none_or(|next| next > at) => break at,
                (_, Some(_)) => self.happen(true),
                (_, None) => unreachable!("messages in flight have events"),
            }
        };
        self.window.take();
        // An open workload counts the time that a message waits for the card.
        let since = match self.window {
            Window::Closed(..) => at,
            Window::Open(gap) => self.started * gap,
            Window::Recorded => message.time_ns * NS,
        };
        self.ready = at + self.gap;
        if self.started == self.settings.warmup {
            self.begin_counting(at);
        }
        self.started += 1;
        if let Some(end) = self.card.run(Job::new(&message, since), at, false) {
            self.window.add(end);
        }
        true
    }

    /// When a message starts; `None` while it must wait for another's end.
    #[inline]
    fn start_at(&self, message: &Message) -> Option<Ps> {
        let at = match self.window {
            Window::Closed(..) => self.window.next()?,
            Window::Open(gap) => self.started * gap,
            Window::Recorded => message.time_ns * NS,
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
    fn drain(&mut self) {
        while self.card.events.next_at().is_some() {
            self.happen(false);
        }
        debug_assert_eq!(self.card.waiters.count(), 0, "a message waits for ever");
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
