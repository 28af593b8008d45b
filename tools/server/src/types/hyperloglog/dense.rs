//! Registers of 6 bits each, one behind the other, the lowest bit first.

use crate::types::hyperloglog::layout::{DENSE_BITS as BITS, REGISTERS};

const MASK: u16 = (1 << BITS) - 1;

/// The byte in which a register begins, and the bit there.
fn place(register: usize) -> (usize, usize) {
    let bit = register * BITS;
    (bit / 8, bit % 8)
}

/// The two bytes that have a register; the last one may lie behind all of them.
fn window(bytes: &[u8], at: usize) -> u16 {
    let next = bytes.get(at + 1).copied().unwrap_or(0);
    u16::from_le_bytes([bytes[at], next])
}

/// A register.
pub(super) fn get(bytes: &[u8], register: usize) -> u8 {
    let (at, bit) = place(register);
    (window(bytes, at) >> bit & MASK).to_le_bytes()[0]
}

/// Sets a register.
pub(super) fn set(bytes: &mut [u8], register: usize, number: u8) {
    let (at, bit) = place(register);
    let kept = window(bytes, at) & !(MASK << bit);
    let [first, second] = (kept | (u16::from(number) & MASK) << bit).to_le_bytes();
    bytes[at] = first;
    if let Some(next) = bytes.get_mut(at + 1) {
        *next = second;
    }
}

/// Raises a register to a number; true if it was less.
pub(super) fn raise(bytes: &mut [u8], register: usize, number: u8) -> bool {
    let is_less = get(bytes, register) < number;
    if is_less {
        set(bytes, register, number);
    }
    is_less
}

/// Visits all registers.
pub(super) fn each(bytes: &[u8], mut visit: impl FnMut(usize, u8)) {
    for register in 0..REGISTERS {
        visit(register, get(bytes, register));
    }
}
