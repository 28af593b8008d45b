//! Parses one command: an array of bulk strings, or an inline command.
//!
//! ```text
//! array:   *COUNT\r\n  then COUNT times  $LENGTH\r\n BYTES \r\n
//! inline:  any line that does not begin with `*`, ended by \n or \r\n
//! ```
//!
//! A parse that found too few bytes goes on where it stopped, so that a command of many arguments
//! costs the same however often its bytes are looked at. As in Redis, a NUL hides the end of the
//! line that it stands in, which then is too long at last.

use super::arguments::{Arguments, Span};
use super::error::ProtocolError;
use super::inline;
use super::limits::Limits;

/// Bytes of `\r\n`.
const END_BYTES: usize = 2;
/// Digits of a number that needs no check for overflow in 64 bits.
const DIGITS_MAX: usize = 19;
/// Digits of a number that is parsed on the short path.
const SHORT_DIGITS_MAX: usize = 8;

/// How the parse of a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The command is complete. One without arguments is to be ignored.
    Complete {
        /// Bytes of the input that it occupies.
        consumed: usize,
    },
    /// The input ends within the command.
    Incomplete {
        /// No parse succeeds before the input has this many bytes; always more than it has.
        needed: usize,
    },
    /// A bulk string is longer than [`Limits::large_bytes`]: the last one, unless
    /// [`Limits::announces_all`] is set. The arguments are those before it, none if it is the
    /// first. What comes after it begins at `offset + bytes + 2`.
    Large {
        /// Where the bulk string's bytes begin in the input; some may be there already.
        offset: usize,
        /// How many bytes it has.
        bytes: usize,
        /// Bulk strings of the command after it, for [`parse_rest`].
        left: usize,
    },
}

/// Parses the command at the start of `input`.
///
/// After [`Progress::Incomplete`] the next call must have the same input, with more bytes at its
/// end, or [`Arguments::clear`] must come before it. Other results begin anew by themselves.
///
/// # Errors
/// The command is malformed or exceeds a limit. What follows it cannot be parsed.
#[inline]
pub fn parse(
    input: &[u8],
    limits: &Limits,
    arguments: &mut Arguments,
) -> Result<Progress, ProtocolError> {
    if !arguments.is_resumed(input) {
        arguments.clear();
    }
    let progress = if arguments.missing > 0 {
        bulks(input, limits, arguments)
    } else {
        match input.first() {
            None => Ok(Progress::Incomplete { needed: 1 }),
            Some(b'*') => array(input, limits, arguments),
            Some(_) => line_command(input, limits, arguments),
        }
    };
    match progress {
        Ok(Progress::Incomplete { .. }) => {}
        Ok(_) => arguments.finish(),
        Err(_) => arguments.clear(),
    }
    progress
}

/// Parses `count` bulk strings that are left of a command, at least one.
///
/// After [`Progress::Incomplete`] the next call must be as for [`parse`], with the same count.
///
/// # Errors
/// As those of [`parse`].
pub fn parse_rest(
    input: &[u8],
    count: usize,
    limits: &Limits,
    arguments: &mut Arguments,
) -> Result<Progress, ProtocolError> {
    if !arguments.is_resumed(input) {
        arguments.clear();
        arguments.missing = count;
    }
    let progress = bulks(input, limits, arguments);
    match progress {
        Ok(Progress::Incomplete { .. }) => {}
        Ok(_) => arguments.finish(),
        Err(_) => arguments.clear(),
    }
    progress
}

/// Parses an array from its count on.
fn array(
    input: &[u8],
    limits: &Limits,
    arguments: &mut Arguments,
) -> Result<Progress, ProtocolError> {
    let (count, at) = if let Some((count, bytes)) = short_number(&input[1..]) {
        (count, 1 + bytes)
    } else {
        let too_long = ProtocolError::ArrayLine;
        let Some(line) = number_line(input, limits, &mut arguments.searched, too_long)? else {
            return Ok(more(input));
        };
        let count = number(&line[1..]).ok_or(ProtocolError::ArrayLength)?;
        // A negative count is that of an array without elements.
        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        (count, line.len() + END_BYTES)
    };
    limits.accept_count(count)?;
    arguments.at = at;
    arguments.missing = count;
    arguments.searched = 0;
    bulks(input, limits, arguments)
}

