//! The Debian packages that the lab needs on the host: which are missing, and their installation.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::output_of;

/// The emulator, the guest's first program, decompressors for the kernel, the verbs libraries with
/// the tool that creates a device, build dependencies of the feature `verbs`, and strace for counts
/// of system calls.
const NEEDED: [&str; 14] = [
    "qemu-system-x86",
    "busybox-static",
    "kmod",
    "xz-utils",
    "zstd",
    "iproute2",
    "libibverbs1",
    "librdmacm1",
    "ibverbs-providers",
    "libibverbs-dev",
    "librdmacm-dev",
    "libclang-dev",
    "pkg-config",
    "strace",
];

/// The packages of the lab that are not installed.
pub(super) fn missing() -> Result<Vec<&'static str>> {
    missing_of(&NEEDED)
}

/// Those of the packages that are not installed.
pub(crate) fn missing_of(needed: &[&'static str]) -> Result<Vec<&'static str>> {
    // It fails if a package is unknown, which is no error here.
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${db:Status-Status}\n"])
        .args(needed)
        .output()
        .context("Debian's packages are needed (dpkg-query)")?;
    Ok(absent(&String::from_utf8_lossy(&output.stdout), needed))
}

fn absent(listing: &str, needed: &[&'static str]) -> Vec<&'static str> {
    let mut needed = needed.to_vec();
    needed.retain(|package| {
        let line = format!("{package} installed");
        !listing.lines().any(|found| found == line)
    });
    needed
}

/// Whether this process may install packages.
pub(crate) fn is_root() -> bool {
    fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

/// apt-get without prompts; it waits for other processes that use apt.
pub(crate) fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(["-qq", "-o", "DPkg::Lock::Timeout=300"])
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Updates apt's lists.
pub(super) fn update() -> Result<()> {
    if !is_root() {
        bail!("apt's lists are missing or old; run: sudo apt-get update");
    }
    eprintln!("lab: apt-get update");
    output_of(apt_get().arg("update"))?;
    Ok(())
}

/// Installs missing packages. Conflicting ones are removed only if that is allowed.
pub(super) fn install(allow_removals: bool) -> Result<()> {
    let missing = missing()?;
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root() {
        bail!(
            "packages are missing: {list}; run: sudo apt-get install --no-install-recommends {list}"
        );
    }
    update()?;
    let install = |options: &[&str]| {
        let mut command = apt_get();
        command
            .args(["install", "-y", "--no-install-recommends"])
            .args(options)
            .args(&missing);
        command
    };
    let plan = output_of(&mut install(&["--simulate"]))?;
    let plan = String::from_utf8_lossy(&plan);
    let removals = removals(&plan);
    if !removals.is_empty() && !allow_removals {
        bail!(
            "to install {list}, apt would remove {}; to allow that, run: cargo xtask lab setup --allow-removals",
            removals.join(" ")
        );
    }
    eprintln!("lab: apt-get install {list}");
    if !removals.is_empty() {
        eprintln!("lab: this removes {}", removals.join(" "));
    }
    output_of(&mut install(if allow_removals {
        &[]
    } else {
        &["--no-remove"]
    }))?;
    Ok(())
}

/// The packages that a simulated installation would remove.
fn removals(plan: &str) -> Vec<&str> {
    plan.lines()
        .filter_map(|line| line.strip_prefix("Remv ")?.split(' ').next())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_installed_package_is_missing() {
        let listing = NEEDED.map(|package| match package {
            "kmod" => "kmod config-files\n".to_owned(),
            "zstd" => String::new(),
            package => format!("{package} installed\n"),
        });
        assert_eq!(absent(&listing.concat(), &NEEDED), ["kmod", "zstd"]);
        assert_eq!(absent("", &NEEDED), NEEDED);
    }

    #[test]
    fn removals_are_parsed_from_a_simulation() {
        let plan = "Remv qemu-utils [1:10.0.2]\nInst cpio (2.13 Debian)\nConf cpio (2.13 Debian)\n";
        assert_eq!(removals(plan), ["qemu-utils"]);
        assert!(removals("Inst Remv\n").is_empty());
    }
}
