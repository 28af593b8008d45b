//! Effects on streams: what programs have changed in a stream's map, as commands.
//!
//! Groups and consumers have numbers there, and commands name them: the names are those of the
//! program's input, or of the changed elements.
//!
//! - S1: a command that Redis has of its own for replicas is the one that is sent: what is
//!   delivered comes as `XCLAIM`, and where a group is as `XGROUP SETID`.
//! - S2: times at which consumers were seen are not sent.
//! - S3: when an entry was delivered is sent by the source's clock; a replica whose clock is behind
//!   notes its own time instead, as it does for a Redis.

use std::borrow::Cow;

use farcore::{TreeEffect, TreeOp};

use super::gather::{Frame, Gather, Word, decimal};
use super::parts::{Done, NoCommand};
use crate::types::kind::Kind;
use crate::types::stream::changes::{Changed, ChangedGroup, Delivery, Named, SetBeside};
use crate::types::stream::id::StreamId;
use crate::types::stream::programs::StreamProgram;

const MALFORMED: NoCommand = NoCommand::Malformed(Kind::Stream);
const UNEXPECTED: NoCommand = NoCommand::Operation(Kind::Stream);

const fn needs_whole(reason: &'static str) -> NoCommand {
    NoCommand::NeedsWhole {
        kind: Kind::Stream,
        reason,
    }
}

/// Adds the commands of an effect on a stream.
pub(super) fn add<'a>(effect: &TreeEffect<'a>, into: &mut Gather<'a, '_>) -> Done {
    let (program, input) = match effect.op {
        TreeOp::Run { program, input, .. } => (program, input),
        // A group's name comes behind what is pending in it, or before the entries.
        TreeOp::Update { .. } => return Err(needs_whole("its elements were stored one by one")),
        _ => return Err(UNEXPECTED),
    };
    let program = StreamProgram::of(program).ok_or(UNEXPECTED)?;
    let mut changes = effect
        .changes()
        .map(|change| Changed::of(change).ok_or(MALFORMED));
    match program {
        StreamProgram::Add | StreamProgram::Trim => add_and_trim(&mut changes, into),
        StreamProgram::Delete => delete(&mut changes, into),
        StreamProgram::SetId => set_id(input, &mut changes, into),
        StreamProgram::GroupCreate => {
            let create = |into: &mut Gather<'_, '_>, name: &[u8], group: ChangedGroup| {
                let id = group.last_id.to_string();
                let words: [&[u8]; 6] = [
                    b"XGROUP",
                    b"CREATE",
                    into.key(),
                    name,
                    id.as_bytes(),
                    b"MKSTREAM",
                ];
                send_with_read(&words, group.entries_read, into)
            };
            group(&mut changes, into, create)
        }
        StreamProgram::GroupSetId => group(&mut changes, into, set_group),
        StreamProgram::GroupDestroy => destroy(&mut changes, into),
        // The group's name is gone already, and with it all of the group at the replica.
        StreamProgram::GroupForget => changes.try_for_each(|change| match change? {
            Changed::Pending { is: None, .. }
            | Changed::Consumer {
                is_there: false, ..
            }
            | Changed::Beside => Ok(()),
            _ => Err(MALFORMED),
        }),
        StreamProgram::ConsumerDelete => {
            let named = Named::of(program, input).ok_or(MALFORMED)?;
            delete_consumer(named, &mut changes, into)
        }
        StreamProgram::ConsumerCreate
        | StreamProgram::Read
        | StreamProgram::ReadAgain
        | StreamProgram::Claim
        | StreamProgram::ClaimDue
        | StreamProgram::Acknowledge => {
            let named = Named::of(program, input).ok_or(MALFORMED)?;
            // Otherwise a group is only changed to number a consumer.
            let moves = matches!(program, StreamProgram::Read | StreamProgram::Claim);
            deliver((named, moves), &mut changes, into)
        }
        _ => Err(UNEXPECTED),
    }
}

/// What a program has changed.
type Changes<'c, 'a> = &'c mut dyn Iterator<Item = Result<Changed<'a>, NoCommand>>;

