//! Events of keys (`notify-keyspace-events`), and the messages that they make for subscribers of
//! `__keyspace@DB__:KEY` and `__keyevent@DB__:EVENT`.

use std::sync::Arc;

use crate::databases::{Database, Databases, shown_key};
use crate::events::classes::EventClasses;
use crate::events::publication::{Payload, Publication};

/// An event of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyEvent {
    pub(crate) class: EventClasses,
    pub(crate) name: &'static str,
    /// As it is stored.
    pub(crate) key: Vec<u8>,
    /// The version under which the key's record was stored, if the event is of that; else 0.
    pub(crate) version: u64,
    /// The client whose command has made it; 0 if none has.
    pub(crate) client: u64,
}

impl KeyEvent {
    pub(crate) fn new(class: EventClasses, name: &'static str, key: &[u8]) -> Self {
        Self {
            class,
            name,
            key: key.to_vec(),
            version: 0,
            client: 0,
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.key.len()
    }
}

/// A turn's events on their way to a core.
#[derive(Debug)]
pub(crate) struct SentEvents {
    pub(crate) events: Arc<[KeyEvent]>,
    pub(crate) classes: EventClasses,
    pub(crate) bytes: usize,
}

/// The messages that an event makes: that of its key's channel, and that of its own.
pub(crate) fn messages(
    event: &KeyEvent,
    classes: EventClasses,
    databases: &Databases,
) -> impl Iterator<Item = Publication> {
    let (name, key) = (event.name.as_bytes(), shown_key(&event.key));
    let number = databases.number(Database::of(&event.key));
    let message = |kind: &str, channel: &[u8], payload: &[u8]| Publication {
        is_sharded: false,
        channel: [format!("__{kind}@{number}__:").as_bytes(), channel].concat(),
        payload: Payload::Short(payload.to_vec()),
        charge: None,
    };
    let of_key = (classes.any_of(EventClasses::KEYSPACE)).then(|| message("keyspace", key, name));
    let of_event = (classes.any_of(EventClasses::KEYEVENT)).then(|| message("keyevent", name, key));
    of_key.into_iter().chain(of_event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_goes_to_the_channels_that_are_selected() {
        let event = KeyEvent::new(EventClasses::STRING, "set", b"a key");
        let channels = |text: &str| {
            let classes = EventClasses::parse(text.as_bytes()).expect(text);
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
            messages(&event, classes, &Databases::default())
                .map(|message| {
                    let Payload::Short(payload) = message.payload else {
                        unreachable!("events are short");
                    };
                    (text(message.channel), text(payload))
                })
                .collect::<Vec<_>>()
        };
        let of_key = ("__keyspace@0__:a key".to_owned(), "set".to_owned());
        let of_event = ("__keyevent@0__:set".to_owned(), "a key".to_owned());
        let both = [of_key, of_event];
        assert_eq!(channels("KEA"), both);
        assert_eq!(channels("KA"), both[..1]);
        assert_eq!(channels("EA"), both[1..]);
    }
}
