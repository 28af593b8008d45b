//! Latency and rate of gets and puts of 64 B to 1 MiB, by each way in which values travel.
//!
//! ```text
//! cargo run --release -p farcore-client --example curve -- ADDRESS [SECONDS] [TOKEN FILE]
//! ```
//!
//! For each length and way it measures one operation at a time (median and 99th percentile), then
//! 16 at a time (operations and bytes a second). Below the server's threshold all ways are
//! messages.

use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use farcore_client::{Client, ClientOptions, FabricAddress, Pending, Token, Transfer};

/// Lengths of values, in bytes.
const LENGTHS: [usize; 13] = [
    64, 256, 1024, 2048, 4000, 4096, 8192, 16_384, 32_768, 65_000, 131_072, 262_144, 1_048_000,
];
/// Operations under way when the rate is measured.
const WINDOW: usize = 16;
/// Keys, so that requests go to all cores.
const KEYS: usize = 16;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Put,
    Read,
    Landing,
}

/// One line of the table.
struct Line {
    median: Duration,
    late: Duration,
    rate: f64,
}

fn key(place: usize) -> Vec<u8> {
    format!("curve-{}", place % KEYS).into_bytes()
}

fn start(client: &Client, way: Way, value: &[u8], place: usize) -> Box<dyn FnOnce() -> bool> {
    let key = key(place);
    match way {
        Way::Put => {
            let put: Pending<u64> = client.put(&key, value);
            Box::new(move || put.wait().is_ok())
        }
        Way::Read | Way::Landing => {
            let (get, bytes) = (client.get(&key), value.len());
            Box::new(move || {
                get.wait()
                    .is_ok_and(|found| found.is_some_and(|one| one.bytes.len() == bytes))
            })
        }
    }
}

fn measure(
    client: &Client,
    way: Way,
    bytes: usize,
    limit: Duration,
) -> Result<Line, Box<dyn Error>> {
    let value = vec![7; bytes];
    for place in 0..KEYS {
        client.put(&key(place), &value).wait()?;
    }
    let mut times = Vec::new();
    let end = Instant::now() + limit;
    while Instant::now() < end {
        let begun = Instant::now();
        if !start(client, way, &value, times.len())() {
            return Err("an operation failed".into());
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let (mut done, mut under_way) = (0_u32, VecDeque::new());
    let begun = Instant::now();
    let mut place = 0;
    while begun.elapsed() < limit {
        while under_way.len() < WINDOW {
            under_way.push_back(start(client, way, &value, place));
            place += 1;
        }
        if let Some(oldest) = under_way.pop_front() {
            if !oldest() {
                return Err("an operation failed".into());
            }
            done += 1;
        }
    }
    let rate = f64::from(done) / begun.elapsed().as_secs_f64();
    for one in under_way {
        one();
    }
    Ok(Line {
        median: times[times.len() / 2],
        late: times[times.len() * 99 / 100],
        rate,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: FabricAddress = arguments
        .next()
        .ok_or("usage: curve ADDRESS [SECONDS] [TOKEN FILE]")?
        .parse()?;
    let seconds: f64 = arguments.next().as_deref().unwrap_or("0.5").parse()?;
    let limit = Duration::from_secs_f64(seconds);
    let token = arguments.next();
    let token = token
        .map(|file| Token::read(Path::new(&file)))
        .transpose()?;
    let with = |transfer| {
        let options = ClientOptions {
            token: token.clone(),
            transfer,
            landing_bytes: 1 << 20,
            landings: 16,
            spin: Duration::from_micros(50),
            ..ClientOptions::default()
        };
        Client::connect(&address, options)
    };
    let (reads, landings) = (with(Transfer::Read)?, with(Transfer::Landing)?);
    println!("{address}");
    println!("   bytes | way     | median us |    99% us |  operations/s |    MiB/s");
    for bytes in LENGTHS {
        for way in [Way::Put, Way::Read, Way::Landing] {
            let client = if way == Way::Landing {
                &landings
            } else {
                &reads
            };
            let line = measure(client, way, bytes, limit)?;
            let micros = |time: Duration| time.as_secs_f64() * 1e6;
            #[expect(clippy::cast_precision_loss, reason = "lengths are small")]
            let mebibytes = line.rate * bytes as f64 / f64::from(1 << 20);
            println!(
                "{bytes:8} | {:7} | {:9.1} | {:9.1} | {:13.0} | {mebibytes:8.1}",
                format!("{way:?}").to_lowercase(),
                micros(line.median),
                micros(line.late),
                line.rate,
            );
        }
    }
    Ok(())
}
