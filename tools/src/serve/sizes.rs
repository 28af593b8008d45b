//! How much memory a server takes where its flags do not say.

use farcore::Config;

/// Far memory on other hosts, by default.
const REMOTE_BYTES: u64 = 4 << 30;

/// The sizes of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) local_bytes: u64,
    pub(super) far_bytes: u64,
}

impl Sizes {
    /// The sizes that were given; others fit this machine.
    pub(super) fn choose(local: Option<u64>, far: Option<u64>, is_remote: bool) -> Self {
        let default = Config::default();
        let own_far = if is_remote {
            REMOTE_BYTES
        } else {
            default.far_bytes
        };
        Self {
            local_bytes: local.unwrap_or(default.local_bytes),
            far_bytes: far.unwrap_or(own_far),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_flags_and_then_the_engine() {
        let given = Sizes::choose(Some(5), Some(7), false);
        assert_eq!((given.local_bytes, given.far_bytes), (5, 7));
        assert_eq!(Sizes::choose(Some(5), None, true).far_bytes, REMOTE_BYTES);
        assert!(Sizes::choose(None, None, false).far_bytes <= 4 << 30);
    }
}
