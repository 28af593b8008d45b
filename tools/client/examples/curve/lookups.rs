//! What one-sided look-ups in a server's own memory would cost beside requests: in latency, rate
//! and the server's processor time.
//!
//! A server lends a long value: it answers with the place of the value, and the client READs it. So
//! the time of a lent get, less that of a get of one byte less in a message, is the time of a READ.
//!
//! - I1: server and client are processes of their own, so that the server's processor time is the
//!   kernel's account of its process.

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use farcore_client::{Client, ClientOptions, Token, Transfer};
use farcore_protocol::SMALL_BYTES_MIN;

use crate::{Lookups, WINDOW};

/// The longest value that a server with the least threshold sends in a message, less one byte.
const SENT: usize = SMALL_BYTES_MIN - 1;
/// The shortest value that it lends.
const LENT: usize = SMALL_BYTES_MIN;
/// Long values, which a server copies once into a slot of the connection.
const COPIED: [usize; 2] = [60_000, 1_000_000];
/// Clock ticks a second, in which the kernel accounts for processor time: the same on all Linux.
const TICKS: f64 = 100.0;

/// Median latency in us, operations a second, and the server's processor time of one in us.
struct Cost {
    median: f64,
    rate: f64,
    /// One at a time, and with `WINDOW` under way.
    server: [f64; 2],
}

/// The processor time of a process, in seconds.
fn processor_seconds(process: u32) -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = stat.rsplit(')').next().ok_or("no statistics")?;
    let mut ticks = 0.0;
    // User and system time: fields 14 and 15, of which the first after the name is the third.
    for field in after_name.split_whitespace().skip(11).take(2) {
        ticks += field.parse::<f64>()?;
    }
    Ok(ticks / TICKS)
}

fn key(place: usize) -> Vec<u8> {
    format!("lookup-{}", place % WINDOW).into_bytes()
}

fn get(client: &Client, place: usize, bytes: usize) -> impl FnOnce() -> bool + use<> {
    let found = client.get(&key(place));
    move || {
        found
            .wait()
            .is_ok_and(|found| found.is_some_and(|one| one.bytes.len() == bytes))
    }
}

fn measure(
    client: &Client,
    process: u32,
    bytes: usize,
    limit: Duration,
) -> Result<Cost, Box<dyn Error>> {
    let failed = || format!("a get of {bytes} bytes failed");
    for place in 0..WINDOW {
        client.put(&key(place), &vec![7; bytes]).wait()?;
    }
    let (mut times, before, begun) = (Vec::new(), processor_seconds(process)?, Instant::now());
    while begun.elapsed() < limit {
        let started = Instant::now();
        if !get(client, times.len(), bytes)() {
            return Err(failed().into());
        }
        times.push(started.elapsed());
    }
    let one = processor_seconds(process)?;
    let (mut done, mut place, mut under_way) = (0_u32, 0, VecDeque::new());
    let begun = Instant::now();
    while begun.elapsed() < limit {
        while under_way.len() < WINDOW {
            under_way.push_back(get(client, place, bytes));
            place += 1;
        }
        if under_way.pop_front().is_some_and(|oldest| !oldest()) {
            return Err(failed().into());
        }
        done += 1;
    }
    let rate = f64::from(done) / begun.elapsed().as_secs_f64();
    let many = processor_seconds(process)?;
    for rest in under_way {
        rest();
    }
    times.sort_unstable();
    let counted = f64::from(u32::try_from(times.len())?);
    Ok(Cost {
        median: times[times.len() / 2].as_secs_f64() * 1e6,
        rate,
        server: [
            (one - before) / counted * 1e6,
            (many - one) / f64::from(done) * 1e6,
        ],
    })
}

/// The median time of copying a long value from one of many places to another, in us.
fn copy(bytes: usize) -> f64 {
    let (from, mut to) = (vec![7_u8; 64 * bytes], vec![0_u8; bytes]);
    let mut times = Vec::new();
    for place in 0..640 {
        let start = place % 64 * bytes;
        let begun = Instant::now();
        to.copy_from_slice(black_box(&from[start..start + bytes]));
        black_box(&mut to);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

#[expect(clippy::print_stdout, reason = "a program: this is its table")]
fn print(name: &str, cost: &Cost) {
    let Cost {
        median,
        rate,
        server: [one, many],
    } = cost;
    println!("| {name} | {median:.1} | {rate:.0} | {one:.1} | {many:.1} |");
}

#[expect(clippy::print_stdout, reason = "a program: this is its table")]
pub(crate) fn run(arguments: &Lookups) -> Result<(), Box<dyn Error>> {
    let token = arguments.token_file.as_deref();
    let token = token.map(Token::read).transpose()?;
    let options = |transfer| ClientOptions {
        token: token.clone(),
        transfer,
        small_bytes: SMALL_BYTES_MIN,
        landing_bytes: 1 << 20,
        spin: Duration::from_micros(arguments.spin_us),
        ..ClientOptions::default()
    };
    let reads = Client::connect(&arguments.server, options(Transfer::Read))?;
    let lands = Client::connect(&arguments.server, options(Transfer::Landing))?;
    println!(
        "| get | one at a time, us | {WINDOW} at a time, a second | server us, one | server us, {WINDOW} |"
    );
    println!("|---|--:|--:|--:|--:|");
    for _ in 0..arguments.rounds.rounds {
        let (process, limit) = (arguments.server_process, arguments.rounds.limit());
        let sent = measure(&reads, process, SENT, limit)?;
        print(&format!("{SENT} B in a message"), &sent);
        let lent = measure(&reads, process, LENT, limit)?;
        print(&format!("{LENT} B lent and READ"), &lent);
        let difference = Cost {
            median: lent.median - sent.median,
            rate: 1.0 / (1.0 / lent.rate - 1.0 / sent.rate),
            server: [0, 1].map(|place| lent.server[place] - sent.server[place]),
        };
        print("the READ alone", &difference);
        for bytes in COPIED {
            let landed = measure(&lands, process, bytes, limit)?;
            print(&format!("{bytes} B landed"), &landed);
        }
    }
    for bytes in COPIED {
        println!("a copy of {bytes} B: {:.1} us", copy(bytes));
    }
    Ok(())
}
