//! Maps a device's completion status to [`Status`].

use super::ffi;
use crate::work::Status;

/// The status of a work completion. An unknown number is kept.
pub(super) fn status_of(code: ffi::ibv_wc_status::Type) -> Status {
    use ffi::ibv_wc_status as wc;
    match code {
        wc::IBV_WC_SUCCESS => Status::Success,
        wc::IBV_WC_LOC_LEN_ERR => Status::LocalLength,
        wc::IBV_WC_LOC_QP_OP_ERR => Status::LocalQueuePair,
        wc::IBV_WC_LOC_EEC_OP_ERR => Status::LocalEndToEndContext,
        wc::IBV_WC_LOC_PROT_ERR => Status::LocalProtection,
        wc::IBV_WC_WR_FLUSH_ERR => Status::Flushed,
        wc::IBV_WC_MW_BIND_ERR => Status::MemoryWindowBind,
        wc::IBV_WC_BAD_RESP_ERR => Status::BadResponse,
        wc::IBV_WC_LOC_ACCESS_ERR => Status::LocalAccess,
        wc::IBV_WC_REM_INV_REQ_ERR => Status::RemoteInvalidRequest,
        wc::IBV_WC_REM_ACCESS_ERR => Status::RemoteAccess,
        wc::IBV_WC_REM_OP_ERR => Status::RemoteOperation,
        wc::IBV_WC_RETRY_EXC_ERR => Status::RetryExceeded,
        wc::IBV_WC_RNR_RETRY_EXC_ERR => Status::ReceiverNotReady,
        wc::IBV_WC_LOC_RDD_VIOL_ERR => Status::LocalDomain,
        wc::IBV_WC_REM_INV_RD_REQ_ERR => Status::RemoteInvalidDomain,
        wc::IBV_WC_REM_ABORT_ERR => Status::RemoteAborted,
        wc::IBV_WC_INV_EECN_ERR | wc::IBV_WC_INV_EEC_STATE_ERR => Status::InvalidEndToEndContext,
        wc::IBV_WC_FATAL_ERR => Status::Fatal,
        wc::IBV_WC_RESP_TIMEOUT_ERR => Status::ResponseTimeout,
        wc::IBV_WC_GENERAL_ERR => Status::General,
        code => Status::Unknown(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_name_and_an_unknown_one_is_kept() {
        // The numbers of the specification, 0 (success) to 21 (general error).
        let known: Vec<Status> = (0..=21).map(status_of).collect();
        assert!(
            !known
                .iter()
                .any(|status| matches!(status, Status::Unknown(_)))
        );
        assert_eq!(
            known
                .iter()
                .filter(|status| **status == Status::Success)
                .count(),
            1
        );
        let mut texts: Vec<String> = known.iter().map(ToString::to_string).collect();
        texts.sort();
        texts.dedup();
        // The two of an invalid end-to-end context share one.
        assert_eq!(texts.len(), 21);
        assert_eq!(status_of(4711), Status::Unknown(4711));
    }
}
