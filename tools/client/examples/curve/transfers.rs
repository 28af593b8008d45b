//! Gets and puts of a client, by every way that the server's threshold allows.
//!
//! - I1: callers and the clients' threads share the machine's last processor, beside the server's
//!   core. So clients do not poll: that would hold their callers up.

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use farcore::{Config, Engine};
use farcore_client::{Client, ClientOptions, FabricAddress, Token, Transfer};
use farcore_protocol::{SMALL_BYTES_MAX, SMALL_BYTES_MIN};
use farcore_server::{Options, Server};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::table::{Row, Way, print};
use crate::{LENGTHS, Transfers, WINDOW};

/// Keys, so that requests do not wait for one record.
const KEYS: usize = 16;

/// A client that lends and one that lands.
struct Clients {
    reads: Client,
    landings: Client,
    /// The server's threshold.
    small_bytes: usize,
    fabric: String,
}

impl Clients {
    fn connect(
        address: &FabricAddress,
        small_bytes: usize,
        token: Option<&Token>,
    ) -> Result<Self, Box<dyn Error>> {
        let with = |transfer| {
            let options = ClientOptions {
                token: token.cloned(),
                transfer,
                small_bytes,
                landing_bytes: 1 << 20,
                landings: 16,
                spin: Duration::ZERO,
                ..ClientOptions::default()
            };
            Client::connect(address, options)
        };
        Ok(Self {
            reads: with(Transfer::Read)?,
            landings: with(Transfer::Landing)?,
            small_bytes,
            fabric: address.scheme().as_str().to_owned(),
        })
    }

    /// The ways in which values of a length travel.
    fn ways(&self, bytes: usize) -> &'static [Way] {
        if bytes < self.small_bytes {
            &[Way::PutSend, Way::GetSend]
        } else {
            &[Way::PutWrite, Way::GetRead, Way::GetWrite]
        }
    }

    /// Starts an operation; what it returns waits for the outcome.
    fn start(&self, way: Way, value: &[u8], place: usize) -> Box<dyn FnOnce() -> bool> {
        let key = key(place);
        let client = if way == Way::GetWrite {
            &self.landings
        } else {
            &self.reads
        };
        if matches!(way, Way::PutSend | Way::PutWrite) {
            let put = client.put(&key, value);
            return Box::new(move || put.wait().is_ok());
        }
        let (get, bytes) = (client.get(&key), value.len());
        Box::new(move || {
            get.wait()
                .is_ok_and(|found| found.is_some_and(|one| one.bytes.len() == bytes))
        })
    }

    fn measure(&self, way: Way, bytes: usize, limit: Duration) -> Result<Row, Box<dyn Error>> {
        let failed = || format!("{} of {bytes} bytes failed", way.name());
        let value = vec![7; bytes];
        let before = self.counts();
        let mut times = Vec::new();
        let end = Instant::now() + limit;
        while Instant::now() < end {
            let begun = Instant::now();
            if !self.start(way, &value, times.len())() {
                return Err(failed().into());
            }
            times.push(begun.elapsed());
        }
        let (mut done, mut place, mut under_way) = (0_u32, 0, VecDeque::new());
        let begun = Instant::now();
        while begun.elapsed() < limit {
            while under_way.len() < WINDOW {
                under_way.push_back(self.start(way, &value, place));
                place += 1;
            }
            if let Some(oldest) = under_way.pop_front() {
                if !oldest() {
                    return Err(failed().into());
                }
                done += 1;
            }
        }
        let rate = f64::from(done) / begun.elapsed().as_secs_f64();
        for one in under_way {
            one();
        }
        self.check(way, before)?;
        Ok(Row::new(&self.fabric, (bytes, way), &mut times, rate))
    }

    /// Uploads, reads and landings so far.
    fn counts(&self) -> [u64; 3] {
        let (reads, landings) = (self.reads.figures(), self.landings.figures());
        [reads.uploads, reads.reads, landings.landings]
    }

    /// Checks that values travelled as measured: so is the threshold that was given.
    fn check(&self, way: Way, before: [u64; 3]) -> Result<(), Box<dyn Error>> {
        let now = self.counts();
        let expected = match way {
            Way::PutWrite => [true, false, false],
            Way::GetRead => [false, true, false],
            Way::GetWrite => [false, false, true],
            _ => [false; 3],
        };
        let grown = [0, 1, 2].map(|place| now[place] > before[place]);
        if grown == expected {
            return Ok(());
        }
        Err(format!("{} travelled otherwise: {grown:?}", way.name()).into())
    }

    /// Measures every length and way of a threshold, but those that another threshold has too.
    fn curve(&self, limit: Duration, rows: &mut Vec<Row>) -> Result<(), Box<dyn Error>> {
        for bytes in LENGTHS {
            if self.small_bytes == SMALL_BYTES_MAX && bytes >= SMALL_BYTES_MAX
                || self.small_bytes == SMALL_BYTES_MIN && bytes < SMALL_BYTES_MIN
            {
                continue;
            }
            // What gets read, and room for longer slots.
            for place in 0..KEYS {
                self.reads.put(&key(place), &vec![7; bytes]).wait()?;
            }
            for &way in self.ways(bytes) {
                rows.push(self.measure(way, bytes, limit)?);
            }
        }
        Ok(())
    }
}

fn key(place: usize) -> Vec<u8> {
    format!("curve-{}", place % KEYS).into_bytes()
}

/// An engine on the first core, whose records may have 1 MiB.
fn engine() -> Result<Engine, farcore::Error> {
    Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 256 << 20,
        far_bytes: 256 << 20,
        page_bytes: Some(2 << 20),
        keys_expected: 1_000,
        ..Config::default()
    })
}

/// Moves this thread, and those that it starts, to the last processor.
fn stand_aside() -> Result<(), Box<dyn Error>> {
    let cores = Config::default().cores;
    if let (Some(last), true) = (cores.last(), cores.len() > 1) {
        let mut processors = CpuSet::new();
        processors.set(*last);
        sched_setaffinity(None, &processors)?;
    }
    Ok(())
}

pub(crate) fn run(arguments: &Transfers) -> Result<(), Box<dyn Error>> {
    let rounds = arguments.rounds;
    let mut rows = Vec::new();
    if let (Some(server), Some(small_bytes)) = (&arguments.server, arguments.small_bytes) {
        let token = arguments.token_file.as_deref();
        let token = token.map(Token::read).transpose()?;
        let clients = Clients::connect(server, small_bytes, token.as_ref())?;
        for _ in 0..rounds.rounds {
            clients.curve(rounds.limit(), &mut rows)?;
        }
        print(&rows);
        return Ok(());
    }
    let engine = engine()?;
    for round in 0..rounds.rounds {
        for small_bytes in [SMALL_BYTES_MIN, SMALL_BYTES_MAX] {
            eprintln!("round {round}, --small-bytes {small_bytes}");
            let mut options = Options::new(([127, 0, 0, 1], 0).into());
            options.native.listen = vec![arguments.listen.clone()];
            options.native.small_bytes = small_bytes;
            let server = Server::start(&engine, options)?;
            let address = server.native_addresses()[0].parse()?;
            // Only now: the server's threads keep their processors.
            stand_aside()?;
            let clients = Clients::connect(&address, small_bytes, None)?;
            let measured = clients.curve(rounds.limit(), &mut rows);
            drop(clients);
            server.stop()?;
            measured?;
        }
    }
    print(&rows);
    Ok(())
}
