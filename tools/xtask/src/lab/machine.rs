//! One guest: starts QEMU, relays the command's output, enforces the time limit, reads the exit
//! status.
//!
//! ```text
//! guest's port `out`     -> QEMU's descriptor 1, a pipe -> a thread -> our stdout
//! guest's port `err`     -> QEMU's descriptor 0, a pipe -> a thread -> our stderr
//! guest's port `report`  -> jobs/PID/report
//! guest's console        -> jobs/PID/console, or our stderr
//! QEMU's own messages    -> jobs/PID/qemu, or our stderr
//! ```
//!
//! QEMU opens the pipes by the names of descriptors 0 and 1. So the pipes close when QEMU ends,
//! even if it is killed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::cache::{Cache, Job};
use super::{Accel, FAILED, Options, initramfs};

/// The exit status at the time limit.
const OUT_OF_TIME: u8 = 124;
/// How long the guest may be without a sign of life, once it has given one, before it counts as
/// standing still. On a busy host a kernel on an emulated processor was seen to do so: none of its
/// timers went on for half an hour.
const STILL_LIMIT: Duration = Duration::from_secs(120);
/// Interval of looks for signs of life.
const PULSE_PERIOD: Duration = Duration::from_secs(1);
/// Interval of checks whether QEMU has ended.
const CHECK_PERIOD: Duration = Duration::from_millis(10);
/// Boots quietly and fast: no mitigations, no audit, no timer check.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off audit=0 apparmor=0 \
     tsc=reliable no_timer_check random.trust_cpu=on cryptomgr.notests numa=fake=2";

/// The work of a guest.
#[derive(Debug)]
pub(super) enum Work {
    /// A command without input, with relayed output.
    Relayed(Vec<OsString>),
    /// A command at this terminal.
    Terminal(Vec<OsString>),
}

/// A guest that is ready to start.
#[derive(Debug)]
pub(super) struct Machine {
    qemu: Command,
    job: Job,
    console: bool,
    terminal: bool,
}

impl Machine {
    /// Writes the guest's files and builds QEMU's command line.
    pub(super) fn new(cache: &Cache, options: &Options, devices: u8, work: Work) -> Result<Self> {
        let (terminal, words) = match work {
            Work::Relayed(words) => (false, words),
            Work::Terminal(words) => (true, words),
        };
        let job = cache.job()?;
        let kernel = cache.kernel();
        let writable = options.writable()?;
        let modules = kernel.join("modules");
        let settings = settings(options, devices, modules.as_os_str(), terminal, &writable);
        let directory = std::env::current_dir().context("no working directory")?;
        let environment = std::env::vars_os().chain([("FARCORE_LAB".into(), "1".into())]);
        let command = initramfs::command(environment, &directory, &words);
        let archive = initramfs::build(&kernel, &settings, &command)?;
        fs::write(job.path().join("initramfs"), archive)?;
        fs::write(job.path().join("report"), "")?;

        // With setpriv (util-linux, on every Debian) the guest ends with this process, even if that
        // is killed.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"])
            .args(machine_options(options, options.accel()?, terminal))
            .args(["-append", KERNEL_ARGUMENTS]);
        let mut path = |option: &str, text: &[&str]| {
            qemu.arg(option).arg(text.concat());
        };
        let job_path = job.path().to_string_lossy().into_owned();
        path("-kernel", &[&kernel.join("vmlinux").to_string_lossy()]);
        path("-initrd", &[&job_path, "/initramfs"]);
        let job_path = escaped(&job_path);
        path("-chardev", &["file,id=report,path=", &job_path, "/report"]);
        path("-chardev", &["file,id=pulse,path=", &job_path, "/pulse"]);
        if options.console {
            path("-chardev", &["file,id=console,append=on,path=/dev/fd/2"]);
        } else {
            path(
                "-chardev",
                &["file,id=console,path=", &job_path, "/console"],
            );
        }
        for (i, directory) in writable.iter().enumerate() {
            let name = format!("writable{i}");
            let directory = escaped(&directory.to_string_lossy());
            path(
                "-fsdev",
                &[
                    "local,id=",
                    &name,
                    ",path=",
                    &directory,
                    ",security_model=none,multidevs=remap",
                ],
            );
            path(
                "-device",
                &["virtio-9p-pci,fsdev=", &name, ",mount_tag=", &name],
            );
        }
        Ok(Self {
            qemu,
            job,
            console: options.console,
            terminal,
        })
    }

