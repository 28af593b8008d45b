//! The subscriptions of a core's connections: which have subscribed to a channel, and which a
//! message reaches.
//!
//! Each core owns the subscriptions of its connections. A message is sent once to each core that
//! has any, in the order in which its publisher has sent it, and the core hands it to its
//! subscribers (`turn/subscribing.rs`).
//!
//! - I1: a name is stored once a core. To add or remove a subscription costs the logarithm of their
//!   count.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::events::deliveries::{DELIVERY_STEPS, Progress, SEND_STEPS, Steps};
use crate::events::publication::{NamesPage, Publication, Topic};
use crate::glob::{self, PATTERN_BYTES_MAX};
use crate::steps;

/// Subscriptions that begin or end in a turn for one connection, at most.
pub(crate) const SUBSCRIPTIONS_A_TURN: usize = 1024;
/// Names that a core looks at in a turn to list them.
const NAMES_A_TURN: usize = 1024;
/// Bytes that are compared to match a channel, at most.
fn match_steps(pattern: &[u8], channel: &[u8]) -> usize {
    if pattern.contains(&b'*') {
        1 + glob::comparisons_max(pattern.len(), channel.len())
    } else {
        1 + pattern.len()
    }
}

/// Gives the subscribers behind one, while there are steps left. Each costs a step, and what
/// `give` returns. True if none is left.
fn each_after(
    numbers: &BTreeSet<usize>,
    after: &mut Option<usize>,
    (steps, cost): (&mut Steps, usize),
    mut give: impl FnMut(usize) -> usize,
) -> bool {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    for &number in numbers.range((from, Bound::Unbounded)) {
        if steps.is_spent() {
            return false;
        }
        steps.spend(cost + give(number));
        *after = Some(number);
    }
    *after = None;
    true
}

/// Numbers of connections, by name.
type Subscribers = BTreeMap<Arc<[u8]>, BTreeSet<usize>>;

/// The subscriptions of a core's connections.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    channels: Subscribers,
    shard_channels: Subscribers,
    patterns: Subscribers,
    /// Subscriptions to patterns, and bytes of the patterns.
    pattern_subscriptions: usize,
    pattern_bytes: usize,
}

