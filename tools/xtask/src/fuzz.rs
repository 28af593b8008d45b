//! `cargo xtask fuzz`: searches for inputs that break what reads untrusted bytes. The targets are
//! tests beside their decoders (`tools/fuzz`), which are built here so that they count what an
//! input reaches.
//!
//! Cargo calls this program in place of the compiler for the crates of the workspace
//! (`RUSTC_WORKSPACE_WRAPPER`), and it adds LLVM's coverage pass to all but the harness. So a
//! stable compiler does, and no other crate is built anew.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

/// Set while this program stands in for the compiler.
const WRAPS: &str = "FARCORE_FUZZ_WRAPS";
const HARNESS: &str = "farcore_fuzz";
const COVERAGE: [&str; 4] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=3",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// Folders that hold no sources of this project.
const SKIPPED: [&str; 3] = ["target", "node_modules", ".git"];

#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// Targets by their names in docs/testing.md; all of them, if none is named
    targets: Vec<String>,
    /// Minutes of each target
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Add the shortest inputs that reach more to the corpora of tools/fuzz/corpus
    #[arg(long)]
    keep: bool,
    /// Print the targets
    #[arg(long)]
    list: bool,
}

/// Where a target stands.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    /// The folder of its crate, from that of the workspace.
    package: PathBuf,
    /// Its file, from the folder of the workspace.
    file: PathBuf,
    test: String,
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !SKIPPED.contains(&&*name) {
                sources(&path, found)?;
            }
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// All targets of the workspace at `root`.
fn targets(root: &Path) -> Result<BTreeMap<String, Place>> {
    let mut files = Vec::new();
    sources(root, &mut files)?;
    let mut targets = BTreeMap::new();
    for path in files {
        let file = path.strip_prefix(root)?.to_owned();
        // The harness and this file name targets without being one.
        if file.starts_with("tools/fuzz") || file.starts_with("tools/xtask") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let mut parts = text.split("Target::new(\"");
        let mut before = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, _) = part.split_once('"').context("a name in quotes")?;
            let (_, test) = before
                .rsplit_once("#[test]")
                .context("a target is a test")?;
            let (_, test) = test.split_once("fn ").context("a test is a function")?;
            let (test, _) = test.split_once('(').context("a function has arguments")?;
            let mut folders = file.ancestors().skip(1);
            let package = folders.find(|folder| root.join(folder).join("Cargo.toml").exists());
            let place = Place {
                package: package.context("a file belongs to a crate")?.to_owned(),
                file: file.clone(),
                test: test.to_owned(),
            };
            if targets.insert(name.to_owned(), place).is_some() {
                bail!("two targets are named {name}");
            }
            before.push_str(part);
        }
    }
    Ok(targets)
}

impl Place {
    /// The arguments of cargo for the test binary that has it.
    fn binary(&self, root: &Path) -> Vec<String> {
        let inside = self.file.strip_prefix(&self.package).unwrap_or(&self.file);
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy();
        if inside.starts_with("tests") {
            return vec!["--test".to_owned(), name.into_owned()];
        }
        let is_library = root.join(&self.package).join("src/lib.rs").exists();
        vec![if is_library { "--lib" } else { "--bins" }.to_owned()]
    }
}

