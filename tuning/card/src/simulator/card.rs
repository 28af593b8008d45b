//! The card that is simulated: tiers, links and what is on the way. The paths are in [`hot`],
//! [`batch`] and [`expand`], moves between tiers in [`migration`] and [`maintenance`].
//!
//! - I1: the newest relaxed fields of a token are in the card's table if it lies there; else in the
//!   staging area if they are dirty there; else at its tier.
//! - I2: a token is fetched once at a time: [`Pending`] says for what it waits.
//!
//! [`hot`]: super::hot
//! [`batch`]: super::batch
//! [`expand`]: super::expand
//! [`migration`]: super::migration
//! [`maintenance`]: super::maintenance

use std::collections::{HashMap, VecDeque};

use super::events::{Event, Events};
use super::heat::Heat;
use super::jobs::{Job, Waiters};
use super::link::Link;
use super::migration::Move;
use super::settings::CardSettings;
use super::staging::{Staged, Staging};
use super::statistics::Statistics;
use super::thresholds::Thresholds;
use super::time::{NS, Ps, from_ns};
use crate::card_table::{CardTable, Slot};
use crate::cxl::CxlPages;
use crate::directory::{Directory, State};
use crate::handle::{Handle, Kind};
use crate::miss_queue::MissQueue;
use crate::place::{Place, Tier};
use crate::policy::{NEVER, Policy, Replacement, Use};
use crate::random::Random;
use crate::record::Record;
use crate::token::Token;
use crate::workload::{Operation, Population};
use farcore_tuning::Histogram;

/// For what the messages of a key wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pending {
    Nothing,
    /// In the queue of misses, or in a transfer from the CXL tier.
    Fetch,
    /// For the host.
    Expansion,
}

/// How an access ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// At this time.
    Done(Ps),
    /// It waits for the token.
    Waits,
    /// Without permission, at this time.
    Denied(Ps),
}

/// Durations of the settings in picoseconds.
#[derive(Debug)]
pub(super) struct Durations {
    pub(super) card: Ps,
    pub(super) check: Ps,
    pub(super) update: Ps,
    pub(super) batch_wait: Ps,
    pub(super) backlog_max: Ps,
    pub(super) maintenance: Ps,
    pub(super) card_idle: Ps,
    pub(super) cxl_idle: Ps,
}

/// The latencies that are being counted.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    pub(super) messages: Histogram,
    pub(super) interval: Histogram,
    pub(super) batch: Histogram,
    pub(super) expand: Histogram,
    pub(super) moves: Histogram,
    pub(super) moves_interval: Histogram,
}

#[derive(Debug)]
pub(super) struct Card {
    pub(super) settings: CardSettings,
    pub(super) durations: Durations,
    pub(super) population: Population,
    pub(super) handles: Vec<Handle>,
    pub(super) directory: Directory,
    pub(super) table: CardTable,
    pub(super) policy: Policy,
    pub(super) free_slots: Vec<u32>,
    /// The key in each slot of the table.
    pub(super) slot_keys: Vec<u32>,
    /// When each slot was updated last.
    pub(super) updated_at: Vec<Ps>,
    pub(super) staging: Staging,
    pub(super) cxl: CxlPages,
    /// Home of every token, at the host.
    pub(super) home: Vec<Record>,
    pub(super) pending: Vec<Pending>,
    pub(super) waiters: Waiters,
    pub(super) heat: Heat,
    pub(super) thresholds: Thresholds,
    pub(super) misses: MissQueue,
    pub(super) batch_is_due: bool,
    /// Keys of transfers from the CXL tier, by number.
    pub(super) transfers: Vec<Vec<u32>>,
    pub(super) free_transfers: Vec<u32>,
    /// Keys that the host is to bring to the CXL tier.
    pub(super) background: VecDeque<u32>,
    pub(super) is_asked: Vec<bool>,
    pub(super) background_is_due: bool,
    /// States of migrations under way, as they began.
    pub(super) migrations: HashMap<u32, Move>,
    pub(super) cxl_link: Link,
    pub(super) host_link: Link,
    pub(super) events: Events,
    pub(super) random: Random,
    pub(super) accesses: u64,
    pub(super) statistics: Statistics,
    pub(super) latencies: Latencies,
    /// When messages ended that had waited.
    pub(super) ended: Vec<Ps>,
    pub(super) last_end: Ps,
    /// Updates of relaxed fields of each key that were done, to check that none is lost.
    #[cfg(test)]
    pub(super) applied: Vec<u64>,
}

