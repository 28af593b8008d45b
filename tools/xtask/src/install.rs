//! What tasks install: packages of Debian, and folders below `target` that are filled once.
//!
//! A folder has a file `NAME.done` beside it with its specification, and is filled anew only if
//! that changes.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::lab::output_of;
use crate::lab::packages::{apt_get, is_root, missing_of};

/// Fills the folder `name` of `root`, unless it was filled by the same specification before. `task`
/// is who says so.
pub(crate) fn step(
    task: &str,
    root: &Path,
    name: &str,
    specification: &str,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let (folder, done) = (root.join(name), root.join(format!("{name}.done")));
    if fs::read_to_string(&done).is_ok_and(|text| text == specification) {
        return Ok(());
    }
    println!("{task}: fetching {name}");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    fill(&folder).with_context(|| format!("cannot install {name}; try again"))?;
    fs::write(&done, specification)?;
    Ok(())
}

/// Installs those of the packages that are missing.
pub(crate) fn packages(task: &str, packages: &[&'static str]) -> Result<()> {
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
    println!("{task}: apt-get install {list}");
    output_of(apt_get().arg("update"))?;
    output_of(
        apt_get()
            .args(["install", "-y", "--no-install-recommends", "--no-remove"])
            .args(&missing),
    )?;
    Ok(())
}

/// Makes a virtual environment of Python with packages of PyPI.
pub(crate) fn python_environment(folder: &Path, packages: &[&str]) -> Result<()> {
    output_of(Command::new("python3").args(["-m", "venv"]).arg(folder))
        .context("Python 3.10 or newer with `venv` is needed")?;
    output_of(&mut pip(&folder.join("bin/python"), &["install"], packages))?;
    Ok(())
}

/// The command `pip` of a Python.
pub(crate) fn pip(python: &Path, verb: &[&str], packages: &[&str]) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
        .args(verb)
        .args(packages);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_filled_once_a_specification() {
        let root = std::env::temp_dir().join(format!("farcore-install-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let mut filled = 0;
        for specification in ["one", "one", "two"] {
            let fill = |folder: &Path| {
                filled += 1;
                assert_eq!(fs::read_dir(folder)?.count(), 0, "an older filling is left");
                Ok(fs::write(folder.join("file"), specification)?)
            };
            step("test", &root, "part", specification, fill).unwrap();
        }
        assert_eq!(filled, 2);
        let failed = step("test", &root, "part", "three", |_| bail!("no network"));
        assert!(failed.is_err());
        step("test", &root, "part", "three", |_| Ok(())).unwrap();
        fs::remove_dir_all(&root).unwrap();
    }
}
