//! Registers as runs of equal numbers:
//!
//! ```text
//! 00llllll            l + 1 zeros
//! 01llllll llllllll   l + 1 zeros
//! 1vvvvvll            l + 1 times the number v + 1
//! ```

use std::fmt::Write as _;

use crate::types::hyperloglog::layout::{HEADER_BYTES, REGISTERS};

/// Zeros of the shorter kind of run, at most.
const SHORT_ZEROS_MAX: usize = 64;
/// Registers of a run of a number, at most.
const RUN_MAX: usize = 4;
/// The greatest number of a run.
const NUMBER_MAX: u8 = 32;
/// Runs from the one before a change on, of which those of one number are joined.
const JOINED_RUNS: usize = 5;
const LONG_ZEROS: u8 = 0x40;
const NUMBER: u8 = 0x80;

/// A run of registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    /// 0 of zeros.
    number: u8,
    length: usize,
    /// Bytes that it takes.
    bytes: usize,
}

impl Run {
    /// The run that begins at a byte; a byte behind the last one counts as 0.
    fn at(bytes: &[u8], at: usize) -> Option<Self> {
        let first = *bytes.get(at)?;
        Some(match first & (NUMBER | LONG_ZEROS) {
            0 => Self {
                number: 0,
                length: usize::from(first) + 1,
                bytes: 1,
            },
            LONG_ZEROS => {
                let second = bytes.get(at + 1).copied().unwrap_or(0);
                let length = u16::from_be_bytes([first & !LONG_ZEROS, second]);
                Self {
                    number: 0,
                    length: usize::from(length) + 1,
                    bytes: 2,
                }
            }
            _ => Self {
                number: (first >> 2 & 0x1f) + 1,
                length: usize::from(first & 3) + 1,
                bytes: 1,
            },
        })
    }
}

/// Appends a run of zeros; none if it has no length.
pub(super) fn push_zeros(bytes: &mut Vec<u8>, length: usize) {
    let Some(less) = length
        .checked_sub(1)
        .and_then(|less| u16::try_from(less).ok())
    else {
        return;
    };
    let [high, low] = less.to_be_bytes();
    if length > SHORT_ZEROS_MAX {
        bytes.push(high | LONG_ZEROS);
    }
    bytes.push(low);
}

/// A run of a number as its byte.
fn number_byte(number: u8, length: usize) -> u8 {
    let less = u8::try_from(length.saturating_sub(1)).unwrap_or(0) & 3;
    NUMBER | (number.saturating_sub(1) & 0x1f) << 2 | less
}

/// Appends a run of a number; none if it has no length.
fn push_number(bytes: &mut Vec<u8>, number: u8, length: usize) {
    if length > 0 {
        bytes.push(number_byte(number, length));
    }
}

/// Visits all runs; `None` if they are not those of all registers.
pub(super) fn runs(bytes: &[u8], mut visit: impl FnMut(u8, usize)) -> Option<()> {
    let (mut at, mut register) = (0, 0);
    while let Some(run) = Run::at(bytes, at) {
        register += run.length;
        if register > REGISTERS {
            return None;
        }
        visit(run.number, run.length);
        at += run.bytes;
    }
    (register == REGISTERS).then_some(())
}

/// Visits the registers that are not 0; `None` if the runs are not those of all registers.
pub(super) fn each(bytes: &[u8], mut visit: impl FnMut(usize, u8)) -> Option<()> {
    let mut register = 0;
    runs(bytes, |number, length| {
        if number > 0 {
            (register..register + length).for_each(|register| visit(register, number));
        }
        register += length;
    })
}

/// What `PFDEBUG DECODE` shows.
pub(super) fn decoded(bytes: &[u8]) -> String {
    let (mut at, mut shown) = (0, String::new());
    while let Some(run) = Run::at(bytes, at) {
        let blank = if at == 0 { "" } else { " " };
        // Writing to a text never fails.
        let _ = match (run.number, run.bytes) {
            (0, 1) => write!(shown, "{blank}z:{}", run.length),
            (0, _) => write!(shown, "{blank}Z:{}", run.length),
            _ => write!(shown, "{blank}v:{},{}", run.number, run.length),
        };
        at += run.bytes;
    }
    shown
}

/// What a change of a register has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Raised {
    /// It has the number already, or a greater one.
    Not,
    Yes,
    /// The change takes the dense encoding.
    NeedsDense,
}

/// Where the search for a register begins: two runs before the one of the last change, which may
/// have been joined with those before it. The next register must not lie before that.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Place {
    at: usize,
    register: usize,
}

/// Raises a register of a value to a number; `None` if the value is damaged.
pub(super) fn raise(
    value: &mut Vec<u8>,
    (register, number): (usize, u8),
    bytes_max: usize,
    place: &mut Place,
) -> Option<Raised> {
    if number > NUMBER_MAX {
        return Some(Raised::NeedsDense);
    }
    let (mut at, mut first) = (HEADER_BYTES + place.at, place.register);
    let mut before = [(at, first); 2];
    let run = loop {
        let run = Run::at(value, at)?;
        if register < first + run.length {
            break run;
        }
        before = [before[1], (at, first)];
        at += run.bytes;
        first += run.length;
    };
    let previous = before[1].0;
    *place = Place {
        at: before[0].0 - HEADER_BYTES,
        register: before[0].1,
    };
    if run.number >= number {
        return Some(Raised::Not);
    }
    let (ahead, behind) = (register - first, first + run.length - 1 - register);
    let mut made = Vec::with_capacity(5);
    if run.number == 0 {
        push_zeros(&mut made, ahead);
        push_number(&mut made, number, 1);
        push_zeros(&mut made, behind);
    } else {
        push_number(&mut made, run.number, ahead);
        push_number(&mut made, number, 1);
        push_number(&mut made, run.number, behind);
    }
    // A long run may be cut short by the end of the value.
    let end = value.len().min(at + run.bytes);
    let is_longer = made.len() > run.bytes;
    if is_longer && value.len() + made.len() - run.bytes > bytes_max {
        return Some(Raised::NeedsDense);
    }
    value.splice(at..end, made);
    join(value, previous);
    Some(Raised::Yes)
}

/// Joins runs of one number, of those from a place on.
fn join(value: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED_RUNS {
        let Some(run) = Run::at(value, at) else {
            return;
        };
        if run.number == 0 {
            at += run.bytes;
            continue;
        }
        let next = Run::at(value, at + 1).filter(|next| next.number == run.number);
        match next.map(|next| run.length + next.length) {
            Some(length) if length <= RUN_MAX => {
                value[at + 1] = number_byte(run.number, length);
                value.remove(at);
            }
            _ => at += 1,
        }
    }
}
