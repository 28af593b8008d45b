//! A server of a cluster, and all of them: what they are asked, and the map that they are given.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use clap::Args;
use farcore_command::outputs::print;
use farcore_server::{ClusterMap, EncryptedStream, Member, TlsClientOptions};
use resp_rs::resp2::{Frame, parse_frame};
use zeroize::Zeroizing;

use crate::serve::secret;
use crate::token;

/// How long a server may take to be reached, and to answer.
const REACHED_IN: Duration = Duration::from_secs(5);
const ANSWERED_IN: Duration = Duration::from_secs(30);
/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 16 << 10;
const FILE_FLAG: &str = "--auth-file";

/// How the servers of a cluster are reached.
#[derive(Debug, Args)]
pub(super) struct Access {
    /// A server of the cluster; the others are found by its map.
    #[arg(long, value_name = "HOST:PORT")]
    server: String,
    #[command(flatten)]
    pub(super) credentials: Credentials,
}

/// What servers are shown.
#[derive(Debug, Args)]
pub(crate) struct Credentials {
    /// File with the password of all servers
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
    /// User of the password, who must have the rights of @admin [default: the default user]
    #[arg(long, value_name = "NAME", requires = "auth_file")]
    user: Option<String>,
    /// File with the authorities of the servers' certificates; PEM: connections to all servers are
    /// encrypted
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// File with the certificate that is shown to them; PEM [default: none is shown]
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with the private key of that certificate; PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

/// Plain or encrypted bytes of a server.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Credentials {
    /// The bytes of a connection to a host.
    ///
    /// # Errors
    /// It is not encrypted as it should be.
    fn stream(&self, host: &str, socket: TcpStream) -> Result<Box<dyn Stream>> {
        let Some(authority) = &self.tls_ca else {
            return Ok(Box::new(socket));
        };
        if let Some(key) = &self.tls_key {
            token::warn_if_exposed("--tls-key", key, "key");
        }
        let options = TlsClientOptions {
            authority: authority.clone(),
            identity: self.tls_cert.clone().zip(self.tls_key.clone()),
        };
        let stream = EncryptedStream::to(host, socket, &options);
        let stream = stream.map_err(|error| anyhow!("no encrypted connection: {error}"))?;
        Ok(Box::new(stream))
    }

    /// What to do if a server ends a connection, or replies by other bytes than those of Redis.
    fn hint(&self) -> &'static str {
        match self.tls_ca {
            None => "if encrypted connections alone are accepted there, give --tls-ca",
            Some(_) => "if it demands a certificate, give --tls-cert",
        }
    }
}

/// A connection to a server.
pub(crate) struct Server {
    address: String,
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    /// What to do if it is no connection as was thought.
    hint: &'static str,
}

impl Server {
    /// Connects to an address.
    ///
    /// # Errors
    /// It is not reached, or refuses the password.
    pub(crate) fn connect(address: &str, credentials: &Credentials) -> Result<Self> {
        let mut failed = anyhow!("the name has no address");
        let addresses = address
            .to_socket_addrs()
            .map_err(|error| anyhow!("{address}: {error}"))?;
        let mut found = None;
        for one in addresses {
            match TcpStream::connect_timeout(&one, REACHED_IN) {
                Ok(socket) => {
                    found = Some(socket);
                    break;
                }
                Err(error) => failed = error.into(),
            }
        }
        let socket = found.ok_or_else(|| anyhow!("{address}: {failed}"))?;
        socket.set_read_timeout(Some(ANSWERED_IN))?;
        socket.set_write_timeout(Some(ANSWERED_IN))?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let stream = credentials.stream(host, socket);
        let mut server = Self {
            address: address.to_owned(),
            stream: stream.map_err(|error| anyhow!("{address}: {error}"))?,
            received: Vec::new(),
            hint: credentials.hint(),
        };
        if let Some(file) = credentials.auth_file.as_deref() {
            token::warn_if_exposed(FILE_FLAG, file, "password");
            let password: Zeroizing<String> = secret::read(FILE_FLAG, file)?;
            match &credentials.user {
                Some(user) => server.ask(&["AUTH", user, &password])?,
                None => server.ask(&["AUTH", &password])?,
            };
        }
        Ok(server)
    }

