//! `cargo xtask redis kills`: a server with a data directory is killed again and again while
//! clients write, and started again with another number of cores. What it had acknowledged and has
//! lost is counted.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::ci;
use super::place::Place;

/// Clients that write at once.
const CLIENTS: usize = 8;
/// Keys that a client overwrites in turn.
const KEYS: u64 = 5_000;
/// Time limit of a start, and of a reply.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct Kills {
    /// The program `farcore` [default: it is built]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// How often the server is killed
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// The server's --log: writes may be lost with `everysec` and `no`
    #[arg(long, default_value = "always")]
    log: String,
    /// Time for which clients write in a round, in milliseconds, at least; up to twice as much
    #[arg(long, default_value_t = 400)]
    write_ms: u64,
}

/// What a client was told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The last number that it was told to be stored. Number `n` is under key `n % KEYS`.
    stored: u64,
    /// The last transaction.
    pair: u64,
}

/// What a round has found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    lost: u64,
    halves: u64,
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    fn send(&mut self, lines: &str) -> io::Result<()> {
        self.0.get_mut().write_all(lines.as_bytes())
    }

    /// A line of a reply.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// The number in a bulk reply; 0 if there is none.
    fn number(&mut self) -> io::Result<u64> {
        let head = self.line()?;
        if !head.starts_with('$') || head == "$-1" {
            return Ok(0);
        }
        Ok(self.line()?.parse().unwrap_or(0))
    }
}

/// Writes until the connection breaks.
fn write(address: SocketAddr, client: usize, mut told: Told, ends: &AtomicBool) -> Told {
    // It ends with the server.
    let _: io::Result<()> = (|| {
        let mut connection = Client::connect(address)?;
        while !ends.load(Ordering::Relaxed) {
            // A pipeline, whose replies come in order.
            let from = told.stored + 1;
            let sets = from..from + 16;
            let lines: Vec<String> = sets
                .clone()
                .map(|number| format!("SET {{c{client}}}k{} {number}\r\n", number % KEYS))
                .collect();
            connection.send(&lines.concat())?;
            for number in sets {
                ensure_io(connection.line()? == "+OK")?;
                told.stored = number;
            }
            let pair = told.pair + 1;
            connection.send(&format!(
                "MULTI\r\nSET {{c{client}}}one {pair}\r\nSET {{c{client}}}other {pair}\r\nEXEC\r\n"
            ))?;
            for expected in ["+OK", "+QUEUED", "+QUEUED", "*2", "+OK", "+OK"] {
                ensure_io(connection.line()? == expected)?;
            }
            told.pair = pair;
        }
        Ok(())
    })();
    told
}

fn ensure_io(holds: bool) -> io::Result<()> {
    holds.then_some(()).ok_or(io::ErrorKind::InvalidData.into())
}

/// Compares what is stored with what a client was told, which becomes what is stored.
fn check(address: SocketAddr, client: usize, told: &mut Told) -> Result<Found> {
    let mut connection = Client::connect(address)?;
    let (mut found, mut newest) = (Found::default(), told.stored);
    let first = told.stored.saturating_sub(KEYS - 1).max(1);
    let lines: Vec<String> = (first..=told.stored)
        .map(|number| format!("GET {{c{client}}}k{}\r\n", number % KEYS))
        .collect();
    for (number, line) in (first..).zip(lines) {
        connection.send(&line)?;
        let stored = connection.number()?;
        // One that was under way may be there: newer, of the same key.
        found.lost += u64::from(stored < number);
        newest = newest.max(stored);
    }
    // Those under way behind the last one.
    for number in told.stored + 1..told.stored + 17 {
        connection.send(&format!("GET {{c{client}}}k{}\r\n", number % KEYS))?;
        newest = newest.max(connection.number()?);
    }
    connection.send(&format!(
        "GET {{c{client}}}one\r\nGET {{c{client}}}other\r\n"
    ))?;
    let (one, other) = (connection.number()?, connection.number()?);
    found.lost += u64::from(one < told.pair);
    found.halves += u64::from(one != other);
    *told = Told {
        stored: newest,
        pair: one,
    };
    Ok(found)
}

