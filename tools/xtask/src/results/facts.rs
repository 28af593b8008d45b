//! The facts above the tables that the benchmark does not report: system, date, commit, versions of
//! the engines. They are collected before anything is built or written.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The facts above the tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Name of the Linux distribution.
    pub(super) system: String,
    /// Day and minute, UTC.
    pub(super) date: String,
    /// The project's commit, with `-dirty` if the work tree differs from it.
    pub(super) commit: String,
    /// Each engine with the crates that it is made of.
    pub(super) versions: Vec<(String, String)>,
    /// The command that builds the benchmark.
    pub(super) build: String,
    /// Rounds.
    pub(super) runs: u32,
}

impl Facts {
    /// Collects the facts of this machine and this project.
    ///
    /// # Errors
    /// This is not the project's folder, or `git` or `date` failed.
    pub(super) fn here(engines: &[String], build: String, runs: u32) -> Result<Self> {
        let lock = fs::read_to_string("Cargo.lock")
            .context("Cargo.lock cannot be read: run this in the project's folder")?;
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let versions = engines
            .iter()
            .map(|engine| (engine.clone(), made_of(engine, &lock)));
        Ok(Self {
            system: system(&release).unwrap_or("unknown").to_owned(),
            date: output(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M"]))?,
            commit: output(Command::new("git").args([
                "describe",
                "--always",
                "--dirty",
                "--exclude=*",
            ]))?,
            versions: versions.collect(),
            build,
            runs,
        })
    }
}

/// The cores that this process may run on, in order.
pub(super) fn cores() -> Vec<usize> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let mut cores: Vec<usize> = cores.iter().map(|core| core.id).collect();
    cores.sort_unstable();
    cores
}

/// The standard output of a command that must succeed.
fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The name of the system in the text of `/etc/os-release`.
fn system(release: &str) -> Option<&str> {
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches(['"', '\'']))
}

/// The crates of an engine with their versions.
fn made_of(engine: &str, lock: &str) -> String {
    let (ours, crates): (&str, &[&str]) = match engine {
        "sharded" | "locked-lru" => ("this project's, of ", &["hashbrown", "parking_lot"]),
        "farcore" | "farcore-embedded" => ("", &["farcore"]),
        "quick-cache" => ("", &["quick_cache"]),
        "rocksdb" => ("", &["rocksdb", "librocksdb-sys"]),
        other => ("", &[other]),
    };
    let named = crates.iter().map(|name| match version(lock, name) {
        Some(version) => format!("{name} {version}"),
        None => format!("{name} of an unknown version"),
    });
    format!("{ours}{}", named.collect::<Vec<_>>().join(" and "))
}

/// The version of a crate that the benchmark is built with. If the lock file has several, the
/// dependency of the benchmark names it; else the crate's own entry does.
fn version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let entry = |name: &str| {
        let heading = format!("name = \"{name}\"");
        let mut entries = lock.split("[[package]]");
        entries.find(|entry| entry.lines().any(|line| line == heading))
    };
    let dependencies = entry("farcore-bench").into_iter().flat_map(str::lines);
    let chosen = dependencies
        .map(|line| line.trim().trim_matches([',', '"']))
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let own = || {
        let line = entry(name)?
            .lines()
            .find_map(|line| line.strip_prefix("version = "))?;
        Some(line.trim_matches('"'))
    };
    chosen.or_else(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
[[package]]
name = "farcore-bench"
version = "0.1.0"
dependencies = [
 "hashbrown 0.17.1",
 "moka",
 "parking_lot",
 "quick_cache 0.7.0",
]

[[package]]
name = "hashbrown"
version = "0.14.5"

[[package]]
name = "moka"
version = "0.12.16"

[[package]]
name = "parking_lot"
version = "0.12.5"

[[package]]
name = "quick_cache"
version = "0.6.24"

[[package]]
name = "quick_cache"
version = "0.7.0"
"#;

    #[test]
    fn versions_are_those_of_the_benchmark() {
        assert_eq!(made_of("moka", LOCK), "moka 0.12.16");
        assert_eq!(made_of("quick-cache", LOCK), "quick_cache 0.7.0");
        assert_eq!(
            made_of("sharded", LOCK),
            "this project's, of hashbrown 0.17.1 and parking_lot 0.12.5"
        );
        assert_eq!(made_of("scc", LOCK), "scc of an unknown version");
    }

    #[test]
    fn the_name_of_the_system_is_found() {
        assert_eq!(
            system("ID=x\nPRETTY_NAME=\"Debian 12\"\n"),
            Some("Debian 12")
        );
        assert_eq!(system(""), None);
    }

    #[test]
    fn the_lock_file_has_every_engine() {
        let lock = include_str!("../../../../Cargo.lock");
        let engines = super::super::ENGINES.split(',').chain(["fjall", "rocksdb"]);
        for engine in engines {
            let made_of = made_of(engine, lock);
            assert!(!made_of.contains("unknown"), "{made_of}");
        }
    }
}
