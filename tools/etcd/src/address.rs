//! Where something lies in etcd: endpoints, and the prefix of its keys.

use std::fmt;

/// What an address looks like.
pub const ADDRESS_FORMAT: &str = "etcd://HOST:PORT[,HOST:PORT..]/PREFIX, or etcds:// over TLS";

/// Endpoints of one etcd cluster, and a prefix of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdAddress {
    is_encrypted: bool,
    /// `HOST:PORT` each, one or more.
    hosts: Vec<String>,
    /// Neither begins nor ends with a slash, and is not empty.
    prefix: String,
}

impl EtcdAddress {
    /// True if a text is meant to be such an address.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("etcd://") || text.starts_with("etcds://")
    }

    /// Reads `etcd://HOST:PORT,../PREFIX`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{what}; write {ADDRESS_FORMAT}");
        let plain = text.strip_prefix("etcd://").map(|rest| (false, rest));
        let secret = text.strip_prefix("etcds://").map(|rest| (true, rest));
        let (is_encrypted, rest) = plain
            .or(secret)
            .ok_or_else(|| wrong("it does not begin with etcd://"))?;
        let (hosts, prefix) = rest
            .split_once('/')
            .ok_or_else(|| wrong("it has no prefix"))?;
        let prefix = prefix.trim_matches('/');
        if prefix.is_empty() {
            return Err(wrong("it has no prefix"));
        }
        if prefix.chars().any(|one| one.is_control() || one == ' ') {
            return Err(wrong("its prefix has spaces or control characters"));
        }
        let hosts: Vec<_> = hosts.split(',').map(str::to_owned).collect();
        for host in &hosts {
            let parts = host.rsplit_once(':');
            let is_right = parts.is_some_and(|(name, port)| {
                let is_name = |one: char| one.is_alphanumeric() || ".-_[]:".contains(one);
                let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
                !name.is_empty() && name.chars().all(is_name) && is_port
            });
            if !is_right {
                return Err(wrong(&format!("{host:?} is no HOST:PORT")));
            }
        }
        Ok(Self {
            is_encrypted,
            hosts,
            prefix: prefix.to_owned(),
        })
    }

    /// The key of a name under the prefix.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// True if it is reached over TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// The URLs of the endpoints.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        let hosts = self.hosts.iter();
        hosts.map(|host| format!("{scheme}://{host}")).collect()
    }
}

impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "etcds" } else { "etcd" };
        let (hosts, prefix) = (self.hosts.join(","), &self.prefix);
        write!(f, "{scheme}://{hosts}/{prefix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        let text = "etcd://10.0.0.1:2379,[::1]:2380/farcore/shop";
        let address = EtcdAddress::parse(text).expect("an address");
        assert_eq!(address.to_string(), text);
        assert_eq!(address.key("map"), "farcore/shop/map");
        assert_eq!(
            address.endpoints(),
            ["http://10.0.0.1:2379", "http://[::1]:2380"]
        );
        let address = EtcdAddress::parse("etcds://e:1/p/").expect("an address");
        assert!(address.is_encrypted());
        assert_eq!(address.endpoints(), ["https://e:1"]);
        for wrong in [
            "",
            "e:1/p",
            "etcd://",
            "etcd://e:1",
            "etcd://e:1/",
            "etcd://e/p",
            "etcd://e:0/p",
            "etcd://:1/p",
            "etcd://e:1,/p",
            "etcd://e:x/p",
            "etcd://e:1/a b",
            "etcd://e f:1/p",
            "etcd://user@e:1/p",
        ] {
            assert!(EtcdAddress::parse(wrong).is_err(), "{wrong}");
        }
    }
}
