//! Lists against a model of them, and bytes that are no list.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::types::list::value::*;

type Model = VecDeque<Vec<u8>>;

/// Few different elements, so that they repeat; some whose lengths take several bytes.
fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(0_u8..3, 0..2),
        1 => prop::collection::vec(any::<u8>(), 120..300),
    ]
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Left), Just(Side::Right)]
}

#[derive(Clone, Debug)]
enum Edit {
    Push(Side, Vec<Vec<u8>>),
    Pop(Side, usize),
    Set(i64, Vec<u8>),
    Insert(usize, Vec<u8>),
    Remove(Vec<u8>, i64),
    Trim(i64, i64),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (side(), prop::collection::vec(element(), 1..5)).prop_map(|(side, all)| Edit::Push(side, all)),
        2 => (side(), 0_usize..4).prop_map(|(side, count)| Edit::Pop(side, count)),
        1 => (-9_i64..9, element()).prop_map(|(index, one)| Edit::Set(index, one)),
        1 => (0_usize..9, element()).prop_map(|(place, one)| Edit::Insert(place, one)),
        1 => (element(), -3_i64..3).prop_map(|(one, count)| Edit::Remove(one, count)),
        1 => (-20_i64..20, -20_i64..20).prop_map(|(start, end)| Edit::Trim(start, end)),
    ]
}

/// The places of a range, one by one.
fn model_places(count: usize, start: i64, end: i64) -> Vec<usize> {
    let count_signed = i64::try_from(count).expect("a short list");
    let at = |index: i64| {
        if index < 0 {
            index + count_signed
        } else {
            index
        }
    };
    (0..count)
        .filter(|&place| {
            let place = i64::try_from(place).expect("a short list");
            at(start) <= place && place <= at(end)
        })
        .collect()
}

/// Makes an edit of a deque, and of the bytes of a list with the same elements.
fn make(edit: &Edit, model: &mut Model, bytes: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let old = bytes
        .as_deref()
        .map(|bytes| ListValue::of(bytes).expect("a list"));
    let Some(list) = old else {
        let Edit::Push(side, all) = edit else {
            return None;
        };
        for one in all {
            push(model, *side, one.clone());
        }
        return with_added(None, *side, all.iter().map(Vec::as_slice));
    };
    match edit {
        Edit::Push(side, all) => {
            for one in all {
                push(model, *side, one.clone());
            }
            with_added(old, *side, all.iter().map(Vec::as_slice))
        }
        &Edit::Pop(side, count) => {
            let popped: Vec<_> = (0..count).map_while(|_| pop(model, side)).collect();
            assert_eq!(list.outermost(side, count), popped);
            list.without_end(side, count)
        }
        Edit::Set(index, one) => {
            let signed = i64::try_from(model.len()).expect("a short list");
            let place = if *index < 0 { index + signed } else { *index };
            let place = usize::try_from(place)
                .ok()
                .filter(|place| *place < model.len());
            assert_eq!(list.place(*index), place);
            let Some(place) = place else { return bytes };
            model[place].clone_from(one);
            with_replaced(old, place..place + 1, std::iter::once(&one[..]))
        }
        Edit::Insert(place, one) => {
            let place = (*place).min(model.len());
            model.insert(place, one.clone());
            with_replaced(old, place..place, std::iter::once(&one[..]))
        }
        Edit::Remove(one, count) => {
            let before = model.len();
            remove(model, one, *count);
            let (made, removed) = list.without(one, *count);
            assert_eq!(removed, before - model.len());
            made
        }
        &Edit::Trim(start, end) => {
            let places = model_places(model.len(), start, end);
            *model = places.iter().map(|&place| model[place].clone()).collect();
            list.part(list.places(start, end))
        }
    }
}