impl Subscriptions {
    fn of(&mut self, topic: Topic) -> &mut Subscribers {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::ShardChannel => &mut self.shard_channels,
        }
    }

    /// Adds a connection; returns the name as it is stored.
    pub(crate) fn add(&mut self, topic: Topic, name: &[u8], number: usize) -> Arc<[u8]> {
        let all = self.of(topic);
        let known = all.get_key_value(name).map(|(known, _)| Arc::clone(known));
        let is_new = known.is_none();
        let name = known.unwrap_or_else(|| name.into());
        let is_added = all.entry(Arc::clone(&name)).or_default().insert(number);
        if topic == Topic::Pattern {
            self.pattern_subscriptions += usize::from(is_added);
            self.pattern_bytes += if is_new { name.len() } else { 0 };
        }
        name
    }

    pub(crate) fn remove(&mut self, topic: Topic, name: &[u8], number: usize) {
        let all = self.of(topic);
        if let Some(numbers) = all.get_mut(name) {
            let is_removed = numbers.remove(&number);
            let is_last = numbers.is_empty();
            if is_last {
                all.remove(name);
            }
            if topic == Topic::Pattern {
                self.pattern_subscriptions -= usize::from(is_removed);
                self.pattern_bytes -= if is_last { name.len() } else { 0 };
            }
        }
    }

    fn channels_of(&self, message: &Publication) -> &Subscribers {
        if message.is_sharded {
            &self.shard_channels
        } else {
            &self.channels
        }
    }

    /// What it costs at most to hand out a message.
    pub(crate) fn steps_max(&self, message: &Publication) -> usize {
        let direct = self.channels_of(message).get(&message.channel[..]);
        let mut receivers = direct.map_or(0, BTreeSet::len);
        let mut matches = 0;
        if !message.is_sharded {
            receivers += self.pattern_subscriptions;
            matches = self.pattern_bytes * (message.channel.len() + 1) + self.patterns.len();
        }
        receivers * (SEND_STEPS + DELIVERY_STEPS + message.copied_bytes() + PATTERN_BYTES_MAX)
            + matches
    }

    /// Goes on with the subscribers of a message's channel and of each pattern that matches it,
    /// while there are steps left; `give` returns how many it has needed. True if none is left.
    pub(crate) fn hand_out(
        &self,
        message: &Publication,
        progress: &mut Progress,
        steps: &mut Steps,
        mut give: impl FnMut(Option<&[u8]>, usize) -> usize,
    ) -> bool {
        let cost = DELIVERY_STEPS + message.copied_bytes();
        if !progress.has_passed_channel {
            let direct = self.channels_of(message).get(&message.channel[..]);
            let none = BTreeSet::new();
            let numbers = direct.unwrap_or(&none);
            let give = |number| give(None, number);
            if !each_after(numbers, &mut progress.after, (steps, cost), give) {
                return false;
            }
            progress.has_passed_channel = true;
        }
        if message.is_sharded {
            // Patterns are of ordinary channels.
            return true;
        }
        let passed = progress.pattern.take();
        let mut after = progress.after.take();
        let from = match &passed {
            None => Bound::Unbounded,
            Some(pattern) if after.is_some() => Bound::Included(&pattern[..]),
            Some(pattern) => Bound::Excluded(&pattern[..]),
        };
        let mut last = passed.as_ref();
        for (pattern, numbers) in self.patterns.range::<[u8], _>((from, Bound::Unbounded)) {
            if after.is_some() && last != Some(pattern) {
                // The one that it had come to has no subscribers any more.
                after = None;
            }
            let mut is_matching = after.is_some();
            if !is_matching && !steps.is_spent() {
                steps.spend(match_steps(pattern, &message.channel));
                is_matching = glob::matches(pattern, &message.channel);
                if !is_matching {
                    last = Some(pattern);
                    continue;
                }
                // One that matches has one subscriber in this turn at least.
                let Some(&first) = numbers.first() else {
                    continue;
                };
                steps.spend(cost + pattern.len() + give(Some(pattern), first));
                after = Some(first);
            }
            let cost = cost + pattern.len();
            if !is_matching
                || !each_after(numbers, &mut after, (steps, cost), |number| {
                    give(Some(pattern), number)
                })
            {
                progress.pattern = if after.is_some() {
                    Some(Arc::clone(pattern))
                } else {
                    last.cloned()
                };
                progress.after = after;
                return false;
            }
            last = Some(pattern);
        }
        true
    }

    fn topic(&self, topic: Topic) -> &Subscribers {
        match topic {
            Topic::Channel => &self.channels,
            Topic::Pattern => &self.patterns,
            Topic::ShardChannel => &self.shard_channels,
        }
    }

    /// Looks at some names with subscribers, from the first one on or behind another, and returns
    /// those that match a pattern.
    pub(crate) fn page(
        &self,
        topic: Topic,
        before: Option<&[u8]>,
        pattern: Option<&[u8]>,
    ) -> NamesPage {
        let start = before.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.topic(topic);
        let names = all.range::<[u8], _>((start, Bound::Unbounded));
        let mut page = NamesPage::default();
        for (place, (name, _)) in names.enumerate() {
            if place >= NAMES_A_TURN || place > 0 && steps::is_slice_over() {
                return page;
            }
            steps::count(1);
            if pattern.is_none_or(|pattern| glob::matches(pattern, name)) {
                page.names.push(Arc::clone(name));
            }
            page.last = Some(Arc::clone(name));
        }
        page.last = None;
        page
    }

    /// How many subscribers each of some names has.
    pub(crate) fn counts<'n>(
        &self,
        topic: Topic,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Vec<usize> {
        let all = self.topic(topic);
        let counts = names.map(|name| all.get(name).map_or(0, BTreeSet::len));
        let counts: Vec<_> = counts.collect();
        steps::count(counts.len());
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::deliveries::STEPS_A_TURN;
    use crate::events::publication::Payload;

    fn message(channel: &str, is_sharded: bool) -> Publication {
        Publication {
            is_sharded,
            channel: channel.into(),
            payload: Payload::Short(b"text".to_vec()),
            charge: None,
        }
    }

    fn receivers(
        subscriptions: &Subscriptions,
        message: &Publication,
    ) -> Vec<(Option<String>, usize)> {
        let text = |pattern: &[u8]| String::from_utf8_lossy(pattern).into_owned();
        let (mut all, mut progress) = (Vec::new(), Progress::default());
        let give = |pattern: Option<&[u8]>, number| {
            all.push((pattern.map(text), number));
            0
        };
        assert!(subscriptions.hand_out(message, &mut progress, &mut Steps::of_turn(), give));
        all
    }

    #[test]
    fn a_message_reaches_its_channel_and_each_pattern_that_matches() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.add(Topic::Channel, b"news.it", 1);
        subscriptions.add(Topic::Pattern, b"news.*", 1);
        subscriptions.add(Topic::Pattern, b"n*", 2);
        subscriptions.add(Topic::ShardChannel, b"news.it", 3);
        let all = receivers(&subscriptions, &message("news.it", false));
        assert_eq!(
            all,
            [
                (None, 1),
                (Some("n*".into()), 2),
                (Some("news.*".into()), 1)
            ]
        );
        let sharded = receivers(&subscriptions, &message("news.it", true));
        assert_eq!(sharded, [(None, 3)]);
        subscriptions.remove(Topic::Channel, b"news.it", 1);
        subscriptions.remove(Topic::Pattern, b"news.*", 1);
        let left = receivers(&subscriptions, &message("news.it", false));
        assert_eq!(left, [(Some("n*".into()), 2)]);
        let channels = subscriptions.page(Topic::Channel, None, None);
        let patterns = subscriptions.page(Topic::Pattern, None, None);
        assert_eq!((channels.names.len(), patterns.names.len()), (0, 1));
    }

    #[test]
    fn names_are_listed_in_pages() {
        let mut subscriptions = Subscriptions::default();
        let names: Vec<_> = (0..2 * NAMES_A_TURN + 5)
            .map(|name| format!("{name:06}"))
            .collect();
        for name in names.iter().map(String::as_str).chain([""]) {
            subscriptions.add(Topic::Channel, name.as_bytes(), 1);
        }
        let (mut listed, mut pages, mut before) = (Vec::new(), 0, None);
        loop {
            steps::take();
            let page = subscriptions.page(Topic::Channel, before.as_deref(), Some(b"*"));
            listed.extend(page.names);
            pages += 1;
            before = page.last;
            if before.is_none() {
                break;
            }
        }
        assert_eq!((listed.len(), pages), (names.len() + 1, 3));
        assert!(listed.is_sorted());
        // Each page looks at one at least.
        steps::count(usize::try_from(steps::SLICE).expect("few"));
        let page = subscriptions.page(Topic::Channel, None, Some(b"0*1"));
        assert_eq!(
            (page.names.len(), page.last.as_deref()),
            (0, Some(&b""[..]))
        );
        steps::take();
    }

    #[test]
    fn a_message_goes_to_some_subscribers_a_turn_and_to_each_once() {
        const EACH: usize = 2000;
        let mut subscriptions = Subscriptions::default();
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        for number in 0..EACH {
            subscriptions.add(Topic::Channel, b"news", number);
            let pattern = format!("n*{}", "*".repeat(number % 7));
            subscriptions.add(Topic::Pattern, pattern.as_bytes(), number);
            let other = format!("m{number}*");
            subscriptions.add(Topic::Pattern, other.as_bytes(), number);
            expected.push((None, number));
            expected.push((Some(pattern), number));
        }
        let (message, mut progress) = (message("news", false), Progress::default());
        assert!(subscriptions.steps_max(&message) > STEPS_A_TURN);
        let mut turns = 0;
        loop {
            let before = got.len();
            let give = |pattern: Option<&[u8]>, number| {
                let text = |pattern: &[u8]| String::from_utf8_lossy(pattern).into_owned();
                got.push((pattern.map(text), number));
                SEND_STEPS
            };
            let mut steps = Steps::of_turn();
            let is_done = subscriptions.hand_out(&message, &mut progress, &mut steps, give);
            turns += 1;
            assert!(got.len() - before <= STEPS_A_TURN / SEND_STEPS);
            if is_done {
                break;
            }
            assert!(got.len() > before, "each turn comes further");
            // One that it has come to goes, and so does its pattern.
            if turns == 12 {
                let (pattern, number) = got.last().cloned().expect("one");
                let pattern = pattern.expect("a pattern");
                subscriptions.remove(Topic::Pattern, pattern.as_bytes(), number);
            }
        }
        assert!(turns >= 2 * EACH * SEND_STEPS / STEPS_A_TURN, "{turns}");
        got.sort();
        expected.sort();
        assert_eq!(got, expected);
        for number in 0..EACH {
            for pattern in [
                format!("n*{}", "*".repeat(number % 7)),
                format!("m{number}*"),
            ] {
                subscriptions.remove(Topic::Pattern, pattern.as_bytes(), number);
            }
        }
        assert_eq!(
            (
                subscriptions.pattern_subscriptions,
                subscriptions.pattern_bytes
            ),
            (0, 0)
        );
    }
}