impl Card {
    pub(super) fn new(settings: CardSettings, population: Population, tokens: &[Token]) -> Self {
        // At most four kinds of 2^16 objects.
        let keys = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        let slots = settings.card_entries;
        let directory = Directory::new(keys);
        let handles: Vec<Handle> = tokens.iter().map(|token| token.handle()).collect();
        for (key, &handle) in (0..).zip(&handles) {
            directory.insert(key, handle, Place::host(key));
        }
        let fresh = |&token: &Token| Record {
            token,
            ..Record::default()
        };
        let mut card = Self {
            durations: Durations {
                card: from_ns(settings.card_ns),
                check: from_ns(settings.check_ns),
                update: from_ns(settings.update_ns),
                batch_wait: settings.batch.wait_ns * NS,
                backlog_max: settings.batch.backlog_ns * NS,
                maintenance: settings.maintenance.every_ns * NS,
                card_idle: settings.thresholds.card_idle_ns * NS,
                cxl_idle: settings.thresholds.cxl_idle_ns * NS,
            },
            population,
            directory,
            table: CardTable::new(slots),
            policy: Policy::new(settings.policy, slots, keys, settings.weights),
            free_slots: (0..slots).rev().collect(),
            slot_keys: vec![0; slots as usize],
            updated_at: vec![0; slots as usize],
            staging: Staging::new(settings.staging_entries, keys),
            cxl: CxlPages::new(settings.cxl_pages, keys),
            home: tokens.iter().map(fresh).collect(),
            pending: vec![Pending::Nothing; tokens.len()],
            waiters: Waiters::new(keys),
            heat: Heat::new(keys, settings.thresholds.window_ns * NS),
            thresholds: Thresholds::new(settings.thresholds),
            misses: MissQueue::new(settings.batch.queue),
            batch_is_due: false,
            transfers: Vec::new(),
            free_transfers: Vec::new(),
            background: VecDeque::new(),
            is_asked: vec![false; tokens.len()],
            background_is_due: false,
            migrations: HashMap::new(),
            cxl_link: Link::new(&settings.cxl),
            host_link: Link::new(&settings.host_link()),
            events: Events::default(),
            random: Random::new(0, 3),
            accesses: 0,
            statistics: Statistics::default(),
            latencies: Latencies::default(),
            ended: Vec::new(),
            last_end: 0,
            #[cfg(test)]
            applied: vec![0; tokens.len()],
            settings,
            handles,
        };
        card.pin_first();
        card
    }

    /// Puts the first queue pairs on the card and pins them there.
    fn pin_first(&mut self) {
        let is_pair = |(_, handle): &(u32, &Handle)| handle.kind() == Some(Kind::QueuePair);
        let pairs = (0..).zip(&self.handles).filter(is_pair);
        let first = pairs.take(self.settings.pinned as usize);
        let keys: Vec<u32> = first.map(|(key, _)| key).collect();
        for key in keys {
            let filled = self.fill(key, self.home[key as usize], false, 0);
            debug_assert!(filled, "an empty card has room");
            let state = self.state(key);
            if let Some(slot) = state.place().and_then(Slot::of) {
                self.policy.remove(slot.number);
            }
            let pinned = self.directory.pin(key, state, true);
            debug_assert!(pinned.is_ok(), "{pinned:?}");
        }
    }

    /// The state of a key's token.
    #[inline]
    pub(super) fn state(&self, key: u32) -> State {
        let found = self.directory.look_up(key, self.handles[key as usize]);
        found.unwrap_or_default()
    }

    /// The tier of a key's token.
    pub(super) fn tier(&self, key: u32) -> Tier {
        self.state(key)
            .place()
            .map_or(Tier::Host, |place| place.tier)
    }

    pub(super) fn used(&self, key: u32) -> Use {
        Use {
            key,
            time: self.accesses,
            next: NEVER,
        }
    }

    /// Takes a message as far as it goes; returns its end unless it waits.
    pub(super) fn run(&mut self, mut job: Job, mut at: Ps, is_woken: bool) -> Option<Ps> {
        let mut is_woken = is_woken;
        while let Some(key) = job.key() {
            match self.access(&job, key, at, is_woken) {
                Access::Done(end) => {
                    at = end;
                    job.advance();
                }
                Access::Waits => {
                    job.waits_since = at;
                    self.waiters.add(key, job);
                    return None;
                }
                Access::Denied(end) => {
                    at = end;
                    break;
                }
            }
            is_woken = false;
        }
        let latency = at.saturating_sub(job.since) / NS;
        self.latencies.messages.record(latency);
        self.latencies.interval.record(latency);
        self.statistics.messages += 1;
        self.last_end = self.last_end.max(at);
        Some(at)
    }

