//! The move of an element from an end of a list to an end of the same or another list.
//!
//! To the other end of the same list it is one step of the engine. To another list it is done under
//! the sections of both: the element is added to the target, and then removed from the source, so
//! that none is lost. Nothing is entered for a source that has no element, and a target that is no
//! list is refused.
//!
//! - I1: other clients see the element in one list at any moment.

use farcore::{Core, Error, TreeOp, TreeValues};

use crate::databases::shown_key;
use crate::events::classes::EventClasses;
use crate::long::list_steps::{length, operate};
use crate::tasks::output::TaskOutput;
use crate::types::list::side::Side;
use crate::waits::parked::SourceErrors;

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

/// Removes an element at an end; true if it was the last one.
async fn pop(core: &mut Core, key: &[u8], side: Side) -> Result<bool, Error> {
    let op = TreeOp::Pop {
        last: side.is_last(),
        limit: 1,
    };
    operate(core, key, (op, None), |page| !page.has_more()).await
}

impl Move {
    /// Moves the element and leaves the events; `None` if there is none.
    pub(super) async fn make(
        &self,
        (core, output): Step<'_>,
        errors: SourceErrors,
    ) -> Result<Option<Vec<u8>>, Error> {
        let moved = if self.source == self.target {
            errors.filter(self.turn(core).await)?
        } else {
            // As Redis, which does not look at the target if nothing is moved.
            let source = length(core, &self.source).await;
            if errors.filter(source.map(|source| source.elements))? == 0 {
                return Ok(None);
            }
            length(core, &self.target).await?;
            output.enter(core, &[&self.source, &self.target]).await?;
            let moved = self.add_and_take((core, output), errors).await;
            output.leave(core);
            moved?
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

    /// Moves an element to another list, under the sections of both.
    async fn add_and_take(
        &self,
        (core, output): Step<'_>,
        errors: SourceErrors,
    ) -> Result<Option<Moved>, Error> {
        let end = if self.from.is_last() { -1 } else { 0 };
        let op = TreeOp::Slice {
            first: end,
            last: end,
            limit: 1,
        };
        let found = operate(core, &self.source, (op, None), |page| {
            page.elements().next().map(|(_, element)| element.to_vec())
        });
        let Some(element) = errors.filter(found.await)? else {
            return Ok(None);
        };
        let _held = output.hold(element.len());
        let count = add(core, &self.target, self.to, &element).await?;
        let is_gone = match pop(core, &self.source, self.from).await {
            Ok(is_gone) => is_gone,
            Err(error) => {
                if let Err(second) = pop(core, &self.target, self.to).await {
                    tracing::warn!(
                        key = %String::from_utf8_lossy(shown_key(&self.source)),
                        remove = ?error,
                        ?second,
                        "an element is in two lists: it was to move"
                    );
                }
                return Err(error);
            }
        };
        Ok(Some(Moved {
            element,
            is_new: count == 1,
            is_gone,
        }))
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
    use super::*;
    use crate::by_hand::on_first_core;
    use crate::long::list_steps::ListWalk;

    async fn elements(core: &mut Core, output: &TaskOutput, key: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let list = length(core, key).await.expect("a list");
        let walk = ListWalk::all(list, false).run((core, output), key, |_, element| {
            found.push(element.to_vec());
            true
        });
        walk.await.expect("a list");
        found
    }

    #[test]
    fn an_element_moves_between_two_shards_and_stays_if_the_target_is_no_list() {
        on_first_core(2, |bench| async move {
            let (output, keys) = (bench.output(), bench.keys.clone());
            let [source, target] = &keys[..] else {
                panic!("two shards");
            };
            let mut core = bench.core;
            for element in [b"a", b"b", b"c"] {
                let added = add(&mut core, source, Side::Right, element).await;
                added.expect("added");
            }
            let one = Move {
                source: source.clone(),
                target: target.clone(),
                from: Side::Left,
                to: Side::Right,
            };
            for (expected, left) in [(&b"a"[..], 2), (b"b", 1), (b"c", 0)] {
                let made = one.make((&mut core, &output), SourceErrors::Replied);
                assert_eq!(made.await.expect("moved").as_deref(), Some(expected));
                assert!(!core.is_under_section());
                let list = length(&mut core, source).await.expect("a list");
                assert_eq!(list.elements, left);
            }
            assert_eq!(
                elements(&mut core, &output, target).await,
                [b"a", b"b", b"c"]
            );
            let none = one.make((&mut core, &output), SourceErrors::Replied).await;
            assert!(matches!(none, Ok(None)));
            core.put(target, b"text").await.expect("put");
            add(&mut core, source, Side::Right, b"d")
                .await
                .expect("added");
            // It is a list when it is looked at, and a string afterwards.
            let step = (&mut core, &output);
            let moved = one.add_and_take(step, SourceErrors::Replied).await;
            assert!(matches!(moved, Err(Error::NoCollection)));
            assert_eq!(elements(&mut core, &output, source).await, [b"d"]);
        });
    }
}
