//! A doubly linked list over numbered nodes: which node follows which, in two arrays.

/// No node.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    newer: u32,
    older: u32,
}

/// A list of distinct numbers from 0 to a limit, from the newest to the oldest. Every operation
/// takes constant time and touches at most three nodes.
#[derive(Clone, Debug)]
pub(super) struct List {
    links: Vec<Links>,
    newest: u32,
    oldest: u32,
    len: u32,
}

impl List {
    pub(super) fn new(nodes: u32) -> Self {
        let alone = Links {
            newer: NONE,
            older: NONE,
        };
        Self {
            links: vec![alone; nodes as usize],
            newest: NONE,
            oldest: NONE,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The oldest node, or [`NONE`].
    #[inline]
    pub(super) fn oldest(&self) -> u32 {
        self.oldest
    }

    /// The next newer node, or [`NONE`].
    #[inline]
    pub(super) fn newer(&self, node: u32) -> u32 {
        self.links[node as usize].newer
    }

    /// Adds a node that is in no list as the newest.
    #[inline]
    pub(super) fn push(&mut self, node: u32) {
        self.links[node as usize] = Links {
            newer: NONE,
            older: self.newest,
        };
        match self.newest {
            NONE => self.oldest = node,
            newest => self.links[newest as usize].newer = node,
        }
        self.newest = node;
        self.len += 1;
    }

    /// Takes a node out of the list.
    #[inline]
    pub(super) fn remove(&mut self, node: u32) {
        let Links { newer, older } = self.links[node as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        self.len -= 1;
    }

    /// Makes a node of the list the newest.
    #[inline]
    pub(super) fn renew(&mut self, node: u32) {
        if self.newest != node {
            self.remove(node);
            self.push(node);
        }
    }

    /// Takes the oldest node.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let node = self.oldest;
        if node == NONE {
            return None;
        }
        self.remove(node);
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_like_a_deque(steps in proptest::collection::vec((0..4_u8, 0..8_u32), 1..200)) {
            let mut list = List::new(8);
            let mut model: VecDeque<u32> = VecDeque::new();
            for (step, node) in steps {
                let held = model.contains(&node);
                match step {
                    0 if !held => {
                        list.push(node);
                        model.push_front(node);
                    }
                    1 if held => {
                        list.remove(node);
                        model.retain(|&other| other != node);
                    }
                    2 if held => {
                        list.renew(node);
                        model.retain(|&other| other != node);
                        model.push_front(node);
                    }
                    3 => prop_assert_eq!(list.pop(), model.pop_back()),
                    _ => {}
                }
                prop_assert_eq!(list.oldest(), model.back().copied().unwrap_or(NONE));
                prop_assert_eq!(list.len() as usize, model.len());
                let mut at = list.oldest();
                for &node in model.iter().rev() {
                    prop_assert_eq!(at, node);
                    at = list.newer(at);
                }
                prop_assert_eq!(at, NONE);
            }
        }
    }
}
