//! What the balance of nodes has for its state: whether pages move to emptier nodes, and when that
//! is looked at next.

/// How often shares are looked at, in nanoseconds.
pub(super) const LOOK_NS: u64 = 100_000_000;

/// How long nothing is looked for after a pass that moved no page, since copies or zones forbade
/// it, or after a node has failed, in nanoseconds; twice as long after each further such pass, up
/// to the longest rest.
pub(super) const REST_NS: u64 = 10_000_000_000;
const REST_NS_MAX: u64 = 8 * REST_NS;

/// Whether pages move to emptier nodes, and how far the pass over all pages is.
#[derive(Debug)]
pub(in crate::shard) struct Balancer {
    /// Pages move until shares are close.
    pub(super) is_on: bool,
    /// Something has changed that shares depend on.
    pub(super) is_due: bool,
    /// When shares are looked at next.
    pub(super) looks_ns: u64,
    pub(super) cursor: u32,
    /// Pages that were moved in this pass.
    pub(super) moved: usize,
    /// A page is being moved, or the extent that it has left is not free yet.
    pub(super) is_moving: bool,
    /// The rest after the next pass that moves no page.
    pub(super) rest_ns: u64,
}

impl Balancer {
    pub(super) fn new() -> Self {
        Self {
            is_on: false,
            is_due: false,
            looks_ns: 0,
            cursor: 0,
            moved: 0,
            is_moving: false,
            rest_ns: REST_NS,
        }
    }

    /// Nodes have come or gone, or lend more.
    pub(in crate::shard) fn look_soon(&mut self) {
        (self.is_due, self.looks_ns, self.rest_ns) = (true, 0, REST_NS);
    }

    /// The rest after a pass that moved no page. The next one is longer.
    pub(super) fn rest_longer(&mut self) -> u64 {
        let rest_ns = self.rest_ns;
        self.rest_ns = (rest_ns * 2).min(REST_NS_MAX);
        rest_ns
    }

    /// The core should go on though nothing else is to be done.
    pub(super) fn is_wanted(&self, now_ns: u64) -> bool {
        self.is_due || self.is_moving || self.is_on && now_ns >= self.looks_ns
    }

    /// A page could not be moved now.
    pub(super) fn pause(&mut self, now_ns: u64) {
        self.looks_ns = now_ns + LOOK_NS;
    }
}
