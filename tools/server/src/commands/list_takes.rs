//! Commands that take elements from the first list that has some, or move one to another list, and
//! those of them that wait until there is one.
//!
//! - I1: an element is taken by one client, or stays; a move is one step as far as
//!   [`transfer`](super::transfer) makes it one.

use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;

use farcore::{Core, Error};

use super::arguments::{float, is_option, shown_key};
use super::lists::{effect, number, pop_event, push_event, take_off, write_elements};
use super::structured::{Done, Effect, Failure, Record, Step, update};
use super::transfer::{Moved, Transfer, transfer};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::kind::{self, Kind};
use crate::list_value::{ListValue, Side, with_added};
use crate::parked::Parked;
use crate::replies::WRONG_TYPE;
use crate::resp::{Protocol, Writer};
use crate::tasks::TaskOutput;
use crate::waiting::Readiness;

type Result = std::result::Result<Flow, Refusal>;

/// What a command takes from lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Elements of the first list that has some.
    Elements {
        /// As they are stored, each once.
        keys: Vec<Vec<u8>>,
        side: Side,
        /// At most so many, as an array; or one by itself.
        count: Option<usize>,
    },
    /// One element, which goes to another list.
    Move(Move),
}

/// The move of an element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    source: Vec<u8>,
    target: Vec<u8>,
    from: Side,
    to: Side,
}

/// What becomes of the error of a key that holds no list and is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceErrors {
    Replied,
    /// Nothing is there: a client that waits goes on; as Redis.
    Ignored,
}

