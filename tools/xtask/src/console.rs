//! `cargo xtask console`: walks the pages of `farcore console` in Debian's Chromium, which
//! Playwright drives, and takes their pictures. The tests and the camera are programs in Python, in
//! `tools/xtask/console`; they start the console themselves, each with a folder of its own. What
//! they need is installed in target/console.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::install;
use crate::limited::{self, Run};

/// The browser, and a font with Chinese.
const PACKAGES: [&str; 3] = ["chromium", "fonts-noto-cjk", "python3-venv"];
/// The driver of the browser, the rules of accessibility, and what makes pictures small.
const PYTHON: &[&str] = &[
    "playwright==1.65.2",
    "axe-playwright-python==0.1.8",
    "pillow==13.*",
    "pytest==9.*",
];
const PROGRAMS: &str = "tools/xtask/console";
const PICTURES: &str = "docs/console";
/// They take about a minute on two free cores.
const TEST_LIMIT: Duration = Duration::from_secs(400);
const PICTURE_LIMIT: Duration = Duration::from_secs(400);

#[derive(Debug, Subcommand)]
pub(crate) enum Console {
    /// Install the browser and its driver; does nothing if all are there.
    Setup,
    /// Walk every page, as administrator, operator, viewer and attacker.
    Test(Test),
    /// Write the pictures of every page in docs/console.
    Screenshots(Screenshots),
}

#[derive(Debug, Args)]
pub(crate) struct Test {
    #[command(flatten)]
    binary: Binary,
    /// Only tests whose name contains this; some need what those before them have made
    #[arg(long, default_value = "", value_name = "TEXT")]
    only: String,
}

#[derive(Debug, Args)]
pub(crate) struct Screenshots {
    #[command(flatten)]
    binary: Binary,
    /// Where they are written
    #[arg(long, default_value = PICTURES, value_name = "DIR")]
    into: PathBuf,
}

#[derive(Debug, Args)]
struct Binary {
    /// The program `farcore` [default: it is built]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

impl Binary {
    fn path(&self) -> Result<PathBuf> {
        let path = match &self.binary {
            Some(path) => path.clone(),
            None => build()?,
        };
        path.canonicalize()
            .with_context(|| format!("no program {}", path.display()))
    }
}

/// Builds `farcore`.
fn build() -> Result<PathBuf> {
    let package = ["--package", "farcore-tools", "--bin", "farcore"];
    let features = ["--features", "console"];
    crate::run(
        crate::cargo(&["build", "--quiet", "--locked"])
            .args(package)
            .args(features),
    )?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Ok(PathBuf::from(target).join("debug/farcore"))
}

/// Installs what is missing; returns the folder of the installation.
fn set_up() -> Result<PathBuf> {
    if !Path::new(PROGRAMS).exists() {
        bail!("no {PROGRAMS}: run this in the project's folder");
    }
    let root = Path::new("target/console");
    fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
    let root = root.canonicalize()?;
    install::packages("console", &PACKAGES)?;
    install::step("console", &root, "python", &PYTHON.join("\n"), |folder| {
        install::python_environment(folder, PYTHON)
    })?;
    Ok(root)
}

/// A program of Python with the console's own program in its environment.
fn python(root: &Path, binary: &Binary) -> Result<Command> {
    let mut command = Command::new(root.join("python/bin/python"));
    command
        .env("FARCORE_BINARY", binary.path()?)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUNBUFFERED", "1");
    Ok(command)
}

/// Runs a program; its output is printed if it fails.
fn expect_success(command: Command, limit: Duration, log: &Path) -> Result<()> {
    let Run {
        output,
        status,
        took,
    } = limited::run(command, limit, log)?;
    if status.is_some_and(|status| status.success()) {
        let last = output.lines().last().unwrap_or_default();
        println!("console: {last}");
        return Ok(());
    }
    println!("{output}");
    match status {
        Some(status) => bail!("it ended with {status}; its output is in {}", log.display()),
        None => bail!("it hangs: it was ended after {} s", took.as_secs()),
    }
}

fn test(test: &Test) -> Result<()> {
    let root = set_up()?;
    let mut command = python(&root, &test.binary)?;
    command
        .args(["-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts="])
        .args(["--quiet", "--color=no", "--tb=short", "--durations=5"])
        .args(["-k", &test.only])
        .arg(PROGRAMS);
    expect_success(command, TEST_LIMIT, &root.join("test.log"))
}

fn screenshots(screenshots: &Screenshots) -> Result<()> {
    let root = set_up()?;
    fs::create_dir_all(&screenshots.into)
        .with_context(|| format!("cannot create {}", screenshots.into.display()))?;
    let mut command = python(&root, &screenshots.binary)?;
    command
        .arg(Path::new(PROGRAMS).join("pictures.py"))
        .arg(&screenshots.into);
    expect_success(command, PICTURE_LIMIT, &root.join("pictures.log"))
}

pub(crate) fn perform(console: Console) -> Result<()> {
    match console {
        Console::Setup => set_up().map(|root| println!("console: ready in {}", root.display())),
        Console::Test(one) => test(&one),
        Console::Screenshots(one) => screenshots(&one),
    }
}