    /// Runs the guest to its end or to the time limit.
    pub(super) fn run(self, time_limit: Option<Duration>) -> Result<Outcome> {
        let Self {
            mut qemu,
            job,
            console,
            terminal,
        } = self;
        if !console {
            qemu.stderr(File::create(job.path().join("qemu"))?);
        }
        let mut relays = Vec::new();
        if !terminal {
            let (out, out_end) = io::pipe()?;
            let (err, err_end) = io::pipe()?;
            qemu.stdin(err_end).stdout(out_end);
            relays.push(thread::spawn(|| relay(out, io::stdout())));
            relays.push(thread::spawn(|| relay(err, io::stderr())));
        }
        let begin = Instant::now();
        let mut child = qemu.spawn().context("cannot start setpriv")?;
        // The command holds the write ends of the pipes, and the relays would wait for them.
        drop(qemu);
        let mut pulse = Pulse::new(job.path().join("pulse"));
        let mut killed = None;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            let is_over = time_limit.is_some_and(|limit| begin.elapsed() >= limit);
            if killed.is_none() && (is_over || pulse.is_still()) {
                child.kill()?;
                killed = Some(if is_over {
                    Outcome::OutOfTime
                } else {
                    Outcome::StoodStill
                });
            }
            thread::sleep(CHECK_PERIOD);
        };
        for relay in relays {
            // An error here means that our own output is closed.
            let _ = relay.join();
        }
        let report = fs::read_to_string(job.path().join("report")).unwrap_or_default();
        let outcome = Outcome::new(&report, killed);
        match &outcome {
            Outcome::Ended(_) => {}
            Outcome::OutOfTime => {
                let seconds = begin.elapsed().as_secs();
                eprintln!("lab: the command did not end within {seconds} s; raise --time-limit");
            }
            Outcome::StoodStill => {
                let seconds = STILL_LIMIT.as_secs();
                eprintln!("lab: the guest's kernel has stood still for {seconds} s");
            }
            Outcome::Failed(why) => explain(&job, why, status),
        }
        Ok(outcome)
    }
}

/// The signs of life of a guest: lines of a file.
struct Pulse {
    path: PathBuf,
    bytes: u64,
    since: Instant,
    looked: Instant,
}

impl Pulse {
    fn new(path: PathBuf) -> Self {
        let now = Instant::now();
        Self {
            path,
            bytes: 0,
            since: now,
            looked: now,
        }
    }

    /// True if the guest has given signs of life, and none for too long.
    fn is_still(&mut self) -> bool {
        if self.looked.elapsed() < PULSE_PERIOD {
            return false;
        }
        self.looked = Instant::now();
        let bytes = fs::metadata(&self.path).map_or(0, |it| it.len());
        if bytes != self.bytes {
            (self.bytes, self.since) = (bytes, self.looked);
        }
        self.bytes > 0 && self.since.elapsed() > STILL_LIMIT
    }
}

fn explain(job: &Job, why: &str, status: ExitStatus) {
    eprintln!("lab: the guest {why} (QEMU: {status})");
    for name in ["qemu", "console"] {
        let text = fs::read(job.path().join(name)).unwrap_or_default();
        if !text.is_empty() {
            let text = String::from_utf8_lossy(&text);
            eprintln!("lab: its {name} log:\n{}", text.trim_end());
        }
    }
}

/// The outcome of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ended(u8),
    OutOfTime,
    /// Its kernel gave no sign of life any more.
    StoodStill,
    Failed(String),
}

impl Outcome {
    /// From the guest's report, which counts even if QEMU was killed after it.
    fn new(report: &str, killed: Option<Self>) -> Self {
        let line = report.trim_end();
        if let Some(status) = line
            .strip_prefix("status ")
            .and_then(|text| text.parse().ok())
        {
            return Self::Ended(status);
        }
        if !line.is_empty() {
            return Self::Failed(line.to_owned());
        }
        killed.unwrap_or_else(|| Self::Failed("died without a report".to_owned()))
    }

    pub(super) fn exit_status(&self) -> u8 {
        match self {
            Self::Ended(status) => *status,
            Self::OutOfTime => OUT_OF_TIME,
            Self::StoodStill | Self::Failed(_) => FAILED,
        }
    }
}

