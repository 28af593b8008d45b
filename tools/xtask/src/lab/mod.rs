//! `cargo xtask lab`: verbs without an RDMA card. A throw-away QEMU guest with Soft-RoCE devices
//! runs a command.
//!
//! ```text
//! packages   Debian packages of the host
//! cache      the cache folder and its lock
//! kernel     Debian's kernel, unpacked into the cache
//! initramfs  the guest's first files: modules, tools/lab/*.sh, the command
//! machine    QEMU: options, relayed output, time limit, exit status
//! suites     the tests that need verbs
//! curve      the curve of the native protocol
//! ```
//!
//! The guest's root file system is the host's, read-only, below a scratch layer in memory. So
//! programs built on the host run in the guest unchanged and under the same path. Its processor is
//! emulated: good for correctness, not for speed.

mod cache;
mod curve;
mod initramfs;
mod kernel;
mod machine;
pub(crate) mod packages;
mod suites;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

use self::cache::Cache;
use self::machine::{Machine, Outcome, Work};

/// The exit status if the lab itself fails.
const FAILED: u8 = 125;

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Install the packages of the lab and unpack a kernel; does nothing if both are done.
    Setup(Setup),
    /// Boot a guest and run a command in it, in the same directory and environment.
    ///
    /// The exit status is the command's; 124 if it ran out of time, 125 if the lab itself failed.
    Run {
        #[command(flatten)]
        options: Options,
        /// Soft-RoCE devices: rxe0 at 10.77.0.1, rxe1 at 10.77.1.1.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
        devices: u8,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Build the tests that need verbs and run all of them in one guest.
    Test {
        #[command(flatten)]
        options: Options,
        /// Run only suites whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
        /// Features beside `verbs`, in cargo's notation. With the features of an existing build,
        /// little is rebuilt.
        #[arg(long, default_value = "")]
        features: String,
    },
    /// Have clients of the native protocol send and nothing else: no message may find its receive
    /// missing. Prints what they sent.
    Rnr {
        #[command(flatten)]
        options: Options,
        /// Seconds of sending.
        #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=86_400))]
        seconds: u32,
        /// Features beside `verbs`, as for `test`.
        #[arg(long, default_value = "")]
        features: String,
    },
    /// Print the latency and rate of the native protocol's transfers by length, over verbs.
    Curve {
        #[command(flatten)]
        options: Options,
        /// Rounds; each figure is the median of theirs.
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        /// Seconds of each measurement.
        #[arg(long, default_value_t = 0.2)]
        seconds: f64,
    },
    /// Run a shell in a guest; without --time-limit there is no limit.
    Shell {
        #[command(flatten)]
        options: Options,
        /// Soft-RoCE devices: rxe0 at 10.77.0.1, rxe1 at 10.77.1.1.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
        devices: u8,
    },
}

#[derive(Debug, Default, Args)]
pub(crate) struct Setup {
    /// Let apt remove conflicting packages.
    #[arg(long)]
    allow_removals: bool,
    /// Unpack Debian's newest kernel, even if there is one.
    #[arg(long)]
    fresh: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Memory of the guest, which also holds the files that the command writes.
    #[arg(long, default_value = "2G", value_parser = memory)]
    memory: String,
    /// Processors of the guest.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    cpus: u8,
    /// Time limit in seconds, the boot included [default: 300; for test, 600]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    time_limit: Option<u32>,
    /// Huge pages of 2 MiB, taken from the guest's memory.
    #[arg(long, default_value_t = 64)]
    huge_pages: u32,
    /// Directory of this host that the guest may write to; may be repeated.
    #[arg(long, value_name = "DIR")]
    writable: Vec<PathBuf>,
    /// Show the guest's console on stderr.
    #[arg(long)]
    console: bool,
    /// Accelerator of the guest's processor [default: $FARCORE_LAB_ACCEL or tcg]
    #[arg(long)]
    accel: Option<Accel>,
}

/// `kvm` is fast, but may hang in a virtual machine; the default must work anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Accel {
    Tcg,
    Kvm,
}

impl Options {
    fn accel(&self) -> Result<Accel> {
        if let Some(accel) = self.accel {
            return Ok(accel);
        }
        match std::env::var("FARCORE_LAB_ACCEL") {
            Err(_) => Ok(Accel::Tcg),
            Ok(name) => match Accel::from_str(&name, false) {
                Ok(accel) => Ok(accel),
                Err(_) => bail!("FARCORE_LAB_ACCEL is `{name}`: it must be tcg or kvm"),
            },
        }
    }

    /// The writable directories, as absolute paths without links.
    fn writable(&self) -> Result<Vec<PathBuf>> {
        let absolute = |path: &PathBuf| {
            let found = path
                .canonicalize()
                .with_context(|| format!("--writable {}", path.display()))?;
            if !found.is_dir() {
                bail!("--writable {}: not a directory", path.display());
            }
            Ok(found)
        };
        self.writable.iter().map(absolute).collect()
    }
}

/// Guests that run the suites one after the other, if the kernel of those before stood still.
const GUESTS_MAX: u32 = 3;
/// Time of the guest beside that of the sending: the boot, and the other tests of the suite.
const BESIDE_SECONDS: u32 = 240;

/// Checks a size in a notation that QEMU reads the same way.
fn memory(text: &str) -> Result<String, String> {
    let mib = if let Some(number) = text.strip_suffix('M') {
        number.parse::<u32>().ok().map(u64::from)
    } else if let Some(number) = text.strip_suffix('G') {
        number.parse::<u32>().ok().map(|gib| u64::from(gib) << 10)
    } else {
        None
    };
    match mib {
        None => Err("write a whole number with M or G, e.g. 2G".to_owned()),
        Some(mib) if mib < 512 => Err("the guest needs at least 512M".to_owned()),
        Some(_) => Ok(text.to_owned()),
    }
}

