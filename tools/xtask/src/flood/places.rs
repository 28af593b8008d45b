//! Which core each part runs on.

use anyhow::{Context, Result, ensure};
use core_affinity::CoreId;

/// The cores of the node and of the attacker, and one more if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Places {
    pub(super) node: usize,
    pub(super) attacker: usize,
    pub(super) third: Option<usize>,
}

impl Places {
    /// On this machine.
    ///
    /// # Errors
    /// The system does not say which cores there are.
    pub(super) fn here() -> Result<Self> {
        let cores = core_affinity::get_core_ids().context("the cores are not known")?;
        let cores: Vec<usize> = cores.into_iter().map(|core| core.id).collect();
        Self::on(&cores).context("no cores")
    }

    fn on(cores: &[usize]) -> Option<Self> {
        Some(Self {
            node: *cores.first()?,
            attacker: *cores.last()?,
            third: cores.get(1).filter(|_| cores.len() > 2).copied(),
        })
    }

    /// Whether the attacker shares no core with the node.
    pub(super) fn are_apart(self) -> bool {
        self.node != self.attacker
    }
}

/// Pins the calling thread, and the threads that it starts from now on.
///
/// # Errors
/// The thread may not use the core.
pub(super) fn pin(core: usize) -> Result<()> {
    let pinned = core_affinity::set_for_current(CoreId { id: core });
    ensure!(pinned, "core {core} cannot be used");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attacker_is_the_first_to_have_a_core_of_its_own() {
        let places = |cores: &[usize]| {
            let places = Places::on(cores).unwrap();
            (places.node, places.attacker, places.third)
        };
        assert_eq!(Places::on(&[]), None);
        assert_eq!(places(&[3]), (3, 3, None));
        assert_eq!(places(&[0, 1]), (0, 1, None));
        assert_eq!(places(&[0, 1, 2]), (0, 2, Some(1)));
        assert_eq!(places(&[4, 5, 6, 7]), (4, 7, Some(5)));
    }
}
