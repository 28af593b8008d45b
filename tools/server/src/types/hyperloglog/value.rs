//! A value: its header, and its registers in either encoding.

use crate::types::hyperloglog::layout::{
    DENSE, DENSE_BYTES, ENCODING_AT, ESTIMATE_AT, HEADER_BYTES, MAGIC, REGISTERS, SPARSE, STALE,
};
use crate::types::hyperloglog::sparse::Place;
use crate::types::hyperloglog::{dense, estimate, hash, sparse};

/// A number for each register.
pub(crate) type Registers = [u8; REGISTERS];

/// Why a value is not one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damage {
    /// Its header is another's.
    Header,
    /// What follows the header is not a number for each register.
    Registers,
}

impl Damage {
    /// As Redis says it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Header => "WRONGTYPE Key is not a valid HyperLogLog string value.",
            Self::Registers => "INVALIDOBJ Corrupted HLL object detected",
        }
    }
}

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HyperLogLog(Vec<u8>);

impl HyperLogLog {
    /// One to which nothing was added.
    pub(crate) fn new() -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = SPARSE;
        sparse::push_zeros(&mut bytes, REGISTERS);
        Self(bytes)
    }

    /// The value that these bytes are, of a string of this length.
    pub(crate) fn of(bytes: Vec<u8>, length: u64) -> Result<Self, Damage> {
        let is_one = bytes.len() >= HEADER_BYTES && bytes.starts_with(MAGIC);
        let is_known = is_one
            && match bytes[ENCODING_AT] {
                DENSE => length == DENSE_BYTES as u64,
                SPARSE => true,
                _ => false,
            };
        if !is_known {
            return Err(Damage::Header);
        }
        if bytes.len() as u64 != length {
            return Err(Damage::Registers);
        }
        Ok(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn is_dense(&self) -> bool {
        self.0[ENCODING_AT] == DENSE
    }

    /// What `PFDEBUG DECODE` replies; none if it is dense.
    pub(crate) fn decoded(&self) -> Option<String> {
        (!self.is_dense()).then(|| sparse::decoded(&self.0[HEADER_BYTES..]))
    }

    /// The estimate that is stored, if it is valid.
    pub(crate) fn stored_estimate(&self) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[ESTIMATE_AT..HEADER_BYTES]);
        (bytes[7] & STALE == 0).then_some(u64::from_le_bytes(bytes))
    }

    /// Stores the estimate.
    pub(crate) fn store_estimate(&mut self, estimate: u64) {
        self.0[ESTIMATE_AT..HEADER_BYTES].copy_from_slice(&estimate.to_le_bytes());
    }

    /// Notes that the estimate is not valid any more.
    pub(crate) fn forget_estimate(&mut self) {
        self.0[HEADER_BYTES - 1] |= STALE;
    }

    /// Adds an element; true if a register has changed. A sparse value that would be longer than
    /// `sparse_max` bytes becomes dense.
    pub(crate) fn add(&mut self, element: &[u8], sparse_max: usize) -> Result<bool, Damage> {
        let (register, number) = hash::place(element);
        self.raise(register, number, sparse_max, &mut Place::default())
    }

    /// Raises a register to a number, if it is less.
    pub(super) fn raise(
        &mut self,
        register: usize,
        number: u8,
        sparse_max: usize,
        place: &mut Place,
    ) -> Result<bool, Damage> {
        if self.is_dense() {
            return Ok(dense::raise(&mut self.0[HEADER_BYTES..], register, number));
        }
        let raised = sparse::raise(&mut self.0, (register, number), sparse_max, place);
        match raised.ok_or(Damage::Registers)? {
            sparse::Raised::Not => Ok(false),
            sparse::Raised::Yes => {
                self.forget_estimate();
                Ok(true)
            }
            sparse::Raised::NeedsDense => {
                self.make_dense()?;
                Ok(dense::raise(&mut self.0[HEADER_BYTES..], register, number))
            }
        }
    }

    /// Makes it dense, if it is not.
    pub(crate) fn make_dense(&mut self) -> Result<(), Damage> {
        if self.is_dense() {
            return Ok(());
        }
        let mut bytes = vec![0; DENSE_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&self.0[..HEADER_BYTES]);
        bytes[ENCODING_AT] = DENSE;
        let into = &mut bytes[HEADER_BYTES..];
        let read = sparse::each(&self.0[HEADER_BYTES..], |register, number| {
            dense::set(into, register, number);
        });
        read.ok_or(Damage::Registers)?;
        self.0 = bytes;
        Ok(())
    }

    /// Raises registers to those of this value.
    pub(crate) fn merge_into(&self, registers: &mut Registers) -> Result<(), Damage> {
        let bytes = &self.0[HEADER_BYTES..];
        let mut raise = |register: usize, number: u8| {
            let known: &mut u8 = &mut registers[register];
            *known = number.max(*known);
        };
        if self.is_dense() {
            dense::each(bytes, raise);
            return Ok(());
        }
        sparse::each(bytes, &mut raise).ok_or(Damage::Registers)
    }

    /// Raises its registers to these.
    pub(crate) fn merge(&mut self, registers: &Registers, sparse_max: usize) -> Result<(), Damage> {
        let mut place = Place::default();
        for (register, number) in registers.iter().enumerate() {
            if *number > 0 {
                self.raise(register, *number, sparse_max, &mut place)?;
            }
        }
        self.forget_estimate();
        Ok(())
    }

    /// The registers.
    pub(crate) fn registers(&self) -> Result<Box<Registers>, Damage> {
        let mut registers = Box::new([0; REGISTERS]);
        self.merge_into(&mut registers)?;
        Ok(registers)
    }

    /// How many elements were added, about.
    pub(crate) fn estimate(&self) -> Result<u64, Damage> {
        if !self.is_dense() {
            let mut counts = estimate::Counts::default();
            let bytes = &self.0[HEADER_BYTES..];
            let read = sparse::runs(bytes, |number, length| counts.add(number, length));
            read.ok_or(Damage::Registers)?;
            return Ok(counts.estimate());
        }
        let mut counts = estimate::Counts::default();
        dense::each(&self.0[HEADER_BYTES..], |_, number| counts.add(number, 1));
        Ok(counts.estimate())
    }
}

/// How many elements were added to what has these registers, about.
pub(crate) fn estimate_of(registers: &Registers) -> u64 {
    let mut counts = estimate::Counts::default();
    for number in registers {
        counts.add(*number, 1);
    }
    counts.estimate()
}
