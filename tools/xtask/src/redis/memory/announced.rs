//! A program that prints `ready: ADDRESS` when it serves; it ends with this value.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Time limit of its end.
const END_LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// A running program.
#[derive(Debug)]
pub(super) struct Announced {
    child: Child,
    log: PathBuf,
    /// The addresses of `ready: ` and `native: `, in the order in which they were printed.
    pub(super) addresses: Vec<String>,
}

impl Announced {
    /// Starts a program on some cores; its log goes to a file.
    pub(super) fn start(binary: &Path, words: &[String], cores: &str, log: &Path) -> Result<Self> {
        let shown = || format!("cannot start {}", binary.display());
        // Both become the program, so that the child's number is the program's. It ends with this
        // program, however that ends.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "taskset", "-c", cores])
            .arg(binary)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()
            .with_context(shown)?;
        let out = child.stdout.take();
        let mut program = Self {
            child,
            log: log.to_owned(),
            addresses: Vec::new(),
        };
        let mut lines = BufReader::new(out.context("a pipe")?).lines();
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some((kind @ ("native" | "ready"), found)) = line.split_once(": ") {
                let found = found.split(' ').filter(|word| word.contains("://"));
                program.addresses.extend(found.map(str::to_owned));
                if kind == "ready" {
                    thread::spawn(move || lines.for_each(drop));
                    return Ok(program);
                }
            }
        }
        let said = program.said()?;
        let last = said.trim_end().lines().last().unwrap_or_default();
        bail!("{} {} did not start: {last}", binary.display(), words[0])
    }

    /// The first address with a scheme.
    pub(super) fn address(&self, scheme: &str) -> Result<&str> {
        let of_scheme = |address: &&String| {
            let found = address.split_once("://");
            found.is_some_and(|(found, _)| found == scheme)
        };
        let found = self.addresses.iter().find(of_scheme);
        found
            .map(String::as_str)
            .with_context(|| format!("no address {scheme}:// in {:?}", self.addresses))
    }

    /// Its log.
    pub(super) fn said(&self) -> Result<String> {
        let log = &self.log;
        fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))
    }

    /// The number of the process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// True unless it has ended.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it in order; false if it had to be killed.
    pub(super) fn stop(&mut self) -> bool {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let start = Instant::now();
        while self.is_running() {
            if start.elapsed() > END_LIMIT {
                self.kill();
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        if self.is_running() {
            self.stop();
        }
    }
}
