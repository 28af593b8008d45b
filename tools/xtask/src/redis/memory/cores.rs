//! Which processors the server and its load run on.

use anyhow::{Context, Result, ensure};
use core_affinity::CoreId;
use rustix::process::setpriority_process;

/// The highest priority of setpriority(2).
const HIGHEST: i32 = -20;

/// Processors of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::redis) struct Cores {
    /// Of a server with one core, which nothing else here uses.
    pub(in crate::redis) server: usize,
    /// Of the load, the client beside it, and the memory node.
    pub(in crate::redis) load: usize,
}

impl Cores {
    /// On this machine.
    pub(in crate::redis) fn here() -> Result<Self> {
        let cores = core_affinity::get_core_ids().context("the cores are not known")?;
        let cores: Vec<usize> = cores.into_iter().map(|core| core.id).collect();
        Ok(Self {
            server: *cores.first().context("no cores")?,
            load: *cores.last().context("no cores")?,
        })
    }

    /// Cores of a server, in the notation of `--cores` and taskset(1).
    pub(in crate::redis) fn list(self, count: usize) -> String {
        match count {
            1 => self.server.to_string(),
            _ if self.server == self.load => self.server.to_string(),
            _ => format!("{},{}", self.server, self.load),
        }
    }

    /// True if the server shares its core with nothing of this program.
    pub(in crate::redis) fn are_apart(self) -> bool {
        self.server != self.load
    }
}

/// Pins the calling thread, and those that it starts from now on.
pub(in crate::redis) fn pin(core: usize) -> Result<()> {
    let is_pinned = core_affinity::set_for_current(CoreId { id: core });
    ensure!(is_pinned, "core {core} cannot be used");
    Ok(())
}

/// Lets the calling thread run before others, as far as the system permits it.
pub(in crate::redis) fn hurry() {
    let _ = setpriority_process(None, HIGHEST);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_the_cores_that_there_are() {
        let two = Cores { server: 0, load: 3 };
        assert_eq!((two.list(1), two.list(2)), ("0".into(), "0,3".into()));
        let one = Cores { server: 4, load: 4 };
        assert_eq!((one.list(1), one.list(2)), ("4".into(), "4".into()));
        assert!(two.are_apart() && !one.are_apart());
    }
}