/// Removes occurrences as the documentation of `LREM` has it.
fn remove(model: &mut Model, one: &[u8], count: i64) {
    let most = usize::try_from(count.unsigned_abs()).expect("few");
    let mut left = if count == 0 { usize::MAX } else { most };
    let keeps = |known: &Vec<u8>| {
        let removes = known == one && left > 0;
        left -= usize::from(removes);
        !removes
    };
    if count < 0 {
        let reversed = std::mem::take(model).into_iter().rev();
        let kept: Vec<_> = reversed.filter(keeps).collect();
        *model = kept.into_iter().rev().collect();
    } else {
        model.retain(keeps);
    }
}

fn push(model: &mut Model, side: Side, one: Vec<u8>) {
    match side {
        Side::Left => model.push_front(one),
        Side::Right => model.push_back(one),
    }
}

fn pop(model: &mut Model, side: Side) -> Option<Vec<u8>> {
    match side {
        Side::Left => model.pop_front(),
        Side::Right => model.pop_back(),
    }
}

/// The places of an element that a search finds, as the documentation of `LPOS` has it.
fn model_find(model: &Model, element: &[u8], search: Occurrences) -> Vec<usize> {
    let mut places: Vec<_> = (0..model.len()).collect();
    if search.rank < 0 {
        places.reverse();
    }
    places.truncate(search.compared);
    places.retain(|&place| model[place] == element);
    let skipped = usize::try_from(search.rank.unsigned_abs() - 1).expect("few");
    places.drain(..skipped.min(places.len()));
    places.truncate(search.count);
    places
}

proptest! {
    #[test]
    fn a_list_is_a_deque(edits in prop::collection::vec(edit(), 1..30)) {
        let mut model = Model::new();
        let mut bytes = None;
        for edit in &edits {
            bytes = make(edit, &mut model, bytes);
            prop_assert_eq!(bytes.is_some(), !model.is_empty());
            let Some(bytes) = &bytes else { continue };
            let list = ListValue::of(bytes).expect("a list");
            prop_assert_eq!(list.len(), model.len());
            prop_assert_eq!(list.iter().len(), model.len());
            prop_assert!(list.iter().eq(model.iter()));
            prop_assert!(list.iter().rev().eq(model.iter().rev()));
        }
    }

    #[test]
    fn parts_are_walked_from_both_ends(
        all in prop::collection::vec(element(), 1..20), start in -25_i64..25, end in -25_i64..25, turns: u32,
    ) {
        let bytes = with_added(None, Side::Right, all.iter().map(Vec::as_slice)).expect("elements");
        let list = ListValue::of(&bytes).expect("a list");
        let places = list.places(start, end);
        let mut expected: VecDeque<_> = model_places(all.len(), start, end).into_iter().map(|place| &all[place]).collect();
        prop_assert_eq!(places.len(), expected.len());
        let mut elements = list.elements(places);
        for turn in 0..expected.len() + 1 {
            if turns >> (turn % 32) & 1 == 0 {
                prop_assert_eq!(elements.next(), expected.pop_front().map(Vec::as_slice));
            } else {
                prop_assert_eq!(elements.next_back(), expected.pop_back().map(Vec::as_slice));
            }
        }
    }

    #[test]
    fn occurrences_are_found_as_documented(
        all in prop::collection::vec(element(), 1..20), wanted in element(),
        rank in prop_oneof![-4_i64..0, 1_i64..5], count in 0_usize..4, compared in 0_usize..25,
    ) {
        let bytes = with_added(None, Side::Right, all.iter().map(Vec::as_slice)).expect("elements");
        let list = ListValue::of(&bytes).expect("a list");
        let search = Occurrences { rank, count, compared };
        let model = all.into_iter().collect();
        prop_assert_eq!(list.find(&wanted, search), model_find(&model, &wanted, search));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0_u8..4) {
        let _ = ListValue::of(&bytes);
        let headed = [&[VERSION, count, 0, 0, 0], &bytes[..]].concat();
        if let Some(list) = ListValue::of(&headed) {
            prop_assert_eq!(list.iter().count(), usize::from(count));
            prop_assert_eq!(list.iter().rev().count(), usize::from(count));
        }
        let (mut forwards, mut backwards) = (Elements { rest: &bytes, left: 9 }, Elements { rest: &bytes, left: 9 });
        while forwards.next().is_some() {}
        while backwards.next_back().is_some() {}
    }

    #[test]
    fn changed_bytes_are_no_list_or_one_that_is_walked_both_ways(
        all in prop::collection::vec(element(), 1..6), place: prop::sample::Index, byte: u8,
    ) {
        let mut bytes = with_added(None, Side::Right, all.iter().map(Vec::as_slice)).expect("elements");
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Some(list) = ListValue::of(&bytes) {
            let forwards: Vec<_> = list.iter().collect();
            let mut backwards: Vec<_> = list.iter().rev().collect();
            backwards.reverse();
            prop_assert_eq!(forwards, backwards);
        }
    }

    #[test]
    fn a_part_of_a_list_is_none(one in element(), more: u8) {
        let bytes = with_added(None, Side::Left, [&one[..], b"other"].into_iter()).expect("elements");
        for end in 0..bytes.len() {
            prop_assert_eq!(ListValue::of(&bytes[..end]), None);
        }
        let longer = [&bytes[..], &[more]].concat();
        prop_assert_eq!(ListValue::of(&longer), None);
        let mut wrong = bytes.clone();
        wrong[0] = VERSION + 1;
        prop_assert_eq!(ListValue::of(&wrong), None);
        let mut wrong = bytes;
        wrong[1] = wrong[1].wrapping_add(1 + more % 255);
        prop_assert_eq!(ListValue::of(&wrong), None);
    }
}

