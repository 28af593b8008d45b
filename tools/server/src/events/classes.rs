//! The classes of key events, and the setting `notify-keyspace-events` that selects them.
//!
//! ```text
//! K keyspace channels · E keyevent channels · g generic · $ strings · l lists · s sets · h hashes
//! z sorted sets · x expired · e evicted · t streams · m missed keys · d modules · n new keys
//! A all of g$lshzxetd
//! ```
//!
//! - I1: the text of the setting is that of Redis 7, whatever text it was made from.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

/// A letter that names no class; as Redis.
pub(crate) const UNKNOWN_CLASS: &str = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";

/// Some classes of events, and which channels they go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EventClasses(u16);

impl EventClasses {
    /// Events go to the channel of their key.
    pub(crate) const KEYSPACE: Self = Self(1);
    /// Events go to the channel of their name.
    pub(crate) const KEYEVENT: Self = Self(1 << 1);
    /// Of keys whatever their values are.
    pub(crate) const GENERIC: Self = Self(1 << 2);
    pub(crate) const STRING: Self = Self(1 << 3);
    pub(crate) const LIST: Self = Self(1 << 4);
    pub(crate) const SET: Self = Self(1 << 5);
    pub(crate) const HASH: Self = Self(1 << 6);
    pub(crate) const SORTED_SET: Self = Self(1 << 7);
    pub(crate) const EXPIRED: Self = Self(1 << 8);
    pub(crate) const EVICTED: Self = Self(1 << 9);
    pub(crate) const STREAM: Self = Self(1 << 10);
    /// A command has read an absent key.
    pub(crate) const MISSED: Self = Self(1 << 11);
    pub(crate) const MODULE: Self = Self(1 << 12);
    /// A key was absent before it was written.
    pub(crate) const NEW: Self = Self(1 << 13);
    /// Changes go to clients that cache keys (`CLIENT TRACKING`); no setting selects it.
    pub(crate) const TRACKED: Self = Self(1 << 14);
    /// What `A` stands for: neither missed nor new keys; as Redis.
    pub(crate) const ALL: Self = Self(
        Self::GENERIC.0
            | Self::STRING.0
            | Self::LIST.0
            | Self::SET.0
            | Self::HASH.0
            | Self::SORTED_SET.0
            | Self::EXPIRED.0
            | Self::EVICTED.0
            | Self::STREAM.0
            | Self::MODULE.0,
    );

    /// In the order in which the setting shows those that `A` stands for, and new keys.
    const LETTERS: [(Self, char); 11] = [
        (Self::GENERIC, 'g'),
        (Self::STRING, '$'),
        (Self::LIST, 'l'),
        (Self::SET, 's'),
        (Self::HASH, 'h'),
        (Self::SORTED_SET, 'z'),
        (Self::EXPIRED, 'x'),
        (Self::EVICTED, 'e'),
        (Self::STREAM, 't'),
        (Self::MODULE, 'd'),
        (Self::NEW, 'n'),
    ];
    /// What it shows behind them.
    const LAST_LETTERS: [(Self, char); 3] = [
        (Self::KEYSPACE, 'K'),
        (Self::KEYEVENT, 'E'),
        (Self::MISSED, 'm'),
    ];

    /// The classes that a text selects; `None` if a letter names none.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let known = || Self::LETTERS.iter().chain(&Self::LAST_LETTERS);
        text.iter().try_fold(Self::default(), |classes, &letter| {
            if letter == b'A' {
                return Some(classes.and(Self::ALL));
            }
            let mut found = known().filter(|(_, known)| *known == char::from(letter));
            found.next().map(|&(class, _)| classes.and(class))
        })
    }

    /// These and others.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if some of these are among others.
    pub(crate) const fn any_of(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// True if events of some of these classes are sent.
    pub(crate) const fn sends(self, classes: Self) -> bool {
        let channels = Self::KEYSPACE.and(Self::KEYEVENT).and(Self::TRACKED);
        self.any_of(classes) && self.any_of(channels)
    }
}

