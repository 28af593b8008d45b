//! What a command takes from lists, now or once there is something.
//!
//! - I1: an element is taken by one client, or stays.

use std::rc::Rc;

use farcore::{Core, Error};

use super::list_move::Move;
use crate::databases::{Database, shown_key};
use crate::long::list_changes::{Popped, take_off};
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::list::reply::{TakenElements, list_error_text};
use crate::types::list::side::Side;
use crate::waits::key_queues::Awaited;
use crate::waits::parked::{SourceErrors, Takes, Taking, key_in, keys_in};
use crate::waits::readiness::Readiness;

/// What a command takes from lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Elements of the first list that has some.
    Elements {
        /// As they are stored, each once.
        keys: Vec<Vec<u8>>,
        side: Side,
        /// At most this many, as an array; or one by itself.
        count: Option<usize>,
    },
    /// One element, which goes to another list.
    Move(Move),
}

impl SourceErrors {
    pub(super) fn filter<T: Default>(self, result: Result<T, Error>) -> Result<T, Error> {
        match result {
            Err(
                Error::NoCollection | Error::CollectionKind { .. } | Error::CollectionTag { .. },
            ) if self == Self::Ignored => Ok(T::default()),
            result => result,
        }
    }
}

impl Wanted {
    /// Takes it and replies; false if nothing is there. The key at the place `first` comes first.
    pub(crate) async fn take(
        &self,
        core: &mut Core,
        (output, protocol): (&TaskOutput, Protocol),
        readiness: &Readiness,
        (first, errors): (usize, SourceErrors),
    ) -> bool {
        let mut reply = Vec::new();
        let mut writer = Writer::new(&mut reply, protocol);
        match self {
            Self::Elements { keys, side, count } => {
                let end = (*side, count.unwrap_or(1) as u64);
                match take_first((core, output), (keys, first), end, errors).await {
                    Ok(None) => return false,
                    Ok(Some((key, popped))) => {
                        let taken = &popped.taken;
                        writer.array(2);
                        writer.bulk(shown_key(key));
                        if count.is_some() {
                            writer.array(usize::try_from(taken.count).unwrap_or(usize::MAX));
                        }
                        writer.raw(&taken.replies);
                    }
                    Err(error) => writer.error(&list_error_text(&error)),
                }
            }
            Self::Move(one) => match one.make((core, output), errors).await {
                Ok(None) => return false,
                Ok(Some(element)) => {
                    writer.bulk(&element);
                    readiness.note(core, Awaited::List, &one.target).await;
                }
                Err(error) => writer.error(&list_error_text(&error)),
            },
        }
        output.write(|bytes| bytes.append(&mut reply));
        true
    }
}

impl Takes for Wanted {
    fn awaited(&self) -> Awaited {
        Awaited::List
    }

    fn write_nothing(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Elements { .. } => writer.null_array(),
            Self::Move(_) => writer.null(),
        }
    }

    fn keys(&self) -> &[Vec<u8>] {
        match self {
            Self::Elements { keys, .. } => keys,
            Self::Move(Move { source, .. }) => std::slice::from_ref(source),
        }
    }

    fn in_database(&self, database: Database) -> Rc<dyn Takes> {
        Rc::new(match self {
            Self::Elements { keys, side, count } => Self::Elements {
                keys: keys_in(database, keys),
                side: *side,
                count: *count,
            },
            Self::Move(one) => Self::Move(Move {
                source: key_in(database, &one.source),
                target: key_in(database, &one.target),
                ..*one
            }),
        })
    }

    fn take_from<'a>(
        &'a self,
        core: &'a mut Core,
        reply: (&'a TaskOutput, Protocol),
        readiness: &'a Readiness,
        from: (usize, SourceErrors),
    ) -> Taking<'a> {
        Box::pin(self.take(core, reply, readiness, from))
    }
}

/// Takes elements of the first list that has some, or of that at the place `first` if it has;
/// returns its key with them.
async fn take_first<'k>(
    (core, output): (&mut Core, &TaskOutput),
    (keys, first): (&'k [Vec<u8>], usize),
    end: (Side, u64),
    errors: SourceErrors,
) -> Result<Option<(&'k [u8], Popped)>, Error> {
    let others = keys.iter().enumerate();
    let others = others.filter_map(|(place, key)| (place != first).then_some(key));
    for key in keys.get(first).into_iter().chain(others) {
        steps::count(1);
        steps::end_slice(core).await;
        let popped = take_off((&mut *core, output), key, end, TakenElements::default()).await;
        let popped = errors.filter(popped)?;
        if popped.taken.count > 0 {
            return Ok(Some((key, popped)));
        }
    }
    Ok(None)
}
