//! Which changes survive between snapshots.

/// Which changes survive the end of the process, or of the machine, between two snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogPolicy {
    /// None: the engine opens with the last snapshot.
    Off,
    /// All but those of the last second and the sync that follows it: changes are logged, and the
    /// log is synced each second.
    #[default]
    EverySecond,
    /// All that were answered: no answer leaves before what it may depend on is on the disk.
    Always,
}
