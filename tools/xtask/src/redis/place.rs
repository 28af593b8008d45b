//! Where `setup` installs: `target/redis`. Paths are absolute, because suites run in folders of
//! their own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Folders of the installation and of the drivers.
#[derive(Debug)]
pub(super) struct Place {
    root: PathBuf,
    drivers: PathBuf,
}

impl Place {
    /// Creates the folder of the installation if necessary.
    pub(super) fn open() -> Result<Self> {
        let drivers = Path::new("tools/xtask/redis");
        let drivers = drivers
            .canonicalize()
            .context("no tools/xtask/redis: run this in the project's folder")?;
        let root = Path::new("target/redis");
        fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
        let root = root.canonicalize()?;
        Ok(Self { root, drivers })
    }

    /// A file or folder of the installation.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A file of `tools/xtask/redis`.
    pub(super) fn driver(&self, name: &str) -> PathBuf {
        self.drivers.join(name)
    }

    /// The text of a file of `tools/xtask/redis`.
    pub(super) fn read_driver(&self, name: &str) -> Result<String> {
        let path = self.driver(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// A file for the output of a program.
    pub(super) fn log(&self, name: &str) -> Result<PathBuf> {
        let folder = self.at("logs");
        fs::create_dir_all(&folder)?;
        Ok(folder.join(format!("{}.log", name.replace('/', "-"))))
    }

    /// The source folder of Redis, with its suite.
    pub(super) fn redis_source(&self) -> Result<PathBuf> {
        only_folder(&self.at("source"), "redis-")
    }

    /// The source folder of redis-py, with its tests.
    pub(super) fn redis_py_source(&self) -> Result<PathBuf> {
        only_folder(&self.at("redis-py"), "redis-")
    }

    /// The Python of a virtual environment.
    pub(super) fn python(&self, environment: &str) -> Result<PathBuf> {
        self.program(&format!("{environment}/bin/python"))
    }

    /// An installed program.
    pub(super) fn program(&self, name: &str) -> Result<PathBuf> {
        let path = self.at(name);
        if !path.exists() {
            bail!("no {}; run: cargo xtask redis setup", path.display());
        }
        Ok(path)
    }
}

/// The folder in `parent` whose name begins so.
fn only_folder(parent: &Path, start: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten();
    let mut folders = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(OsStr::to_str);
            path.is_dir() && name.is_some_and(|name| name.starts_with(start))
        });
    folders.next().with_context(|| {
        format!(
            "no source in {}; run: cargo xtask redis setup",
            parent.display()
        )
    })
}
