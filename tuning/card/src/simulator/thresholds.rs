//! Promotion thresholds, fixed or adapted to the load of the links and of the host, the hit ratio
//! and free places.
//!
//! Adapted: with a link or the host busy more than 80 % of the time and more moves than misses,
//! tokens must be twice as hot as before to move, because moves are the load that can be spared;
//! else, if a tenth of the accesses leaves the card, half as hot. The load of the host is that of
//! the card's link to it and of what others use of it. Both thresholds stay within a 64th and 16
//! times of their settings, and at least 1. One step is taken each time, at most every window.
//! While more than a 16th of the card's places are free, every use is enough: a place that nothing
//! else needs costs nothing.

use super::settings::ThresholdSettings;
use super::time::{NS, Ps};

const BUSY: f64 = 0.8;
const HIT_RATIO: f64 = 0.9;
const STEPS_DOWN: i32 = -6;
const STEPS_UP: i32 = 4;
/// Of the card's places, one in this many is a reserve.
const FREE_PART: u32 = 16;

#[derive(Debug)]
pub(super) struct Thresholds {
    settings: ThresholdSettings,
    /// Powers of two by which the settings are multiplied.
    step: i32,
    next_at: Ps,
}

impl Thresholds {
    pub(super) fn new(settings: ThresholdSettings) -> Self {
        Self {
            settings,
            step: 0,
            next_at: 0,
        }
    }

    fn scaled(&self, uses: u32) -> u32 {
        if self.step >= 0 {
            uses << self.step
        } else {
            (uses >> -self.step).max(1)
        }
    }

    #[inline]
    pub(super) fn to_cxl(&self) -> u32 {
        self.scaled(self.settings.to_cxl)
    }

    #[inline]
    pub(super) fn to_card(&self) -> u32 {
        self.scaled(self.settings.to_card)
    }

    /// Whether a token with these uses is worth a place of the card, of which some are free.
    #[inline]
    pub(super) fn is_worth_a_place(&self, uses: u32, free: usize, places: u32) -> bool {
        let has_room = self.settings.adaptive && free > (places / FREE_PART) as usize;
        uses >= self.to_card() || has_room
    }

    /// Takes a step if it is time. `load` is that of the busiest of both links and the host, and
    /// `moves` is the number of moves for each miss.
    pub(super) fn adapt(&mut self, at: Ps, load: f64, hit_ratio: f64, moves: f64) {
        if !self.settings.adaptive || at < self.next_at {
            return;
        }
        self.next_at = at + self.settings.window_ns * NS;
        if load > BUSY && moves > 1.0 {
            self.step += 1;
        } else if hit_ratio < HIT_RATIO {
            self.step -= 1;
        }
        self.step = self.step.clamp(STEPS_DOWN, STEPS_UP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thresholds(adaptive: bool) -> Thresholds {
        Thresholds::new(ThresholdSettings {
            adaptive,
            ..ThresholdSettings::default()
        })
    }

    #[test]
    fn they_follow_load_and_hit_ratio() {
        let mut adaptive = thresholds(true);
        let mut at = 0;
        let mut adapt = |thresholds: &mut Thresholds, load, hits, moves| {
            for _ in 0..20 {
                thresholds.adapt(at, load, hits, moves);
                at += 1_000_000_000;
            }
            (thresholds.to_cxl(), thresholds.to_card())
        };
        assert_eq!(adapt(&mut adaptive, 0.9, 0.5, 0.1), (1, 2));
        assert_eq!(adapt(&mut adaptive, 0.1, 0.95, 9.0), (1, 2));
        assert_eq!(adapt(&mut adaptive, 0.9, 0.95, 0.5), (1, 2));
        assert_eq!(adapt(&mut adaptive, 0.9, 0.5, 2.0), (256, 2_048));
        assert_eq!(adapt(&mut thresholds(false), 0.9, 0.5, 2.0), (16, 128));
    }

    #[test]
    fn free_places_are_used() {
        for (adaptive, uses, free, is_worth) in [
            (true, 1, 65, true),
            (true, 1, 64, false),
            (true, 128, 0, true),
            (false, 127, 1_000, false),
        ] {
            let thresholds = thresholds(adaptive);
            assert_eq!(thresholds.is_worth_a_place(uses, free, 1_024), is_worth);
        }
    }

    #[test]
    fn one_step_is_taken_in_a_window() {
        let mut adaptive = thresholds(true);
        for at in 0..10 {
            adaptive.adapt(at, 0.1, 0.5, 0.0);
        }
        assert_eq!(adaptive.to_card(), 64);
    }
}
