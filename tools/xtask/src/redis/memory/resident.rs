//! Resident memory of a process, as proc(5) shows it.

use std::fs;

use anyhow::{Context, Result};

/// Resident memory in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Resident {
    /// Now: `VmRSS`.
    pub(super) now: u64,
    /// The most since the process started: `VmHWM`.
    pub(super) peak: u64,
}

impl Resident {
    /// That of a process.
    pub(super) fn of(process: u32) -> Result<Self> {
        let path = format!("/proc/{process}/status");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Self::read(&text).with_context(|| format!("no VmRSS and VmHWM in {path}"))
    }

    fn read(status: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        Some(Self {
            now: field("VmRSS:")?,
            peak: field("VmHWM:")?,
        })
    }
}

/// What the server's log says that it takes beside `--local`.
pub(super) fn beside_of(log: &str) -> Option<u64> {
    let (_, after) = log.split_once("beside_bytes=")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Bytes in MiB, for people.
#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
pub(super) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t  999 kB\nVmRSS:\t  243388 kB\nRssAnon:\t 1 kB\n";
        let resident = Resident {
            now: 243_388 << 10,
            peak: 999 << 10,
        };
        assert_eq!(Resident::read(status), Some(resident));
        assert_eq!(Resident::read("Name:\tx\n"), None);
    }

    #[test]
    fn the_server_says_what_it_takes_beside() {
        let log = "INFO x: opening the engine local=256 MiB beside_bytes=29360128 far=1\n";
        assert_eq!(beside_of(log), Some(28 << 20));
        assert_eq!(beside_of("nothing"), None);
    }
}
