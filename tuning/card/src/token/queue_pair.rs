//! The token of a queue pair.

use super::{Access, Token, TokenError, low, sixteen, with_header, within};
use crate::handle::{Handle, Kind};

const NUMBER_BITS: u32 = 24;

/// The service of a queue pair, with the numbers of `enum ibv_qp_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    ReliableConnection = 2,
    /// Unreliable connection.
    UnreliableConnection = 3,
    /// Unreliable datagram.
    UnreliableDatagram = 4,
}

/// The state of a queue pair, with the numbers of `enum ibv_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum QueuePairState {
    /// Created.
    Reset = 0,
    /// Bound to a port.
    Init = 1,
    /// Ready to receive.
    ReadyToReceive = 2,
    /// Ready to send.
    ReadyToSend = 3,
    /// The send queue drains.
    SendQueueDrained = 4,
    /// The send queue failed.
    SendQueueError = 5,
    /// Failed.
    Error = 6,
}

impl Transport {
    fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::ReliableConnection),
            3 => Some(Self::UnreliableConnection),
            4 => Some(Self::UnreliableDatagram),
            _ => None,
        }
    }
}

impl QueuePairState {
    /// The state with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Reset),
            1 => Some(Self::Init),
            2 => Some(Self::ReadyToReceive),
            3 => Some(Self::ReadyToSend),
            4 => Some(Self::SendQueueDrained),
            5 => Some(Self::SendQueueError),
            6 => Some(Self::Error),
            _ => None,
        }
    }
}

/// What a card knows of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairToken {
    /// The queue pair.
    pub handle: Handle,
    /// Its number on the wire, 24 bits.
    pub number: u32,
    /// The service.
    pub transport: Transport,
    /// The state.
    pub state: QueuePairState,
    /// The index of its domain.
    pub domain: u16,
    /// The index of the queue in which sends complete.
    pub send_queue: u16,
    /// The index of the queue in which receives complete.
    pub receive_queue: u16,
    /// What the other side may do.
    pub access: Access,
}

impl QueuePairToken {
    pub(super) fn pack(&self) -> Result<Token, TokenError> {
        within(
            "the queue pair's number",
            u64::from(self.number),
            NUMBER_BITS,
        )?;
        let rest = (self.transport as u32) << 28 | (self.state as u32) << NUMBER_BITS | self.number;
        let first = with_header(self.handle, Kind::QueuePair, rest)?;
        let second = u64::from(self.access.bits()) << 48
            | u64::from(self.domain) << 32
            | u64::from(self.send_queue) << 16
            | u64::from(self.receive_queue);
        Ok(Token([first, second]))
    }

    pub(super) fn unpack(token: Token) -> Result<Self, TokenError> {
        let [first, second] = token.words();
        let byte = low(first).to_be_bytes()[0];
        let (transport, state) = (byte >> 4, byte & 0xf);
        let wrong = |field, value: u8| TokenError::Meaning {
            field,
            value: u64::from(value),
        };
        Ok(Self {
            handle: token.handle(),
            number: low(first) & ((1 << NUMBER_BITS) - 1),
            transport: Transport::from_number(transport)
                .ok_or_else(|| wrong("the type of a queue pair", transport))?,
            state: QueuePairState::from_number(state)
                .ok_or_else(|| wrong("the state of a queue pair", state))?,
            domain: sixteen(second, 32),
            send_queue: sixteen(second, 16),
            receive_queue: sixteen(second, 0),
            access: Access::from_bits(sixteen(second, 48)),
        })
    }
}
