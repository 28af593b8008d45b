//! `farcore card trace`: makes traces, shows what is in one, and converts one for other programs.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use farcore_card::handle::Kind;
use farcore_card::trace::{Recording, TraceLimits};
use farcore_card::workload::{Operation, Workload, WorkloadSettings};
use farcore_command::outputs::{OutputFile, print};
use serde::Serialize;

use super::flags::{WorkloadFlags, read_trace};
use super::number::{real, whole};
use crate::text::grouped;

/// Nanoseconds of a second.
const SECOND_NS: f64 = 1e9;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a trace of drawn messages.
    Generate(Box<Generate>),
    /// Show what a trace holds.
    Inspect(Inspect),
    /// Convert a trace for other programs.
    Convert(Convert),
}

impl Command {
    /// The words that name the command, for errors.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Generate(_) => "card trace generate",
            Self::Inspect(_) => "card trace inspect",
            Self::Convert(_) => "card trace convert",
        }
    }
}

/// Flags of `card trace generate`.
#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Messages
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = whole::<u64>)]
    messages: u64,
    /// Messages a second, by which they get their times
    #[arg(long, value_name = "N", default_value_t = 10e6, value_parser = real)]
    rate: f64,
    #[command(flatten)]
    workload: WorkloadFlags,
}

/// Flags of `card trace inspect`.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The trace; `-` is standard input
    trace: PathBuf,
    /// Most messages that are read [default: 20000000]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    limit: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A format of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines of time, operation and handles, with a heading.
    Csv,
    /// libCacheSim's binary records, one for each token of a message; objects are handles.
    #[value(name = "oracle-general")]
    OracleGeneral,
}

/// Flags of `card trace convert`.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// The trace; `-` is standard input
    trace: PathBuf,
    /// The format to write
    #[arg(long, value_name = "FORMAT")]
    to: Format,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Most messages that are read [default: 20000000]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    limit: Option<usize>,
}

/// What a trace holds.
#[derive(Debug, PartialEq, Serialize)]
struct Summary {
    messages: usize,
    duration_ns: u64,
    handles: usize,
    tokens: usize,
    /// Handles of each kind.
    kinds: Vec<(Kind, usize)>,
    /// Messages of each operation.
    operations: Vec<(Operation, usize)>,
    /// Tokens that messages use, on average.
    tokens_each: f64,
    /// The share of accesses to the most used hundredth of the tokens.
    top_share: f64,
}

/// Runs the command.
///
/// # Errors
/// A flag is wrong, the trace cannot be read, or the output cannot be written.
pub(super) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Generate(arguments) => generate(arguments),
        Command::Inspect(arguments) => inspect(arguments),
        Command::Convert(arguments) => convert(arguments),
    }
}

fn generate(arguments: &Generate) -> Result<()> {
    let limit = TraceLimits::default().messages as u64;
    if arguments.messages == 0 || arguments.messages > limit {
        bail!("--messages is {}: write 1 to {limit}", arguments.messages);
    }
    if !(1e3..=1e10).contains(&arguments.rate) {
        bail!("--rate is {}: write 1000 to 10000000000", arguments.rate);
    }
    let mut settings = WorkloadSettings::default();
    arguments.workload.apply(&mut settings)?;
    arguments.workload.refuse_idle(&settings)?;
    let output = OutputFile::open("--out", &arguments.out)?;
    let mut workload = Workload::drawn(&settings)?;
    let gap_ns = SECOND_NS / arguments.rate;
    let messages = (0..arguments.messages).filter_map(|number| {
        let mut message = workload.next_message()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most 2e7 messages of 1e6 ns"
        )]
        let time_ns = (number as f64 * gap_ns) as u64;
        message.time_ns = time_ns;
        Some(message)
    });
    let recording = Recording::of(&settings.population.tokens(), messages);
    let mut text = Vec::new();
    recording.write(&mut text)?;
    output.write(text)
}

impl Summary {
    fn of(recording: &Recording) -> Self {
        let messages = recording.messages();
        let mut uses = vec![0_u64; recording.handles().len()];
        for message in messages {
            for &key in message.keys() {
                uses[key as usize] += 1;
            }
        }
        let total: u64 = uses.iter().sum();
        uses.sort_unstable_by(|one, other| other.cmp(one));
        let top: u64 = uses.iter().take(uses.len().div_ceil(100)).sum();
        let count = |kind: Kind| {
            let of_kind = |handle: &&farcore_card::Handle| handle.kind() == Some(kind);
            (kind, recording.handles().iter().filter(of_kind).count())
        };
        let done = |operation: Operation| {
            let like = messages.iter().filter(|one| one.operation == operation);
            (operation, like.count())
        };
        let times = messages.first().zip(messages.last());
        Self {
            messages: messages.len(),
            duration_ns: times.map_or(0, |(first, last)| last.time_ns - first.time_ns),
            handles: recording.handles().len(),
            tokens: recording.tokens().iter().flatten().count(),
            kinds: Kind::ALL.map(count).to_vec(),
            operations: Operation::ALL.map(done).to_vec(),
            tokens_each: total as f64 / messages.len().max(1) as f64,
            top_share: top as f64 / total.max(1) as f64,
        }
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut row = |name: String, figure: String| {
            table.add_row([name, figure]);
        };
        row("messages".to_owned(), grouped(self.messages as u64));
        row("nanoseconds".to_owned(), grouped(self.duration_ns));
        row("handles".to_owned(), grouped(self.handles as u64));
        for (kind, count) in &self.kinds {
            row(format!("  {kind:?}"), grouped(*count as u64));
        }
        row("  with a token".to_owned(), grouped(self.tokens as u64));
        for (operation, count) in &self.operations {
            row(operation.name().to_owned(), grouped(*count as u64));
        }
        row(
            "tokens a message".to_owned(),
            format!("{:.2}", self.tokens_each),
        );
        row(
            "accesses to the top hundredth".to_owned(),
            format!("{:.1} %", self.top_share * 100.0),
        );
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.trim_fmt()
    }
}

