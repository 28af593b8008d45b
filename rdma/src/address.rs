//! The address of a memory node: `scheme://host:port`, and its zone.
//!
//! ```text
//! tcp://host[:port]       sockets; needs no RDMA device
//! rdma://host[:port]      verbs, connections established by RDMA-CM
//! rdma+tcp://host[:port]  verbs, connections established over TCP
//! ```
//!
//! A host is a name, an IPv4 address, or an IPv6 address in brackets. The default port is
//! [`FabricAddress::PORT_DEFAULT`]. This module parses and prints; it resolves nothing.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// The transport to a memory node. A backend refuses schemes that it does not implement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// `tcp`.
    Tcp,
    /// `rdma`: verbs, connections established by RDMA-CM.
    Rdma,
    /// `rdma+tcp`: verbs, connections established by an exchange over TCP.
    RdmaTcp,
}

impl Scheme {
    const ALL: [Self; 3] = [Self::Tcp, Self::Rdma, Self::RdmaTcp];

    /// The scheme's name in an address.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::RdmaTcp => "rdma+tcp",
        }
    }
}

/// The address of a memory node.
///
/// ```
/// let address: farcore_rdma::FabricAddress = "tcp://[::1]".parse()?;
/// assert_eq!(address.to_string(), "tcp://[::1]:7400");
/// # Ok::<(), farcore_rdma::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FabricAddress {
    scheme: Scheme,
    host: String,
    port: u16,
}

/// Why a text is not an address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// There is no `://`.
    #[error("`{0}` has no scheme: write it as tcp://host:port")]
    NoScheme(String),
    /// The scheme is unknown.
    #[error("`{0}` is not a known scheme: use tcp, rdma or rdma+tcp")]
    Scheme(String),
    /// There is no host, or it has invalid characters.
    #[error("`{0}` is not a host: give a name, an IPv4 address, or an IPv6 address in brackets")]
    Host(String),
    /// The port is not a number from 0 to 65535.
    #[error("`{0}` is not a port: give a number from 0 to 65535")]
    Port(String),
    /// There is nothing before the `=`.
    #[error("the zone is empty in `{0}`: give a name before the `=`")]
    Zone(String),
}

impl FabricAddress {
    /// The default port.
    pub const PORT_DEFAULT: u16 = 7400;

    /// The transport to the node.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The name or address, an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; for a listener, 0 means any free port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the address is reachable from this machine only, judged by the text: a loopback
    /// address or `localhost`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        }
    }
}

/// The address of a memory node, with the zone that it lies in, if that matters:
/// `[zone=]scheme://host[:port]`. Nodes of one zone, such as a rack, may fail together.
///
/// ```
/// let node: farcore_rdma::NodeAddress = "rack-7=tcp://10.0.0.1".parse()?;
/// assert_eq!(node.zone.as_deref(), Some("rack-7"));
/// assert_eq!(node.to_string(), "rack-7=tcp://10.0.0.1:7400");
/// # Ok::<(), farcore_rdma::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeAddress {
    /// The zone.
    pub zone: Option<String>,
    /// The address.
    pub address: FabricAddress,
}

impl FromStr for NodeAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (zone, address) = match text.split_once('=') {
            Some(("", _)) => return Err(AddressError::Zone(text.to_owned())),
            Some((zone, address)) => (Some(zone.to_owned()), address),
            None => (None, text),
        };
        let address = address.parse()?;
        Ok(Self { zone, address })
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(zone) = &self.zone {
            write!(f, "{zone}=")?;
        }
        write!(f, "{}", self.address)
    }
}

fn is_name(host: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (1..=253).contains(&host.len()) && host.chars().all(fine)
}

impl FromStr for FabricAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| AddressError::NoScheme(text.to_owned()))?;
        let scheme = Scheme::ALL
            .into_iter()
            .find(|known| known.as_str() == scheme)
            .ok_or_else(|| AddressError::Scheme(scheme.to_owned()))?;
        let not_host = || AddressError::Host(rest.to_owned());
        let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
            let (host, after) = inner.split_once(']').ok_or_else(not_host)?;
            host.parse::<Ipv6Addr>().map_err(|_| not_host())?;
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':').ok_or_else(not_host)?),
            };
            (host, port)
        } else {
            let (host, port) = match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            };
            if !is_name(host) {
                return Err(not_host());
            }
            (host, port)
        };
        let port = match port {
            None => Self::PORT_DEFAULT,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse()
                .map_err(|_| AddressError::Port(digits.to_owned()))?,
            Some(other) => return Err(AddressError::Port(other.to_owned())),
        };
        Ok(Self {
            scheme,
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for FabricAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port } = self;
        let scheme = scheme.as_str();
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written, loopback) in [
            ("tcp://10.0.0.7:9000", "tcp://10.0.0.7:9000", false),
            ("tcp://mem-3.rack", "tcp://mem-3.rack:7400", false),
            ("tcp://[fe80::1]:1", "tcp://[fe80::1]:1", false),
            ("tcp://[::1]", "tcp://[::1]:7400", true),
            ("rdma://localhost", "rdma://localhost:7400", true),
            ("rdma+tcp://127.0.0.9:0", "rdma+tcp://127.0.0.9:0", true),
        ] {
            let address: FabricAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
            assert_eq!(address.is_loopback(), loopback, "{text}");
            assert_eq!(written.parse(), Ok(address));
        }
    }

    #[test]
    fn a_text_that_is_not_an_address_is_refused_by_name() {
        let error = |text: &str| text.parse::<FabricAddress>().unwrap_err();
        assert_eq!(error("host:1"), AddressError::NoScheme("host:1".into()));
        assert_eq!(error("udp://host"), AddressError::Scheme("udp".into()));
        for host in ["", ":1", "a b", "::1", "[::1", "[::1]1", "[host]", "a/b"] {
            assert_eq!(
                error(&format!("tcp://{host}")),
                AddressError::Host(host.into())
            );
        }
        for port in ["", "65536", "+1", "x", "1:2"] {
            assert_eq!(
                error(&format!("tcp://h:{port}")),
                AddressError::Port(port.into())
            );
        }
    }

    #[test]
    fn a_zone_goes_before_the_address() {
        for wrong in ["", "=tcp://a", "a=b", "tcp:/a", "a=tcp://", "tcp://a:70000"] {
            assert!(wrong.parse::<NodeAddress>().is_err(), "{wrong}");
        }
        let node: NodeAddress = "tcp://a:1".parse().expect("an address");
        assert_eq!((node.zone, node.address.port()), (None, 1));
    }

    #[test]
    fn any_text_is_an_address_or_refused() {
        farcore_fuzz::Target::new("address")
            .seed("tcp://host:7400")
            .seed("rack-7=tcp://host:7400")
            .seed("rdma+tcp://[::1]")
            .seed("rdma://127.0.0.1:65535")
            .words(&["tcp", "rdma", "://", "[", "]", ":", "::", "65536", "0"])
            .run(|bytes| {
                let Ok(text) = str::from_utf8(bytes) else {
                    return;
                };
                if let Ok(address) = text.parse::<FabricAddress>() {
                    assert_eq!(address.to_string().parse(), Ok(address));
                }
                if let Ok(node) = text.parse::<NodeAddress>() {
                    assert_eq!(node.to_string().parse(), Ok(node));
                }
            });
    }
}
