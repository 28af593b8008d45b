//! A queue pair of a reliable connection: created, moved from state to state, posted to.
//!
//! ```text
//! reset -> init -> ready to receive -> ready to send -> error
//! ```
//!
//! Owns the queue pair. Both ways to connect end here: by exchanged facts, and by attributes from
//! RDMA-CM. Source: the manual pages of `ibv_create_qp`, `ibv_modify_qp`, `ibv_post_send`.

#![allow(unsafe_code)] // calls libibverbs

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use farcore_tuning::entropy_u32;

use super::context::{Access, CompletionQueue, Domain, refusal};
use super::error::VerbsError;
use super::ffi;
use super::handle::{Kind, Named};
use crate::fabric::VerbsOptions;

/// The facts that both sides exchange to connect their queue pairs.
///
/// ```text
///  0        4        8       12   14    15     16        32       40
///  | magic  | number | psn   |lid | mtu | res. |  gid    | 0      |   little-endian words, the GID as it is
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairFacts {
    /// The queue pair's number: 24 bits.
    pub number: u32,
    /// The first packet sequence number that it sends: 24 bits.
    pub psn: u32,
    /// The port's local identifier.
    pub lid: u16,
    /// The largest path MTU, as the specification's code, 1 (256 bytes) to 5 (4096).
    pub mtu_code: u8,
    /// READs and atomics of the peer that it serves at once.
    pub responder_resources: u8,
    /// The port's GID.
    pub gid: [u8; 16],
}

const MAGIC: [u8; 4] = *b"FQP1";
const BITS_24: u32 = (1 << 24) - 1;

impl QueuePairFacts {
    /// Length of the message, in bytes.
    pub const BYTES: usize = 40;

    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.psn.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.lid.to_le_bytes());
        bytes[14] = self.mtu_code;
        bytes[15] = self.responder_resources;
        bytes[16..32].copy_from_slice(&self.gid);
        bytes
    }

    /// # Errors
    /// [`VerbsError::Facts`] names what is invalid.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, VerbsError> {
        let word = |at: usize| {
            let mut part = [0; 4];
            part.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(part)
        };
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[16..32]);
        let facts = Self {
            number: word(4),
            psn: word(8),
            lid: u16::from_le_bytes([bytes[12], bytes[13]]),
            mtu_code: bytes[14],
            responder_resources: bytes[15],
            gid,
        };
        if bytes[..4] != MAGIC {
            return Err(VerbsError::Facts(
                "not queue pair facts: check that the peer is a memory node of this scheme",
            ));
        }
        if facts.number > BITS_24 || facts.psn > BITS_24 {
            return Err(VerbsError::Facts("a number of more than 24 bits"));
        }
        if !(1..=5).contains(&facts.mtu_code) {
            return Err(VerbsError::Facts("an unknown MTU"));
        }
        Ok(facts)
    }
}

/// The specification's code of an MTU.
fn mtu_code(bytes: u16) -> u8 {
    match bytes {
        ..512 => 1,
        512..1024 => 2,
        1024..2048 => 3,
        2048..4096 => 4,
        4096.. => 5,
    }
}

/// A queue pair, with the objects that it depends on.
#[derive(Debug)]
pub struct QueuePair {
    raw: NonNull<ffi::ibv_qp>,
    psn: u32,
    inline_bytes: u32,
    depth: u16,
    domain: Arc<Domain>,
    _completion_queue: Arc<CompletionQueue>,
}

// SAFETY: libibverbs may be called from any thread; posting is `unsafe` and states its contract.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl Named for QueuePair {
    const KIND: Kind = Kind::QueuePair;
}

