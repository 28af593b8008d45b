//! Latency and rate of gets and puts of 64 B to 1 MiB, by each way in which values travel.
//!
//! ```text
//! cargo run --profile instructions -p farcore-client --example curve -- transfers > tcp.md
//! cargo run --profile instructions -p farcore-client --example curve -- requests > embedded.md
//! cargo xtask lab curve > verbs.md
//! cargo run --profile instructions -p farcore-client --example curve -- lookups --server tcp://.. \
//!     --server-process PID
//! cargo run --profile instructions -p farcore-client --example curve -- plot native.svg tcp.md verbs.md
//! ```
//!
//! `transfers` measures a client and a server, by default both in this process: one operation at a
//! time (median and 99th percentile), then 16 at a time (operations and bytes a second). `requests`
//! measures bare work requests of the embedded backend, which has no connections between peers.
//! `lookups` compares gets in messages with gets that READ, and their costs to the server.

#![allow(
    clippy::print_stderr,
    reason = "a program: progress does not belong in the table"
)]

mod lookups;
mod plot;
mod requests;
mod table;
mod transfers;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use farcore_client::FabricAddress;

/// Lengths of values, in bytes: the last two of 64 KiB and 1 MiB fit their slots beside a header
/// and a key.
const LENGTHS: [usize; 15] = [
    64, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 49_000, 65_000, 131_072, 262_144,
    524_288, 1_048_000,
];
/// Operations under way when the rate is measured.
const WINDOW: usize = 16;

#[derive(Debug, Parser)]
#[command(about = "Latency and rate by length and by the way in which values travel")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Gets and puts of a client.
    Transfers(Transfers),
    /// Work requests of the embedded backend.
    Requests(Rounds),
    /// Gets in messages and by READ, and what they cost the server.
    Lookups(Lookups),
    /// Draw printed tables.
    Plot {
        /// The SVG file.
        output: PathBuf,
        /// Files with tables.
        #[arg(required = true)]
        tables: Vec<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, Args)]
struct Rounds {
    /// Rounds; each figure is the median of theirs.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.1)]
    seconds: f64,
}

impl Rounds {
    fn limit(self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

#[derive(Debug, Args)]
struct Transfers {
    #[command(flatten)]
    rounds: Rounds,
    /// Where the server in this process listens.
    #[arg(long, default_value = "tcp://127.0.0.1:0")]
    listen: FabricAddress,
    /// A server elsewhere instead.
    #[arg(long, requires = "small_bytes")]
    server: Option<FabricAddress>,
    /// The `--small-bytes` of that server: from there on values are transferred, below they are
    /// sent. For the whole curve, measure servers of 512 and of 49152.
    #[arg(long)]
    small_bytes: Option<usize>,
    /// The token of that server.
    #[arg(long)]
    token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Lookups {
    #[command(flatten)]
    rounds: Rounds,
    /// A server with `--small-bytes 512`.
    #[arg(long)]
    server: FabricAddress,
    /// Its process.
    #[arg(long, value_name = "PID")]
    server_process: u32,
    /// How long the client's thread polls before it sleeps, in microseconds.
    #[arg(long, default_value_t = 0)]
    spin_us: u64,
    /// The server's token.
    #[arg(long)]
    token_file: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().what {
        What::Transfers(transfers) => transfers::run(&transfers),
        What::Lookups(lookups) => lookups::run(&lookups),
        What::Requests(rounds) => requests::run(rounds),
        What::Plot { output, tables } => plot::write(&output, &tables),
    }
}
