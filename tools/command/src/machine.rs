//! The machine that a figure was measured on, read from `/proc` and `/sys`. Nothing is required:
//! what cannot be read stays empty.

use std::fs;
use std::process::Command;

use farcore_tuning::HardwareCounters;
use serde::{Deserialize, Serialize};

/// The facts that a reader needs to judge a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu_model: String,
    /// Cores that this process may use.
    pub cores: Vec<usize>,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// Memory that was free or could be freed at start, in bytes.
    pub memory_available_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Processes that were running or ready, averaged over the last 1, 5 and 15 minutes before the
    /// start; empty if that cannot be read.
    #[serde(default)]
    pub load_average: Vec<f64>,
    /// Frequency governor of the first core; empty where the machine has none.
    #[serde(default)]
    pub governor: String,
    /// Setting of transparent huge pages.
    pub huge_pages: String,
    /// Version of `rustc`, if it is on the path.
    pub rustc: Option<String>,
    /// The processor events that are not counted, and why; empty if all are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub events_missing: String,
}

impl Machine {
    /// Describes this machine.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (cpu, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let huge = read("/sys/kernel/mm/transparent_hugepage/enabled");
        let rustc = Command::new("rustc").arg("--version").output().ok();
        let mut cores: Vec<usize> = core_affinity::get_core_ids()
            .unwrap_or_default()
            .iter()
            .map(|core| core.id)
            .collect();
        cores.sort_unstable();
        let first = cores.first().copied().unwrap_or_default();
        let governor = format!("/sys/devices/system/cpu/cpu{first}/cpufreq/scaling_governor");
        Self {
            cpu_model: field(&cpu, "model name").unwrap_or("unknown").to_owned(),
            cores,
            memory_bytes: kib(&memory, "MemTotal"),
            memory_available_bytes: kib(&memory, "MemAvailable"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average: loads(&read("/proc/loadavg")),
            governor: read(&governor).trim().to_owned(),
            huge_pages: chosen(&huge).to_owned(),
            rustc: rustc
                .and_then(|output| String::from_utf8(output.stdout).ok())
                .map(|version| version.trim().to_owned())
                .filter(|version| !version.is_empty()),
            events_missing: HardwareCounters::open_here().missing().to_owned(),
        }
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn kib(text: &str, name: &str) -> u64 {
    field(text, name)
        .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// The three averages of `/proc/loadavg`.
fn loads(text: &str) -> Vec<f64> {
    let words = text.split_whitespace().take(3);
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The word in brackets.
fn chosen(text: &str) -> &str {
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("unknown", |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_parsed() {
        assert_eq!(
            kib("MemTotal:  2 kB\nMemAvailable:   12 kB\n", "MemAvailable"),
            12 * 1024
        );
        assert_eq!(kib("", "MemAvailable"), 0);
        assert_eq!(loads("0.5 1.25 2.00 1/234 567\n"), [0.5, 1.25, 2.0]);
        assert!(loads("").is_empty());
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(field("model name\t: A b\n", "model name"), Some("A b"));
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::here();
        assert!(
            !machine.cores.is_empty() && machine.memory_available_bytes > 0,
            "{machine:?}"
        );
    }
}
