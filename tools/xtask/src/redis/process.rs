//! A server in a process of its own.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::server::Server;

/// Time limit of a server's start, and of its end.
const START_LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
/// Linux counts processor time in this unit in what it shows to programs, on all its machines.
const TICK: Duration = Duration::from_millis(10);

/// A running server; it ends with this value.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    server: Server,
}

impl Process {
    /// Starts a command in the shell's notation, in which `{port}` stands for a free port, and
    /// waits until it answers. It may use only the processors that `cores` lists.
    pub(super) fn start(command: &str, cores: Option<&str>, log: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let server = Server {
            host: "127.0.0.1".to_owned(),
            port,
        };
        if !command.contains("{port}") {
            bail!("`{command}` must have {{port}} where its port belongs");
        }
        let output =
            File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        // Both programs become the server, so that the child's number is the server's.
        let line = format!("exec {}", command.replace("{port}", &port.to_string()));
        let mut command = match cores {
            None => Command::new("sh"),
            Some(cores) => {
                let mut command = Command::new("taskset");
                command.args(["-c", cores, "sh"]);
                command
            }
        };
        let child = command
            .args(["-c", &line])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot start a shell")?;
        let mut process = Self { child, server };
        let start = Instant::now();
        while process.server.expect_alive().is_err() {
            if let Some(status) = process.child.try_wait()? {
                bail!(
                    "`{line}` ended with {status}; its output is in {}",
                    log.display()
                );
            }
            if start.elapsed() > START_LIMIT {
                bail!(
                    "`{line}` does not answer; its output is in {}",
                    log.display()
                );
            }
            thread::sleep(PAUSE);
        }
        Ok(process)
    }

    /// Where it answers.
    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn port(&self) -> u16 {
        self.server.port
    }

    /// The number of its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time of all threads, in user and system mode.
    pub(super) fn processor_time(&self) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let ticks = ticks(&stat).with_context(|| format!("no times in {path}"))?;
        Ok(TICK.saturating_mul(ticks))
    }
}

/// `utime` and `stime` of proc(5), fields 14 and 15. The name, field 2, may hold spaces.
fn ticks(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).map(str::parse);
    let (user, system): (u32, u32) = (times.next()?.ok()?, times.next()?.ok()?);
    user.checked_add(system)
}

impl Drop for Process {
    fn drop(&mut self) {
        // A server may need its signal to give memory back; one that does not end is killed.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let start = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if start.elapsed() > START_LIMIT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 70 0 0 20 0 4 0 100 0\n";
        assert_eq!(ticks(stat), Some(320));
        assert_eq!(ticks("7 (a) S 1"), None);
    }
}
