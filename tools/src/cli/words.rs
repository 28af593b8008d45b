//! The commands of `farcore cli` and their flags, the same from arguments, scripts and the prompt.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use farcore_client::{Condition, Expiry, ExpiryCondition, PutOptions, Version};
use farcore_command::{parse_size, plain};
use farcore_server::glob;

/// The longest time to live, in seconds: its milliseconds are a 64-bit number.
const TTL_SECONDS_MAX: u64 = u64::MAX / 1000;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Read a value: raw bytes to a file or a pipe, escaped text to a terminal.
    Get(Get),
    /// Store a value.
    Put(Put),
    /// Remove a key.
    Del(Delete),
    /// Store a value if the key has a version.
    Cas(Swap),
    /// Read several values, one a line: the key, a tab, the value.
    Mget(Many),
    /// Add to a decimal integer; an absent key counts as 0.
    Incr(Increment),
    /// Show when a key expires, by this machine's clock.
    Ttl(Key),
    /// Set when a key expires, or that it does not.
    Expire(Expire),
    /// List keys, in no order.
    Scan(Scan),
    /// Measure gets and puts of keys that it makes and removes.
    Bench(Bench),
    /// Show the server's figures.
    Stats,
    /// Make keys absent whose values are lost because a memory node was restarted.
    ForgetLost,
}

#[derive(Debug, Args)]
pub(super) struct Key {
    /// The key
    pub(super) key: OsString,
}

#[derive(Debug, Args)]
pub(super) struct Get {
    /// The key
    pub(super) key: OsString,
    /// Write the value to a file
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

/// Where a value comes from.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Source {
    /// The value, which other users of this machine can see in the list of processes
    #[arg(allow_negative_numbers = true)]
    pub(super) value: Option<OsString>,
    /// Take the value from a file
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Take the value from standard input
    #[arg(long)]
    pub(super) stdin: bool,
}

#[derive(Debug, Args)]
#[command(override_usage = "put [OPTIONS] <KEY> <VALUE|--file <FILE>|--stdin>")]
pub(super) struct Put {
    /// The key
    pub(super) key: OsString,
    #[command(flatten)]
    pub(super) source: Source,
    /// Seconds after which the key expires [default: never]
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=TTL_SECONDS_MAX)
    )]
    pub(super) ttl: Option<u64>,
    /// Store it only if the key is absent
    #[arg(long, conflicts_with = "if_version")]
    pub(super) if_absent: bool,
    /// Store it only if the key has this version; 0 is an absent key
    #[arg(long, value_name = "N")]
    pub(super) if_version: Option<Version>,
}

impl Put {
    pub(super) fn options(&self) -> PutOptions {
        let condition = match self.if_version {
            Some(version) => Condition::Version(version),
            None if self.if_absent => Condition::Absent,
            None => Condition::Always,
        };
        let expiry = self.ttl.map_or(Expiry::Never, |seconds| {
            Expiry::In(seconds.saturating_mul(1000))
        });
        PutOptions { expiry, condition }
    }
}

#[derive(Debug, Args)]
pub(super) struct Delete {
    /// The key
    pub(super) key: OsString,
    /// Remove it only if it has this version
    #[arg(long, value_name = "N")]
    pub(super) if_version: Option<Version>,
}

#[derive(Debug, Args)]
pub(super) struct Swap {
    /// The key
    pub(super) key: OsString,
    /// The version that the key must have; 0 is an absent key
    pub(super) expected: Version,
    /// The value
    #[arg(allow_negative_numbers = true)]
    pub(super) value: OsString,
}

#[derive(Debug, Args)]
pub(super) struct Many {
    /// The keys
    #[arg(required = true)]
    pub(super) keys: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(super) struct Increment {
    /// The key
    pub(super) key: OsString,
    /// What is added; it may be negative
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    pub(super) by: i64,
}

/// What a key's expiry must be for another to be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum ExpiryIf {
    /// It does not expire
    Unset,
    /// It expires
    Set,
    /// The new expiry is later
    Later,
    /// The new expiry is earlier
    Earlier,
}

#[derive(Debug, Args)]
#[command(override_usage = "expire [OPTIONS] <KEY> <SECONDS|--never>")]
pub(super) struct Expire {
    /// The key
    pub(super) key: OsString,
    /// Seconds from now after which it expires
    #[arg(
        required_unless_present = "never",
        conflicts_with = "never",
        value_parser = clap::value_parser!(u64).range(1..=TTL_SECONDS_MAX)
    )]
    pub(super) seconds: Option<u64>,
    /// It does not expire any more
    #[arg(long)]
    pub(super) never: bool,
    /// Only if its expiry is so; a key that does not expire counts as one that expires last
    #[arg(long, value_name = "WHAT")]
    pub(super) only_if: Option<ExpiryIf>,
}

