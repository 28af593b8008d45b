//! Latency histograms: fixed size, log-linear, one writer, readable from any thread.
//!
//! Each power of two is cut into 32 steps, so a quantile is at most 1/32 (3.2 %) above the true
//! value, and never below it. The count, the largest value and the mean are exact (the sum wraps at
//! 2^64: 584 years of nanoseconds).

use serde::{Deserialize, Serialize};

use crate::measure::counters::Gauge;

const STEP_BITS: u32 = 5;
const STEPS: usize = 1 << STEP_BITS;
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

#[expect(
    clippy::cast_possible_truncation,
    reason = "bucket numbers are below 1920"
)]
fn bucket_of(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let octave = value.ilog2() - STEP_BITS;
    (octave as usize + 1) * STEPS + ((value >> octave) as usize - STEPS)
}

/// The largest value that falls into a bucket.
fn top_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let octave = bucket / STEPS - 1;
    let step = (bucket % STEPS + STEPS) as u64;
    // The last bucket ends at `u64::MAX`.
    (((u128::from(step) + 1) << octave) - 1)
        .try_into()
        .unwrap_or(u64::MAX)
}

/// Wraps: counts from other processes may be anything.
fn sum_of(counts: &[u64]) -> u64 {
    counts.iter().copied().fold(0, u64::saturating_add)
}

/// Counts values by size. Only one thread may record.
#[derive(Debug)]
#[repr(align(128))]
pub struct Histogram {
    buckets: Box<[Gauge]>,
    sum: Gauge,
    max: Gauge,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| Gauge::default()).collect(),
            sum: Gauge::default(),
            max: Gauge::default(),
        }
    }
}

impl Histogram {
    /// Counts one value. Cost: two cache lines, one of which is always the same.
    #[inline]
    pub fn record(&self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts a value `times` times: a batch whose requests shared one latency.
    #[inline]
    pub fn record_n(&self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.buckets[bucket_of(value)].raise(times);
        self.sum.raise(value.wrapping_mul(times));
        if value > self.max.get() {
            self.max.set(value);
        }
    }

    /// A copy of the counts. While the writer records, they need not be of one instant.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            buckets: self.buckets.iter().map(Gauge::get).collect(),
            sum: self.sum.get(),
            max: self.max.get(),
        }
    }
}

/// The counts of one histogram, or of several merged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "Sparse", into = "Sparse")]
pub struct HistogramSnapshot {
    buckets: Vec<u64>,
    sum: u64,
    max: u64,
}

/// The serialized form: the numbers of the non-empty buckets and their counts.
#[derive(Serialize, Deserialize)]
struct Sparse {
    sum: u64,
    max: u64,
    buckets: Vec<(u16, u64)>,
}

impl From<HistogramSnapshot> for Sparse {
    fn from(dense: HistogramSnapshot) -> Self {
        let held = dense.buckets.iter().zip(0..).filter(|(held, _)| **held > 0);
        Self {
            sum: dense.sum,
            max: dense.max,
            buckets: held.map(|(&held, bucket)| (bucket, held)).collect(),
        }
    }
}

impl From<Sparse> for HistogramSnapshot {
    /// Ignores bucket numbers out of range: the text may come from another process.
    fn from(sparse: Sparse) -> Self {
        let mut dense = Self {
            sum: sparse.sum,
            max: sparse.max,
            ..Self::default()
        };
        for (bucket, held) in sparse.buckets {
            if let Some(place) = dense.buckets.get_mut(usize::from(bucket)) {
                *place = held;
            }
        }
        dense
    }
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            sum: 0,
            max: 0,
        }
    }
}

