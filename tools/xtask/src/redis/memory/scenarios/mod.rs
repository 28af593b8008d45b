//! The scenarios: what a server holds, and what clients do to it.
//!
//! ```text
//! channels    subscribing, publishing, events, MONITOR
//! listings    KEYS, SCAN, and what lists clients or commands
//! reads       values that are requested and not read
//! structures  hashes, sets, lists; waits for lists
//! requests    long, half and many arguments; transactions
//! strangers   clients without the password, half handshakes, resets, silence
//! natives     clients of the native protocol
//! ```
//!
//! - I1: a name is unique: it selects a scenario.
//! - I2: what a scenario stores fits the server, also while it runs: writes are not refused.

mod channels;
mod listings;
mod natives;
mod reads;
mod requests;
mod strangers;
mod structures;

use std::fmt;

use super::crowd::Crowd;
use super::data::Data;
use super::native::NativeCrowd;

/// Local memory of a server: with it, a value of 1 MiB is a record.
const LOCAL_BYTES: u64 = 128 << 20;
/// Local memory of a server to which a value of 1 MiB is long.
const SHORT_LOCAL_BYTES: u64 = 64 << 20;

/// How the clients of a scenario speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Resp2,
    Resp3,
    Tls,
    /// The second version of the Redis protocol, beside a native address.
    Native,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resp2 => "resp2",
            Self::Resp3 => "resp3",
            Self::Tls => "tls",
            Self::Native => "native",
        })
    }
}

/// How much is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scale {
    /// Keys of scenarios that list them.
    pub(super) keys: u64,
}

/// What a server holds, and what clients do to it.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) cores: usize,
    pub(super) local_bytes: u64,
    /// Further flags of the server.
    pub(super) flags: Vec<&'static str>,
    /// Stored before, and commands that are sent then.
    pub(super) data: Vec<Data>,
    pub(super) settings: Vec<&'static str>,
    pub(super) crowds: Vec<Crowd>,
    pub(super) natives: Vec<NativeCrowd>,
    /// The server wants a password, and a token of native clients.
    pub(super) has_strangers: bool,
    /// What a connection may take, if that is judged.
    pub(super) each_bytes_max: Option<u64>,
    /// It is one of the tenth that runs before each change lands.
    pub(super) is_of_tenth: bool,
}

impl Scenario {
    fn new(name: &str, protocol: Protocol) -> Self {
        Self {
            name: format!("{name}/{protocol}"),
            protocol,
            cores: 1,
            local_bytes: LOCAL_BYTES,
            flags: Vec::new(),
            data: Vec::new(),
            settings: Vec::new(),
            crowds: Vec::new(),
            natives: Vec::new(),
            has_strangers: false,
            each_bytes_max: None,
            is_of_tenth: false,
        }
    }

    pub(super) fn is_native(&self) -> bool {
        self.protocol == Protocol::Native
    }

    fn crowd(mut self, crowd: Crowd) -> Self {
        self.crowds.push(crowd);
        self
    }

    fn native(mut self, crowd: NativeCrowd) -> Self {
        self.natives.push(crowd);
        self
    }

    fn data(mut self, data: Data) -> Self {
        self.data.push(data);
        self
    }

    fn setting(mut self, words: &'static str) -> Self {
        self.settings.push(words);
        self
    }

    fn flag(mut self, flag: &'static str) -> Self {
        self.flags.push(flag);
        self
    }

    fn with_strangers(self) -> Self {
        Self {
            has_strangers: true,
            ..self
        }
    }

    fn on_two_cores(self) -> Self {
        Self { cores: 2, ..self }
    }

    fn with_short_records(self) -> Self {
        Self {
            local_bytes: SHORT_LOCAL_BYTES,
            ..self
        }
    }

    fn of_tenth(self) -> Self {
        Self {
            is_of_tenth: true,
            ..self
        }
    }
}

/// The list that each file adds to.
#[derive(Debug)]
struct List(Vec<Scenario>);

impl List {
    /// Adds a scenario in some protocols.
    fn add(&mut self, name: &str, protocols: &[Protocol], build: impl Fn(Scenario) -> Scenario) {
        let each = protocols.iter().map(|&one| build(Scenario::new(name, one)));
        self.0.extend(each);
    }
}

/// All of them.
pub(super) fn all(scale: Scale) -> Vec<Scenario> {
    let mut list = List(Vec::new());
    channels::add(&mut list);
    listings::add(&mut list, scale);
    reads::add(&mut list);
    structures::add(&mut list);
    requests::add(&mut list);
    strangers::add(&mut list);
    natives::add(&mut list);
    list.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_are_sixty_at_least_and_each_has_a_name() {
        let all = all(Scale { keys: 1000 });
        let names: BTreeSet<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.len() >= 60, "{}", names.len());
        for one in &all {
            assert!(
                !one.crowds.is_empty() || !one.natives.is_empty(),
                "{}",
                one.name
            );
        }
        let tenth = all.iter().filter(|one| one.is_of_tenth).count();
        assert!(tenth * 10 >= all.len(), "{tenth} of {}", all.len());
        for protocol in [
            Protocol::Resp2,
            Protocol::Resp3,
            Protocol::Tls,
            Protocol::Native,
        ] {
            let of_protocol = |one: &&Scenario| one.protocol == protocol && one.is_of_tenth;
            assert!(all.iter().any(|one| of_protocol(&one)), "{protocol}");
        }
    }
}