impl Expire {
    pub(super) fn expiry(&self) -> Expiry {
        self.seconds.map_or(Expiry::Never, |seconds| {
            Expiry::In(seconds.saturating_mul(1000))
        })
    }

    pub(super) fn condition(&self) -> ExpiryCondition {
        match self.only_if {
            None => ExpiryCondition::Always,
            Some(ExpiryIf::Unset) => ExpiryCondition::Unset,
            Some(ExpiryIf::Set) => ExpiryCondition::Set,
            Some(ExpiryIf::Later) => ExpiryCondition::Later,
            Some(ExpiryIf::Earlier) => ExpiryCondition::Earlier,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Scan {
    /// Only keys that match it, with *, ? and [a-z] as in Redis; all keys travel, and others are
    /// left out here
    #[arg(value_name = "PATTERN")]
    pub(super) pattern: Option<OsString>,
    /// Only keys that begin so; all keys travel, and others are left out here
    #[arg(long, value_name = "PREFIX")]
    pub(super) prefix: Option<OsString>,
    /// Print values, too
    #[arg(long)]
    pub(super) values: bool,
    /// The most keys to print [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct Bench {
    /// Operations to measure
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub(super) operations: u64,
    /// Length of values
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "100B")]
    pub(super) value_bytes: u64,
    /// Operations under way at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    pub(super) in_flight: u16,
    /// Percentage of gets; the others are puts
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 90,
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    pub(super) reads: u8,
    /// Keys, each drawn equally often
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000)
    )]
    pub(super) keys: u64,
}

impl Scan {
    /// Whether a key is wanted.
    pub(super) fn takes(&self, key: &[u8]) -> bool {
        let begins = |prefix: &OsString| key.starts_with(prefix.as_bytes());
        let matches = |pattern: &OsString| glob::matches(pattern.as_bytes(), key);
        self.prefix.as_ref().is_none_or(begins) && self.pattern.as_ref().is_none_or(matches)
    }

    /// Whether every key is.
    pub(super) fn takes_all(&self) -> bool {
        self.prefix.is_none() && self.pattern.is_none()
    }
}

impl Command {
    /// Its words from the arguments, for errors.
    pub(super) fn full_name(&self) -> &'static str {
        match self {
            Self::Get(_) => "cli get",
            Self::Put(_) => "cli put",
            Self::Del(_) => "cli del",
            Self::Cas(_) => "cli cas",
            Self::Mget(_) => "cli mget",
            Self::Incr(_) => "cli incr",
            Self::Ttl(_) => "cli ttl",
            Self::Expire(_) => "cli expire",
            Self::Scan(_) => "cli scan",
            Self::Bench(_) => "cli bench",
            Self::Stats => "cli stats",
            Self::ForgetLost => "cli forget-lost",
        }
    }

    /// The command without the value that it stores, as words; `None` if it stores none.
    pub(super) fn without_value(&self) -> Option<Vec<OsString>> {
        match self {
            Self::Put(put) => {
                let mut words = vec!["put".into(), put.key.clone()];
                if let Some(file) = &put.source.file {
                    words.extend(["--file".into(), file.into()]);
                }
                if put.source.stdin {
                    words.push("--stdin".into());
                }
                if let Some(seconds) = put.ttl {
                    words.extend(["--ttl".into(), seconds.to_string().into()]);
                }
                if put.if_absent {
                    words.push("--if-absent".into());
                }
                if let Some(version) = put.if_version {
                    words.extend(["--if-version".into(), version.to_string().into()]);
                }
                Some(words)
            }
            Self::Cas(swap) => Some(vec![
                "cas".into(),
                swap.key.clone(),
                swap.expected.to_string().into(),
            ]),
            _ => None,
        }
    }
}