impl fmt::Display for EventClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;

        let has_all = self.0 & Self::ALL.0 == Self::ALL.0;
        if has_all {
            f.write_char('A')?;
        }
        // As Redis, which does not show new keys beside `A`.
        let shown = Self::LETTERS.iter().filter(|_| !has_all);
        for &(class, letter) in shown.chain(&Self::LAST_LETTERS) {
            if self.any_of(class) {
                f.write_char(letter)?;
            }
        }
        Ok(())
    }
}

/// The classes that are selected, as all cores see them.
#[derive(Debug, Default)]
pub(crate) struct SelectedClasses {
    /// Those that the setting selects, and those that clients which cache keys need.
    all: AtomicU16,
    /// Those that the setting selects.
    selected: AtomicU16,
    /// Held while they change.
    changing: Mutex<()>,
}

impl SelectedClasses {
    /// The classes. Cost: one load.
    #[inline]
    pub(crate) fn load(&self) -> EventClasses {
        // ORDERING: relaxed; a setting, which orders nothing. A core that sees it late sends the
        // events of the one before.
        EventClasses(self.all.load(Ordering::Relaxed))
    }

    /// The classes that the setting selects.
    pub(crate) fn selected(&self) -> EventClasses {
        EventClasses(self.selected.load(Ordering::Relaxed))
    }

    /// True if there are some. Cost: one load.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.load() != EventClasses::default()
    }

    /// Selects classes by the setting.
    pub(crate) fn store(&self, classes: EventClasses) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // ORDERING: relaxed, also below; see `load`.
        self.selected.store(classes.0, Ordering::Relaxed);
        self.update(self.load().any_of(EventClasses::TRACKED));
    }

    /// Has changes of all kinds go to clients that cache keys, or not.
    pub(crate) fn track(&self, is_tracked: impl FnOnce() -> bool) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.update(is_tracked());
    }

    fn update(&self, is_tracked: bool) {
        let selected = self.selected();
        let all = if is_tracked {
            selected.and(EventClasses::ALL).and(EventClasses::TRACKED)
        } else {
            selected
        };
        self.all.store(all.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_selects_classes_or_is_refused() {
        farcore_fuzz::Target::new("event classes")
            .seed("KEg$lshzxetdnmA")
            .longest(30)
            .run(|text| {
                if let Some(classes) = EventClasses::parse(text) {
                    let shown = classes.to_string();
                    let again = EventClasses::parse(shown.as_bytes()).expect("what is shown");
                    assert_eq!(again.to_string(), shown);
                }
            });
    }

    #[test]
    fn the_text_of_the_setting_is_that_of_redis() {
        for (text, shown) in [
            ("", ""),
            ("gKE", "gKE"),
            ("KEg", "gKE"),
            ("$lshzxeKE", "$lshzxeKE"),
            ("KA", "AK"),
            ("AE", "AE"),
            ("KEA", "AKE"),
            ("g$lshzxetd", "A"),
            ("Ag", "A"),
            ("An", "A"),
            ("nE", "nE"),
            ("mKEAn", "AKEm"),
            ("ddtt", "td"),
        ] {
            let classes = EventClasses::parse(text.as_bytes()).expect(text);
            assert_eq!(classes.to_string(), shown, "{text}");
        }
        for text in ["b", "KEA ", "kA", "\u{e9}"] {
            assert_eq!(EventClasses::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn nothing_is_sent_without_channels() {
        let sends = |text: &str| {
            let classes = EventClasses::parse(text.as_bytes()).expect(text);
            classes.sends(EventClasses::STRING)
        };
        assert_eq!(["A", "K", "E", "KE"].map(sends), [false; 4]);
        assert_eq!(["K$", "EA", "$E"].map(sends), [true; 3]);
        assert!(!sends("KEglshzxetdmn"));
    }
}
