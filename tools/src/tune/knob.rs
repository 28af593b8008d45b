//! The settings that are tuned: name, default, and the values to try. A value to try is always

//! within the engine's limits; whether it fits the plan is checked before a run.

use clap::ValueEnum;
use farcore::Size;
use farcore::constants::{
    BATCH_MAX, CACHE_PERCENT_MAX, PAGE_BYTES_MAX, PAGE_BYTES_MIN, READ_AHEAD_CHUNKS_MAX,
};
use farcore::{Config, Profile};
use farcore_bench::plan::{Plan, WINDOW_MAX};
use farcore_bench::table::nanoseconds;

/// A setting that is tuned, in the order of trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Knob {
    /// Requests in flight on each core.
    Window,
    /// Requests of a batch, whose cache misses overlap.
    Batch,
    /// The read cache's share of the page frames.
    CachePercent,
    /// The size of a page.
    PageBytes,
    /// How far walks are read ahead.
    ReadAheadChunks,
    /// The size of a lane; not tried with one core.
    LaneBytes,
    /// How long an idle core spins.
    SpinNs,
}

impl Knob {
    /// The setting's name in a profile.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Batch => "batch",
            Self::CachePercent => "cache_percent",
            Self::PageBytes => "page_bytes",
            Self::ReadAheadChunks => "read_ahead_chunks",
            Self::LaneBytes => "lane_bytes",
            Self::SpinNs => "spin_ns",
        }
    }

    /// A value with its unit.
    pub(super) fn show(self, value: u32) -> String {
        match self {
            Self::CachePercent => format!("{value} %"),
            Self::PageBytes | Self::LaneBytes => Size(value.into()).to_string(),
            Self::SpinNs => nanoseconds(value.into()),
            _ => value.to_string(),
        }
    }

    /// The value in a profile.
    pub(super) fn of(self, profile: &Profile) -> Option<u32> {
        match self {
            Self::Window => profile.window,
            Self::Batch => profile.batch,
            Self::CachePercent => profile.cache_percent.map(u32::from),
            Self::PageBytes => profile.page_bytes,
            Self::ReadAheadChunks => profile.read_ahead_chunks,
            Self::LaneBytes => profile.lane_bytes,
            Self::SpinNs => profile.spin_ns,
        }
    }

    /// The profile with another value of this setting; `None` for the default.
    pub(super) fn turned(self, profile: &Profile, value: Option<u32>) -> Profile {
        let mut profile = *profile;
        match self {
            Self::Window => profile.window = value,
            Self::Batch => profile.batch = value,
            Self::CachePercent => {
                profile.cache_percent =
                    value.map(|value| u8::try_from(value).unwrap_or(CACHE_PERCENT_MAX));
            }
            Self::PageBytes => profile.page_bytes = value,
            Self::ReadAheadChunks => profile.read_ahead_chunks = value,
            Self::LaneBytes => profile.lane_bytes = value,
            Self::SpinNs => profile.spin_ns = value,
        }
        profile
    }

    /// Its default, for a plan and the configuration that follows from it.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub(super) fn default_of(self, plan: &Plan, config: &Config) -> farcore::Result<u32> {
        let value = match self {
            Self::Window => plan.window as u64,
            Self::Batch => config.batch as u64,
            Self::CachePercent => config.cache_percent.into(),
            Self::PageBytes => config.page_bytes_used().into(),
            Self::ReadAheadChunks => config.read_ahead_chunks.into(),
            Self::LaneBytes => config.lane_bytes_used()? as u64,
            Self::SpinNs => config.spin_ns,
        };
        Ok(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// The values to try in order, the default included: some factors of the default, or the whole
    /// range if it is short.
    pub(super) fn values(self, default: u32, cores: usize) -> Vec<u32> {
        let near = |least: usize, most: usize| {
            let fits = |&value: &u32| (least..=most).contains(&(value as usize));
            let down = [4, 2].map(|factor| default / factor);
            let up = [2, 4, 8].map(|factor| default.saturating_mul(factor));
            down.into_iter().chain(up).filter(fits).collect()
        };
        let mut values: Vec<u32> = match self {
            Self::Window => near(1, WINDOW_MAX),
            Self::Batch => near(1, BATCH_MAX),
            Self::CachePercent => vec![0, 25, 50, u32::from(CACHE_PERCENT_MAX)],
            Self::PageBytes => near(PAGE_BYTES_MIN, PAGE_BYTES_MAX),
            Self::ReadAheadChunks => (0..=READ_AHEAD_CHUNKS_MAX).step_by(4).collect(),
            Self::LaneBytes if cores < 2 => Vec::new(),
            Self::LaneBytes => near(16 << 10, 16 << 20),
            Self::SpinNs => vec![0, 10_000, 200_000, 1_000_000],
        };
        values.push(default);
        values.sort_unstable();
        values.dedup();
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changing_one_setting_changes_no_other() {
        let all: Vec<_> = Knob::value_variants().to_vec();
        for &knob in &all {
            let turned = knob.turned(&Profile::default(), Some(64));
            for &other in &all {
                assert_eq!(
                    other.of(&turned),
                    (other == knob).then_some(64),
                    "{other:?}"
                );
            }
            assert!(knob.turned(&turned, None).is_empty());
            assert!(turned.to_toml("").contains(knob.name()), "{knob:?}");
        }
    }

    #[test]
    fn all_values_to_try_are_valid() {
        let config = Config {
            local_bytes: 256 << 20,
            ..Config::default()
        };
        for &knob in Knob::value_variants() {
            for default in [1, 64, 64 << 10] {
                assert!(knob.values(default, 2).contains(&default));
            }
            let profile_of = |value| knob.turned(&Profile::default(), Some(value));
            let default = match knob {
                Knob::Window => 64,
                Knob::PageBytes => config.page_bytes_used(),
                Knob::LaneBytes => u32::try_from(config.lane_bytes_used().unwrap()).unwrap(),
                _ => {
                    let text = format!("{config:?}");
                    let (_, rest) = text.split_once(&format!("{}: ", knob.name())).unwrap();
                    rest.split([',', ' ']).next().unwrap().parse().unwrap()
                }
            };
            let values = knob.values(default, 2);
            assert!(values.len() >= 3, "{knob:?}: {values:?}");
            for value in values {
                let config = Config {
                    local_bytes: 256 << 20,
                    ..Config::from_profile(&profile_of(value))
                };
                config.validate().unwrap();
            }
        }
        assert_eq!(Knob::Window.values(64, 1), [16, 32, 64, 128, 256, 512]);
        assert_eq!(Knob::Batch.values(64, 1), [16, 32, 64, 128]);
        assert_eq!(Knob::LaneBytes.values(64 << 10, 1), [64 << 10]);
    }
}