impl HistogramSnapshot {
    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        sum_of(&self.buckets)
    }

    /// The sum of all values, modulo 2^64.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The number of values up to `limit`, to within a bucket (3.2 %).
    #[must_use]
    pub fn count_to(&self, limit: u64) -> u64 {
        sum_of(&self.buckets[..=bucket_of(limit)])
    }

    /// The largest value, exactly; 0 if there are none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 if there are none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    /// [`HistogramSnapshot::quantile`] with the share in percent: `percentile(99.9)`.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        self.quantile(percent / 100.0)
    }

    /// The value that a share of all values (0 to 1) does not exceed; 0 if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let count = self.count();
        if count == 0 {
            return 0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the count"
        )]
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count);
        let mut seen = 0;
        for (bucket, &held) in self.buckets.iter().enumerate() {
            seen = u64::saturating_add(seen, held);
            if seen >= rank {
                return top_of(bucket).min(self.max);
            }
        }
        u64::MAX
    }

    /// The values since an earlier snapshot of the same histogram. The maximum is the all-time one,
    /// cut to the highest non-empty bucket.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        let buckets: Vec<u64> = pairs.map(|(now, then)| now.saturating_sub(*then)).collect();
        let highest = buckets.iter().rposition(|&held| held > 0);
        Self {
            max: highest.map_or(0, |bucket| top_of(bucket).min(self.max)),
            sum: self.sum.wrapping_sub(earlier.sum),
            buckets,
        }
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_near_those_of_a_sorted_list(mut values in prop::collection::vec(any::<u64>().prop_map(|v| v >> (v % 60)), 1..300), share in 0.0f64..=1.0) {
            let histogram = Histogram::default();
            for &value in &values {
                histogram.record(value);
            }
            values.sort_unstable();
            #[expect(clippy::cast_possible_truncation, reason = "a share of the count")]
            let rank = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len());
            let (exact, seen) = (values[rank - 1], histogram.snapshot().quantile(share));
            prop_assert!(seen >= exact && seen - exact <= exact / 32 + 1, "{} for {}", seen, exact);
        }

        #[test]
        fn buckets_follow_each_other(value: u64) {
            let bucket = bucket_of(value);
            prop_assert!(value <= top_of(bucket) && (bucket == 0 || value > top_of(bucket - 1)));
        }
    }

    #[test]
    fn the_largest_value_and_the_mean_are_exact() {
        let histogram = Histogram::default();
        histogram.record_n(1_001, 3);
        histogram.record_n(u64::MAX, 0);
        histogram.record(5);
        let mut seen = histogram.snapshot();
        assert_eq!((seen.count(), seen.max(), seen.mean()), (4, 1_001, 752.0));
        assert_eq!((seen.percentile(25.0), seen.percentile(100.0)), (5, 1_001));
        let other = Histogram::default();
        other.record(9_000);
        seen.merge(&other.snapshot());
        assert_eq!((seen.count(), seen.max(), seen.mean()), (5, 9_000, 2401.6));
        let none = HistogramSnapshot::default();
        assert_eq!(
            (none.max(), none.mean(), none.percentile(99.0)),
            (0, 0.0, 0)
        );
    }

    #[test]
    fn a_difference_holds_the_values_in_between() {
        let histogram = Histogram::default();
        histogram.record_n(9_000, 5);
        let before = histogram.snapshot();
        assert_eq!(before.since(&before).max(), 0);
        histogram.record_n(10, 3);
        let between = histogram.snapshot().since(&before);
        assert_eq!(
            (between.count(), between.quantile(1.0), between.mean()),
            (3, 10, 10.0)
        );
    }

    #[test]
    fn a_snapshot_survives_serialization() {
        let histogram = Histogram::default();
        for value in [0, 31, 32, 9_999, u64::MAX] {
            histogram.record(value);
        }
        let sent = histogram.snapshot();
        let text = serde_json::to_string(&sent).unwrap();
        assert!(text.len() < 200, "{text}");
        let arrived: HistogramSnapshot = serde_json::from_str(&text).unwrap();
        assert_eq!(arrived, sent);
        assert_eq!((arrived.count_to(31), arrived.count_to(40)), (2, 3));
        let odd = r#"{"sum":1,"max":1,"buckets":[[65535,7],[3,1]]}"#;
        let odd: HistogramSnapshot = serde_json::from_str(odd).unwrap();
        assert_eq!(odd.count(), 1);
        let vast = format!(
            r#"{{"sum":1,"max":1,"buckets":[[1,{0}],[2,{0}]]}}"#,
            u64::MAX
        );
        let mut vast: HistogramSnapshot = serde_json::from_str(&vast).unwrap();
        vast.merge(&vast.clone());
        assert_eq!((vast.count(), vast.quantile(1.0)), (u64::MAX, 1));
    }

    #[test]
    fn merged_counts_add_up() {
        let histogram = Histogram::default();
        histogram.record(10);
        let mut sum = histogram.snapshot();
        sum.merge(&histogram.snapshot());
        assert_eq!(
            (
                sum.count(),
                sum.quantile(0.5),
                HistogramSnapshot::default().quantile(0.5)
            ),
            (2, 10, 0)
        );
    }
}
