//! Nodes that DNS names: the SRV records of a name, a host and a port each.
//!
//! All of them count, whatever their priorities and weights. `uri` says which name it is and who
//! knows it, `message` asks and reads, `resolver` has the sockets.

mod message;
mod resolver;
mod uri;

use anyhow::Result;
use farcore_rdma::{FabricAddress, NodeAddress, Scheme};
use tracing::warn;

use self::message::Target;
pub(in crate::serve) use self::uri::DnsUri;
use super::Wanted;
use super::said::Said;

/// The records of a name.
#[derive(Debug)]
pub(super) struct DnsNodes {
    uri: DnsUri,
    said: Said,
}

fn node(target: &Target, scheme: Scheme) -> Result<FabricAddress, String> {
    if target.port == 0 {
        return Err("its port is 0".to_owned());
    }
    let text = format!("{}://{}:{}", scheme.as_str(), target.host, target.port);
    text.parse().map_err(|error| format!("{error}"))
}

impl DnsNodes {
    pub(super) fn new(uri: DnsUri) -> Self {
        let said = Said::default();
        Self { uri, said }
    }

    /// The nodes that the name has now.
    ///
    /// # Errors
    /// No resolver has an answer.
    pub(super) fn read(&mut self) -> Result<Wanted> {
        let targets = resolver::lookup(&self.uri)?;
        let mut wanted = Wanted::default();
        let shown = |target: &Target| format!("{}:{}", target.host, target.port);
        let all: Vec<_> = targets.iter().map(shown).collect();
        self.said
            .keep(|subject| all.iter().any(|one| one == subject));
        for (target, shown) in targets.iter().zip(&all) {
            match node(target, self.uri.scheme) {
                Ok(address) => {
                    let zone = None;
                    wanted.nodes.push(NodeAddress { zone, address });
                }
                Err(error) => {
                    if self.said.is_new(shown, &error) {
                        warn!(target = shown, "a record of DNS is left out: {error}");
                    }
                }
            }
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_the_address_of_a_node() {
        let of = |host: &str, port| {
            let host = host.to_owned();
            node(&Target { host, port }, Scheme::RdmaTcp).map(|node| node.to_string())
        };
        assert_eq!(of("mem-1.a", 7).as_deref(), Ok("rdma+tcp://mem-1.a:7"));
        for (host, port) in [("a", 0), ("a b", 1), (r"a\.b", 1), ("a:1", 70), ("", 1)] {
            assert!(of(host, port).is_err(), "{host}");
        }
    }
}
