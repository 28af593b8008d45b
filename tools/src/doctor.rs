//! `farcore doctor`: what this machine lacks to run Farcore well, and how to mend it.

use std::fs;
use std::process::ExitCode;

use farcore::{Config, Engine};
use farcore_rdma::{GidEntry, rdma_devices};

enum Verdict {
    Fine,
    Weak(&'static str),
    Broken(String),
}

struct Finding {
    what: &'static str,
    seen: String,
    verdict: Verdict,
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn kernel() -> Finding {
    let seen = read("/proc/sys/kernel/osrelease");
    let mut numbers = seen
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let verdict = if version >= (5, 8) {
        Verdict::Fine
    } else {
        Verdict::Broken("io_uring as glommio uses it needs Linux 5.8 or newer".to_owned())
    };
    Finding {
        what: "kernel",
        seen,
        verdict,
    }
}

fn huge_pages() -> Finding {
    let seen = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let verdict = if seen.contains("[always]") || seen.contains("[madvise]") {
        Verdict::Fine
    } else {
        Verdict::Weak("random reads are several times slower on 4 KiB pages: set it to madvise")
    };
    Finding {
        what: "transparent huge pages",
        seen,
        verdict,
    }
}

fn locked_memory() -> Finding {
    let limits = read("/proc/self/limits");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max locked memory"))
        .unwrap_or("");
    let seen = line
        .trim_start_matches("Max locked memory")
        .split_whitespace()
        .next()
        .unwrap_or("");
    let verdict = match seen.parse::<u64>() {
        Ok(bytes) if bytes < 512 << 10 => {
            Verdict::Broken("each core's executor needs 512 KiB: raise `ulimit -l`".to_owned())
        }
        Ok(bytes) if bytes < 1 << 30 => {
            Verdict::Weak("the arena may not be locked: raise `ulimit -l` to the local memory")
        }
        _ => Verdict::Fine,
    };
    Finding {
        what: "locked memory",
        seen: seen.to_owned(),
        verdict,
    }
}

/// Every port, and the GID that is chosen where nobody says.
fn devices() -> Vec<Finding> {
    let what = "RDMA device";
    let mut found = Vec::new();
    for device in rdma_devices() {
        for port in &device.ports {
            let gid = GidEntry::best(&port.gids);
            let gid = gid.map_or_else(
                || "no GID".to_owned(),
                |gid| format!("GID {} {} {:?}", gid.index, gid.address(), gid.kind),
            );
            let interface = port.interface.as_deref().unwrap_or("no interface");
            let verdict = if !port.is_active() {
                Verdict::Weak("the port carries no traffic: bring its link up")
            } else if port.gids.is_empty() {
                Verdict::Weak("the port has no address: give its network interface one")
            } else if cfg!(feature = "verbs") {
                Verdict::Fine
            } else {
                Verdict::Weak("this build has no verbs: build it with `--features verbs`")
            };
            found.push(Finding {
                what,
                seen: format!(
                    "{} port {} {} {} {} {interface}, {gid}",
                    device.name, port.number, port.state, port.link_layer, port.rate
                ),
                verdict,
            });
        }
    }
    if found.is_empty() {
        found.push(Finding {
            what,
            seen: "none; tcp:// needs none".to_owned(),
            verdict: Verdict::Fine,
        });
    }
    found
}

fn engine() -> Finding {
    let config = Config {
        local_bytes: 64 << 20,
        far_bytes: 64 << 20,
        keys_expected: 1_000,
        prefault: false,
        ..Config::default()
    };
    let cores = config.cores.len();
    let (seen, verdict) = match Engine::open(config) {
        Ok(engine) => {
            engine.close();
            (format!("opened on {cores} cores"), Verdict::Fine)
        }
        Err(error) => (
            "did not open".to_owned(),
            Verdict::Broken(error.to_string()),
        ),
    };
    Finding {
        what: "engine",
        seen,
        verdict,
    }
}

/// Prints what was found; fails if something keeps the engine from running.
pub(crate) fn run() -> ExitCode {
    let mut broken = false;
    let mut findings = vec![kernel(), huge_pages(), locked_memory()];
    findings.extend(devices());
    findings.push(engine());
    for finding in findings {
        let (mark, advice) = match finding.verdict {
            Verdict::Fine => ("ok", String::new()),
            Verdict::Weak(advice) => ("weak", format!(": {advice}")),
            Verdict::Broken(advice) => {
                broken = true;
                ("BROKEN", format!(": {advice}"))
            }
        };
        println!("{:<7} {:<24} {}{advice}", mark, finding.what, finding.seen);
    }
    if broken {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
