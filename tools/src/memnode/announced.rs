//! The flags by which others find the node: where it registers itself, and as what.

use std::net::IpAddr;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use farcore_etcd::{Etcd, EtcdAddress};
use farcore_rdma::{FabricAddress, NodeAddress};

use super::registration::{Registration, TIME_LIMIT};
use crate::etcd::EtcdArguments;
use crate::given::{self, Given};
use crate::registered::{FOLDER, RegisteredNode, parse_zone};

#[derive(Debug, Args)]
pub(super) struct AnnouncedArguments {
    /// Where the node registers itself while it runs, for `serve --nodes-from`:
    /// etcd://HOST:PORT[,HOST:PORT..]/PREFIX, or etcds:// over TLS [default: nowhere].
    #[arg(long = "etcd", value_name = "ETCD", value_parser = EtcdAddress::parse)]
    place: Option<EtcdAddress>,
    /// Zone that the node registers: a rack, e.g.; copies of a page lie in distinct zones.
    #[arg(long, value_name = "NAME", requires = "place", value_parser = parse_zone)]
    zone: Option<String>,
    /// Address that the node registers, which servers reach it by [default: --listen].
    #[arg(long, value_name = "ADDRESS", requires = "place")]
    advertise: Option<FabricAddress>,
    #[command(flatten)]
    etcd: EtcdArguments,
}

/// What is to be registered, and where.
#[derive(Debug)]
pub(super) struct Announced {
    etcd: Etcd,
    zone: Option<String>,
    /// If its port is 0, it is the one at which the node listens.
    address: FabricAddress,
}

fn with_port(address: &FabricAddress, port: u16) -> Result<FabricAddress> {
    let (scheme, host) = (address.scheme().as_str(), address.host());
    let text = match host.contains(':') {
        true => format!("{scheme}://[{host}]:{port}"),
        false => format!("{scheme}://{host}:{port}"),
    };
    text.parse().map_err(|error| anyhow!("{error}"))
}

impl AnnouncedArguments {
    /// Refuses flags of etcd where the node registers itself nowhere.
    ///
    /// # Errors
    /// One of the flags was typed.
    pub(super) fn refuse_idle(&self, given: &Given) -> Result<()> {
        if self.place.is_some() {
            return Ok(());
        }
        given.refuse(&given::ids::<EtcdArguments>(), "without --etcd")
    }

    /// What is to be registered of a node that listens at an address, whose host is `ip`.
    ///
    /// # Errors
    /// Others cannot reach that address, or a file of etcd's flags is missing.
    pub(super) fn check(&self, listen: &FabricAddress, ip: IpAddr) -> Result<Option<Announced>> {
        let Some(place) = &self.place else {
            return Ok(None);
        };
        let address = self.advertised(listen, ip)?;
        let options = self.etcd.options(place.clone(), TIME_LIMIT)?;
        let etcd = Etcd::new(options).map_err(|error| anyhow!("--etcd {place}: {error}"))?;
        let zone = self.zone.clone();
        Ok(Some(Announced {
            etcd,
            zone,
            address,
        }))
    }

    fn advertised(&self, listen: &FabricAddress, ip: IpAddr) -> Result<FabricAddress> {
        let Some(address) = &self.advertise else {
            ensure!(
                !ip.is_unspecified(),
                "--listen {listen}: --etcd would register an address that is that of no host; give --advertise the one by which servers reach this node, e.g. tcp://10.0.0.1:7400"
            );
            return Ok(listen.clone());
        };
        let ip = address.host().parse::<IpAddr>();
        ensure!(
            !ip.is_ok_and(|ip| ip.is_unspecified()),
            "--advertise {address}: it is the address of no host; give one by which servers reach this node"
        );
        ensure!(
            address.scheme() == listen.scheme(),
            "--advertise {address}: --listen is {}://; give both the same scheme",
            listen.scheme().as_str()
        );
        Ok(address.clone())
    }
}

impl Announced {
    /// Checks that etcd answers, before the node takes its memory.
    ///
    /// # Errors
    /// It does not. It blocks for some seconds at most.
    pub(super) fn reach(&self) -> Result<()> {
        let looked = self.etcd.look(&self.etcd.key(FOLDER));
        looked
            .map(drop)
            .map_err(|error| anyhow!("--etcd: the node cannot be registered: {error}"))
    }

    /// Registers the node, which listens at a port. It blocks for some seconds at most.
    ///
    /// # Errors
    /// etcd is not reached, or refuses it.
    pub(super) fn register(self, port: u16, bytes: u64) -> Result<Registration> {
        let address = match self.address.port() {
            0 => with_port(&self.address, port)?,
            _ => self.address,
        };
        let zone = self.zone;
        let node = RegisteredNode {
            node: NodeAddress { zone, address },
            bytes,
            drains: false,
        };
        Registration::start(self.etcd, node)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        announced: AnnouncedArguments,
    }

    fn advertised(flags: &str, listen: &str) -> Result<String> {
        let line = Line::parse_from(format!("x {flags}").split_whitespace());
        let listen: FabricAddress = listen.parse().unwrap();
        let ip = listen.host().parse().unwrap_or([10, 0, 0, 9].into());
        let checked = line.announced.check(&listen, ip)?;
        let address = checked.map(|announced| match announced.address.port() {
            0 => with_port(&announced.address, 77).unwrap(),
            _ => announced.address,
        });
        Ok(address.map_or("none".to_owned(), |address| address.to_string()))
    }

    #[test]
    fn the_address_is_the_one_that_listens_unless_another_is_given() {
        for (flags, listen, expected) in [
            ("", "tcp://0.0.0.0:1", "none"),
            (
                "--etcd etcd://e:1/p",
                "tcp://10.0.0.1:1",
                "tcp://10.0.0.1:1",
            ),
            ("--etcd etcd://e:1/p", "tcp://host:0", "tcp://host:77"),
            ("--etcd etcd://e:1/p", "tcp://[::1]:0", "tcp://[::1]:77"),
            (
                "--etcd etcd://e:1/p --advertise tcp://a:5",
                "tcp://0.0.0.0:0",
                "tcp://a:5",
            ),
            (
                "--etcd etcd://e:1/p --advertise tcp://a:0",
                "tcp://[::]:0",
                "tcp://a:77",
            ),
        ] {
            assert_eq!(advertised(flags, listen).unwrap(), expected, "{flags}");
        }
    }

    #[test]
    fn an_address_of_no_host_is_refused() {
        for (flags, listen, part) in [
            (
                "",
                "tcp://0.0.0.0:1",
                "--listen tcp://0.0.0.0:1: --etcd would",
            ),
            ("", "tcp://[::]:1", "give --advertise"),
            ("--advertise tcp://0.0.0.0:1", "tcp://a:1", "of no host"),
            ("--advertise rdma://a:1", "tcp://a:1", "the same scheme"),
        ] {
            let flags = format!("--etcd etcd://e:1/p {flags}");
            let said = advertised(&flags, listen).unwrap_err().to_string();
            assert!(said.contains(part), "{flags}: {said}");
        }
    }
}