#[test]
fn the_bytes_are_as_documented() {
    let long = [b'v'; 130];
    let bytes = with_added(None, Side::Right, [&long[..], b"", b"x"].into_iter());
    let elements = [&[0x82, 1][..], &long, &[1, 0x82, 0, 0, 1, b'x', 1]].concat();
    assert_eq!(bytes, Some([&[3, 3, 0, 0, 0][..], &elements].concat()));
}

#[test]
fn indices_beyond_any_list_are_outside() {
    let bytes = with_added(None, Side::Right, [&b"a"[..], b"b"].into_iter()).expect("elements");
    let list = ListValue::of(&bytes).expect("a list");
    for index in [i64::MIN, -3, 2, i64::MAX] {
        assert_eq!(list.place(index), None);
    }
    assert_eq!(list.places(i64::MIN, i64::MAX), 0..2);
    assert_eq!(list.places(i64::MAX, i64::MAX), 0..0);
    assert_eq!(list.places(i64::MIN, i64::MIN), 0..0);
    assert_eq!(list.places(1, 0), 0..0);
    assert_eq!(list.places(0, -100), 0..0);
}

#[test]
fn an_encoding_is_named_by_the_limit() {
    let encoding = |count: usize, bytes: usize, size| {
        let element = vec![b'v'; bytes];
        let all = std::iter::repeat_n(&element[..], count);
        let bytes = with_added(None, Side::Right, all.collect::<Vec<_>>().into_iter());
        ListValue::of(&bytes.expect("elements"))
            .expect("a list")
            .encoding(size)
    };
    assert_eq!(encoding(16, 10, 16), "listpack");
    assert_eq!(encoding(17, 10, 16), "quicklist");
    assert_eq!(encoding(1, 9000, 16), "quicklist");
    assert_eq!(encoding(1, 10, 0), "listpack");
    assert_eq!(encoding(2, 10, 0), "quicklist");
    assert_eq!(encoding(1, 4000, -1), "listpack");
    assert_eq!(encoding(1, 4096, -1), "quicklist");
    assert_eq!(encoding(2, 4000, -2), "listpack");
    assert_eq!(encoding(3, 4000, -2), "quicklist");
    assert_eq!(encoding(1, 65_000, -5), "listpack");
    assert_eq!(encoding(1, 65_000, i64::MIN), "listpack");
    assert_eq!(encoding(1, 66_000, -5), "quicklist");
}
