//! What a command takes from lists, now or once there is something.
//!
//! - I1: an element is taken by one client, or stays.

use farcore::{Core, Error};

use super::Refusal;
use super::list_move::Move;
use super::lists::{pop_event, take_off, write_elements};
use super::structured::{Done, Failure, Step, update};
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::kind::Kind;
use crate::types::list::value::Side;
use crate::types::replies::WRONG_TYPE;
use crate::waits::parked::{SourceErrors, Takes, Taking};
use crate::waits::readiness::Readiness;
use crate::words::shown_key;

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
    pub(super) fn filter<T: Default>(
        self,
        result: std::result::Result<T, Failure>,
    ) -> std::result::Result<T, Failure> {
        let is_ignored = |failure: &Failure| match failure {
            Failure::Engine(error) => matches!(error, Error::Plain),
            Failure::Refused(Refusal(text)) => text == WRONG_TYPE,
        };
        match result {
            Err(failure) if self == Self::Ignored && is_ignored(&failure) => Ok(T::default()),
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
                let end = (*side, count.unwrap_or(1));
                match take_first((core, output), (keys, first), end, errors).await {
                    Ok(None) => return false,
                    Ok(Some((key, elements, done))) => {
                        done.notify(output, (Kind::List, pop_event(*side)), key);
                        writer.array(2);
                        writer.bulk(shown_key(key));
                        match (count, &elements[..]) {
                            (None, [element]) => writer.bulk(element),
                            _ => write_elements(&mut writer, &elements),
                        }
                    }
                    Err(failure) => writer.error(&failure.text(Kind::List)),
                }
            }
            Self::Move(one) => match one.make((core, output), errors, readiness).await {
                Ok(None) => return false,
                Ok(Some(moved)) => {
                    writer.bulk(&moved.element);
                    one.notify(&moved, output);
                    readiness.note(core, output, &one.target).await;
                }
                Err(failure) => writer.error(&failure.text(Kind::List)),
            },
        }
        output.write(|bytes| bytes.append(&mut reply));
        true
    }

    /// Writes that nothing was there.
    pub(super) fn write_nothing(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Elements { .. } => writer.null_array(),
            Self::Move(_) => writer.null(),
        }
    }
}

impl Takes for Wanted {
    fn keys(&self) -> &[Vec<u8>] {
        match self {
            Self::Elements { keys, .. } => keys,
            Self::Move(Move { source, .. }) => std::slice::from_ref(source),
        }
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

/// A key with the elements that were taken from its list, and what has become of that.
type Taken<'k> = (&'k [u8], Vec<Vec<u8>>, Done);

/// Takes elements of the first list that has some, or of that at the place `first` if it has.
async fn take_first<'k>(
    (core, output): Step<'_>,
    (keys, first): (&'k [Vec<u8>], usize),
    (side, count): (Side, usize),
    errors: SourceErrors,
) -> std::result::Result<Option<Taken<'k>>, Failure> {
    let others = keys.iter().enumerate();
    let others = others.filter_map(|(place, key)| (place != first).then_some(key));
    for key in keys.get(first).into_iter().chain(others) {
        steps::end_slice(core).await;
        let taken = update((&mut *core, output), (key, 0), |record| {
            take_off(record, side, count)
        })
        .await;
        if let Some((Some(elements), done)) = errors.filter(taken.map(Some))? {
            return Ok(Some((key, elements, done)));
        }
    }
    Ok(None)
}