pub(crate) fn perform(options: &Fuzz) -> Result<()> {
    let root = env::current_dir()?;
    let known = targets(&root)?;
    if options.list {
        for (name, place) in &known {
            println!("{name:24}{}", place.file.display());
        }
        return Ok(());
    }
    for name in &options.targets {
        if !known.contains_key(name) {
            bail!("`{name}` is no target: see `cargo xtask fuzz --list`");
        }
    }
    let is_chosen = |name: &String| options.targets.is_empty() || options.targets.contains(name);
    let mut failed = Vec::new();
    for (name, place) in known.iter().filter(|(name, _)| is_chosen(name)) {
        let manifest = root.join(&place.package).join("Cargo.toml");
        let mut command = super::cargo(&["test", "--quiet", "--locked", "--manifest-path"]);
        command.arg(manifest).args(place.binary(&root));
        command.args(["--", "--nocapture", "--test-threads=1", &place.test]);
        command
            .env("RUSTC_WORKSPACE_WRAPPER", env::current_exe()?)
            .env(WRAPS, "1")
            .env("FARCORE_FUZZ_TARGET", name)
            .env("FARCORE_FUZZ_SECONDS", (options.minutes * 60.0).to_string())
            .env("FARCORE_FUZZ_FINDS", root.join("target/fuzz"));
        if options.keep {
            command.env("FARCORE_FUZZ_KEEP", "1");
        }
        if super::run(&mut command).is_err() {
            failed.push(name.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("an input fails: {}", failed.join(", "));
    }
    Ok(())
}

/// Stands in for the compiler, if cargo has called this program as that.
pub(crate) fn wrap_compiler() -> Option<ExitCode> {
    env::var_os(WRAPS)?;
    let mut arguments = env::args_os().skip(1);
    let compiler = arguments.next()?;
    let mut arguments: Vec<OsString> = arguments.collect();
    let name = arguments
        .iter()
        .skip_while(|one| *one != "--crate-name")
        .nth(1);
    match name
        .map(|name| name.to_string_lossy().into_owned())
        .as_deref()
    {
        Some(HARNESS) => arguments.extend(["--cfg", "farcore_coverage"].map(Into::into)),
        // A build script, a probe of cargo's.
        None | Some("build_script_build" | "___") => {}
        Some(_) => arguments.extend(COVERAGE.map(Into::into)),
    }
    let status = Command::new(compiler).args(arguments).status();
    let has_succeeded = status.is_ok_and(|status| status.success());
    Some(if has_succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// How decoders are named.
    const NAMES: [&str; 9] = [
        "parse",
        "decode",
        "from_bytes",
        "from_str",
        "unpack",
        "unescape",
        "parsed",
        "of_bytes",
        "decode_from",
    ];
    const CORPORA_BYTES_MAX: u64 = 200 << 10;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The rows behind a mark of `docs/testing.md`.
    fn rows(mark: &str) -> Vec<Vec<String>> {
        let text = fs::read_to_string(root().join("docs/testing.md")).unwrap();
        let (_, table) = text.split_once(&format!("<!-- {mark} -->\n")).unwrap();
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'));
        let cells = |row: &str| {
            let cells = row.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        };
        rows.map(cells).collect()
    }

    fn quoted(cell: &str) -> Vec<String> {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn every_target_is_in_the_table_and_every_row_has_one() {
        let known = targets(&root()).unwrap();
        assert!(known.len() > 30, "{}", known.len());
        let mut listed = BTreeSet::new();
        for row in rows("targets") {
            let [name, files, _] = &row[..] else {
                panic!("three columns: {row:?}");
            };
            let place = known
                .get(name)
                .unwrap_or_else(|| panic!("no target: {name}"));
            assert!(listed.insert(name.clone()), "{name} is twice");
            for file in quoted(files) {
                assert!(root().join(&file).exists(), "{name}: {file}");
            }
            assert!(
                !quoted(files).is_empty() && !place.test.is_empty(),
                "{name}"
            );
        }
        let missing: Vec<_> = known
            .keys()
            .filter(|name| !listed.contains(*name))
            .collect();
        assert!(missing.is_empty(), "not in docs/testing.md: {missing:?}");
    }

    /// The functions of a file that are named as decoders, tests left out.
    fn decoders(text: &str) -> Vec<String> {
        let (code, _) = text
            .split_once("#[cfg(test)]\nmod tests")
            .unwrap_or((text, ""));
        let functions = code.split("fn ").skip(1);
        let names = functions.filter_map(|function| function.split(['(', '<']).next());
        let is_decoder = |name: &&str| {
            let starts = NAMES.contains(name);
            starts || name.starts_with("decode_") || name.starts_with("parse_")
        };
        names.filter(is_decoder).map(str::to_owned).collect()
    }

    #[test]
    fn every_decoder_has_a_target_or_a_reason() {
        let mut listed = BTreeSet::new();
        for row in rows("targets") {
            listed.extend(quoted(&row[1]));
        }
        for row in rows("no targets") {
            assert!(row[1].len() > 10, "a reason: {row:?}");
            listed.extend(quoted(&row[0]));
        }
        let mut files = Vec::new();
        sources(&root(), &mut files).unwrap();
        let mut seen = 0;
        for path in files {
            let file = path
                .strip_prefix(root())
                .unwrap()
                .to_string_lossy()
                .into_owned();
            // Chores, simulation and harness read what the project itself wrote.
            let is_ours = ["tools/xtask", "tools/sim", "tools/fuzz", "tools/models"];
            let is_test = file.contains("/tests") || file.contains("/examples/");
            if is_ours.iter().any(|folder| file.starts_with(folder)) || is_test {
                continue;
            }
            let found = decoders(&fs::read_to_string(&path).unwrap());
            seen += found.len();
            assert!(
                found.is_empty() || listed.contains(&file),
                "{file} reads bytes: {found:?}"
            );
        }
        assert!(seen > 40, "{seen}");
    }

    #[test]
    fn corpora_belong_to_targets_and_are_small() {
        let known = targets(&root()).unwrap();
        let mut bytes = 0;
        for entry in fs::read_dir(root().join("tools/fuzz/corpus")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy();
            let name = name.replace('-', " ");
            assert!(known.contains_key(&name), "{name} is no target");
            bytes += path.metadata().unwrap().len();
        }
        assert!(bytes < CORPORA_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn a_target_is_found_with_its_test_and_its_binary() {
        let known = targets(&root()).unwrap();
        let record = &known["record"];
        assert_eq!(record.package, Path::new("engine"));
        assert_eq!(record.test, "any_bytes_are_one_record_or_none");
        assert_eq!(record.binary(&root()), ["--lib"]);
        assert_eq!(
            known["native message"].binary(&root()),
            ["--test", "corpus"]
        );
    }
}
