//! Checks the table of trees. Only in tests and simulations.

use std::collections::BTreeSet;

use super::{NodeName, Tree, TreePlace, Trees};
use crate::log::Address;
use crate::tree::{NodeNumber, StoredValue, TreeNode};

impl Tree {
    /// The nodes that are reached from the root. The flag is false if one of them cannot be read.
    fn reached<'a>(
        &self,
        read: &impl Fn(Address) -> Option<&'a [u8]>,
    ) -> (BTreeSet<NodeNumber>, bool) {
        let (mut reached, mut is_whole) = (BTreeSet::new(), true);
        if self.is_torn && !self.nodes.is_taken(self.root.node) {
            // A repair has begun it.
            return (reached, false);
        }
        let mut visit = |number: NodeNumber| {
            let id = self.id;
            assert!(
                self.nodes.is_taken(number),
                "trees L6: node {number} of {id:x} is reached and not there"
            );
            let is_new = reached.insert(number);
            assert!(is_new, "trees L6: node {number} of {id:x} is reached twice");
        };
        let mut left = vec![(self.root.node, self.root.height)];
        while let Some((number, height)) = left.pop() {
            visit(number);
            let place = self.nodes.get(number).copied().unwrap_or_default();
            let bytes = place.is_record().then(|| read(place.address()));
            let Some(node) = bytes.flatten().and_then(TreeNode::parse) else {
                is_whole = false;
                continue;
            };
            for entry in 0..node.len() {
                match (node.child(entry), node.value(entry)) {
                    (Some(child), _) => left.push((child.node, height.saturating_sub(1))),
                    (_, Some(StoredValue::Apart { node, .. })) => visit(node),
                    _ => {}
                }
            }
        }
        (reached, is_whole)
    }
}

impl Trees {
    /// Checks that what is reached from the root of a tree is there, and that nothing else is,
    /// where all nodes can be read.
    pub(in crate::shard) fn check_reach<'a>(&self, read: impl Fn(Address) -> Option<&'a [u8]>) {
        let living = self.slots.iter().flatten();
        for tree in living.filter(|tree| tree.head.is_some()) {
            let (reached, is_whole) = tree.reached(&read);
            let kept = tree.nodes.iter().filter(|place| place.is_record());
            let kept = kept.count();
            let is_kept = |number: &&NodeNumber| {
                let place = tree.nodes.get(**number);
                place.is_some_and(|place| place.is_record())
            };
            let known = reached.iter().filter(is_kept).count();
            assert!(
                known == kept || !is_whole,
                "trees L6: {kept} nodes of {:x} are kept, {known} are reached",
                tree.id
            );
        }
    }

    /// Trees, dying ones too, and their nodes that have records.
    #[cfg(feature = "simulation")]
    pub(in crate::shard) fn census(&self) -> (usize, usize) {
        (self.slots.count(), self.places().count())
    }

    /// Checks which numbers each tree has, and that it has a head or is dying.
    pub(in crate::shard) fn check(&self) {
        self.slots.check();
        let (mut heads, mut dying, mut bytes, mut used) = (0, 0, 0, 0);
        for tree in self.slots.iter().flatten() {
            #[expect(clippy::cast_possible_truncation, reason = "takes the lower half")]
            let place = TreePlace(tree.id as u32);
            let own = self.get(place).map(|own| own.id);
            assert_eq!(own, Some(tree.id), "trees L3: the id of {place:?}");
            let listed = self.dying.iter().filter(|&&one| one == place).count();
            if let Some(head) = tree.head {
                let named = self.at_head(head);
                assert_eq!(named, Some(place), "trees L1: head at {head:?}");
                assert_eq!(listed, 0, "trees L2: {place:?} has a head");
                heads += 1;
            } else {
                assert_eq!(listed, 1, "trees L2: {place:?} has no head");
                dying += 1;
            }
            tree.nodes.check();
            let free = tree.nodes.free_after(None);
            let number = (0..free).find(|&number| !tree.nodes.is_taken(number));
            assert_eq!(number, None, "trees L3: a lesser number is free");
            let fresh = NodeName {
                tree: place,
                number: free,
            };
            let is_none = tree.nodes.get(free).is_none_or(|node| !node.is_record());
            assert!(is_none, "trees L3: {fresh:?} is free and has a record");
            bytes += tree.nodes.bytes() + tree.key.len() as u64;
            used += 1;
        }
        assert_eq!(heads, self.heads.len(), "trees L1: heads");
        assert_eq!(dying, self.dying.len(), "trees L2: dying trees");
        assert_eq!(bytes, self.beside_bytes, "trees L5: bytes beside trees");
        assert_eq!(used, self.slots.count(), "trees L3: places");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breach::assert_breaks;
    use crate::message::hash::IndexHash;
    use crate::tree::{TreeKind, TreeRoot};

    /// A tree with two nodes and a free number, and one that is dying.
    fn some() -> (Trees, TreePlace) {
        let mut trees = Trees::new(1 << 20, 0);
        let tree = trees.begin(TreeKind::Map, 0, b"key");
        for place in 1..4 {
            let number = trees.take_number(tree);
            trees.set_place(NodeName { tree, number }, Address::from_raw(place), 4);
        }
        trees.adopt(tree, IndexHash(5), Address::from_raw(9));
        trees.remove_node(NodeName { tree, number: 1 });
        let dying = trees.begin(TreeKind::List, 0, b"other");
        trees.take_number(dying);
        trees.bury(dying);
        trees.check();
        (trees, tree)
    }

    #[test]
    fn a_planted_breach_of_the_table_of_trees_is_found() {
        type Breach = fn(&mut Trees, TreePlace);
        let breaches: [(&str, Breach); 7] = [
            ("trees L1", |trees, _| trees.heads.clear()),
            ("trees L1", |trees, tree| {
                trees.heads.insert(Address::from_raw(7), tree);
            }),
            ("trees L2", |trees, tree| trees.dying.push_back(tree)),
            ("trees L2", |trees, _| trees.dying.clear()),
            ("trees L3", |trees, tree| {
                trees.get_mut(tree).unwrap().id += 1;
            }),
            ("trees L3", |trees, tree| {
                // A number is given back while its node is there.
                let nodes = &mut trees.get_mut(tree).unwrap().nodes;
                let node = *nodes.get(0).unwrap();
                nodes.give(0);
                *nodes.iter_mut().next().unwrap() = node;
            }),
            ("trees L5", |trees, _| trees.beside_bytes += 1),
        ];
        for (invariant, plant) in breaches {
            let (mut trees, tree) = some();
            plant(&mut trees, tree);
            assert_breaks(invariant, || trees.check());
        }
    }

    /// A leaf that nothing is in.
    const LEAF: &[u8] = &[4, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn a_planted_breach_of_the_ways_to_nodes_is_found() {
        let (mut trees, tree) = some();
        let root = |trees: &mut Trees, node| {
            let root = TreeRoot {
                node,
                height: 1,
                ..TreeRoot::default()
            };
            trees.get_mut(tree).unwrap().root = root;
        };
        root(&mut trees, 0);
        // What cannot be read may lead to the others.
        trees.check_reach(|_| None);
        assert_breaks("trees L6", || trees.check_reach(|_| Some(LEAF)));
        trees.remove_node(NodeName { tree, number: 2 });
        trees.check_reach(|_| Some(LEAF));
        root(&mut trees, 2);
        assert_breaks("trees L6", || trees.check_reach(|_| Some(LEAF)));
    }
}