/// Copies a stream without delay.
fn relay(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = [0; 1 << 14];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Escapes a value for a QEMU option, which a comma would end.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

/// The options of QEMU that do not depend on paths.
fn machine_options(options: &Options, accel: Accel, terminal: bool) -> Vec<String> {
    let (accelerator, processor) = match accel {
        Accel::Tcg => ("tcg,thread=multi,tb-size=512", "max,la57=off"),
        Accel::Kvm => ("kvm", "host"),
    };
    let cpus = options.cpus.to_string();
    let mut words = vec!["-accel", accelerator, "-cpu", processor, "-M", "q35"];
    words.extend(["-smp", &cpus, "-m", &options.memory]);
    words.extend([
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
    ]);
    words.extend([
        "-fsdev",
        "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
    ]);
    words.extend(["-device", "virtio-9p-pci,fsdev=root,mount_tag=root"]);
    words.extend(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
    words.extend(["-serial", "chardev:console"]);
    words.extend(["-device", "virtserialport,chardev=report,name=report"]);
    words.extend(["-device", "virtserialport,chardev=pulse,name=pulse"]);
    if terminal {
        words.extend(["-chardev", "stdio,id=terminal,signal=off"]);
        words.extend(["-device", "virtconsole,chardev=terminal"]);
    } else {
        words.extend(["-chardev", "file,id=out,path=/dev/fd/1"]);
        words.extend(["-device", "virtserialport,chardev=out,name=out"]);
        words.extend(["-chardev", "file,id=err,path=/dev/fd/0"]);
        words.extend(["-device", "virtserialport,chardev=err,name=err"]);
    }
    words.into_iter().map(str::to_owned).collect()
}

/// The file `settings` of `tools/lab/guest-main.sh`.
fn settings(
    options: &Options,
    devices: u8,
    modules: &OsStr,
    terminal: bool,
    writable: &[PathBuf],
) -> Vec<u8> {
    let mut text = b"modules=".to_vec();
    text.extend_from_slice(&initramfs::quoted(modules));
    let huge_pages = options.huge_pages;
    let terminal = u8::from(terminal);
    let numbers =
        format!("\nhuge_pages={huge_pages}\ndevices={devices}\nterminal={terminal}\nwritable=(");
    text.extend_from_slice(numbers.as_bytes());
    for directory in writable {
        text.push(b' ');
        text.extend_from_slice(&initramfs::quoted(directory.as_os_str()));
    }
    text.extend_from_slice(b" )\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            memory: "3G".to_owned(),
            cpus: 4,
            time_limit: None,
            huge_pages: 8,
            writable: Vec::new(),
            console: false,
            accel: None,
        }
    }

    #[test]
    fn every_outcome_has_its_exit_status() {
        let status = |report, killed| Outcome::new(report, killed).exit_status();
        assert_eq!(status("status 0\n", None), 0);
        assert_eq!(status("status 7\n", None), 7);
        assert_eq!(status("status 137\n", Some(Outcome::OutOfTime)), 137);
        assert_eq!(status("status 125\n", None), 125);
        assert_eq!(status("", Some(Outcome::OutOfTime)), OUT_OF_TIME);
        assert_eq!(status("", Some(Outcome::StoodStill)), FAILED);
        assert_eq!(status("", None), FAILED);
        assert_eq!(status("status 999\n", None), FAILED);
        let killed = Some(Outcome::OutOfTime);
        assert_eq!(status("failed rdma link add\n", killed), FAILED);
    }

    #[test]
    fn a_guest_stands_still_once_its_signs_of_life_end() {
        let name = format!("farcore-pulse-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut pulse = Pulse::new(path.clone());
        let mut after = |seconds: u64| {
            let before = |time: Instant| time.checked_sub(Duration::from_secs(seconds));
            pulse.since = before(pulse.since).unwrap();
            pulse.looked = before(pulse.looked).unwrap();
            pulse.is_still()
        };
        // It boots.
        assert!(!after(500));
        fs::write(&path, "\n").unwrap();
        assert!(!after(500) && !after(100));
        fs::write(&path, "\n\n").unwrap();
        assert!(!after(100) && !after(100));
        assert!(after(100));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn options_reach_qemu_and_the_guest() {
        let words = machine_options(&options(), Accel::Tcg, false).join(" ");
        assert!(words.contains("-accel tcg,"));
        assert!(words.contains("-smp 4 -m 3G"));
        assert!(words.contains("path=/dev/fd/1"));
        let words = machine_options(&options(), Accel::Kvm, true).join(" ");
        assert!(words.contains("-accel kvm -cpu host"));
        assert!(words.contains("stdio"));
        assert!(!words.contains("/dev/fd/"));

        let writable = [PathBuf::from("/a b"), PathBuf::from("/c")];
        let text = settings(&options(), 2, OsStr::new("/m"), false, &writable);
        let expected =
            "modules='/m'\nhuge_pages=8\ndevices=2\nterminal=0\nwritable=( '/a b' '/c' )\n";
        assert_eq!(String::from_utf8_lossy(&text), expected);
    }

    #[test]
    fn commas_do_not_end_an_option() {
        assert_eq!(escaped("/a,b,c"), "/a,,b,,c");
    }

    #[test]
    fn a_relay_copies_everything() {
        let sent: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut received = Vec::new();
        relay(&sent[..], &mut received).unwrap();
        assert_eq!(received, sent);
    }
}
