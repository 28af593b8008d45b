//! What the memory nodes of an engine are called, by position.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The name of the node at each position; none where there is no node.
#[derive(Debug)]
pub(crate) struct NodeNames(Mutex<Vec<Option<Arc<str>>>>);

impl NodeNames {
    /// Names of the first nodes, and as many positions in all.
    pub(crate) fn new(names: impl Iterator<Item = Arc<str>>, positions: usize) -> Self {
        let mut names: Vec<_> = names.map(Some).collect();
        names.resize(positions.max(names.len()), None);
        Self(Mutex::new(names))
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Option<Arc<str>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Positions, with a node or without.
    pub(crate) fn positions(&self) -> usize {
        self.locked().len()
    }

    /// Names the node at a position, or notes that there is none.
    pub(crate) fn set(&self, position: usize, name: Option<Arc<str>>) {
        self.locked()[position] = name;
    }

    /// Each node's position and name.
    pub(crate) fn list(&self) -> Vec<(usize, Arc<str>)> {
        let names = self.locked();
        let named = names.iter().enumerate();
        named
            .filter_map(|(position, name)| Some((position, Arc::clone(name.as_ref()?))))
            .collect()
    }

    /// All names in one text.
    pub(crate) fn joined(&self) -> String {
        let names = self.list();
        let names: Vec<&str> = names.iter().map(|(_, name)| &**name).collect();
        names.join(", ")
    }
}
