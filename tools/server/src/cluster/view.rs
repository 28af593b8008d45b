//! The map of a cluster as one of its servers sees it: which slots it serves.

use std::sync::Arc;

use super::map::{ClusterMap, Member};
use super::slot_set::SlotSet;

/// Slots whose commands wait until their owner is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) slots: Arc<SlotSet>,
    /// The ID of the server that is to own them, and the ticket of its question.
    pub(crate) to: String,
    pub(crate) ticket: u64,
}

/// A map, and which of its members this server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct View {
    pub(crate) map: ClusterMap,
    /// The ID of this server, if one was given.
    pub(crate) id: Option<String>,
    /// Its place among the members, if it is one.
    pub(crate) own: Option<usize>,
    /// The place of the member that it follows, if it follows one.
    source: Option<usize>,
    /// Slots that change their owner right now.
    pub(crate) held: Option<Held>,
}

/// How a command uses its keys, and what its client has said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotUse {
    /// It may change them.
    pub(crate) writes: bool,
    /// The client has sent `READONLY`.
    pub(crate) is_read_only: bool,
}

/// Where the keys of a slot are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Served<'a> {
    Here,
    At(&'a Member),
    Nowhere,
}

impl View {
    /// The view of the server that has an ID, or is reached at an address.
    pub(crate) fn new(map: ClusterMap, id: Option<String>, (host, port): (&str, u16)) -> Self {
        let own = match &id {
            Some(id) => map.place_of(id),
            None => map.place_at(host, port),
        };
        let source = own.and_then(|own| map.members[own].source.as_deref());
        let source = source.and_then(|source| map.place_of(source));
        Self {
            map,
            id,
            own,
            source,
            held: None,
        }
    }

    /// True if commands of a slot wait until its owner is known.
    #[inline]
    pub(crate) fn holds(&self, slot: u16) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| held.slots.contains(slot))
    }

    /// True if slots are held that this server is to own.
    pub(crate) fn takes(&self) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| Some(&held.to[..]) == self.own_id())
    }

    /// Whom a client is to ask for a slot that is not served here, or is not for long.
    pub(crate) fn next_owner(&self, slot: u16) -> Option<&Member> {
        let held = self.held.as_ref().filter(|held| held.slots.contains(slot));
        let place = match held {
            Some(held) => self.map.place_of(&held.to),
            None => self
                .map
                .owner(slot)
                .filter(|owner| Some(*owner) != self.own),
        };
        self.map.members.get(place?)
    }

    /// The member that this server is, if it is one.
    pub(crate) fn member(&self) -> Option<&Member> {
        self.map.members.get(self.own?)
    }

    /// The member that this server follows, if it is one that follows another.
    pub(crate) fn source(&self) -> Option<&Member> {
        self.map.members.get(self.source?)
    }

    /// The ID of this server.
    pub(crate) fn own_id(&self) -> Option<&str> {
        let member = self.member().map(|member| &member.id);
        member.or(self.id.as_ref()).map(String::as_str)
    }

    /// Where the keys of a slot are served for a command.
    #[inline]
    pub(crate) fn served(&self, slot: u16, slot_use: SlotUse) -> Served<'_> {
        match self.map.owner(slot) {
            None => Served::Nowhere,
            owner if owner == self.own => Served::Here,
            owner if slot_use.is_read_only && !slot_use.writes && owner == self.source => {
                Served::Here
            }
            Some(owner) => Served::At(&self.map.members[owner]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u16, source: Option<u16>) -> Member {
        Member {
            id: format!("{number:040x}"),
            host: "h".to_owned(),
            port: number,
            source: source.map(|source| format!("{source:040x}")),
        }
    }

    #[test]
    fn slots_are_served_by_their_owner_and_read_from_those_that_follow_it() {
        let mut map = ClusterMap::even(1, vec![member(1, None), member(2, None)]).expect("a map");
        map.members.push(member(3, Some(1)));
        let write = SlotUse {
            writes: true,
            is_read_only: true,
        };
        let read = SlotUse {
            writes: false,
            is_read_only: false,
        };
        let read_only = SlotUse {
            is_read_only: true,
            ..read
        };
        let owner = View::new(map.clone(), None, ("h", 1));
        assert_eq!(owner.served(0, write), Served::Here);
        assert_eq!(
            owner.served(16_383, read_only),
            Served::At(&member(2, None))
        );
        let follower = View::new(map.clone(), Some(format!("{:040X}", 3)), ("h", 1));
        assert_eq!(follower.served(0, read_only), Served::Here);
        for used in [write, read] {
            assert_eq!(follower.served(0, used), Served::At(&member(1, None)));
        }
        let other = View::new(map, None, ("h", 9));
        assert_eq!(other.own_id(), None);
        assert_eq!(other.served(0, read_only), Served::At(&member(1, None)));
        let none = View::new(ClusterMap::unknown(), None, ("h", 1));
        assert_eq!(none.served(0, read), Served::Nowhere);
    }
}