fn zeroed_attributes() -> ffi::ibv_qp_attr {
    // SAFETY: plain numbers, for which zero is a valid value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

impl QueuePair {
    /// Creates a queue pair in state reset, for `depth` requests and as many receives.
    ///
    /// # Errors
    /// [`VerbsError::Limit`], [`VerbsError::Refused`].
    pub fn new(
        domain: &Arc<Domain>,
        completion_queue: &Arc<CompletionQueue>,
        depth: u16,
        options: &VerbsOptions,
    ) -> Result<Self, VerbsError> {
        let context = domain.context();
        let limit = context.limits().queue_depth;
        if u32::from(depth) > limit {
            return Err(VerbsError::Limit {
                what: "the depth of a queue pair",
                asked: depth.into(),
                limit: limit.into(),
                device: context.name().to_owned(),
            });
        }
        let psn =
            entropy_u32().map_err(|error| context.refused("cannot get random numbers", error))?;
        // SAFETY: plain numbers and pointers, for which zero is a valid value.
        let mut wanted: ffi::ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        wanted.send_cq = completion_queue.raw();
        wanted.recv_cq = completion_queue.raw();
        wanted.qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
        wanted.cap.max_send_wr = depth.into();
        wanted.cap.max_recv_wr = depth.into();
        wanted.cap.max_send_sge = 1;
        wanted.cap.max_recv_sge = 1;
        wanted.cap.max_inline_data = options.inline_bytes;
        // SAFETY: domain and completion queue are alive; the struct is complete.
        let mut raw = unsafe { ffi::ibv_create_qp(domain.raw(), &raw mut wanted) };
        if raw.is_null() && options.inline_bytes > 0 {
            // The device accepts less inline payload than requested, or none.
            wanted.cap.max_inline_data = 0;
            // SAFETY: as above.
            raw = unsafe { ffi::ibv_create_qp(domain.raw(), &raw mut wanted) };
        }
        let raw = NonNull::new(raw).ok_or_else(|| {
            context.refused("cannot create a queue pair", io::Error::last_os_error())
        })?;
        Ok(Self {
            raw,
            psn: psn & BITS_24,
            inline_bytes: wanted.cap.max_inline_data.min(options.inline_bytes),
            depth,
            domain: Arc::clone(domain),
            _completion_queue: Arc::clone(completion_queue),
        })
    }

    /// The number on the wire.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { self.raw.as_ref().qp_num }
    }

    /// The longest inline payload, in bytes.
    #[must_use]
    pub fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// The requests that it holds.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// The facts that the peer needs.
    #[must_use]
    pub fn facts(&self, options: &VerbsOptions) -> QueuePairFacts {
        let context = self.domain.context();
        let port = context.port();
        QueuePairFacts {
            number: self.number(),
            psn: self.psn,
            lid: port.lid,
            mtu_code: options
                .path_mtu
                .map_or(port.mtu_code, |bytes| mtu_code(bytes).min(port.mtu_code)),
            responder_resources: options
                .max_rd_atomic
                .min(context.limits().responder_resources),
            gid: port.gid,
        }
    }

    /// READs and atomics that this side may have in flight.
    #[must_use]
    pub fn initiator_depth(&self, options: &VerbsOptions) -> u8 {
        options
            .max_rd_atomic
            .min(self.domain.context().limits().initiator_depth)
    }

    fn modify(
        &self,
        what: &'static str,
        attributes: &mut ffi::ibv_qp_attr,
        mask: i32,
    ) -> Result<(), VerbsError> {
        // SAFETY: the queue pair is alive; the mask says which fields are set.
        let code = unsafe { ffi::ibv_modify_qp(self.raw.as_ptr(), attributes, mask) };
        if code == 0 {
            return Ok(());
        }
        Err(self.domain.context().refused(what, refusal(code)))
    }

    /// Connects to the queue pair with the given facts: reset, init, ready to receive, ready to
    /// send.
    ///
    /// # Errors
    /// [`VerbsError::Refused`] names the step.
    pub fn connect(
        &self,
        access: Access,
        peer: &QueuePairFacts,
        options: &VerbsOptions,
    ) -> Result<(), VerbsError> {
        use ffi::ibv_qp_attr_mask as mask;
        let bits = |all: &[ffi::ibv_qp_attr_mask]| {
            all.iter().fold(0, |bits, one| bits | one.0).cast_signed()
        };
        let own = self.facts(options);
        let port = *self.domain.context().port();
        let mut attributes = zeroed_attributes();
        attributes.qp_state = ffi::ibv_qp_state::IBV_QPS_INIT;
        attributes.port_num = port.number;
        attributes.qp_access_flags = self.access_flags(access);
        self.modify(
            "cannot initialise a queue pair",
            &mut attributes,
            bits(&[
                mask::IBV_QP_STATE,
                mask::IBV_QP_PKEY_INDEX,
                mask::IBV_QP_PORT,
                mask::IBV_QP_ACCESS_FLAGS,
            ]),
        )?;
        attributes.qp_state = ffi::ibv_qp_state::IBV_QPS_RTR;
        attributes.path_mtu = own.mtu_code.min(peer.mtu_code).into();
        attributes.dest_qp_num = peer.number;
        attributes.rq_psn = peer.psn;
        attributes.max_dest_rd_atomic = own.responder_resources;
        attributes.min_rnr_timer = options.min_rnr_timer;
        attributes.ah_attr.port_num = port.number;
        attributes.ah_attr.dlid = peer.lid;
        attributes.ah_attr.sl = options.service_level;
        if port.ethernet || peer.lid == 0 {
            attributes.ah_attr.is_global = 1;
            attributes.ah_attr.grh.dgid.raw = peer.gid;
            attributes.ah_attr.grh.sgid_index = port.gid_index;
            attributes.ah_attr.grh.hop_limit = options.hop_limit;
            attributes.ah_attr.grh.traffic_class = options.traffic_class;
        }
        self.modify(
            "cannot make a queue pair ready to receive",
            &mut attributes,
            bits(&[
                mask::IBV_QP_STATE,
                mask::IBV_QP_AV,
                mask::IBV_QP_PATH_MTU,
                mask::IBV_QP_DEST_QPN,
                mask::IBV_QP_RQ_PSN,
                mask::IBV_QP_MAX_DEST_RD_ATOMIC,
                mask::IBV_QP_MIN_RNR_TIMER,
            ]),
        )?;
        attributes.qp_state = ffi::ibv_qp_state::IBV_QPS_RTS;
        attributes.timeout = options.timeout;
        attributes.retry_cnt = options.retry_count;
        attributes.rnr_retry = options.rnr_retry;
        attributes.sq_psn = self.psn;
        attributes.max_rd_atomic = self.initiator_depth(options).min(peer.responder_resources);
        self.modify(
            "cannot make a queue pair ready to send",
            &mut attributes,
            bits(&[
                mask::IBV_QP_STATE,
                mask::IBV_QP_TIMEOUT,
                mask::IBV_QP_RETRY_CNT,
                mask::IBV_QP_RNR_RETRY,
                mask::IBV_QP_SQ_PSN,
                mask::IBV_QP_MAX_QP_RD_ATOMIC,
            ]),
        )
    }

    fn access_flags(&self, access: Access) -> u32 {
        use ffi::ibv_access_flags as flag;
        match access {
            Access::Local => flag::IBV_ACCESS_LOCAL_WRITE.0,
            Access::Remote => {
                let atomics = if self.domain.context().limits().atomics {
                    flag::IBV_ACCESS_REMOTE_ATOMIC.0
                } else {
                    0
                };
                flag::IBV_ACCESS_LOCAL_WRITE.0
                    | flag::IBV_ACCESS_REMOTE_READ.0
                    | flag::IBV_ACCESS_REMOTE_WRITE.0
                    | atomics
            }
        }
    }

    /// Moves it by RDMA-CM's attributes: `fill` sets the attributes of a state and returns their
    /// mask.
    ///
    /// # Errors
    /// [`VerbsError::Refused`] names the step.
    pub(super) fn follow(
        &self,
        access: Access,
        states: &[QueuePairStep],
        options: &VerbsOptions,
        fill: impl Fn(&mut ffi::ibv_qp_attr, &mut i32) -> io::Result<()>,
    ) -> Result<(), VerbsError> {
        use ffi::ibv_qp_attr_mask as mask;
        let context = self.domain.context();
        for &step in states {
            let mut attributes = zeroed_attributes();
            let mut set = 0;
            attributes.qp_state = step.state();
            fill(&mut attributes, &mut set).map_err(|error| {
                context.refused("RDMA-CM has no attributes for the queue pair", error)
            })?;
            match step {
                QueuePairStep::Init => {
                    attributes.qp_access_flags = self.access_flags(access);
                    set |= mask::IBV_QP_ACCESS_FLAGS.0.cast_signed();
                }
                QueuePairStep::ReadyToReceive => {
                    attributes.min_rnr_timer = options.min_rnr_timer;
                    attributes.max_dest_rd_atomic = attributes
                        .max_dest_rd_atomic
                        .min(context.limits().responder_resources);
                }
                QueuePairStep::ReadyToSend => {
                    attributes.timeout = options.timeout;
                    attributes.retry_cnt = options.retry_count;
                    attributes.rnr_retry = options.rnr_retry;
                    attributes.max_rd_atomic =
                        attributes.max_rd_atomic.min(self.initiator_depth(options));
                }
            }
            self.modify(step.failure(), &mut attributes, set)?;
        }
        Ok(())
    }

    /// Ends it: requests in flight are flushed, and peers access nothing through it any more.
    ///
    /// # Errors
    /// [`VerbsError::Refused`]; then only dropping it ends it.
    pub fn fail(&self) -> Result<(), VerbsError> {
        let mut attributes = zeroed_attributes();
        attributes.qp_state = ffi::ibv_qp_state::IBV_QPS_ERR;
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
        self.modify("cannot end a queue pair", &mut attributes, mask)
    }

    /// Posts a chain of requests with one doorbell. On failure returns the first request that was
    /// not accepted.
    ///
    /// # Safety
    /// The chain ends with null; every buffer that it names stays registered and untouched until
    /// its request completes or the queue pair is dropped.
    pub(super) unsafe fn post_send(
        &self,
        chain: *mut ffi::ibv_send_wr,
    ) -> Result<(), *mut ffi::ibv_send_wr> {
        let mut refused = ptr::null_mut();
        // SAFETY: by this function's contract.
        match unsafe { ffi::ibv_post_send(self.raw.as_ptr(), chain, &raw mut refused) } {
            0 => Ok(()),
            _ => Err(refused),
        }
    }

    /// Posts a chain of receives. On failure returns the first that was not accepted.
    ///
    /// # Safety
    /// As for [`QueuePair::post_send`].
    pub(super) unsafe fn post_receive(
        &self,
        chain: *mut ffi::ibv_recv_wr,
    ) -> Result<(), *mut ffi::ibv_recv_wr> {
        let mut refused = ptr::null_mut();
        // SAFETY: by this function's contract.
        match unsafe { ffi::ibv_post_recv(self.raw.as_ptr(), chain, &raw mut refused) } {
            0 => Ok(()),
            _ => Err(refused),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let number = self.number();
        // From here on peers access nothing through it, whatever the next call returns. A queue
        // pair that was never connected cannot fail.
        let _ = self.fail();
        // SAFETY: created by this; after the call the device does nothing more for it.
        if unsafe { ffi::ibv_destroy_qp(self.raw.as_ptr()) } != 0 {
            tracing::error!(number, "cannot destroy a queue pair");
        }
    }
}

/// A step of [`QueuePair::follow`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueuePairStep {
    Init,
    ReadyToReceive,
    ReadyToSend,
}

