//! The limit on the open descriptors of this process.
//!
//! A service raises the soft limit to the hard one, and fits its connections to it, so that it
//! refuses a connection with a reason before the kernel refuses it without one.
//!
//! Source: getrlimit(2), `RLIMIT_NOFILE`.

use farcore_rdma::try_resource_limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit of most systems, where the system does not tell it.
const USUAL: u64 = 1024;

/// The limit on this process's descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Descriptors {
    /// The soft limit, after it was raised.
    pub(crate) limit: u64,
}

impl Descriptors {
    /// Raises the soft limit to the hard one.
    pub(crate) fn raise() -> Self {
        if try_resource_limits().is_err() {
            // What needs the limit says so.
            return Self { limit: USUAL };
        }
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // Without a hard limit the kernel's own, fs.nr_open, holds: it refuses a soft limit above
        // it, and the present one is kept.
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        let limit = if current == maximum || setrlimit(Resource::Nofile, raised).is_err() {
            current
        } else {
            maximum
        };
        Self {
            limit: limit.unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let Descriptors { limit } = Descriptors::raise();
        let now = getrlimit(Resource::Nofile);
        assert_eq!(now.current.unwrap_or(u64::MAX), limit);
        assert_eq!(Descriptors::raise(), Descriptors { limit });
    }
}