fn id_word(id: StreamId) -> Word<'static> {
    Cow::Owned(id.to_string().into_bytes())
}

fn word(text: &'static str) -> Word<'static> {
    Cow::Borrowed(text.as_bytes())
}

/// A number that Redis holds as a signed one.
fn signed(number: u64) -> Result<Word<'static>, NoCommand> {
    match i64::try_from(number) {
        Ok(_) => Ok(decimal(number)),
        Err(_) => Err(needs_whole("a number is greater than commands take")),
    }
}

fn add_and_trim<'a>(changes: Changes<'_, 'a>, into: &mut Gather<'a, '_>) -> Done {
    let mut trimmed: Option<StreamId> = None;
    for change in changes {
        match change? {
            Changed::Entry {
                id,
                texts: Some(texts),
            } => {
                let id = id.to_string();
                let head: [&[u8]; 3] = [b"XADD", into.key(), id.as_bytes()];
                into.send(&[&head, &texts[..]].concat());
            }
            Changed::Entry { id, texts: None } => trimmed = trimmed.max(Some(id)),
            Changed::Header { .. } => {}
            _ => return Err(MALFORMED),
        }
    }
    // All entries up to an ID have gone. Trimmed, not deleted: the greatest deleted ID stays.
    let Some(last) = trimmed else {
        return Ok(());
    };
    match last.next() {
        Some(first) => {
            let first = first.to_string();
            into.send(&[b"XTRIM", into.key(), b"MINID", b"=", first.as_bytes()]);
        }
        None => into.send(&[b"XTRIM", into.key(), b"MAXLEN", b"=", b"0"]),
    }
    Ok(())
}

fn delete<'a>(changes: Changes<'_, 'a>, into: &mut Gather<'a, '_>) -> Done {
    for change in changes {
        match change? {
            Changed::Entry { id, texts: None } => {
                into.begin(Frame::of("XDEL"));
                into.push([id_word(id)]);
            }
            Changed::Header { .. } => {}
            _ => return Err(MALFORMED),
        }
    }
    Ok(())
}

fn set_id(input: &[u8], changes: Changes<'_, '_>, into: &mut Gather<'_, '_>) -> Done {
    let beside = SetBeside::of(input).ok_or(MALFORMED)?;
    let key = into.key();
    for change in changes {
        let Changed::Header {
            last_id,
            max_deleted,
        } = change?
        else {
            return Err(MALFORMED);
        };
        let added = beside.added.map(signed).transpose()?;
        let mut words: Vec<Word<'_>> = Vec::new();
        if let Some(added) = added {
            words.extend([word("ENTRIESADDED"), added]);
        }
        let is_before = last_id < max_deleted;
        let last_id = last_id.to_string();
        if beside.max_deleted.is_some() {
            // A Valkey refuses a last ID before the greatest deleted ID that it has, so that one is
            // set first, with a last ID that is behind any.
            words.extend([word("MAXDELETEDID"), id_word(max_deleted)]);
            send_set_id(key, &StreamId::LAST.to_string(), &words, into);
            send_set_id(key, &last_id, &[], into);
        } else if is_before {
            return Err(needs_whole("its last ID is before the greatest deleted ID"));
        } else {
            send_set_id(key, &last_id, &words, into);
        }
    }
    Ok(())
}

