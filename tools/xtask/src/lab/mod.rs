//! `cargo xtask lab`: verbs without an RDMA card. A throw-away QEMU guest with Soft-RoCE devices
//! runs a command.
//!
//! ```text
//! packages   what must be installed here
//! cache      where things lie, and who may touch them
//! kernel     Debian's kernel, unpacked into the cache
//! initramfs  what the guest begins with: modules, tools/lab/*.sh, the command
//! machine    QEMU: options, relayed output, time limit, exit status
//! suites     the tests that need verbs
//! ```
//!
//! The guest's root file system is the host's, read-only, with a scratch layer in memory over it,
//! so what was built here runs there unchanged and under the same path. Its processor is emulated:
//! good for correctness, not for speed.

mod cache;
mod initramfs;
mod kernel;
mod machine;
mod packages;
mod suites;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

use self::cache::Cache;
use self::machine::{Machine, Work};

/// The exit status if the lab itself failed.
const FAILED: u8 = 125;

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Installs what the lab needs and unpacks a kernel for it; does nothing where that is done.
    Setup(Setup),
    /// Boots a guest and runs a command in it: same directory, same environment, same paths.
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
    /// Builds the tests that need verbs and runs all of them in one guest.
    Test {
        #[command(flatten)]
        options: Options,
        /// Only suites whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
        /// Features beside `verbs`, as cargo takes them: with those of a build that is there,
        /// little is built again.
        #[arg(long, default_value = "")]
        features: String,
    },
    /// A shell in a guest; without --time-limit it may take as long as you like.
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
    /// Lets apt remove packages that stand in the way.
    #[arg(long)]
    allow_removals: bool,
    /// Unpacks the kernel anew: the newest that Debian has.
    #[arg(long)]
    fresh: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The guest's memory; what the command writes is in there as well.
    #[arg(long, default_value = "2G", value_parser = memory)]
    memory: String,
    /// The guest's processors.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    cpus: u8,
    /// How many seconds it may take in all, the boot included. [default: 300, for test 600]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    time_limit: Option<u32>,
    /// Huge pages of 2 MiB, out of the guest's memory.
    #[arg(long, default_value_t = 64)]
    huge_pages: u32,
    /// A directory of this host that the guest may write to; may be given several times.
    #[arg(long, value_name = "DIR")]
    writable: Vec<PathBuf>,
    /// Shows the guest's console on stderr.
    #[arg(long)]
    console: bool,
    /// How the guest's processor is made. [default: $FARCORE_LAB_ACCEL or tcg]
    #[arg(long)]
    accel: Option<Accel>,
}

/// `kvm` is fast, but in a virtual machine it may hang: the default must work anywhere.
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
                Err(_) => bail!("FARCORE_LAB_ACCEL is `{name}`; it may be tcg or kvm"),
            },
        }
    }

    /// What the guest may write to, as absolute paths without links.
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

/// Checks a size that QEMU is to understand as we do.
fn memory(text: &str) -> Result<String, String> {
    let mib = if let Some(number) = text.strip_suffix('M') {
        number.parse::<u32>().ok().map(u64::from)
    } else if let Some(number) = text.strip_suffix('G') {
        number.parse::<u32>().ok().map(|gib| u64::from(gib) << 10)
    } else {
        None
    };
    match mib {
        None => Err("a whole number with M or G after it, as in 2G".to_owned()),
        Some(mib) if mib < 512 => Err("the guest needs 512M at least".to_owned()),
        Some(_) => Ok(text.to_owned()),
    }
}

/// Does it; whatever goes wrong with the lab itself ends in [`FAILED`].
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
        Lab::Test {
            options,
            only,
            features,
        } => {
            let command = suites::command(&only, &features)?;
            boot(&cache, &options, Some(600), 2, Work::Relayed(command))
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
    let seconds = options.time_limit.or(default_time_limit);
    let time_limit = seconds.map(|seconds| Duration::from_secs(seconds.into()));
    // Held until the guest is gone, so that nobody takes the kernel away.
    let _shared = prepare(cache, &Setup::default())?;
    Machine::new(cache, options, devices, work)?.run(time_limit)
}

/// Sees to it that packages and kernel are there.
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
fn output_of(command: &mut Command) -> Result<Vec<u8>> {
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
    fn what_cannot_be_is_refused() {
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
