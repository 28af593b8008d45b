//! A memory node as it stands in etcd: the key `nodes/ADDRESS` under a prefix, which `memnode`
//! writes under a lease and `serve` reads.
//!
//! ```text
//! nodes/tcp://10.0.0.1:7400
//! {"address":"tcp://10.0.0.1:7400","zone":"rack-1","bytes":34359738368,"drains":false}
//! ```
//!
//! Others may write anything to etcd: lengths have a bound, and unknown fields are left out.

use farcore_rdma::{FabricAddress, NodeAddress};
use serde::{Deserialize, Serialize};

/// The place of the keys under the prefix.
pub(crate) const FOLDER: &str = "nodes/";
/// Bytes of a zone's name, at most.
const ZONE_BYTES_MAX: usize = 64;
/// Bytes of a value, at most: an address, a zone and two numbers take half of that.
const VALUE_BYTES_MAX: usize = 1024;

/// A memory node that is registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RegisteredNode {
    pub(crate) node: NodeAddress,
    /// Memory that it lends.
    pub(crate) bytes: u64,
    /// Its pages are to leave it.
    pub(crate) drains: bool,
}

/// As it is written.
#[derive(Debug, Serialize, Deserialize)]
struct Value {
    address: String,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    drains: bool,
}

/// Reads the name of a zone.
///
/// # Errors
/// It is empty or too long, or has `=`, spaces or control characters.
pub(crate) fn parse_zone(text: &str) -> Result<String, String> {
    let is_wrong = |one: char| one == '=' || one.is_whitespace() || one.is_control();
    if text.is_empty() || text.len() > ZONE_BYTES_MAX || text.chars().any(is_wrong) {
        return Err(format!(
            "a zone has 1 to {ZONE_BYTES_MAX} bytes, without `=`, spaces and control characters"
        ));
    }
    Ok(text.to_owned())
}

impl RegisteredNode {
    /// The name of its key, under the prefix.
    pub(crate) fn name(&self) -> String {
        format!("{FOLDER}{}", self.node.address)
    }

    /// The value of its key.
    pub(crate) fn encode(&self) -> String {
        let value = Value {
            address: self.node.address.to_string(),
            zone: self.node.zone.clone(),
            bytes: self.bytes,
            drains: self.drains,
        };
        // A struct of texts and numbers is always JSON.
        serde_json::to_string(&value).unwrap_or_default()
    }

    /// Reads the value of the key of an address.
    ///
    /// # Errors
    /// It is too long, is no such value, or is one of another address.
    pub(crate) fn decode(address: &FabricAddress, value: &[u8]) -> Result<Self, String> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!(
                "the value has {} bytes: at most {VALUE_BYTES_MAX}",
                value.len()
            ));
        }
        let read: Value = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        let named: FabricAddress = read.address.parse().map_err(|error| format!("{error}"))?;
        if named != *address {
            return Err(format!("the value names another node, {named}"));
        }
        let zone = read.zone.as_deref().map(parse_zone).transpose()?;
        Ok(Self {
            node: NodeAddress {
                zone,
                address: named,
            },
            bytes: read.bytes,
            drains: read.drains,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(text: &str) -> RegisteredNode {
        RegisteredNode {
            node: text.parse().unwrap(),
            bytes: 1 << 30,
            drains: true,
        }
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        for text in ["tcp://10.0.0.1:7400", "rack-1=rdma://[::1]:7400"] {
            let node = registered(text);
            assert_eq!(node.name(), format!("nodes/{}", node.node.address));
            let read = RegisteredNode::decode(&node.node.address, node.encode().as_bytes());
            assert_eq!(read, Ok(node));
        }
    }

    #[test]
    fn fields_that_are_not_there_have_their_defaults() {
        let address = "tcp://a:1".parse().unwrap();
        let value = br#"{"address":"tcp://a:1","later":{"more":[1]}}"#;
        let read = RegisteredNode::decode(&address, value).unwrap();
        assert_eq!((read.node.zone, read.bytes, read.drains), (None, 0, false));
    }

    #[test]
    fn wrong_values_are_refused() {
        let address = "tcp://a:1".parse().unwrap();
        let long = format!(r#"{{"address":"tcp://a:1","more":"{}"}}"#, "x".repeat(1024));
        for (value, part) in [
            ("", "EOF"),
            ("[]", "expected"),
            (r#"{"zone":"z"}"#, "address"),
            (r#"{"address":"a:1"}"#, "has no scheme"),
            (r#"{"address":"tcp://b:1"}"#, "another node, tcp://b:1"),
            (r#"{"address":"tcp://a:1","zone":""}"#, "a zone has"),
            (r#"{"address":"tcp://a:1","zone":"a=b"}"#, "a zone has"),
            (r#"{"address":"tcp://a:1","zone":"a\nb"}"#, "a zone has"),
            (r#"{"address":"tcp://a:1","bytes":-1}"#, "u64"),
            (r#"{"address":"tcp://a:1","drains":"no"}"#, "boolean"),
            (&long, "at most 1024"),
        ] {
            let said = RegisteredNode::decode(&address, value.as_bytes()).unwrap_err();
            assert!(said.contains(part), "{value}: {said}");
        }
        assert!(parse_zone(&"x".repeat(65)).is_err());
        assert_eq!(parse_zone("rack-1").as_deref(), Ok("rack-1"));
    }

    #[test]
    fn any_value_is_a_node_or_refused() {
        farcore_fuzz::Target::new("registered node")
            .seed(registered("rack-1=tcp://a:1").encode())
            .seed(registered("tcp://a:1").encode())
            .words(&[
                "address",
                "zone",
                "bytes",
                "drains",
                "tcp://a:1",
                "true",
                "{",
                "}",
                "[",
            ])
            .run(|bytes| {
                let address = "tcp://a:1".parse().unwrap();
                if let Ok(node) = RegisteredNode::decode(&address, bytes) {
                    let again = RegisteredNode::decode(&address, node.encode().as_bytes());
                    assert_eq!(again, Ok(node));
                }
            });
    }
}
