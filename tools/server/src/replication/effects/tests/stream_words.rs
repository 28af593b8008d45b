//! The words that are sent for what programs change in streams.

use farcore::{TreeEffect, TreeOp};

use super::source::put_change;
use super::words::{effect, sent};
use crate::replication::effects::NoCommand;
use crate::resp::Protocol;
use crate::types::kind::Kind;
use crate::types::stream::id::StreamId;
use crate::types::stream::input::Input;
use crate::types::stream::programs::StreamProgram;
use crate::types::stream::stored::{self, StoredGroup};

/// Checks the words of a program's changes.
#[track_caller]
fn check_program(
    program: StreamProgram,
    input: &Input,
    changes: &[(Vec<u8>, Option<Vec<u8>>)],
    wanted: Result<&[&str], NoCommand>,
) {
    let mut answer = Vec::new();
    for (key, value) in changes {
        put_change(key, value.as_deref(), &mut answer);
    }
    let op = TreeOp::Run {
        program: program as u8,
        mode: program.mode(),
        input: input.encoded(),
    };
    let of = effect(Kind::Stream, op);
    let found = sent(&TreeEffect {
        answer: &answer,
        ..of
    });
    let wanted = wanted.map(|wanted| wanted.iter().map(|&line| line.to_owned()).collect());
    assert_eq!(found, wanted);
}

fn id(ms: u64) -> StreamId {
    StreamId { ms, number: 1 }
}

fn put((key, value): stored::Element) -> (Vec<u8>, Option<Vec<u8>>) {
    (key, Some(value))
}

fn removed((key, _): stored::Element) -> (Vec<u8>, Option<Vec<u8>>) {
    (key, None)
}

fn entry(id: StreamId) -> stored::Element {
    stored::entry_element(id, [&b"f"[..], b"v"].into_iter())
}

fn header(last_id: StreamId, max_deleted: StreamId) -> (Vec<u8>, Option<Vec<u8>>) {
    put(stored::header_element((last_id, max_deleted), 1, 1))
}

fn group(entries_read: Option<u64>) -> (Vec<u8>, Option<Vec<u8>>) {
    let group = StoredGroup {
        name: b"g".to_vec(),
        number: 0,
        last_id: id(7),
        entries_read,
    };
    put(stored::group_element(&group, 1))
}

fn input() -> Input {
    Input::new(Protocol::Resp2)
}

#[test]
fn entries_are_added_trimmed_and_deleted() {
    let none = StreamId::FIRST;
    let add = |changes: &[_], wanted: &[&str]| {
        check_program(StreamProgram::Add, &input(), changes, Ok(wanted));
    };
    add(
        &[header(none, none), put(entry(id(5)))],
        &["XADD key 5-1 f v"],
    );
    let changes = [
        put(entry(id(5))),
        removed(entry(id(3))),
        removed(entry(id(4))),
        header(id(5), none),
    ];
    add(&changes, &["XADD key 5-1 f v", "XTRIM key MINID = 4-2"]);
    let last = StreamId::LAST;
    let max = "18446744073709551615-18446744073709551615";
    let wanted = [&format!("XADD key {max} f v"), "XTRIM key MAXLEN = 0"];
    add(&[put(entry(last)), removed(entry(last))], &wanted);
    let changes = [
        removed(entry(id(3))),
        removed(entry(id(9))),
        header(id(9), id(9)),
    ];
    let wanted = ["XDEL key 3-1 9-1"];
    check_program(StreamProgram::Delete, &input(), &changes, Ok(&wanted));
    let wanted = ["XTRIM key MINID = 9-2"];
    check_program(StreamProgram::Trim, &input(), &changes, Ok(&wanted));
    let malformed = Err(NoCommand::Malformed(Kind::Stream));
    check_program(StreamProgram::Add, &input(), &[group(None)], malformed);
}

#[test]
fn the_last_id_is_set_with_what_is_given_beside_it() {
    let none = StreamId::FIRST;
    let set = |max, added: Option<u64>, wanted| {
        let input = input().id(id(9)).id(max).flag(added.is_some());
        let input = input.number(added.unwrap_or(0));
        let changes = [header(id(9), if max == none { id(2) } else { max })];
        check_program(StreamProgram::SetId, &input, &changes, wanted);
    };
    set(none, None, Ok(&["XSETID key 9-1"]));
    set(none, Some(8), Ok(&["XSETID key 9-1 ENTRIESADDED 8"]));
    let max = "18446744073709551615-18446744073709551615";
    let first = format!("XSETID key {max} ENTRIESADDED 8 MAXDELETEDID 4-1");
    set(id(4), Some(8), Ok(&[&first, "XSETID key 9-1"]));
    let (input, changes) = (
        input().id(id(9)).id(none).flag(false).number(0),
        [header(id(9), id(10))],
    );
    let needs_whole = Err(NoCommand::NeedsWhole {
        kind: Kind::Stream,
        reason: "its last ID is before the greatest deleted ID",
    });
    check_program(StreamProgram::SetId, &input, &changes, needs_whole);
}