    fn access(&mut self, job: &Job, key: u32, at: Ps, is_woken: bool) -> Access {
        self.accesses += 1;
        let mut operation = job.step();
        if !is_woken {
            self.heat.add(key, at);
            if operation == Operation::Replace {
                self.replace(key, at);
            }
        }
        if operation == Operation::Replace {
            operation = Operation::Strict;
        }
        let is_foreign = job.is_foreign && self.handles[key as usize].kind() == Some(Kind::Region);
        let state = self.state(key);
        if let Some(place) = state.place()
            && place.tier == Tier::Card
        {
            return self.access_card(key, state, place, (operation, is_foreign), at, is_woken);
        }
        let counted = u64::from(!is_woken);
        if self.staging.peek(key).is_some() {
            self.statistics.served.staging += counted;
            if is_foreign {
                self.statistics.hot.denied += 1;
                return Access::Denied(at + self.durations.card);
            }
            return Access::Done(self.access_staged(key, operation, at));
        }
        if state.is_migrating() && !self.passes_migration() {
            self.statistics.served.migrating += counted;
            return Access::Waits;
        }
        if state.place().map(|place| place.tier) == Some(Tier::Cxl) {
            self.statistics.served.cxl += counted;
            if is_foreign {
                self.statistics.hot.denied += 1;
                return Access::Denied(at + self.durations.card);
            }
            self.miss(key, at);
            return Access::Waits;
        }
        self.statistics.served.host += counted;
        if self.expand(key, is_foreign, at) {
            Access::Waits
        } else {
            Access::Denied(at + self.durations.check)
        }
    }

    /// Whether a token with these uses is worth a slot of the table.
    pub(super) fn is_hot(&self, uses: u32) -> bool {
        let free = self.free_slots.len();
        self.thresholds
            .is_worth_a_place(uses, free, self.table.slots())
    }

    /// Wakes the messages that wait for a key, whose latency counts as that of a path.
    pub(super) fn wake(&mut self, key: u32, at: Ps, path: Option<Pending>) {
        // Only those that wait now: one that waits again is added behind them.
        let mut woken = Vec::new();
        while let Some(job) = self.waiters.take(key) {
            woken.push(job);
        }
        for job in woken {
            let waited = at.saturating_sub(job.waits_since) / NS;
            match path {
                Some(Pending::Fetch) => self.latencies.batch.record(waited),
                Some(Pending::Expansion) => self.latencies.expand.record(waited),
                _ => {}
            }
            if let Some(end) = self.run(job, at, true) {
                self.ended.push(end);
            }
        }
    }

    /// Handles an event other than those of the simulation itself.
    pub(super) fn handle(&mut self, event: Event, at: Ps) {
        match event {
            Event::BatchDue => self.batch_due(at),
            Event::Fetched(transfer) => self.fetched(transfer, at),
            Event::Expanded(key) => self.expanded(key, at),
            Event::Migrated(key) => self.migrated(key, at),
            Event::Background => self.background_due(at),
            // The simulation's own.
            Event::Maintenance => {}
        }
    }

    /// Puts a fetched token into the staging area, and the one that leaves back to its tier.
    pub(super) fn stage(&mut self, staged: Staged, at: Ps) {
        if self.staging.peek(staged.key).is_some() {
            return;
        }
        self.statistics.staging.installed += 1;
        if let Some(left) = self.staging.insert(staged) {
            self.statistics.staging.evicted += 1;
            self.write_back(&left, at);
        }
    }

    /// Writes the relaxed fields of a token that leaves the staging area to its tier.
    pub(super) fn write_back(&mut self, staged: &Staged, at: Ps) {
        if !staged.is_dirty {
            return;
        }
        self.statistics.staging.written_back += 1;
        self.set_fields(staged.key, staged.record.fields, at);
    }

    /// A strict change of a token: another word, at once in every copy.
    pub(super) fn changed(token: Token) -> Token {
        let [first, second] = token.words();
        match token.handle().kind() {
            // A flag of the access rights; the vector of a completion queue.
            Some(Kind::Region | Kind::QueuePair) => Token::from_words([first, second ^ 1 << 48]),
            Some(Kind::CompletionQueue) => Token::from_words([first, second ^ 1 << 32]),
            Some(Kind::Domain) | None => Token::from_words([first ^ 1, second]),
        }
    }

    /// Writes a changed token to the host; returns when it is there.
    pub(super) fn write_through(&mut self, key: u32, token: Token, at: Ps) -> Ps {
        self.home[key as usize].token = token;
        self.host_link.transfer(at, size_of::<Token>() as u64)
    }

    pub(super) fn note_update(&mut self, key: u32) {
        #[cfg(test)]
        {
            self.applied[key as usize] += 1;
        }
        let _ = key;
    }
}