fn inspect(arguments: &Inspect) -> Result<()> {
    let recording = read_trace(None, &arguments.trace, arguments.limit)?;
    let summary = Summary::of(&recording);
    if arguments.json {
        print(serde_json::to_string_pretty(&summary)?)
    } else {
        print(summary.table())
    }
}

fn convert(arguments: &Convert) -> Result<()> {
    let output = OutputFile::open("--out", &arguments.out)?;
    let recording = read_trace(None, &arguments.trace, arguments.limit)?;
    match arguments.to {
        Format::Csv => output.write(csv(&recording)),
        Format::OracleGeneral => output.write(oracle_general(&recording)),
    }
}

fn csv(recording: &Recording) -> String {
    let mut text = String::from("time_ns,operation,handle1,handle2,handle3,handle4\n");
    for message in recording.messages() {
        let handle = |at: usize| {
            let key = message.keys().get(at);
            key.map_or_else(String::new, |&key| {
                format!("{:08x}", recording.handles()[key as usize].bits())
            })
        };
        let handles: Vec<String> = (0..4).map(handle).collect();
        let (time, name) = (message.time_ns, message.operation.name());
        text.push_str(&format!("{time},{name},{}\n", handles.join(",")));
    }
    text
}

/// Records of 24 bytes: time in seconds, object, size 1, and the number of the object's next access
/// or -1.
fn oracle_general(recording: &Recording) -> Vec<u8> {
    let accesses: Vec<(u64, u32)> = recording
        .messages()
        .iter()
        .flat_map(|message| message.keys().iter().map(|&key| (message.time_ns, key)))
        .collect();
    let mut next = vec![-1_i64; accesses.len()];
    let mut upcoming = vec![-1_i64; recording.handles().len()];
    for (at, &(_, key)) in accesses.iter().enumerate().rev() {
        let here = i64::try_from(at).unwrap_or(-1);
        next[at] = std::mem::replace(&mut upcoming[key as usize], here);
    }
    let mut bytes = Vec::with_capacity(accesses.len() * 24);
    for (&(time_ns, key), next) in accesses.iter().zip(next) {
        let seconds = u32::try_from(time_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let object = u64::from(recording.handles()[key as usize].bits());
        bytes.extend(seconds.to_le_bytes());
        bytes.extend(object.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(next.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn recording() -> Recording {
        let text = "farcore-card-trace 1\n0 relaxed 04000001 02000000\n7 read 04000001\n\
            9 strict 02000000\n";
        Recording::read(text.as_bytes(), TraceLimits::default()).unwrap()
    }

    #[test]
    fn a_summary_counts_what_is_there() {
        let summary = Summary::of(&recording());
        assert_eq!(
            (summary.messages, summary.duration_ns, summary.handles),
            (3, 9, 2)
        );
        assert_eq!(summary.kinds[3], (Kind::QueuePair, 1));
        assert_eq!(summary.operations[1], (Operation::Relaxed, 1));
        assert!((summary.tokens_each - 4.0 / 3.0).abs() < 1e-9);
        assert!((summary.top_share - 0.5).abs() < 1e-9);
        assert!(summary.table().contains("QueuePair"));
    }

    #[test]
    fn other_formats_have_every_access() {
        let recording = recording();
        let text = csv(&recording);
        assert_eq!(text.lines().nth(1), Some("0,relaxed,04000001,02000000,,"));
        let bytes = oracle_general(&recording);
        assert_eq!(bytes.len(), 4 * 24);
        let objects: HashSet<u64> = bytes
            .chunks(24)
            .map(|record| u64::from_le_bytes(record[4..12].try_into().unwrap()))
            .collect();
        assert_eq!(objects, HashSet::from([0x0400_0001, 0x0200_0000]));
        let next: Vec<i64> = bytes
            .chunks(24)
            .map(|record| i64::from_le_bytes(record[16..].try_into().unwrap()))
            .collect();
        assert_eq!(next, [2, 3, -1, -1]);
    }
}