#[test]
fn groups_and_consumers_are_made_set_and_removed() {
    let check = |program, input: &Input, changes: &[_], wanted: &[&str]| {
        check_program(program, input, changes, Ok(wanted));
    };
    let none = StreamId::FIRST;
    let created = [group(None), header(none, none)];
    let wanted = ["XGROUP CREATE key g 7-1 MKSTREAM"];
    check(StreamProgram::GroupCreate, &input(), &created, &wanted);
    let wanted = ["XGROUP CREATE key g 7-1 MKSTREAM ENTRIESREAD 3"];
    check(
        StreamProgram::GroupCreate,
        &input(),
        &[group(Some(3))],
        &wanted,
    );
    let wanted = ["XGROUP SETID key g 7-1 ENTRIESREAD 3"];
    check(
        StreamProgram::GroupSetId,
        &input(),
        &[group(Some(3))],
        &wanted,
    );
    let (key, _) = group(None);
    check(
        StreamProgram::GroupDestroy,
        &input(),
        &[(key, None)],
        &["XGROUP DESTROY key g"],
    );
    let named = input().bytes(b"g").bytes(b"key").bytes(b"c");
    let [by_name, by_number] = stored::consumer_elements((0, 0), b"c", 9);
    let [pending, owned] = stored::owned_elements((0, 0), id(7), &stored_pending());
    let rest = [removed(pending), removed(owned)];
    check(StreamProgram::GroupForget, &input().number(0), &rest, &[]);
    let made = [put(by_name.clone()), group(None), put(by_number.clone())];
    check(
        StreamProgram::ConsumerCreate,
        &named,
        &made,
        &["XGROUP CREATECONSUMER key g c"],
    );
    check(
        StreamProgram::ConsumerDelete,
        &named,
        &rest,
        &["XACK key g 7-1"],
    );
    let last = [&rest[..], &[removed(by_name), removed(by_number)]].concat();
    let wanted = ["XGROUP DELCONSUMER key g c"];
    check(StreamProgram::ConsumerDelete, &named, &last, &wanted);
}

fn stored_pending() -> Vec<u8> {
    stored::pending_element(0, id(7), (1000, 2)).1
}

#[test]
fn what_is_pending_is_claimed_or_acknowledged() {
    let named = input().bytes(b"key").bytes(b"g").bytes(b"c").number(1);
    let pending = |ms, delivery| {
        let (_, stored) = stored::pending_element(0, id(ms), delivery);
        stored::owned_elements((0, 0), id(ms), &stored)
    };
    let [by_name, by_number] = stored::consumer_elements((0, 0), b"c", 9);
    let [one, owned] = pending(3, (1000, 1));
    let [two, _] = pending(4, (1000, 1));
    let [three, _] = pending(5, (1000, 2));
    let changes = [
        put(by_name),
        group(None),
        put(by_number.clone()),
        put(owned),
        put(one.clone()),
        put(two),
        put(three),
        group(Some(3)),
    ];
    let claims = [
        "XGROUP CREATECONSUMER key g c",
        "XCLAIM key g c 0 3-1 4-1 TIME 1000 RETRYCOUNT 1 FORCE JUSTID",
        "XCLAIM key g c 0 5-1 TIME 1000 RETRYCOUNT 2 FORCE JUSTID",
        "XGROUP SETID key g 7-1 ENTRIESREAD 3",
    ];
    check_program(StreamProgram::Read, &named, &changes, Ok(&claims));
    check_program(StreamProgram::ReadAgain, &named, &changes, Ok(&claims[..3]));
    check_program(StreamProgram::ClaimDue, &named, &changes, Ok(&claims[..3]));
    // Nothing becomes pending, or something is pending no more.
    let changes = [put(by_number), group(Some(3))];
    check_program(StreamProgram::Read, &named, &changes, Ok(&claims[3..]));
    let changes = [put(one.clone()), removed(pending(4, (0, 0))[0].clone())];
    let wanted = [
        "XCLAIM key g c 0 3-1 TIME 1000 RETRYCOUNT 1 FORCE JUSTID",
        "XACK key g 4-1",
    ];
    check_program(StreamProgram::Claim, &named, &changes, Ok(&wanted));
    let acknowledged = input().bytes(b"g").id(id(3));
    let changes = [removed(one)];
    let wanted = ["XACK key g 3-1"];
    check_program(
        StreamProgram::Acknowledge,
        &acknowledged,
        &changes,
        Ok(&wanted),
    );
    let [never, _] = pending(3, (u64::MAX, 1));
    let needs_whole = Err(NoCommand::NeedsWhole {
        kind: Kind::Stream,
        reason: "a number is greater than commands take",
    });
    check_program(StreamProgram::Read, &named, &[put(never)], needs_whole);
}