/// Starts a server, and waits until it has loaded.
fn start(binary: &Path, dir: &Path, cores: &str, log: &str) -> Result<(Child, SocketAddr)> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut child = Command::new(binary)
        .args(["serve", "--resp", &address.to_string(), "--cores", cores])
        .args(["--local", "64MiB", "--far", "128MiB", "--no-huge-pages"])
        .args(["--hash-tags", "--log", log, "--data"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .env("RUST_LOG", "error")
        .spawn()
        .context("cannot start farcore")?;
    let began = Instant::now();
    loop {
        let is_up = || -> io::Result<bool> {
            let mut client = Client::connect(address)?;
            client.send("PING\r\n")?;
            Ok(client.line()? == "+PONG")
        };
        if is_up().unwrap_or(false) {
            return Ok((child, address));
        }
        if let Some(status) = child.try_wait()? {
            bail!("the server ended with {status}");
        }
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            bail!("the server does not answer");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn perform(place: &Place, kills: &Kills) -> Result<()> {
    let binary = ci::binary(kills.binary.as_deref())?;
    let dir = place.at(&format!("kills-{}", std::process::id()));
    let mut told = [Told::default(); CLIENTS];
    let (mut lost, mut halves, mut loading) = (0, 0, Duration::ZERO);
    let mut written = 0;
    for round in 0..=kills.rounds {
        let cores = if round % 3 == 2 { "0" } else { "0-1" };
        let began = Instant::now();
        let (mut child, address) = start(&binary, &dir, cores, &kills.log)?;
        loading = loading.max(began.elapsed());
        let mut found = Found::default();
        for (client, told) in told.iter_mut().enumerate() {
            let of = check(address, client, told)?;
            found.lost += of.lost;
            found.halves += of.halves;
        }
        lost += found.lost;
        halves += found.halves;
        if found.lost + found.halves > 0 || round % 10 == 0 {
            println!(
                "round {round}: {written} acknowledged, {} lost, {} halves of EXEC",
                found.lost, found.halves
            );
        }
        let ends = AtomicBool::new(round == kills.rounds);
        let before: u64 = told.iter().map(|told| told.stored + told.pair).sum();
        told = thread::scope(|scope| -> Result<_> {
            let ends = &ends;
            let writers: Vec<_> = told
                .iter()
                .enumerate()
                .map(|(client, &told)| scope.spawn(move || write(address, client, told, ends)))
                .collect();
            // Another moment each round, and amid a snapshot in some.
            let after = kills.write_ms + u64::from(round) * 37 % kills.write_ms.max(1);
            if round % 5 == 3 {
                let mut client = Client::connect(address)?;
                client.send("BGSAVE\r\n")?;
                client.line()?;
            }
            if round < kills.rounds {
                thread::sleep(Duration::from_millis(after));
            }
            child.kill()?;
            child.wait()?;
            ends.store(true, Ordering::Relaxed);
            let mut all = [Told::default(); CLIENTS];
            for (told, writer) in all.iter_mut().zip(writers) {
                *told = writer.join().unwrap_or_default();
            }
            Ok(all)
        })?;
        let after: u64 = told.iter().map(|told| told.stored + told.pair).sum();
        written += after.saturating_sub(before);
    }
    println!(
        "{} kills, {written} acknowledged writes: {lost} lost, {halves} halves of EXEC; longest start {loading:.1?}",
        kills.rounds
    );
    std::fs::remove_dir_all(&dir)?;
    ensure!(halves == 0, "{halves} halves of EXEC");
    ensure!(
        lost == 0 || kills.log != "always",
        "{lost} acknowledged writes are lost"
    );
    Ok(())
}
