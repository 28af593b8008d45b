//! How a device is chosen and how its queue pairs behave: the settings of the verbs specification,
//! with the defaults that the field's tools use.

/// Settings of the verbs backend. Everything is checked against the device's limits when it is
/// opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsOptions {
    /// The device, `mlx5_0` for one. Without a name: the first with an active port; over RDMA-CM
    /// the one that the route leads to.
    pub device: Option<String>,
    /// Its port, from 1; without a number the first that is active.
    pub port: Option<u8>,
    /// The entry of the port's GID table; without an index the best: RoCE v2 over IPv4, RoCE v2,
    /// the first.
    pub gid_index: Option<u8>,
    /// The path MTU in bytes: 256, 512, 1024, 2048 or 4096; without a value what the port has, and
    /// at most what the peer has. Over RDMA-CM there can be none: it is the route's there, as are
    /// port, GID and the three last fields.
    pub path_mtu: Option<u16>,
    /// How long an acknowledgement is waited for: 4.096 us times two to this power, 1 to 31.
    pub timeout: u8,
    /// How often a request is sent again before the peer counts as lost, 0 to 7.
    pub retry_count: u8,
    /// How often a message is sent again to a peer that has no receive posted, 0 to 6; 7 is for
    /// ever.
    pub rnr_retry: u8,
    /// The code of the pause that this side asks for when it has no receive posted (12 is 0.64 ms),
    /// 0 to 31.
    pub min_rnr_timer: u8,
    /// READs and atomics that one queue pair has under way at once; the device may allow fewer.
    pub max_rd_atomic: u8,
    /// Payload up to so many bytes is copied into the request, if the device takes as much.
    pub inline_bytes: u32,
    /// The service level of InfiniBand, 0 to 15.
    pub service_level: u8,
    /// The traffic class of the IP header of RoCE v2.
    pub traffic_class: u8,
    /// The hop limit of the IP header of RoCE v2.
    pub hop_limit: u8,
}

impl Default for VerbsOptions {
    fn default() -> Self {
        Self {
            device: None,
            port: None,
            gid_index: None,
            path_mtu: None,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            inline_bytes: 64,
            service_level: 0,
            traffic_class: 0,
            hop_limit: 64,
        }
    }
}

/// A setting that no device takes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} is {value}: must be {bounds}")]
pub struct VerbsOptionsError {
    /// Which.
    pub field: &'static str,
    /// As given.
    pub value: u64,
    /// What it must be.
    pub bounds: &'static str,
}

impl VerbsOptions {
    /// Checks what can be checked without a device.
    ///
    /// # Errors
    /// [`VerbsOptionsError`] names the field, its value and the limit.
    pub fn validate(&self) -> Result<(), VerbsOptionsError> {
        let mtu = self.path_mtu.map_or(1024, u64::from);
        let checks: [(&'static str, u64, bool, &'static str); 8] = [
            (
                "port",
                self.port.map_or(1, u64::from),
                self.port != Some(0),
                "from 1 on",
            ),
            (
                "path_mtu",
                mtu,
                matches!(mtu, 256 | 512 | 1024 | 2048 | 4096),
                "256, 512, 1024, 2048 or 4096",
            ),
            (
                "timeout",
                self.timeout.into(),
                (1..=31).contains(&self.timeout),
                "1 to 31",
            ),
            (
                "retry_count",
                self.retry_count.into(),
                self.retry_count <= 7,
                "0 to 7",
            ),
            (
                "rnr_retry",
                self.rnr_retry.into(),
                self.rnr_retry <= 7,
                "0 to 7",
            ),
            (
                "min_rnr_timer",
                self.min_rnr_timer.into(),
                self.min_rnr_timer <= 31,
                "0 to 31",
            ),
            (
                "max_rd_atomic",
                self.max_rd_atomic.into(),
                self.max_rd_atomic >= 1,
                "1 to 255",
            ),
            (
                "service_level",
                self.service_level.into(),
                self.service_level <= 15,
                "0 to 15",
            ),
        ];
        match checks.into_iter().find(|check| !check.2) {
            None => Ok(()),
            Some((field, value, _, bounds)) => Err(VerbsOptionsError {
                field,
                value,
                bounds,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_bounds_are_refused_by_name() {
        let good = VerbsOptions::default();
        assert_eq!(good.validate(), Ok(()));
        let refused = |options: VerbsOptions| options.validate().unwrap_err().to_string();
        let bad = VerbsOptions {
            path_mtu: Some(1500),
            ..good.clone()
        };
        assert_eq!(
            refused(bad),
            "path_mtu is 1500: must be 256, 512, 1024, 2048 or 4096"
        );
        let bad = VerbsOptions {
            timeout: 0,
            ..good.clone()
        };
        assert_eq!(refused(bad), "timeout is 0: must be 1 to 31");
        let bad = VerbsOptions {
            max_rd_atomic: 0,
            ..good.clone()
        };
        assert!(refused(bad).contains("max_rd_atomic"));
        let bad = VerbsOptions {
            port: Some(0),
            ..good
        };
        assert!(refused(bad).contains("port"));
    }
}
