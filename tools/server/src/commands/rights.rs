//! Whether the user of a client may run a command, and what is said and noted if not.

use super::arguments::is_option;
use super::command::Command;
use super::command::MoreKeys;
use super::flow::Refusal;
use super::{Call, subcommand};
use crate::conn::connection::Connection;
use crate::serving::Serving;
use crate::users::catalogue::Catalogue;
use crate::users::denials::{Context, Denial, Reason};
use crate::users::key_use::Access;
use crate::users::selector::{Checked, Denied};
use crate::users::user::{COMPARISONS_MAX, User};

/// A command with its words.
pub(crate) struct Words<'a, F> {
    command: &'static Command,
    catalogue: &'static Catalogue,
    place: usize,
    count: usize,
    argument: F,
    phantom: std::marker::PhantomData<&'a ()>,
}

impl<'a, F: Fn(usize) -> &'a [u8]> Words<'a, F> {
    /// One of `count` words.
    pub(crate) fn new(
        (command, catalogue): (&'static Command, &'static Catalogue),
        count: usize,
        argument: F,
    ) -> Self {
        let word = (count > 1).then(|| argument(1));
        Self {
            command,
            catalogue,
            place: catalogue.called(command.place(), word),
            count,
            argument,
            phantom: std::marker::PhantomData,
        }
    }

    /// Its full name.
    pub(crate) fn name(&self) -> &'static str {
        self.catalogue.name(self.place)
    }

    /// `BITFIELD` writes, unless all that it does is `GET`; as Redis.
    fn access_of_bit_field(&self) -> Access {
        let mut place = 2;
        while place < self.count {
            let (word, left) = ((self.argument)(place), self.count - place - 1);
            place += match () {
                () if is_option(word, "get") && left >= 2 => 3,
                () if is_option(word, "overflow") && left >= 1 => 2,
                () => return Access::ANY,
            };
        }
        Access {
            reads: true,
            writes: false,
        }
    }

    /// True if its second word is one of its command.
    pub(crate) fn has_word(&self) -> bool {
        self.catalogue.is_subcommand(self.place)
    }

    /// `SET` reads its key only with `GET`.
    fn access_of_set(&self) -> Access {
        let mut options = (3..self.count).map(|place| (self.argument)(place));
        Access {
            reads: options.any(|option| option.eq_ignore_ascii_case(b"get")),
            writes: true,
        }
    }

    /// The argument at a place.
    pub(crate) fn word(&self, place: usize) -> &'a [u8] {
        if place < self.count {
            (self.argument)(place)
        } else {
            &[]
        }
    }
}

impl<'a, F: Fn(usize) -> &'a [u8]> Checked for Words<'a, F> {
    fn place(&self) -> usize {
        self.place
    }

    fn is_open(&self) -> bool {
        self.command.is_before_authentication
    }

    fn argument(&self, place: usize) -> Option<&[u8]> {
        (place < self.count).then(|| (self.argument)(place))
    }

    fn visit_keys(&self, visit: &mut dyn FnMut(usize, Access) -> bool) {
        let uses = self.catalogue.uses(self.place);
        let mut next = uses.iter();
        let mut access = Access::ANY;
        for place in self.command.keys_in(self.count, &self.argument).iter() {
            access = next.next().copied().unwrap_or(access);
            let access = match self.command.name {
                "set" => self.access_of_set(),
                "bitfield" => self.access_of_bit_field(),
                _ => access,
            };
            if !visit(place, access) {
                return;
            }
        }
    }

    fn visit_channels(&self, visit: &mut dyn FnMut(usize, bool) -> bool) {
        let (end, is_pattern) = match self.command.name {
            "publish" | "spublish" => (2, false),
            "subscribe" | "ssubscribe" => (self.count, false),
            "psubscribe" => (self.count, true),
            _ => return,
        };
        for place in 1..end {
            if !visit(place, is_pattern) {
                return;
            }
        }
    }
}

