//! Why etcd did not do something.

/// Why a call of etcd has failed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No endpoint has answered, or none that has a leader. A change may have been made or not.
    #[error("{endpoint}: {error}")]
    Unreachable {
        /// The endpoint that was tried last.
        endpoint: String,
        /// What has failed there.
        error: String,
    },
    /// etcd refuses the call. It has changed nothing.
    #[error("{endpoint} refuses it: {error}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// What it says.
        error: String,
    },
    /// What came is no answer of etcd. A change may have been made or not.
    #[error("what has answered is not etcd's gateway: {0}")]
    Malformed(String),
    /// A file for encrypted connections cannot be used.
    #[error("{0}")]
    Tls(String),
}