    /// Sends a command; returns the text of its reply.
    ///
    /// # Errors
    /// It is refused, or not answered.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<String> {
        // Neither a password nor a map is repeated.
        let name = words.iter().take(2).copied();
        let name = if words.first() == Some(&"AUTH") {
            "AUTH".to_owned()
        } else {
            name.collect::<Vec<_>>().join(" ")
        };
        let failed = |what: &str| format!("{}: {name}: {what}", self.address);
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream
            .write_all(command.as_bytes())
            .and_then(|()| self.stream.flush())
            .with_context(|| failed("not sent"))?;
        let mut buffer = [0; RECEIVE_BYTES];
        loop {
            match parse_frame(Bytes::copy_from_slice(&self.received)) {
                Ok((frame, rest)) => {
                    self.received = rest.to_vec();
                    return match frame {
                        Frame::SimpleString(text) => {
                            Ok(String::from_utf8_lossy(&text).into_owned())
                        }
                        Frame::BulkString(Some(text)) => {
                            Ok(String::from_utf8_lossy(&text).into_owned())
                        }
                        Frame::Error(text) => bail!(failed(&String::from_utf8_lossy(&text))),
                        _ => bail!(failed("another reply was expected")),
                    };
                }
                Err(resp_rs::ParseError::Incomplete) => {}
                Err(error) => {
                    let hint = self.hint;
                    bail!(failed(&format!(
                        "it is no reply of Redis ({error}): {hint}"
                    )))
                }
            }
            let bytes = self
                .stream
                .read(&mut buffer)
                .with_context(|| failed(&format!("no reply; {}", self.hint)))?;
            ensure!(
                bytes > 0,
                failed(&format!("the connection was closed: {}", self.hint))
            );
            self.received.extend_from_slice(&buffer[..bytes]);
        }
    }

    /// Its map.
    ///
    /// # Errors
    /// It has none, or is no server of a cluster.
    pub(super) fn map(&mut self) -> Result<ClusterMap> {
        let text = self.ask(&["CLUSTERX", "MAP"])?;
        ClusterMap::parse(&text)
            .map_err(|error| anyhow!("{}: it has no map: {error}", self.address))
    }

    /// Gives it a map.
    ///
    /// # Errors
    /// It refuses it.
    pub(super) fn push(&mut self, map: &ClusterMap) -> Result<()> {
        let text = map.to_string();
        let (_, nodes) = text.split_once('\n').unwrap_or_default();
        self.ask(&["CLUSTERX", "SETNODES", nodes, &map.version.to_string()])?;
        Ok(())
    }
}

/// The address of a member.
pub(super) fn address_of(member: &Member) -> String {
    match member.host.contains(':') {
        true => format!("[{}]:{}", member.host, member.port),
        false => format!("{}:{}", member.host, member.port),
    }
}

/// The place of the member of an ID or an address.
///
/// # Errors
/// There is none.
pub(super) fn place_in(map: &ClusterMap, flag: &str, text: &str) -> Result<usize> {
    let place = map.place_of(text).or_else(|| {
        let is_it = |member: &Member| address_of(member) == text;
        map.members.iter().position(is_it)
    });
    place.ok_or_else(|| {
        let version = map.version;
        anyhow!("{flag} {text}: it is neither an ID nor an address of the map of version {version}; `farcore cluster show` prints them")
    })
}

/// All servers of a cluster, by the newest map that one of them has.
pub(super) struct Servers<'a> {
    access: &'a Access,
    pub(super) map: ClusterMap,
}

impl<'a> Servers<'a> {
    /// Asks all of them for their maps.
    ///
    /// # Errors
    /// The first one is not reached, or has no map.
    pub(super) fn find(access: &'a Access) -> Result<Self> {
        let map = Server::connect(&access.server, &access.credentials)?.map()?;
        let mut servers = Self { access, map };
        for member in servers.map.members.clone() {
            let asked = servers.connect(&member).and_then(|mut server| server.map());
            match asked {
                Ok(map) if map.version > servers.map.version => servers.map = map,
                Ok(map) if map.version == servers.map.version && !map.is_like(&servers.map) => {
                    bail!(
                        "{} has another map of version {} than {}; push the right one by CLUSTERX SETNODES, with a greater version",
                        address_of(&member),
                        map.version,
                        access.server
                    )
                }
                Ok(_) => {}
                Err(error) => print(format_args!("its map was not read: {error:#}"))?,
            }
        }
        Ok(servers)
    }

    /// Connects to a member.
    ///
    /// # Errors
    /// It is not reached.
    pub(super) fn connect(&self, member: &Member) -> Result<Server> {
        Server::connect(&address_of(member), &self.access.credentials)
    }

    /// The place of the member of an ID or an address.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn place(&self, flag: &str, text: &str) -> Result<usize> {
        place_in(&self.map, flag, text)
    }

    /// # Errors
    /// Slots move at present.
    pub(super) fn check_still(&self) -> Result<()> {
        for member in &self.map.members {
            let Ok(mut server) = self.connect(member) else {
                continue;
            };
            let text = server.ask(&["CLUSTERX", "IMPORTS"])?;
            let mut phases = text.lines().filter_map(|line| line.strip_prefix("phase:"));
            if let Some(phase) = phases.find(|phase| !["done", "failed"].contains(phase)) {
                let address = address_of(member);
                bail!("slots move to {address} at present ({phase}): wait until they have");
            }
        }
        Ok(())
    }

    /// Gives a map to all servers of it and of the one before, those first whose places come first.
    ///
    /// # Errors
    /// One of them is not reached or refuses it: the others have it.
    pub(super) fn push(&self, map: &ClusterMap, first: &[Member]) -> Result<()> {
        let mut members = first.to_vec();
        for member in map.members.iter().chain(&self.map.members) {
            if !members.iter().any(|one| one.id == member.id) {
                members.push(member.clone());
            }
        }
        let mut failed = Vec::new();
        for member in members {
            let pushed = self
                .connect(&member)
                .and_then(|mut server| server.push(map));
            if let Err(error) = pushed {
                failed.push(format!("{error:#}"));
            }
        }
        let version = map.version;
        match failed.is_empty() {
            true => print(format_args!(
                "all servers have the map of version {version}"
            )),
            false => bail!(
                "these servers do not have the map of version {version}; run the command `farcore cluster share` once they are there: {}",
                failed.join("; ")
            ),
        }
    }
}