/// A line of a script or of the prompt.
#[derive(Debug, Parser)]
#[command(
    name = "",
    about = "Commands of a line. Words are split as by a shell: quote spaces; # begins a comment.",
    after_help = "`quit` ends the prompt. `help COMMAND` has its flags.",
    no_binary_name = true,
    disable_version_flag = true
)]
pub(super) struct Line {
    /// Print each result as a JSON object on a line of its own
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What a line says.
#[derive(Debug)]
pub(super) enum Said {
    /// Nothing: it is empty, or a comment.
    Nothing,
    /// The end.
    Quit,
    /// A text to print: help.
    Help(String),
    /// A command.
    Command(Box<Line>),
}

/// Reads a line.
///
/// # Errors
/// A quotation is not closed, or it is no command.
pub(super) fn said(line: &[u8]) -> Result<Said> {
    let words = shlex::bytes::split(line)
        .ok_or_else(|| anyhow!("a quotation mark is not closed, or a \\ ends the line"))?;
    match words.first().map(Vec::as_slice) {
        None => return Ok(Said::Nothing),
        Some(b"quit" | b"exit") if words.len() == 1 => return Ok(Said::Quit),
        Some(_) => {}
    }
    match Line::try_parse_from(words.into_iter().map(OsString::from_vec)) {
        Ok(line) => Ok(Said::Command(Box::new(line))),
        Err(error) if is_help(error.kind()) => {
            Ok(Said::Help(error.to_string().trim_end().to_owned()))
        }
        Err(error) => Err(anyhow!("{}", first_part(&plain(error).to_string()))),
    }
}

fn is_help(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// What an error of flags says before its hints, in one line.
fn first_part(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().take_while(|line| !line.is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The words as a line that reads as them.
pub(super) fn quoted(words: &[OsString]) -> Option<String> {
    let words = words.iter().map(OsString::as_os_str).map(OsStr::as_bytes);
    let line = shlex::bytes::try_join(words).ok()?;
    String::from_utf8(line).ok()
}

/// The names of the commands, for completion.
pub(super) fn names() -> Vec<String> {
    let command = <Line as clap::CommandFactory>::command();
    let names = command
        .get_subcommands()
        .map(|one| one.get_name().to_owned());
    names
        .chain(["help".to_owned(), "quit".to_owned()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        match said(line.as_bytes()) {
            Ok(Said::Command(line)) => line.command,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_line_is_split_as_by_a_shell() {
        for line in ["", "   ", "# get k", "\t# 'x"] {
            assert!(matches!(said(line.as_bytes()), Ok(Said::Nothing)), "{line}");
        }
        for line in ["quit", " exit "] {
            assert!(matches!(said(line.as_bytes()), Ok(Said::Quit)), "{line}");
        }
        assert!(matches!(said(b"help put"), Ok(Said::Help(text)) if text.contains("--if-absent")));
        let Command::Put(put) = command("put 'a key' \"a \\\"value\\\"\" # why") else {
            panic!("not a put");
        };
        assert_eq!(put.key, "a key");
        assert_eq!(put.source.value, Some("a \"value\"".into()));
        // Bytes that are no text stay as they are.
        let Ok(Said::Command(line)) = said(b"get \xff\x01") else {
            panic!("not a command");
        };
        assert!(matches!(line.command, Command::Get(get) if get.key.as_bytes() == b"\xff\x01"));
    }

    #[test]
    fn lines_that_are_no_commands_are_refused_in_one_line() {
        for (line, part) in [
            ("get 'k", "quotation"),
            ("fetch k", "fetch"),
            ("put k", "<VALUE|--file <FILE>|--stdin>"),
            ("put k v --stdin", "--stdin"),
            ("put k v --ttl 0", "1 to 18446744073709551"),
            ("put k v --if-absent --if-version 3", "--if-version"),
            ("cas k x v", "EXPECTED"),
            ("mget", "KEYS"),
            ("scan --limit 0", "1 or more"),
            ("expire k", "SECONDS"),
            ("expire k 0", "1 to 18446744073709551"),
            ("expire k 3 --never", "--never"),
            ("expire k 3 --only-if soon", "later"),
            ("bench --reads 101", "0 to 100"),
            ("quit now", "quit"),
        ] {
            let error = said(line.as_bytes()).expect_err(line).to_string();
            assert!(error.contains(part), "{line}: {error}");
            assert!(
                !error.contains('\n') && !error.contains("error:"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_command_without_its_value_reads_as_itself() {
        for (line, kept) in [
            ("put k secret", "put k"),
            (
                "put 'a b' secret --ttl 9 --if-absent",
                "put 'a b' --ttl 9 --if-absent",
            ),
            ("put --if-version 7 k -5", "put k --if-version 7"),
            ("put k --file 'x y'", "put k --file 'x y'"),
            ("cas k 7 secret", "cas k 7"),
        ] {
            let words = command(line).without_value().expect(line);
            assert_eq!(quoted(&words).as_deref(), Some(kept), "{line}");
        }
        assert!(command("get k").without_value().is_none());
    }

    #[test]
    fn every_command_is_completed() {
        let names = names();
        for name in ["get", "mget", "stats", "help", "quit"] {
            assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
        }
    }
}
