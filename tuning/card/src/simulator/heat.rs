//! How often each token was used in a sliding window: two counts, of the window before and of this
//! one, of which the older fades linearly.

use super::time::Ps;

/// Windows that a use may be ahead of the next.
const AHEAD_MAX: u32 = 1 << 8;

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    window: u32,
    before: u16,
    now: u16,
}

#[derive(Debug)]
pub(super) struct Heat {
    counts: Vec<Counts>,
    window: Ps,
    /// The window of the last lookup, and its end: most uses are of the same one.
    current: (u32, Ps),
}

impl Heat {
    pub(super) fn new(keys: u32, window: Ps) -> Self {
        Self {
            counts: vec![Counts::default(); keys as usize],
            window: window.max(1),
            current: (0, window.max(1)),
        }
    }

    /// The counts in a window, or in the one of the last use if that was later: events of one
    /// moment may come a little out of order. Numbers of windows wrap.
    fn shifted(counts: Counts, window: u32) -> Counts {
        if counts.window.wrapping_sub(window) <= AHEAD_MAX {
            return counts;
        }
        match window.wrapping_sub(counts.window) {
            1 => Counts {
                window,
                before: counts.now,
                now: 0,
            },
            _ => Counts {
                window,
                ..Counts::default()
            },
        }
    }

    fn window_at(&mut self, at: Ps) -> u32 {
        let (window, end) = self.current;
        if at < end && end - at <= self.window {
            return window;
        }
        let number = at / self.window;
        #[expect(clippy::cast_possible_truncation, reason = "numbers of windows wrap")]
        let window = number as u32;
        self.current = (window, (number + 1).saturating_mul(self.window));
        window
    }

    fn value(&self, counts: Counts, at: Ps) -> u32 {
        if counts.before == 0 {
            return u32::from(counts.now);
        }
        let left = self.current.1.saturating_sub(at);
        let faded = u128::from(counts.before) * u128::from(left) / u128::from(self.window);
        u32::from(counts.now) + u32::try_from(faded).unwrap_or(0)
    }

    /// Counts a use; returns the uses in the window that ends now.
    #[inline]
    pub(super) fn add(&mut self, key: u32, at: Ps) -> u32 {
        let window = self.window_at(at);
        let seen = self.counts[key as usize];
        let mut counts = Self::shifted(seen, window);
        counts.now = counts.now.saturating_add(1);
        self.counts[key as usize] = counts;
        self.value(counts, at)
    }

    /// The uses in the window that ends now.
    pub(super) fn of(&mut self, key: u32, at: Ps) -> u32 {
        let window = self.window_at(at);
        let seen = self.counts[key as usize];
        let counts = Self::shifted(seen, window);
        self.value(counts, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_fade_over_a_window() {
        let mut heat = Heat::new(2, 1_000);
        for at in 0..100 {
            heat.add(1, at);
        }
        assert_eq!(heat.of(1, 999), 100);
        assert_eq!(heat.of(1, 1_000), 100);
        assert_eq!(heat.of(1, 1_500), 50);
        assert_eq!(heat.add(1, 1_500), 51);
        assert_eq!(heat.of(1, 2_000), 1);
        assert_eq!(heat.of(1, 3_000), 0);
        assert_eq!(heat.of(0, 3_000), 0);
    }

    #[test]
    fn uses_fade_in_a_simulation_of_any_length() {
        let mut heat = Heat::new(1, 1_000);
        for start in [0, 1 << 32, 1 << 42, 1_000 << 32, Ps::MAX - 10_000] {
            let start = start / 1_000 * 1_000;
            for at in start..start + 10 {
                heat.add(0, at);
            }
            assert_eq!(heat.of(0, start + 999), 10);
            assert_eq!(heat.of(0, start + 1_500), 5);
            // An earlier one, out of order.
            assert_eq!(heat.of(0, start + 990), 10);
            assert_eq!(heat.of(0, start + 2_000), 0);
        }
    }
}
