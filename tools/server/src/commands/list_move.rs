//! The move of an element from an end of a list to an end of the same or another list.
//!
//! To the other end of the same list it is one step of the engine. To another list it has two: the
//! element is taken off the source, so that only one client gets it, and is added to the target.
//! Between the two no client sees it. A target that is no list is refused before the first step. If
//! the element cannot be added otherwise, e.g. because the target has become something else, it is
//! put back, and clients that wait for the source learn of it: they may have looked meanwhile.
//!
//! - I1: at most one list has the element at any moment, so no two clients get it.

use farcore::{Core, Error, TreeOp, TreeValues};

use crate::events::classes::EventClasses;
use crate::long::list_steps::{length, operate};
use crate::tasks::output::TaskOutput;
use crate::types::list::side::Side;
use crate::waits::parked::SourceErrors;
use crate::waits::readiness::Readiness;
use crate::words::shown_key;

/// The move of an element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    pub(super) source: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) from: Side,
    pub(super) to: Side,
}

/// An element that was moved.
#[derive(Debug)]
struct Moved {
    element: Vec<u8>,
    /// It is the first of the target.
    is_new: bool,
    /// It was the last of the source.
    is_gone: bool,
}

/// A client of the core, and the output of the command that uses it.
type Step<'a> = (&'a mut Core, &'a TaskOutput);

/// Adds an element at an end; returns how many there are then.
async fn add(core: &mut Core, key: &[u8], side: Side, element: &[u8]) -> Result<u64, Error> {
    let op = TreeOp::Push {
        front: side == Side::Left,
        exists: false,
        replaces: false,
        values: TreeValues::Slices(&[element]),
    };
    operate(core, key, (op, None), |answer| answer.number(0)).await
}

impl Move {
    /// Moves the element and leaves the events; `None` if there is none.
    pub(super) async fn make(
        &self,
        (core, output): Step<'_>,
        errors: SourceErrors,
        readiness: &Readiness,
    ) -> Result<Option<Vec<u8>>, Error> {
        let moved = if self.source == self.target {
            errors.filter(self.turn(core).await)?
        } else {
            match length(core, &self.target).await {
                Ok(_) => self.take_and_add((core, output), errors, readiness).await?,
                Err(error) => {
                    // As Redis, which does not look at the target if nothing is moved.
                    let source = length(core, &self.source).await;
                    let source = source.map(|source| source.elements);
                    return match errors.filter(source)? {
                        0 => Ok(None),
                        _ => Err(error),
                    };
                }
            }
        };
        let Some(moved) = moved else {
            return Ok(None);
        };
        self.notify(&moved, output);
        Ok(Some(moved.element))
    }

    /// Moves an element from one end of a list to the same or the other end.
    async fn turn(&self, core: &mut Core) -> Result<Option<Moved>, Error> {
        let last = self.from.is_last();
        let end = if last { -1 } else { 0 };
        let op = if self.from == self.to {
            TreeOp::Slice {
                first: end,
                last: end,
                limit: 1,
            }
        } else {
            TreeOp::Rotate { last }
        };
        let element = operate(core, &self.source, (op, None), |page| {
            page.elements().next().map(|(_, element)| element.to_vec())
        })
        .await?;
        Ok(element.map(|element| Moved {
            element,
            is_new: false,
            is_gone: false,
        }))
    }

    /// Moves an element to another list.
    async fn take_and_add(
        &self,
        (core, output): Step<'_>,
        errors: SourceErrors,
        readiness: &Readiness,
    ) -> Result<Option<Moved>, Error> {
        let op = TreeOp::Pop {
            last: self.from.is_last(),
            limit: 1,
        };
        let taken = operate(core, &self.source, (op, None), |page| {
            let element = page.elements().next();
            element.map(|(_, element)| (element.to_vec(), !page.has_more()))
        })
        .await;
        let Some((element, is_gone)) = errors.filter(taken)? else {
            return Ok(None);
        };
        let _held = output.hold(element.len());
        match add(core, &self.target, self.to, &element).await {
            Ok(count) => Ok(Some(Moved {
                element,
                is_new: count == 1,
                is_gone,
            })),
            Err(error) => {
                self.put_back((core, output), (&element, &error), readiness)
                    .await;
                Err(error)
            }
        }
    }

    /// Puts an element back that could not be added to the target.
    async fn put_back(
        &self,
        (core, output): Step<'_>,
        (element, failure): (&[u8], &Error),
        readiness: &Readiness,
    ) {
        match add(core, &self.source, self.from, element).await {
            Ok(_) => readiness.note(core, output, &self.source).await,
            Err(second) => {
                tracing::warn!(
                    key = %String::from_utf8_lossy(shown_key(&self.source)),
                    add = ?failure,
                    put_back = ?second,
                    "an element is lost: it could neither be moved nor be put back"
                );
            }
        }
    }

    /// Leaves its events; as Redis, that of the target first.
    fn notify(&self, moved: &Moved, output: &TaskOutput) {
        if moved.is_new {
            output.notify(EventClasses::NEW, "new", &self.target);
        }
        output.notify(EventClasses::LIST, self.to.push_event(), &self.target);
        output.notify(EventClasses::LIST, self.from.pop_event(), &self.source);
        if moved.is_gone {
            output.notify(EventClasses::GENERIC, "del", &self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::by_hand::on_first_core;
    use crate::long::list_steps::ListWalk;
    use crate::waits::key_queues::{ReadyKeys, Waiter};

    /// The target is a list when it is looked at, and a string once the element is taken.
    #[test]
    fn an_element_that_cannot_be_added_goes_back_to_its_place_and_wakes() {
        on_first_core(2, |bench| async move {
            let (output, keys) = (bench.output(), bench.keys.clone());
            let [source, target] = &keys[..] else {
                panic!("two shards");
            };
            let mut core = bench.core;
            for element in [b"a", b"b"] {
                add(&mut core, source, Side::Right, element)
                    .await
                    .expect("added");
            }
            core.put(target, b"text").await.expect("put");
            let waiter = Waiter {
                client: 1,
                core: 0,
                number: 0,
            };
            bench.shared.waiting.enter(&keys[..1], waiter);
            let ready = ReadyKeys::default();
            let readiness = Readiness::later(Arc::clone(&bench.shared), Rc::clone(&ready));
            for from in [Side::Left, Side::Right] {
                let one = Move {
                    source: source.clone(),
                    target: target.clone(),
                    from,
                    to: Side::Right,
                };
                let step = (&mut core, &output);
                let moved = one
                    .take_and_add(step, SourceErrors::Replied, &readiness)
                    .await;
                assert!(matches!(moved, Err(Error::NoCollection)));
                let mut found = Vec::new();
                let list = length(&mut core, source).await.expect("a list");
                let walk = ListWalk::all(list, false);
                let walked = walk.run((&mut core, &output), source, |_, element| {
                    found.push(element.to_vec());
                    true
                });
                walked.await.expect("a list");
                assert_eq!(found, [b"a", b"b"]);
                assert_eq!(ready.take(), keys[..1]);
            }
            assert_eq!(
                core.get(target).await.expect("read").as_deref(),
                Some(&b"text"[..])
            );
        });
    }
}
