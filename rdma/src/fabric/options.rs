//! Settings of the verbs backend: the choice of device, and the attributes of its queue pairs.
//!
//! Names and ranges are those of the verbs specification; the defaults are those of common tools.

/// Settings of the verbs backend. They are checked against the device's limits when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsOptions {
    /// The device, for example `mlx5_0`. Default: the first with an active port; over RDMA-CM, the
    /// device of the route.
    pub device: Option<String>,
    /// The port, from 1. Default: the first active one.
    pub port: Option<u8>,
    /// The entry of the port's GID table. Default: the best: RoCE v2 over IPv4, then RoCE v2, then
    /// the first.
    pub gid_index: Option<u8>,
    /// The path MTU in bytes: 256, 512, 1024, 2048 or 4096. Default: the port's, and at most the
    /// peer's. It must be unset over RDMA-CM: the route defines it there, as it does port, GID and
    /// the last three fields.
    pub path_mtu: Option<u16>,
    /// The acknowledgement timeout: 4.096 us times 2 to this power, 1 to 31.
    pub timeout: u8,
    /// How often a request is retried before the peer counts as lost, 0 to 7.
    pub retry_count: u8,
    /// How often a message is retried if the peer has no receive posted, 0 to 6; 7 is unlimited.
    pub rnr_retry: u8,
    /// The code of the delay that the peer must wait if this side has no receive posted (12 is
    /// 0.64 ms), 0 to 31.
    pub min_rnr_timer: u8,
    /// READs and atomics that one queue pair may have in flight; the device may allow fewer.
    pub max_rd_atomic: u8,
    /// Payloads up to this length are copied into the request, if the device allows it.
    pub inline_bytes: u32,
    /// The InfiniBand service level, 0 to 15.
    pub service_level: u8,
    /// The traffic class in the IP header of RoCE v2.
    pub traffic_class: u8,
    /// The hop limit in the IP header of RoCE v2.
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

/// A setting out of range.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} is {value}: must be {bounds}")]
pub struct VerbsOptionsError {
    /// The setting's name.
    pub field: &'static str,
    /// The value given.
    pub value: u64,
    /// The valid values.
    pub bounds: &'static str,
}

impl VerbsOptions {
    /// Checks the ranges that do not depend on a device.
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
                "1 or more",
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
