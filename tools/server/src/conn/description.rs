//! How a client is described: a line of `CLIENT LIST`.

use crate::conn::client_filter::{ClientFilter, ClientType};
use crate::conn::connection::Connection;
use crate::cores::message::ArrivalKind;
use crate::events::tracking::shown_redirection;
use crate::resp::Protocol;

impl Connection {
    /// Of which type its client is; `None` if it is a part of the server.
    fn client_type(&self) -> Option<ClientType> {
        match self.kind {
            ArrivalKind::Client if self.is_handed_over => Some(ClientType::Replica),
            ArrivalKind::Client => Some(ClientType::Normal),
            ArrivalKind::Source => Some(ClientType::Source),
            ArrivalKind::Reader => None,
        }
    }

    /// True if a filter means its client.
    pub(crate) fn is_meant(&self, filter: &ClientFilter) -> bool {
        filter.has(self.id, self.peer, || self.local_address())
            && (filter.user.as_ref()).is_none_or(|user| self.user.now().name == *user)
            && filter
                .client_type
                .is_none_or(|client_type| self.client_type() == Some(client_type))
            && (!filter.is_of_removed || self.user.is_removed())
            && (filter.channels_left.as_ref()).is_none_or(|left| self.has_channel_beyond(left))
    }
}

/// A line of `CLIENT LIST`.
pub(crate) fn describe(connection: &Connection, now_ms: u64) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let names = &connection.names;
    let [channels, patterns, shard_channels] = connection.subscription_counts();
    let queued = connection.queue().map(|queue| queue.commands.to_string());
    let is_waiting = connection
        .parked
        .as_ref()
        .is_some_and(|one| one.is_waiting());
    let tracker = connection.tracker.as_deref();
    let flags = [
        (connection.kind == ArrivalKind::Source, 'M'),
        (connection.is_handed_over, 'S'),
        (connection.is_restricted(), 'P'),
        (queued.is_some(), 'x'),
        (is_waiting || connection.paused.is_some(), 'b'),
        (tracker.is_some(), 't'),
        (tracker.is_some_and(|one| one.is_broken), 'R'),
        (tracker.is_some_and(|one| one.is_broadcast), 'B'),
    ];
    let mut flags: String = (flags.into_iter().filter(|(is_set, _)| *is_set))
        .map(|(_, letter)| letter)
        .collect();
    if flags.is_empty() {
        flags.push('N');
    }
    format!(
        "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={} qbuf={} qbuf-free=0 argv-mem=0 multi-mem=0 obl={} oll=0 omem={} tot-mem={} events=r cmd={} user={} redir={} resp={} lib-name={} lib-ver={}",
        connection.id,
        connection.peer,
        connection.local_address(),
        text(&names.name),
        connection.connected.elapsed().as_secs(),
        now_ms.saturating_sub(connection.heard_ms) / 1000,
        flags,
        connection.database,
        channels,
        patterns,
        shard_channels,
        queued.as_deref().unwrap_or("-1"),
        connection.input.len() - connection.parsed,
        connection.waiting_bytes(),
        connection.output_bytes(),
        connection.account.held(),
        connection.last_command,
        text(&connection.user.now().name),
        shown_redirection(tracker),
        if connection.protocol == Protocol::Resp3 {
            3
        } else {
            2
        },
        text(&names.library),
        text(&names.library_version),
    )
}
