//! A second parser, as plain as `networking.c` and `sds.c` of Redis, to compare the first with.

use super::{Event, Limits};

/// How the parse of one command ends.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Complete(Vec<Vec<u8>>, usize),
    Large(Vec<Vec<u8>>, usize, usize),
    Incomplete,
    Error(String),
}

/// Parses one command. What ends it early is the `Err`.
fn command(input: &[u8], limits: &Limits) -> Result<Outcome, Outcome> {
    let Some(&first) = input.first() else {
        return Err(Outcome::Incomplete);
    };
    if first != b'*' {
        let end = end_of_line(input, b'\n', limits, "too big inline request")?;
        let line = &input[..end];
        let line = if line.ends_with(b"\r") {
            &line[..end - 1]
        } else {
            line
        };
        let split = split(line).ok_or_else(|| error("unbalanced quotes in request"))?;
        return Ok(Outcome::Complete(split, end + 1));
    }
    let mut at = 0;
    let line = number_line(input, &mut at, limits, "too big mbulk count string")?;
    let count = number(&line[1..]).filter(|&count| count <= 1 << 20);
    let count = count.ok_or_else(|| error("invalid multibulk length"))?;
    if count > 0 && count.unsigned_abs() > limits.arguments_max as u64 {
        return Err(error(if limits.is_authenticated {
            "invalid multibulk length"
        } else {
            "unauthenticated multibulk length"
        }));
    }
    let mut arguments = Vec::new();
    for index in 0..count {
        let line = number_line(input, &mut at, limits, "too big bulk count string")?;
        let found = *line.first().unwrap_or(&b'\r');
        if found != b'$' {
            return Err(error(&format!("expected '$', got '{}'", char::from(found))));
        }
        let bytes = number(&line[1..]).filter(|bytes| (0..=512 << 20).contains(bytes));
        let bytes = bytes.ok_or_else(|| error("invalid bulk length"))?;
        let bytes = usize::try_from(bytes).unwrap();
        if bytes > limits.bulk_bytes_max {
            return Err(error(if limits.is_authenticated {
                "invalid bulk length"
            } else {
                "unauthenticated bulk length"
            }));
        }
        if index + 1 == count && bytes > limits.large_bytes {
            return Ok(Outcome::Large(arguments, at, bytes));
        }
        if input.len() - at < bytes + 2 {
            return Err(Outcome::Incomplete);
        }
        arguments.push(input[at..at + bytes].to_vec());
        at += bytes + 2;
    }
    Ok(Outcome::Complete(arguments, at))
}

fn error(text: &str) -> Outcome {
    Outcome::Error(format!("Protocol error: {text}"))
}

/// As with `strchr`, no end is seen behind a NUL.
fn end_of_line(rest: &[u8], mark: u8, limits: &Limits, long: &str) -> Result<usize, Outcome> {
    let visible = rest.split(|&byte| byte == 0).next().unwrap();
    match visible.iter().position(|&byte| byte == mark) {
        Some(end) if end <= limits.inline_bytes_max => Ok(end),
        _ if rest.len() > limits.inline_bytes_max => Err(error(long)),
        _ => Err(Outcome::Incomplete),
    }
}

fn number_line<'a>(
    input: &'a [u8],
    at: &mut usize,
    limits: &Limits,
    long: &str,
) -> Result<&'a [u8], Outcome> {
    let rest = &input[*at..];
    let end = end_of_line(rest, b'\r', limits, long)?;
    if end + 2 > rest.len() {
        return Err(Outcome::Incomplete);
    }
    *at += end + 2;
    Ok(&rest[..end])
}

/// A number that is written as it would be printed.
fn number(text: &[u8]) -> Option<i64> {
    let text = str::from_utf8(text).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// `sdssplitargs`, byte by byte. The line has no NUL, so one can stand for its end.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let at = |index: usize| line.get(index).copied().unwrap_or(0);
    let space = |byte: u8| b" \t\n\x0b\x0c\r".contains(&byte);
    let hex = |byte: u8| char::from(byte).to_digit(16);
    let (mut arguments, mut p) = (Vec::new(), 0);
    loop {
        while space(at(p)) {
            p += 1;
        }
        if at(p) == 0 {
            return Some(arguments);
        }
        let (mut quote, mut argument) = (0, Vec::new());
        loop {
            let byte = at(p);
            p += 1;
            match (quote, byte) {
                (0, b' ' | b'\n' | b'\r' | b'\t' | 0) => break,
                (0, b'"' | b'\'') => quote = byte,
                (0, _) => argument.push(byte),
                (_, 0) => return None,
                (_, _) if byte == quote => {
                    if at(p) != 0 && !space(at(p)) {
                        return None;
                    }
                    break;
                }
                (b'"', b'\\') => match (at(p), hex(at(p + 1)), hex(at(p + 2))) {
                    (b'x', Some(high), Some(low)) => {
                        argument.push(u8::try_from(high * 16 + low).unwrap());
                        p += 3;
                    }
                    (0, _, _) => argument.push(byte),
                    (escaped, _, _) => {
                        let plain = b"nrtba".iter().position(|&known| known == escaped);
                        argument.push(plain.map_or(escaped, |index| b"\n\r\t\x08\x07"[index]));
                        p += 1;
                    }
                },
                (b'\'', b'\\') if at(p) == b'\'' => {
                    argument.push(b'\'');
                    p += 1;
                }
                _ => argument.push(byte),
            }
        }
        arguments.push(argument);
        p = p.min(line.len());
    }
}

/// The events of an input, as the model sees them; errors by their text.
pub(super) fn events(mut input: &[u8], limits: &Limits) -> Vec<Result<Event, String>> {
    let mut events = Vec::new();
    loop {
        let (Ok(outcome) | Err(outcome)) = command(input, limits);
        let (event, consumed) = match outcome {
            Outcome::Complete(arguments, consumed) => (Event::Command(arguments), consumed),
            Outcome::Large(arguments, offset, bytes) if input.len() >= offset + bytes + 2 => {
                let large = input[offset..offset + bytes].to_vec();
                (Event::Large(arguments, large), offset + bytes + 2)
            }
            Outcome::Error(text) => {
                events.push(Err(text));
                return events;
            }
            Outcome::Large(..) | Outcome::Incomplete => {
                if !input.is_empty() {
                    events.push(Ok(Event::Rest(input.to_vec())));
                }
                return events;
            }
        };
        events.push(Ok(event));
        input = &input[consumed..];
    }
}

/// The parser's events in the form of the model's.
pub(super) fn comparable(events: &[Event]) -> Vec<Result<Event, String>> {
    let form = |event: &Event| match event {
        Event::Error(error) => Err(error.to_string()),
        other => Ok(other.clone()),
    };
    events.iter().map(form).collect()
}
