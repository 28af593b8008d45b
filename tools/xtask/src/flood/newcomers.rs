//! `flood newcomers`: the clients that get in beside connections that stop in the handshake.
//!
//! Each client opens a session through a proxy that delays everything it sends.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use farcore_rdma::session::NodeSession;
use farcore_rdma::tcp::connect_control;
use farcore_rdma::{pause, run_local};

use super::attack::{Attack, Mode};
use super::node::Node;
use super::places::{Places, pin};

/// Limit of an honest client's connection.
const LIMIT: Duration = Duration::from_secs(5);
/// Limit of all that an honest client does.
const CLIENT_LIMIT: Duration = Duration::from_secs(15);
/// Time for the flood to fill the node's places before the first client.
const WARM_UP: Duration = Duration::from_secs(1);
/// The rate of attackers, a second, up to which every client must get in.
const RATE_OF_ALL: u64 = 4_000;
/// The rate of attackers, a second, up to which [`PERCENT`] of the clients with pauses of up to
/// [`PAUSE_OF_SHARE`] must get in.
const RATE_OF_SHARE: u64 = 15_000;
const PERCENT: u32 = 95;
const PAUSE_OF_SHARE: u64 = 10;
/// An attacker that opens less than this share of its rate proves less.
const REACHED: f64 = 0.9;

#[derive(Debug, Args)]
pub(crate) struct Newcomers {
    /// Where the attacker's connections stop.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "silent,requested,challenged"
    )]
    modes: Vec<Mode>,
    /// A `farcore` binary; without it, one is built.
    #[arg(long)]
    node: Option<PathBuf>,
    /// Connections a second.
    #[arg(long, value_delimiter = ',', default_value = "1000,4000,15000")]
    rates: Vec<u64>,
    /// Pauses of an honest client before each of its messages, in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "0,1,10,50")]
    pauses: Vec<u64>,
    /// Clients for each rate and pause.
    #[arg(long, default_value_t = 20)]
    clients: u32,
}

/// The least clients that must get in.
fn least(rate: u64, pause: u64, clients: u32) -> u32 {
    if rate <= RATE_OF_ALL {
        clients
    } else if rate <= RATE_OF_SHARE && pause <= PAUSE_OF_SHARE {
        (clients * PERCENT).div_ceil(100)
    } else {
        0
    }
}

/// Passes bytes on, each piece after a pause.
fn pass(mut from: TcpStream, mut to: TcpStream, pause: Duration) {
    let mut piece = [0; 4096];
    while let Ok(bytes @ 1..) = from.read(&mut piece) {
        thread::sleep(pause);
        if to.write_all(&piece[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// A proxy before the node that delays what clients send.
fn proxy(node: SocketAddr, pause: Duration) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(node) else {
                continue;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            if let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) {
                thread::spawn(move || pass(from, to, pause));
                thread::spawn(move || pass(server, client, Duration::ZERO));
            }
        }
    });
    Ok(address)
}

/// The work's result, or an error if it takes too long.
async fn within<T>(limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let (mut work, mut late) = (pin!(work), pin!(pause(limit)));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(done),
        Poll::Pending => match late.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(anyhow::anyhow!("not within {limit:?}"))),
            Poll::Pending => Poll::Pending,
        },
    })
    .await
}

async fn get_in(address: SocketAddr) -> Result<()> {
    let channel = connect_control(address, LIMIT).await?;
    let session = NodeSession::open(channel, "newcomer", None).await?;
    session.bye().await?;
    Ok(())
}

/// What is remarkable about the lines of the table.
#[derive(Debug, Default)]
struct Remarks {
    missed: Vec<String>,
    unreached: Vec<String>,
}

pub(super) fn run(flood: &Newcomers) -> Result<()> {
    let places = Places::here()?;
    let node = Node::start(flood.node.as_deref(), places.node, "64MiB")?;
    let clients_core = places.third.unwrap_or(places.attacker);
    println!(
        "node on core {}, attacker on core {}, clients on core {clients_core}",
        places.node, places.attacker
    );
    println!(
        "clients that got in, of {}, by their pause before each message",
        flood.clients
    );
    print!("{:>12}{:>12}", "mode", "attackers/s");
    flood
        .pauses
        .iter()
        .for_each(|pause| print!("{:>9}", format!("{pause} ms")));
    println!("{:>12}", "opened/s");
    let mut remarks = Remarks::default();
    for &mode in &flood.modes {
        for &rate in &flood.rates {
            pin(places.attacker)?;
            let attack = Attack::start(node.address, rate, mode);
            pin(clients_core)?;
            beside(&node, flood, attack, &mut remarks)?;
        }
    }
    for one in &remarks.unreached {
        println!("not reached: {one}");
    }
    for one in &remarks.missed {
        println!("missed: {one}");
    }
    ensure!(
        remarks.missed.is_empty(),
        "fewer clients got in than must; the least are all up to {RATE_OF_ALL} attackers a second, and {PERCENT} % with pauses up to {PAUSE_OF_SHARE} ms up to {RATE_OF_SHARE}"
    );
    Ok(())
}

/// One line of the table.
fn beside(node: &Node, flood: &Newcomers, attack: Attack, remarks: &mut Remarks) -> Result<()> {
    thread::sleep(WARM_UP);
    let (mode, rate) = (attack.mode, attack.rate);
    let name = format!("{mode:?}").to_lowercase();
    print!("{name:>12}{rate:>12}");
    for &pause in &flood.pauses {
        let address = proxy(node.address, Duration::from_millis(pause))?;
        let clients = flood.clients;
        let counted = run_local(async move {
            let mut got_in = 0;
            for _ in 0..clients {
                got_in += u32::from(within(CLIENT_LIMIT, get_in(address)).await.is_ok());
            }
            got_in
        })?;
        print!("{counted:>9}");
        std::io::stdout().flush()?;
        let least = least(rate, pause, clients);
        if counted < least {
            remarks.missed.push(format!(
                "{name}, {rate} a second, {pause} ms: {counted} of {clients}, at least {least}"
            ));
        }
    }
    let opened = attack.end();
    println!("{opened:>12.0}");
    if opened < REACHED * rate as f64 {
        remarks.unreached.push(format!(
            "{name}, {rate} a second: the attacker opened {opened:.0}, which is all that the line shows"
        ));
    }
    if node.resident_bytes().is_err() {
        bail!("the node has ended");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_follow_from_rate_and_pause() {
        for (rate, pause, expected) in [
            (1_000, 50, 20),
            (4_000, 0, 20),
            (15_000, 10, 19),
            (15_000, 50, 0),
            (100_000, 0, 0),
        ] {
            assert_eq!(least(rate, pause, 20), expected, "{rate} {pause}");
        }
    }
}