fn send_set_id(key: &[u8], last_id: &str, beside: &[Word<'_>], into: &mut Gather<'_, '_>) {
    let head: [&[u8]; 3] = [b"XSETID", key, last_id.as_bytes()];
    let words = head.into_iter().chain(beside.iter().map(|word| &word[..]));
    into.send(&words.collect::<Vec<_>>());
}

/// Sends a command, with the entries that a group has read at its end if that is known.
fn send_with_read(words: &[&[u8]], read: Option<u64>, into: &mut Gather<'_, '_>) -> Done {
    match read {
        Some(read) => {
            let read = signed(read)?;
            into.send(&[words, &[b"ENTRIESREAD", &read]].concat());
        }
        None => into.send(words),
    }
    Ok(())
}

/// Sends where a group is.
fn set_group(into: &mut Gather<'_, '_>, name: &[u8], group: ChangedGroup) -> Done {
    let id = group.last_id.to_string();
    let words: [&[u8]; 5] = [b"XGROUP", b"SETID", into.key(), name, id.as_bytes()];
    send_with_read(&words, group.entries_read, into)
}

/// Sends what has become of a group.
fn group(
    changes: Changes<'_, '_>,
    into: &mut Gather<'_, '_>,
    send: impl Fn(&mut Gather<'_, '_>, &[u8], ChangedGroup) -> Done,
) -> Done {
    for change in changes {
        match change? {
            Changed::Group {
                name,
                is: Some(group),
            } => send(into, name, group)?,
            Changed::Header { .. } => {}
            _ => return Err(MALFORMED),
        }
    }
    Ok(())
}

fn destroy(changes: Changes<'_, '_>, into: &mut Gather<'_, '_>) -> Done {
    for change in changes {
        match change? {
            Changed::Group { name, is: None } => {
                into.send(&[b"XGROUP", b"DESTROY", into.key(), name]);
            }
            _ => return Err(MALFORMED),
        }
    }
    Ok(())
}

/// A consumer goes with what is pending at it, in several steps if that is much: all but the last
/// end what is pending.
fn delete_consumer<'a>(
    named: Named<'a>,
    changes: Changes<'_, 'a>,
    into: &mut Gather<'a, '_>,
) -> Done {
    let (mut ended, mut is_gone) = (Vec::new(), false);
    for change in changes {
        match change? {
            Changed::Pending { id, is: None } => ended.push(id),
            Changed::Consumer {
                name,
                is_there: false,
            } if name == named.consumer => is_gone = true,
            Changed::Beside => {}
            _ => return Err(MALFORMED),
        }
    }
    if is_gone {
        let Named { group, consumer } = named;
        into.send(&[b"XGROUP", b"DELCONSUMER", into.key(), group, consumer]);
        return Ok(());
    }
    into.begin(acknowledgement(named));
    ended.into_iter().for_each(|id| into.push([id_word(id)]));
    Ok(())
}

/// The command that ends what is pending.
fn acknowledgement(named: Named<'_>) -> Frame<'_> {
    Frame {
        before: vec![Cow::Borrowed(named.group)],
        ..Frame::of("XACK")
    }
}

/// The command by which IDs are pending at a consumer, whether they were pending or not.
fn claim<'a>(named: Named<'a>, delivery: Delivery) -> Result<Frame<'a>, NoCommand> {
    Ok(Frame {
        name: "XCLAIM",
        before: vec![
            Cow::Borrowed(named.group),
            Cow::Borrowed(named.consumer),
            word("0"),
        ],
        after: vec![
            word("TIME"),
            signed(delivery.delivered_ms)?,
            word("RETRYCOUNT"),
            signed(delivery.deliveries)?,
            word("FORCE"),
            word("JUSTID"),
        ],
    })
}

/// Sends what is pending at a consumer, and where its group is then if that may have moved.
fn deliver<'a>(
    (named, moves): (Named<'a>, bool),
    changes: Changes<'_, 'a>,
    into: &mut Gather<'a, '_>,
) -> Done {
    let (mut group, mut last) = (None, None);
    for change in changes {
        match change? {
            Changed::Consumer {
                name,
                is_there: true,
            } if name == named.consumer => {
                let Named { group, consumer } = named;
                into.send(&[b"XGROUP", b"CREATECONSUMER", into.key(), group, consumer]);
            }
            Changed::Pending { id, is } => {
                if last != Some(is) {
                    let frame = match is {
                        Some(delivery) => claim(named, delivery)?,
                        None => acknowledgement(named),
                    };
                    into.begin(frame);
                    last = Some(is);
                }
                into.push([id_word(id)]);
            }
            Changed::Group { name, is: Some(is) } if name == named.group => group = Some(is),
            Changed::Beside => {}
            _ => return Err(MALFORMED),
        }
    }
    match group {
        Some(group) if moves => set_group(into, named.group, group),
        _ => Ok(()),
    }
}