impl SourceErrors {
    fn filter<T: Default>(
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
    /// The keys that are taken from.
    pub(crate) fn keys(&self) -> &[Vec<u8>] {
        match self {
            Self::Elements { keys, .. } => keys,
            Self::Move(Move { source, .. }) => std::slice::from_ref(source),
        }
    }

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
                    readiness.note(core, &one.target).await;
                }
                Err(failure) => writer.error(&failure.text(Kind::List)),
            },
        }
        output.write(|bytes| bytes.append(&mut reply));
        true
    }

    /// Writes that nothing was there.
    fn write_nothing(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Elements { .. } => writer.null_array(),
            Self::Move(_) => writer.null(),
        }
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
        let taken = update((&mut *core, output), key, |record| {
            take_off(record, side, count)
        })
        .await;
        if let Some((Some(elements), done)) = errors.filter(taken.map(Some))? {
            return Ok(Some((key, elements, done)));
        }
    }
    Ok(None)
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
    async fn make(
        &self,
        (core, output): Step<'_>,
        errors: SourceErrors,
        readiness: &Readiness,
    ) -> std::result::Result<Option<Moved<Vec<u8>>>, Failure> {
        if errors == SourceErrors::Ignored {
            let _memory = output.take_memory(core, 1).await;
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
        let turned = update(step, &self.source, |record| {
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
    fn notify(&self, moved: &Moved<Vec<u8>>, output: &TaskOutput) {
        let (added, taken) = (push_event(self.to), pop_event(self.from));
        moved
            .added
            .notify(output, (Kind::List, added), &self.target);
        moved
            .taken
            .notify(output, (Kind::List, taken), &self.source);
    }
}

/// Starts a command that takes what is there.
fn start(call: &mut Call<'_>, wanted: Wanted) -> Flow {
    let readiness = call.readiness();
    call.task(move |mut core, output, protocol| async move {
        let reply = (&output, protocol);
        let from = (0, SourceErrors::Replied);
        if !wanted.take(&mut core, reply, &readiness, from).await {
            output.write(|bytes| wanted.write_nothing(&mut Writer::new(bytes, protocol)));
        }
        core
    })
}

/// Starts a command that waits until there is something, but not as a part of a transaction.
fn start_or_wait(call: &mut Call<'_>, wanted: Wanted, timeout_ms: u64) -> Flow {
    if call.plan.is_some() || call.connection.is_executing() {
        return start(call, wanted);
    }
    let deadline_ms = (timeout_ms > 0).then(|| call.serving.now_ms.saturating_add(timeout_ms));
    let parked = Parked::new(&call.serving.shared, Rc::new(wanted), deadline_ms);
    let look = parked.look();
    let flow = call.task(move |mut core, output, protocol| async move {
        let reply = (&output, protocol);
        look.run(&mut core, reply, SourceErrors::Replied).await;
        core
    });
    if flow == Flow::Done {
        call.connection.parked = Some(Box::new(parked));
    }
    flow
}

/// A time in seconds, in milliseconds; 0 is without end.
fn timeout_ms(text: &[u8]) -> std::result::Result<u64, Refusal> {
    let seconds =
        float(text).map_err(|_| Refusal::from("ERR timeout is not a float or out of range"))?;
    let milliseconds = (seconds * 1000.0).ceil();
    if milliseconds < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    // As far as Redis counts.
    let most = i64::MAX as f64 - farcore_tuning::system_ms() as f64;
    if milliseconds > most {
        return Err("ERR timeout is out of range".into());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number within the range"
    )]
    Ok(milliseconds as u64)
}

/// The end of a list that an argument names.
fn side(argument: &[u8]) -> std::result::Result<Side, Refusal> {
    match argument {
        left if is_option(left, "left") => Ok(Side::Left),
        right if is_option(right, "right") => Ok(Side::Right),
        _ => Err(SYNTAX.into()),
    }
}

/// The keys at these places, each once, in their order.
fn distinct_keys(call: &Call<'_>, places: Range<usize>) -> Vec<Vec<u8>> {
    let mut known = HashSet::new();
    let keys = places.map(|place| call.key_at(place));
    let keys = keys.filter(|key| known.insert(*key));
    keys.map(<[u8]>::to_vec).collect()
}

/// The move between the first two keys.
fn moved(call: &Call<'_>, from: Side, to: Side) -> Wanted {
    Wanted::Move(Move {
        source: call.key_at(1).to_vec(),
        target: call.key_at(2).to_vec(),
        from,
        to,
    })
}

pub(super) fn lmove(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (from, to) = (side(call.argument(3))?, side(call.argument(4))?);
    let wanted = moved(call, from, to);
    Ok(start(call, wanted))
}

pub(super) fn rpoplpush(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let wanted = moved(call, Side::Right, Side::Left);
    Ok(start(call, wanted))
}

pub(super) fn blmove(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (from, to) = (side(call.argument(3))?, side(call.argument(4))?);
    let timeout_ms = timeout_ms(call.argument(5))?;
    let wanted = moved(call, from, to);
    Ok(start_or_wait(call, wanted, timeout_ms))
}

pub(super) fn brpoplpush(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let timeout_ms = timeout_ms(call.argument(3))?;
    let wanted = moved(call, Side::Right, Side::Left);
    Ok(start_or_wait(call, wanted, timeout_ms))
}

fn blocking_pop(call: &mut Call<'_>, side: Side) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let last = call.count() - 1;
    let timeout_ms = timeout_ms(call.argument(last))?;
    let wanted = Wanted::Elements {
        keys: distinct_keys(call, 1..last),
        side,
        count: None,
    };
    Ok(start_or_wait(call, wanted, timeout_ms))
}

pub(super) fn blpop(call: &mut Call<'_>) -> Result {
    blocking_pop(call, Side::Left)
}

pub(super) fn brpop(call: &mut Call<'_>) -> Result {
    blocking_pop(call, Side::Right)
}

/// What the arguments from the number of keys on want.
fn several(call: &Call<'_>, place: usize) -> std::result::Result<Wanted, Refusal> {
    let keys = number(
        call.argument(place),
        1,
        "ERR numkeys should be greater than 0",
    )?;
    let first = place + 1;
    let end = first.saturating_add(keys);
    if end >= call.count() {
        return Err(SYNTAX.into());
    }
    let side = side(call.argument(end))?;
    let count = match call.count() - end - 1 {
        0 => 1,
        2 if is_option(call.argument(end + 1), "count") => number(
            call.argument(end + 2),
            1,
            "ERR count should be greater than 0",
        )?,
        _ => return Err(SYNTAX.into()),
    };
    Ok(Wanted::Elements {
        keys: distinct_keys(call, first..end),
        side,
        count: Some(count),
    })
}

pub(super) fn lmpop(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let wanted = several(call, 1)?;
    Ok(start(call, wanted))
}

pub(super) fn blmpop(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let wanted = several(call, 2)?;
    let timeout_ms = timeout_ms(call.argument(1))?;
    Ok(start_or_wait(call, wanted, timeout_ms))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use farcore::{Condition, Expiry, PutOptions, PutOutcome};

    use super::*;
    use crate::by_hand::on_first_core;
    use crate::waiting::{ReadyKeys, Waiter};

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

    #[test]
    fn times_are_seconds_with_fractions() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("1", Ok(1000)),
            ("0.001", Ok(1)),
            ("0.0001", Ok(1)),
            ("1.5", Ok(1500)),
            ("-1", Err("ERR timeout is negative")),
            ("-0.5", Err("ERR timeout is negative")),
            ("x", Err("ERR timeout is not a float or out of range")),
            ("inf", Err("ERR timeout is out of range")),
            ("9223372036854776", Err("ERR timeout is out of range")),
        ] {
            let expected = expected.map_err(Refusal::from);
            assert_eq!(timeout_ms(text.as_bytes()), expected, "{text}");
        }
    }
}
