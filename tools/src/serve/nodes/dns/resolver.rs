//! Questions to the resolvers of DNS: over UDP from a free port under a random number, and over TCP
//! where the answer is too long for that.
//!
//! - I1: each step has a time limit, and as many are tried as there are resolvers, twice. The name
//!   of a resolver is looked up by the system, with a limit of its own.
//! - I2: over UDP only what the resolver itself has sent is read, by the connected socket, and only
//!   the answer to the question counts.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, ToSocketAddrs as _, UdpSocket,
};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use resolv_conf::{Config, ScopedIp};

use super::message::{self, Reply, Target};
use super::uri::{DnsUri, PORT};

/// The resolvers of the system.
const SYSTEM: &str = "/etc/resolv.conf";
/// Bytes of that file, at most.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Resolvers that are tried, as the system does.
const RESOLVERS_MAX: usize = 3;
/// How often each is tried.
const ATTEMPTS: usize = 2;
/// How long one may take for an answer over UDP, and again over TCP.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Messages that are no answer to the question, at most: more come from one who guesses.
const FOREIGN_MAX: usize = 32;
/// Bytes of a message over UDP, at most; without extensions it has 512.
const DATAGRAM_BYTES: usize = 4096;

/// The resolvers that are to be asked.
///
/// # Errors
/// The one of the URI has no address, or the file of the system cannot be read.
fn resolvers(uri: &DnsUri) -> Result<Vec<SocketAddr>> {
    let mut found: Vec<_> = match &uri.resolver {
        Some((host, port)) => (host.as_str(), *port)
            .to_socket_addrs()
            .with_context(|| format!("the resolver {host}"))?
            .collect(),
        None => of_file(Path::new(SYSTEM))?,
    };
    found.truncate(RESOLVERS_MAX);
    ensure!(!found.is_empty(), "there is no resolver");
    Ok(found)
}

/// The resolvers that a file of the system names.
fn of_file(path: &Path) -> Result<Vec<SocketAddr>> {
    let shown = path.display();
    let mut text = Vec::new();
    let file = File::open(path).with_context(|| format!("{shown}"))?;
    let read = file.take(FILE_BYTES_MAX).read_to_end(&mut text);
    read.with_context(|| format!("{shown}"))?;
    // Lines that are wrong are left out, as by the system.
    let (config, _) = Config::parse_with_errors(&text);
    let servers = config.nameservers.iter();
    let found: Vec<_> = servers.map(address).collect();
    // As by the system.
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    Ok(if found.is_empty() { vec![local] } else { found })
}

fn address(server: &ScopedIp) -> SocketAddr {
    match server {
        ScopedIp::V4(ip) => SocketAddr::from((*ip, PORT)),
        ScopedIp::V6(ip, scope) => {
            let scope = scope.as_deref().and_then(|scope| scope.parse().ok());
            SocketAddr::V6(SocketAddrV6::new(*ip, PORT, 0, scope.unwrap_or(0)))
        }
    }
}

/// Where the service of a URI is now; nowhere if DNS has no such name.
///
/// # Errors
/// No resolver has answered, or none has an answer. It takes some seconds at most.
pub(super) fn lookup(uri: &DnsUri) -> Result<Vec<Target>> {
    let resolvers = resolvers(uri)?;
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        for &resolver in &resolvers {
            match ask(resolver, &uri.name) {
                Ok(targets) => return Ok(targets),
                Err(error) => failed = Some(error.context(format!("the resolver {resolver}"))),
            }
        }
    }
    Err(failed.unwrap_or_else(|| anyhow!("there is no resolver")))
}

fn ask(resolver: SocketAddr, name: &str) -> Result<Vec<Target>> {
    let reply = match over_udp(resolver, name)? {
        Reply::Truncated => over_tcp(resolver, name)?,
        reply => reply,
    };
    match reply {
        Reply::Targets(targets) => Ok(targets),
        Reply::Failed(error) => bail!("{error}"),
        Reply::Truncated => bail!("its answer over TCP is cut"),
        Reply::Foreign => bail!("it answers another question"),
    }
}

/// The time that is left.
fn left(until: Instant) -> Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    ensure!(!left.is_zero(), "no answer within {TIME_LIMIT:?}");
    Ok(left)
}

/// An error of a socket; that of a time limit in the words of [`left`].
fn failed(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            anyhow!("no answer within {TIME_LIMIT:?}")
        }
        _ => error.into(),
    }
}

fn over_udp(resolver: SocketAddr, name: &str) -> Result<Reply> {
    let until = Instant::now() + TIME_LIMIT;
    let number = rand::random();
    let question = message::question(number, name).map_err(|error| anyhow!("{error}"))?;
    let any: IpAddr = match resolver {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // The system chooses a port at random.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(resolver)?;
    socket.send(&question)?;
    let mut message = [0; DATAGRAM_BYTES];
    for _ in 0..FOREIGN_MAX {
        socket.set_read_timeout(Some(left(until)?))?;
        let length = match socket.recv(&mut message) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        match message::decode(&message[..length], number, name) {
            Reply::Foreign => {}
            reply => return Ok(reply),
        }
    }
    bail!("{FOREIGN_MAX} messages were no answer to the question")
}

fn over_tcp(resolver: SocketAddr, name: &str) -> Result<Reply> {
    let until = Instant::now() + TIME_LIMIT;
    let number = rand::random();
    let question = message::question(number, name).map_err(|error| anyhow!("{error}"))?;
    let mut stream = TcpStream::connect_timeout(&resolver, left(until)?).map_err(failed)?;
    let length = u16::try_from(question.len()).context("the question is too long")?;
    let sent = [&length.to_be_bytes()[..], &question].concat();
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(&sent).map_err(failed)?;
    let mut length = [0; 2];
    read_until(&mut stream, &mut length, until)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    read_until(&mut stream, &mut message, until)?;
    Ok(message::decode(&message, number, name))
}

/// Reads all of a buffer, however slowly it comes, until a moment.
fn read_until(stream: &mut TcpStream, buffer: &mut [u8], until: Instant) -> Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => bail!("it has ended the connection"),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_those_of_the_file_and_wrong_lines_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let found = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let found = of_file(&path).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let text =
            b"# x\nnonsense\nnameserver 10.0.0.1\nnameserver x\nnameserver fe80::1%2\n\xff\n";
        assert_eq!(found(text), ["10.0.0.1:53", "[fe80::1%2]:53"]);
        assert_eq!(found(b"search a.b\n"), ["127.0.0.1:53"]);
        assert!(of_file(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_resolver_that_is_not_there_is_named_with_the_reason() {
        // None listens at the port of a socket that is bound, and is none's.
        let bound = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = bound.local_addr().unwrap().port();
        let uri = DnsUri::parse(&format!("dns://127.0.0.1:{port}/a.b")).unwrap();
        let said = format!("{:#}", lookup(&uri).unwrap_err());
        assert!(
            said.contains(&format!("the resolver 127.0.0.1:{port}: ")),
            "{said}"
        );
        assert!(said.contains("refused"), "{said}");
    }
}
