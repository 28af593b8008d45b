//! Sequences of operations that bytes choose, one at a time, against the model of trees and values.
//!
//! A search by coverage drives them (`cargo xtask fuzz shard`); the seeded models of this folder
//! have several operations under way, and faults.

use farcore_fuzz::{Input, Target};

use super::tree_model::{Call, Held, Request, offer, small};
use super::tree_scores::scored_call;
use super::{ENCRYPTIONS, LANE, Owned, Reactor, Setting};
use crate::message::operation::Operation;

const KEYS: usize = 6;
/// Bytes of a value that pushes others out of local memory.
const FILLER_BYTES: usize = 16 << 10;

fn name(input: &mut Input<'_>) -> Vec<u8> {
    format!("element-{}", input.byte()).into_bytes()
}

fn content(input: &mut Input<'_>) -> Vec<u8> {
    let byte = input.byte();
    let bytes = match byte % 16 {
        0 => usize::from(input.short()) % 9_000,
        _ => usize::from(byte) / 4,
    };
    vec![byte; bytes]
}

fn call_of(input: &mut Input<'_>) -> Call {
    let rank = |input: &mut Input<'_>| u64::from(input.byte());
    match input.below(18) {
        0..3 => Call::Insert(name(input), content(input)),
        3 => Call::Remove(name(input)),
        4 => Call::Get(name(input)),
        5 => Call::Rank(name(input)),
        6 => Call::Range(name(input), input.flag()),
        7 | 8 => {
            let front = input.flag();
            Call::Push(
                front,
                (0..=input.below(6)).map(|_| content(input)).collect(),
            )
        }
        9 => Call::SetAt(rank(input), content(input)),
        10 => {
            let start = rank(input);
            Call::Ranks(start, start + rank(input), input.flag())
        }
        11 => Call::Pop(input.flag(), u32::from(input.byte()) % 9),
        12 => {
            let start = rank(input);
            Call::Trim(start, start + rank(input))
        }
        13 => Call::Len,
        14 => Call::Delete,
        15 => Call::Put(content(input)),
        16 => Call::Expire(u64::from(input.byte())),
        _ => Call::Plain,
    }
}

fn scored_call_of(input: &mut Input<'_>) -> Call {
    let name = |number| format!("element-{number}").into_bytes();
    let content = |number: u64| vec![0; number as usize % 100];
    Call::Scored(scored_call(|limit| input.long() % limit, name, content))
}

/// Has a call answered.
fn answer_of(reactor: &mut Reactor, request: &Request, key: &[u8]) -> Owned {
    for _ in 0..200_000 {
        if offer(reactor, LANE, request, key) {
            break;
        }
        reactor.advance();
    }
    for _ in 0..200_000 {
        if let Some((token, answer)) = reactor.inbox.answers.borrow_mut().pop() {
            assert_eq!(token, request.token);
            return answer;
        }
        reactor.advance();
    }
    panic!("{:?} was never answered", request.call);
}

/// Stores values beside the collections, so that these become far.
fn fill(reactor: &mut Reactor, values: usize) {
    for number in 0..values {
        let key = format!("filler-{}", number % 200);
        let value = vec![7; FILLER_BYTES];
        let stored = reactor.call(Operation::Put {
            key: key.as_bytes(),
            value: &value,
        });
        assert!(matches!(stored, Owned::Stored(_)), "{stored:?}");
    }
}

fn run(bytes: &[u8]) {
    let input = &mut Input::new(bytes);
    let mut reactor = Reactor::new(&Setting {
        encryption: ENCRYPTIONS[input.below(ENCRYPTIONS.len())],
        ..small()
    });
    reactor.shard.trees.set_entries_max(4);
    reactor
        .shard
        .trees
        .set_inline_bytes([0, 80, 400][input.below(3)]);
    let mut now_ms = 100_000;
    reactor.shard.note_unix_ms(now_ms);
    let mut model = vec![(Held::Nothing, None); KEYS];
    let mut token = 1 << 32;
    while !input.is_empty() {
        let step = input.byte();
        match step {
            0..8 => fill(&mut reactor, usize::from(step) * 20),
            8..16 => {
                now_ms += u64::from(input.byte());
                reactor.shard.note_unix_ms(now_ms);
            }
            16 => reactor.shard.start_compaction(),
            17..32 => (0..step).for_each(|_| reactor.advance()),
            _ => {
                let key = usize::from(step) % KEYS;
                let (held, expiry_ms) = &mut model[key];
                // Those of scored maps came last: inputs of before mean what they did, mostly.
                let mut call = match step {
                    224.. => scored_call_of(input),
                    _ => call_of(input),
                };
                if let Call::Expire(after_ms) = &mut call {
                    *after_ms += now_ms;
                }
                token += 1;
                let consumed = false;
                let request = Request {
                    token,
                    key,
                    call,
                    consumed,
                };
                let answer = answer_of(&mut reactor, &request, format!("key-{key}").as_bytes());
                if expiry_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                    (*held, *expiry_ms) = (Held::Nothing, None);
                }
                let after = held.after(&request.call, &answer);
                *held = after.unwrap_or_else(|| panic!("{:?} {answer:?}", request.call));
                match request.call {
                    Call::Put(_) | Call::Delete => *expiry_ms = None,
                    Call::Expire(at_ms) if *held != Held::Nothing => *expiry_ms = Some(at_ms),
                    _ if *held == Held::Nothing => *expiry_ms = None,
                    _ => {}
                }
            }
        }
        reactor.check_small();
    }
    reactor.check();
}

#[test]
fn any_sequence_of_calls_is_answered_as_by_the_model() {
    let mix = |state: u32| state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    let calls = |seed: u32| {
        let states = std::iter::successors(Some(mix(seed)), |&state| Some(mix(state)));
        let bytes = states.map(|state| state.to_be_bytes()[0]);
        bytes.take(500).collect::<Vec<_>>()
    };
    Target::new("shard")
        .seeds((0..8).map(calls))
        .rounds(40)
        // The shard's memory and that of its node.
        .memory(64 << 20, 16 << 10)
        .run(run);
}