/// Runs the command; an error of the lab itself gives the exit status [`FAILED`].
pub(crate) fn perform(lab: Lab) -> ExitCode {
    match attempt(lab) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn attempt(lab: Lab) -> Result<u8> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("the guest shares the host's root file system, so the host must be Linux on x86_64");
    }
    let cache = Cache::open()?;
    match lab {
        Lab::Setup(setup) => {
            drop(prepare(&cache, &setup)?);
            println!("lab: ready; its cache is {}", cache.root().display());
            Ok(0)
        }
        Lab::Run {
            options,
            devices,
            command,
        } => boot(&cache, &options, Some(300), devices, Work::Relayed(command)),
        Lab::Shell { options, devices } => {
            let shell = Work::Terminal(vec!["bash".into(), "-i".into()]);
            boot(&cache, &options, None, devices, shell)
        }
        Lab::Rnr {
            options,
            seconds,
            features,
        } => {
            let mut command = vec![
                "env".into(),
                format!("FARCORE_RNR_SECONDS={seconds}").into(),
            ];
            command.extend(suites::command(suites::RECEIVES, &features)?);
            let limit = seconds.saturating_add(BESIDE_SECONDS);
            boot(&cache, &options, Some(limit), 1, Work::Relayed(command))
        }
        Lab::Curve {
            options,
            rounds,
            seconds,
        } => {
            let command = curve::command(rounds, seconds)?;
            boot(&cache, &options, Some(1800), 1, Work::Relayed(command))
        }
        Lab::Test {
            options,
            only,
            features,
        } => {
            let command = suites::command(&only, &features)?;
            for guest in 1.. {
                let work = Work::Relayed(command.clone());
                let outcome = start(&cache, &options, Some(600), 2, work)?;
                if outcome != Outcome::StoodStill || guest == GUESTS_MAX {
                    return Ok(outcome.exit_status());
                }
                eprintln!(
                    "lab: all suites begin again, in guest {} of {GUESTS_MAX}",
                    guest + 1
                );
            }
            unreachable!("the last guest returns")
        }
    }
}

fn boot(
    cache: &Cache,
    options: &Options,
    default_time_limit: Option<u32>,
    devices: u8,
    work: Work,
) -> Result<u8> {
    let outcome = start(cache, options, default_time_limit, devices, work)?;
    Ok(outcome.exit_status())
}

fn start(
    cache: &Cache,
    options: &Options,
    default_time_limit: Option<u32>,
    devices: u8,
    work: Work,
) -> Result<Outcome> {
    let seconds = options.time_limit.or(default_time_limit);
    let time_limit = seconds.map(|seconds| Duration::from_secs(seconds.into()));
    // Held until the guest has ended, so that no other process removes the kernel.
    let _shared = prepare(cache, &Setup::default())?;
    Machine::new(cache, options, devices, work)?.run(time_limit)
}

/// Installs packages and the kernel if they are missing.
fn prepare(cache: &Cache, setup: &Setup) -> Result<cache::Shared> {
    if !packages::missing()?.is_empty() || setup.fresh || !kernel::is_ready(cache) {
        let _exclusive = cache.exclusive()?;
        packages::install(setup.allow_removals)?;
        if setup.fresh || !kernel::is_ready(cache) {
            kernel::unpack(cache)?;
        }
    }
    cache.shared()
}

/// The standard output of a program that must succeed.
pub(crate) fn output_of(command: &mut Command) -> Result<Vec<u8>> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} ended with {}: {}", output.status, said.trim());
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        lab: Lab,
    }

    fn parse(line: &[&str]) -> Result<Lab, clap::Error> {
        Line::try_parse_from(std::iter::once(&"lab").chain(line)).map(|line| line.lab)
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let line = [
            "run",
            "--devices",
            "2",
            "--writable",
            "/tmp",
            "--writable",
            "/var",
            "--",
        ];
        let line = [&line[..], &["ls", "--memory", "-x"]].concat();
        let Lab::Run {
            options,
            devices,
            command,
        } = parse(&line).unwrap()
        else {
            panic!("not a run");
        };
        assert_eq!(command, ["ls", "--memory", "-x"]);
        assert_eq!(devices, 2);
        assert_eq!(options.memory, "2G");
        assert_eq!(options.time_limit, None);
        assert_eq!(options.huge_pages, 64);
        assert_eq!(
            options.writable,
            [PathBuf::from("/tmp"), PathBuf::from("/var")]
        );
    }

    #[test]
    fn bad_flags_are_errors() {
        assert!(parse(&["run"]).is_err(), "no command");
        assert!(parse(&["run", "--devices", "3", "ls"]).is_err());
        assert!(parse(&["run", "--devices", "0", "ls"]).is_err());
        assert!(parse(&["run", "--time-limit", "0", "ls"]).is_err());
        assert!(parse(&["run", "--accel", "xen", "ls"]).is_err());
        for size in ["", "G", "2", "2T", "1.5G", "-2G", "511M", "+", "2G,x", "é"] {
            assert!(memory(size).is_err(), "{size}");
        }
        for size in ["512M", "2G", "16G"] {
            assert_eq!(memory(size).as_deref(), Ok(size));
        }
    }

    #[test]
    fn writable_must_be_a_directory_that_exists() {
        let options = |path: &str| {
            let Ok(Lab::Shell { options, .. }) = parse(&["shell", "--writable", path]) else {
                panic!("not a shell");
            };
            options.writable()
        };
        assert!(options("/no/such/place").is_err());
        assert!(options("/proc/version").is_err());
        assert_eq!(options("/proc/../proc").unwrap(), [PathBuf::from("/proc")]);
    }
}