/// Why a user may not run a command.
pub(crate) fn check<'a, F: Fn(usize) -> &'a [u8]>(
    user: &User,
    words: &Words<'a, F>,
) -> Result<(), Denied> {
    user.check(words)
}

/// Refuses a command that its client may not run, whose user may not do everything.
#[cold]
pub(super) fn admit(call: &mut Call<'_>, command: &'static Command) -> Result<(), Refusal> {
    if call.connection.user.is_removed() {
        call.connection.is_closing = true;
        return Err("NOAUTH the user of this client was removed".into());
    }
    // A script's command was admitted when it was called, and one that has begun goes on.
    let is_executing = call.connection.is_executing();
    let is_called = is_executing && call.connection.script.is_some();
    if is_called || call.connection.sent_parts.is_some() {
        return Ok(());
    }
    subcommand::check(call, command)?;
    let (arguments, input) = (call.arguments, call.input);
    let user = call.connection.user.now();
    let known = (command, call.serving.shared.users.catalogue);
    let words = Words::new(known, arguments.len(), |place| arguments.get(place, input));
    let comparisons = user.key_patterns() * arguments.len();
    if comparisons > COMPARISONS_MAX {
        return Err(Refusal(format!(
            "ERR '{}' of {} arguments for a user with {} patterns: at most {COMPARISONS_MAX} comparisons of keys with patterns for a command",
            command.name,
            arguments.len(),
            user.key_patterns(),
        )));
    }
    note_patterns(call.connection, &user, &words);
    let Err(denied) = check(&user, &words) else {
        return Ok(());
    };
    let context = if is_executing || call.connection.is_queueing() {
        Context::Transaction
    } else {
        Context::Plain
    };
    let object = object_of(denied, &words);
    (call.serving).note_denial(
        call.connection,
        denied.into(),
        (context, object, &user.name),
    );
    Err(Refusal(match (is_executing, denied) {
        (true, denied) => format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {}",
            match denied {
                Denied::Command => "no permission to execute the command or subcommand",
                Denied::Key(_) => "no permission to touch the specified keys",
                Denied::Channel(_) => {
                    "no permission to access one of the channels used as arguments"
                }
            }
        ),
        (_, Denied::Command) => format!(
            "NOPERM this user has no permissions to run the '{}' command",
            words.name()
        ),
        (_, Denied::Key(_)) => {
            "NOPERM this user has no permissions to access one of the keys used as arguments"
                .to_owned()
        }
        (_, Denied::Channel(_)) => {
            "NOPERM this user has no permissions to access one of the channels used as arguments"
                .to_owned()
        }
    }))
}

/// Notes whether patterns of a command may name any key.
pub(crate) fn note_patterns<'a, F: Fn(usize) -> &'a [u8]>(
    connection: &Connection,
    user: &User,
    words: &Words<'a, F>,
) {
    if words.command.more_keys == MoreKeys::OfSort {
        let reads_all = user.reads_all_keys(words);
        connection.reads_all_keys.set(reads_all);
    }
}

/// What a user was denied.
pub(crate) fn object_of<'a, F: Fn(usize) -> &'a [u8]>(
    denied: Denied,
    words: &Words<'a, F>,
) -> &'a [u8] {
    match denied {
        Denied::Command => words.name().as_bytes(),
        Denied::Key(place) | Denied::Channel(place) => words.word(place),
    }
}

impl From<Denied> for Reason {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Command => Self::Command,
            Denied::Key(_) => Self::Key,
            Denied::Channel(_) => Self::Channel,
        }
    }
}

impl Serving {
    /// Notes what a client was refused, for `ACL LOG`.
    pub(crate) fn note_denial(
        &mut self,
        connection: &Connection,
        reason: Reason,
        (context, object, user): (Context, &[u8], &[u8]),
    ) {
        let at_ms = farcore_tuning::system_ms();
        let denial = Denial {
            count: 1,
            reason,
            context,
            object: object.to_vec(),
            user: user.to_vec(),
            at_ms,
            client: crate::conn::description::describe(connection, at_ms),
        };
        self.denials.note(denial, self.shared.users.denials_kept());
    }
}
