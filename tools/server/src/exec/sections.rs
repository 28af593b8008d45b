//! The sections that `EXEC`s of a core's connections hold: each has a client of the core whose
//! requests are under them. What a core's turn does for them stands in `turn/section_turns.rs`.
//!
//! - I1: the client of a section is here, or a task of its connection has it.
//! - I2: sections that have ended are left once the answers to their requests have come: requests
//!   under way are counted at the connection.

use std::time::Instant;

use farcore::Core;

use crate::exec::script_queues::Entry;
use crate::exec::transaction::Reach;

/// The sections of one connection's `EXEC`.
#[derive(Debug)]
struct HeldSections {
    connection: usize,
    /// None while a task has it.
    core: Option<Core>,
    /// The shards and the beginning of an entry that scripts share.
    shared: Option<(Reach, Instant)>,
    /// Its `EXEC` has ended.
    has_ended: bool,
    /// Since when its client has not read.
    unread_since: Option<Instant>,
}

/// The sections that `EXEC`s hold.
#[derive(Debug, Default)]
pub(crate) struct ExecSections {
    held: Vec<HeldSections>,
}

impl ExecSections {
    /// True if none is held. Cost: one load.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Keeps the client whose sections a connection's `EXEC` holds from now on, unless a task has
    /// it; of a script, with the shards and the beginning of the entry.
    pub(crate) fn hold(
        &mut self,
        connection: usize,
        core: Option<Core>,
        shared: Option<(Reach, Instant)>,
    ) {
        self.held.push(HeldSections {
            connection,
            core,
            shared,
            has_ended: false,
            unread_since: None,
        });
    }

    fn of(&mut self, connection: usize) -> Option<&mut HeldSections> {
        let mut held = self.held.iter_mut();
        held.find(|one| one.connection == connection && !one.has_ended)
    }

    /// True if a connection's `EXEC` holds sections.
    pub(crate) fn holds(&self, connection: usize) -> bool {
        let mut held = self.held.iter();
        held.any(|one| one.connection == connection && !one.has_ended)
    }

    /// The connections whose `EXEC` holds sections.
    pub(crate) fn connections(&self) -> Vec<usize> {
        let held = self.held.iter().filter(|one| !one.has_ended);
        held.map(|one| one.connection).collect()
    }

    /// Takes the client of a connection's sections; `give_back` gives it back.
    pub(crate) fn take(&mut self, connection: usize) -> Option<Core> {
        self.of(connection)?.core.take()
    }

    /// Gives the client of a connection's sections back, which are left if they have ended.
    pub(crate) fn give_back(&mut self, connection: usize, core: Core) {
        let mut held = self.held.iter_mut();
        let taken = held.find(|one| one.connection == connection && one.core.is_none());
        if let Some(held) = taken {
            held.core = Some(core);
            self.leave_ended();
        }
    }

    /// Takes the entry of a connection's script, for the next one; none while requests are under
    /// way.
    pub(crate) fn take_shared(&mut self, connection: usize) -> Option<(Reach, Entry)> {
        let at = self.held.iter().position(|one| {
            let is_idle = one.core.as_ref().is_some_and(|core| core.in_flight() == 0);
            one.connection == connection && !one.has_ended && one.shared.is_some() && is_idle
        })?;
        let held = self.held.swap_remove(at);
        let (reach, since) = held.shared?;
        Some((
            reach,
            Entry {
                core: held.core?,
                since,
            },
        ))
    }

    /// Ends the sections of a connection's `EXEC`.
    pub(crate) fn end(&mut self, connection: usize) {
        if let Some(held) = self.of(connection) {
            held.has_ended = true;
            self.leave_ended();
        }
    }

    /// Has each client that is here receive its answers. Returns how many.
    pub(crate) fn take_answers(&mut self, mut take: impl FnMut(&mut Core) -> usize) -> usize {
        let cores = self.held.iter_mut().filter_map(|one| one.core.as_mut());
        let count = cores
            .filter(|core| core.in_flight() > 0)
            .map(&mut take)
            .sum();
        self.leave_ended();
        count
    }

    /// Notes whether a connection's client has output that it does not read; returns since when.
    pub(crate) fn note_unread(&mut self, connection: usize, is_unread: bool) -> Option<Instant> {
        let held = self.of(connection)?;
        let since = held.unread_since.filter(|_| is_unread);
        held.unread_since = since.or_else(|| is_unread.then(Instant::now));
        held.unread_since
    }

    /// Leaves the sections that have ended (I2).
    fn leave_ended(&mut self) {
        self.held.retain(|one| {
            let is_drained = one.core.as_ref().is_some_and(|core| core.in_flight() == 0);
            !(one.has_ended && is_drained)
        });
    }
}