impl QueuePairStep {
    fn state(self) -> ffi::ibv_qp_state::Type {
        match self {
            Self::Init => ffi::ibv_qp_state::IBV_QPS_INIT,
            Self::ReadyToReceive => ffi::ibv_qp_state::IBV_QPS_RTR,
            Self::ReadyToSend => ffi::ibv_qp_state::IBV_QPS_RTS,
        }
    }

    fn failure(self) -> &'static str {
        match self {
            Self::Init => "cannot initialise a queue pair",
            Self::ReadyToReceive => "cannot make a queue pair ready to receive",
            Self::ReadyToSend => "cannot make a queue pair ready to send",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn facts_survive_encoding(number in 0..=BITS_24, psn in 0..=BITS_24, lid: u16, mtu_code in 1..=5u8, responder_resources: u8, gid: [u8; 16]) {
            let facts = QueuePairFacts { number, psn, lid, mtu_code, responder_resources, gid };
            prop_assert_eq!(QueuePairFacts::decode(&facts.encode()).expect("good facts"), facts);
        }

        #[test]
        fn any_bytes_decode_or_are_refused(mut bytes: [u8; QueuePairFacts::BYTES], magic: bool) {
            if magic {
                bytes[..4].copy_from_slice(&MAGIC);
            }
            if let Ok(facts) = QueuePairFacts::decode(&bytes) {
                prop_assert!(facts.number <= BITS_24 && facts.psn <= BITS_24);
                prop_assert!((1..=5).contains(&facts.mtu_code));
            }
        }
    }

    #[test]
    fn mtus_have_the_specifications_codes() {
        let codes = [256, 512, 1024, 2048, 4096].map(mtu_code);
        assert_eq!(codes, [1, 2, 3, 4, 5]);
    }
}