/// Parses the bulk strings that are missing.
fn bulks(
    input: &[u8],
    limits: &Limits,
    arguments: &mut Arguments,
) -> Result<Progress, ProtocolError> {
    let mut at = arguments.at;
    let mut missing = arguments.missing;
    let progress = loop {
        if missing == 0 {
            return Ok(Progress::Complete { consumed: at });
        }
        let rest = &input[at..];
        let short = match rest {
            [b'$', line @ ..] => short_number(line),
            _ => None,
        };
        let (bytes, head_bytes) = if let Some((bytes, line_bytes)) = short {
            (bytes, 1 + line_bytes)
        } else {
            match long_head(rest, limits, &mut arguments.searched)? {
                Some(head) => head,
                None => break more(input),
            }
        };
        limits.accept_bulk(bytes)?;
        let start = at + head_bytes;
        if bytes > limits.large_bytes && (missing == 1 || limits.announces_all) {
            return Ok(Progress::Large {
                offset: start,
                bytes,
                left: missing - 1,
            });
        }
        // A limit may be as high as the type goes. No input is as long as a sum that saturates.
        let end = start.saturating_add(bytes);
        let next = end.saturating_add(END_BYTES);
        if next > input.len() {
            break Progress::Incomplete { needed: next };
        }
        arguments.spans.push(Span { start, end });
        arguments.searched = 0;
        at = next;
        missing -= 1;
    };
    arguments.at = at;
    arguments.missing = missing;
    Ok(progress)
}

/// The length of a bulk string and that of the line that has it, whatever stands there; `None` if
/// the line is incomplete.
#[cold]
fn long_head(
    rest: &[u8],
    limits: &Limits,
    searched: &mut usize,
) -> Result<Option<(usize, usize)>, ProtocolError> {
    let Some(line) = number_line(rest, limits, searched, ProtocolError::BulkLine)? else {
        return Ok(None);
    };
    let [b'$', digits @ ..] = line else {
        // An empty line has its end in the place of the `$`.
        let found = line.first().copied().unwrap_or(b'\r');
        return Err(ProtocolError::BulkExpected { found });
    };
    let bytes = number(digits).and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.ok_or(ProtocolError::BulkLength)?;
    Ok(Some((bytes, line.len() + END_BYTES)))
}

/// Parses an inline command.
#[cold]
fn line_command(
    input: &[u8],
    limits: &Limits,
    arguments: &mut Arguments,
) -> Result<Progress, ProtocolError> {
    let too_long = ProtocolError::InlineLine;
    let Some(end) = line_end(input, b'\n', limits, &mut arguments.searched, too_long)? else {
        return Ok(more(input));
    };
    // The carriage return before the end, if any, is a space to it.
    inline::split(&input[..end], &mut arguments.text, &mut arguments.spans)?;
    Ok(Progress::Complete { consumed: end + 1 })
}

/// The line of a number without its end, when that is there in full. Its second byte is not read.
fn number_line<'a>(
    rest: &'a [u8],
    limits: &Limits,
    searched: &mut usize,
    too_long: ProtocolError,
) -> Result<Option<&'a [u8]>, ProtocolError> {
    let end = line_end(rest, b'\r', limits, searched, too_long)?;
    Ok(end
        .filter(|end| end + END_BYTES <= rest.len())
        .map(|end| &rest[..end]))
}

/// Where a line ends with `mark`. Bytes that were searched before are not searched again.
fn line_end(
    rest: &[u8],
    mark: u8,
    limits: &Limits,
    searched: &mut usize,
    too_long: ProtocolError,
) -> Result<Option<usize>, ProtocolError> {
    let bytes_max = limits.line_bytes_max();
    let window = &rest[..rest.len().min(bytes_max.saturating_add(1))];
    let unsearched = window.get(*searched..).unwrap_or_default();
    let stop = unsearched.iter().position(|&b| b == mark || b == 0);
    let end = *searched + stop.unwrap_or(unsearched.len());
    *searched = end;
    if window.get(end) == Some(&mark) {
        Ok(Some(end))
    } else if rest.len() > bytes_max {
        Err(too_long)
    } else {
        Ok(None)
    }
}

/// Any byte more may complete the line.
fn more(input: &[u8]) -> Progress {
    Progress::Incomplete {
        needed: input.len() + 1,
    }
}

/// A number of few digits and the length of its line with its end; `None` for all else, also for
/// what is incomplete or malformed.
#[inline]
fn short_number(line: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0;
    for (index, &byte) in line.iter().take(SHORT_DIGITS_MAX + 1).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let is_padded = index > 1 && line[0] == b'0';
            let length = index + END_BYTES;
            let is_number = byte == b'\r' && index > 0 && !is_padded && length <= line.len();
            return is_number.then_some((value, length));
        }
        value = value * 10 + usize::from(digit);
    }
    None
}

/// A decimal number of 64 bits as Redis's `string2ll` accepts it: no plus, no leading zero.
fn number(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.len() > DIGITS_MAX {
        return None;
    }
    let is_zero = digits == b"0" && !is_negative;
    if !is_zero && !matches!(digits, [b'1'..=b'9', ..]) {
        return None;
    }
    let mut value = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    if is_negative {
        0_i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}
