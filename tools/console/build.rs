//! Lists the files of `assets/`, so that the program embeds every one without naming it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let variable = |name| env::var_os(name).ok_or(io::ErrorKind::NotFound);
    let assets = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("assets");
    let mut found = Vec::new();
    files(&assets, &mut found)?;
    found.sort();
    let mut list = String::from("&[\n");
    for path in &found {
        let name = path.strip_prefix(&assets).map_err(io::Error::other)?;
        let name = name.to_str().ok_or(io::ErrorKind::InvalidData)?;
        let path = path.to_str().ok_or(io::ErrorKind::InvalidData)?;
        writeln!(list, "    ({name:?}, include_bytes!({path:?})),").map_err(io::Error::other)?;
    }
    list.push_str("]\n");
    fs::write(PathBuf::from(variable("OUT_DIR")?).join("assets.rs"), list)
}
