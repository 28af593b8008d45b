//! The move of an element from an end of a list to an end of the same or another list.
//!
//! - I1: a move is one step as far as [`transfer`](super::transfer) makes it one.

use super::lists::{effect, pop_event, push_event, take_off};
use super::structured::{Effect, Failure, Record, Step, update};
use super::transfer::{Moved, Transfer, transfer};
use crate::tasks::output::TaskOutput;
use crate::types::kind::{self, Kind};
use crate::types::list::value::{ListValue, Side, with_added};
use crate::waits::parked::SourceErrors;
use crate::waits::readiness::Readiness;

/// The move of an element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    pub(super) source: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) from: Side,
    pub(super) to: Side,
}

impl Transfer for Move {
    type Element = Vec<u8>;

    fn take(
        &self,
        source: &Record,
        _: &Record,
    ) -> std::result::Result<Option<(Effect, Vec<u8>)>, Failure> {
        let (rest, taken) = take_off(source, self.from, 1)?;
        let element = taken.and_then(|mut taken| taken.pop());
        Ok(element.map(|element| (rest, element)))
    }

    fn add(&self, target: &Record, element: &Vec<u8>) -> std::result::Result<Effect, Failure> {
        add(target, self.to, element)
    }

    fn put_back(&self, source: &Record, element: &Vec<u8>) -> std::result::Result<Effect, Failure> {
        add(source, self.from, element)
    }
}

/// Adds an element to a list.
fn add(record: &Record, side: Side, element: &[u8]) -> std::result::Result<Effect, Failure> {
    let list = record.value::<ListValue<'_>>()?;
    Ok(effect(with_added(list, side, std::iter::once(element))))
}

impl Move {
    /// Moves the element; `None` if there is none.
    pub(super) async fn make(
        &self,
        (core, output): Step<'_>,
        errors: SourceErrors,
        readiness: &Readiness,
    ) -> std::result::Result<Option<Moved<Vec<u8>>>, Failure> {
        if errors == SourceErrors::Ignored {
            let _memory = output.take_record_memory(core, 1).await;
            let source = Record::read(core, &self.source).await;
            let list = source.and_then(|record| Ok(record.value::<ListValue<'_>>()?.is_some()));
            if !errors.filter(list)? {
                return Ok(None);
            }
        }
        if self.source == self.target {
            return self.turn((core, output)).await;
        }
        let keys = (&self.source[..], &self.target[..]);
        transfer((core, output), keys, self, Some(readiness)).await
    }

    /// Moves an element from one end of a list to the same or the other end.
    async fn turn(&self, step: Step<'_>) -> std::result::Result<Option<Moved<Vec<u8>>>, Failure> {
        let turned = update(step, (&self.source, 0), |record| {
            let Some(list) = record.value::<ListValue<'_>>()? else {
                return Ok((Effect::Nothing, None));
            };
            let Some(element) = list.outermost(self.from, 1).pop() else {
                return Ok((Effect::Nothing, None));
            };
            let rest = list.without_end(self.from, 1);
            let rest = rest.as_deref().map(kind::read).transpose()?;
            let bytes = with_added(rest, self.to, std::iter::once(&element[..]));
            Ok((effect(bytes), Some(element)))
        });
        let (element, done) = turned.await?;
        Ok(element.map(|element| Moved {
            element,
            taken: done,
            added: done,
        }))
    }

    /// Leaves its events; as Redis, that of the target first.
    pub(super) fn notify(&self, moved: &Moved<Vec<u8>>, output: &TaskOutput) {
        let (added, taken) = (push_event(self.to), pop_event(self.from));
        moved
            .added
            .notify(output, (Kind::List, added), &self.target);
        moved
            .taken
            .notify(output, (Kind::List, taken), &self.source);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    use farcore::{Condition, Expiry, PutOptions, PutOutcome};

    use super::*;
    use crate::by_hand::on_first_core;
    use crate::waits::key_queues::{ReadyKeys, Waiter};

    /// A move whose target has no room any more once the element is taken.
    struct LateRefusal {
        one: Move,
        adds: Cell<usize>,
    }

    impl Transfer for LateRefusal {
        type Element = Vec<u8>;

        fn take(
            &self,
            source: &Record,
            target: &Record,
        ) -> std::result::Result<Option<(Effect, Vec<u8>)>, Failure> {
            self.one.take(source, target)
        }

        fn add(&self, target: &Record, element: &Vec<u8>) -> std::result::Result<Effect, Failure> {
            self.adds.set(self.adds.get() + 1);
            match self.adds.get() {
                1 => self.one.add(target, element),
                _ => Err("ERR no room".into()),
            }
        }

        fn put_back(
            &self,
            source: &Record,
            element: &Vec<u8>,
        ) -> std::result::Result<Effect, Failure> {
            self.one.put_back(source, element)
        }
    }

    #[test]
    fn an_element_whose_target_has_no_room_goes_back_to_its_place_and_wakes() {
        on_first_core(2, |mut bench| async move {
            let (output, keys) = (bench.output(), bench.keys.clone());
            let [from, to] = &keys[..] else {
                panic!("two shards");
            };
            let elements = [&b"a"[..], b"b"];
            let list = with_added(None, Side::Right, elements.into_iter()).expect("a list");
            let options = PutOptions {
                expiry: Expiry::Never,
                condition: Condition::Always,
                structured: true,
            };
            let put = bench.core.put_with(from, &list, options);
            assert!(matches!(put.await, Ok(PutOutcome::Stored(_))));
            let (client, core, number) = (1, 0, 0);
            let waiter = Waiter {
                client,
                core,
                number,
            };
            bench.shared.waiting.enter(&keys[..1], waiter);
            let ready = ReadyKeys::default();
            let readiness = Readiness::later(Arc::clone(&bench.shared), Rc::clone(&ready));
            let refused = LateRefusal {
                one: Move {
                    source: from.clone(),
                    target: to.clone(),
                    from: Side::Left,
                    to: Side::Right,
                },
                adds: Cell::new(0),
            };
            let step = (&mut bench.core, &output);
            let moved = transfer(step, (from, to), &refused, Some(&readiness)).await;
            assert_eq!(moved.expect_err("no room").text(Kind::List), "ERR no room");
            assert_eq!(refused.adds.get(), 2);
            let source = Record::read(&mut bench.core, from).await.expect("read");
            let list: ListValue<'_> = source.value().expect("a list").expect("it is there");
            assert!(list.iter().eq(elements));
            assert_eq!(ready.take(), keys[..1]);
            assert!(!bench.core.exists(to).await.expect("read"));
        });
    }
}
