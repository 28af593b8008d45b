//! Downloads Debian's kernel and unpacks it into the cache; it is never installed.
//!
//! ```text
//! kernel/stamp            the layout and modules; a different stamp means: build again
//! kernel/vmlinux          the kernel as ELF: QEMU starts it at its PVH entry, without a BIOS
//! kernel/boot/order       the modules that the guest loads at boot, in order
//! kernel/boot/*.ko        these modules, unpacked
//! kernel/modules/RELEASE  all modules, for the guest's modprobe
//! ```
//!
//! Source: Documentation/arch/x86/boot.rst of Linux, for the layout of `vmlinuz`.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::cache::Cache;
use super::{output_of, packages};

/// The package that depends on Debian's newest kernel.
const META_PACKAGE: &str = "linux-image-amd64";
/// Modules that the guest loads at boot: its root file system, its output ports, verbs, network
/// links. Modules that they depend on are added.
const MODULES: [&str; 10] = [
    "virtio_pci",
    "9p",
    "9pnet_virtio",
    "overlay",
    "virtio_console",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
    "dummy",
    "veth",
];
/// Raise this when the layout above changes.
const LAYOUT: u32 = 1;

fn stamp() -> String {
    format!("layout {LAYOUT}, modules {}\n", MODULES.join(" "))
}

/// Whether the cache holds a complete kernel of this version of the lab.
pub(super) fn is_ready(cache: &Cache) -> bool {
    fs::read_to_string(cache.kernel().join("stamp")).is_ok_and(|found| found == stamp())
}

/// Downloads and unpacks the newest kernel. The caller holds the exclusive lock.
pub(super) fn unpack(cache: &Cache) -> Result<()> {
    let part = cache.kernel_part();
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    let (download, root) = (part.join("download"), part.join("root"));
    fs::create_dir_all(&download)?;
    fs::create_dir_all(part.join("boot"))?;

    let package = newest()?;
    eprintln!("lab: unpacking {package}");
    let deb = fetch(&package, &download)?;
    output_of(Command::new("dpkg").arg("-x").args([&deb, &root]))?;

    // With a merged /usr the package may have usr/lib only, but the tools read lib.
    if !root.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", root.join("lib"))?;
    }
    let modules = root.join("lib/modules");
    let release = only_entry(&modules)?;
    let image = root.join("boot").join(format!("vmlinuz-{release}"));
    let image = fs::read(&image).with_context(|| image.display().to_string())?;
    fs::write(part.join("vmlinux"), vmlinux(&image)?)?;

    output_of(Command::new("depmod").arg("-b").arg(&root).arg(&release))?;
    let mut order = String::new();
    for path in load_order(&root, &release)? {
        let name = module_name(&path)?;
        fs::write(part.join("boot").join(&name), module(&path)?)?;
        order.push_str(&name);
        order.push('\n');
    }
    fs::write(part.join("boot/order"), order)?;

    fs::rename(&modules, part.join("modules"))?;
    fs::remove_dir_all(&download)?;
    fs::remove_dir_all(&root)?;
    fs::write(part.join("stamp"), stamp())?;
    // The old kernel stays until the new one is complete. Its stamp is removed first, so that a
    // half removed kernel does not look complete.
    let old = cache.kernel();
    if old.exists() {
        let _ = fs::remove_file(old.join("stamp"));
        fs::remove_dir_all(&old)?;
    }
    fs::rename(&part, &old)?;
    Ok(())
}

/// The package that the meta package depends on.
fn newest() -> Result<String> {
    let query = || {
        let listing = output_of(Command::new("apt-cache").args(["depends", META_PACKAGE]));
        listing
            .ok()
            .and_then(|listing| dependency(&String::from_utf8_lossy(&listing)))
    };
    if let Some(package) = query() {
        return Ok(package);
    }
    packages::update()?;
    query().with_context(|| {
        format!("apt has no package {META_PACKAGE}: the lab needs the kernel of Debian's archive")
    })
}

fn dependency(listing: &str) -> Option<String> {
    let image = |line: &str| {
        let package = line.trim().strip_prefix("Depends: linux-image-")?;
        let version = package.starts_with(|c: char| c.is_ascii_digit());
        version.then(|| format!("linux-image-{package}"))
    };
    listing.lines().find_map(image)
}

fn fetch(package: &str, into: &Path) -> Result<PathBuf> {
    let download = || {
        // apt would drop root for `_apt`, which may not write here.
        let mut command = packages::apt_get();
        command
            .args(["-o", "APT::Sandbox::User=root", "download", package])
            .current_dir(into);
        output_of(&mut command)
    };
    if download().is_err() {
        // Old lists may name a version that the archive has dropped.
        packages::update()?;
        download()?;
    }
    Ok(into.join(only_entry(into)?))
}

/// The name of the only entry of a directory.
fn only_entry(directory: &Path) -> Result<String> {
    let names = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    match &names[..] {
        [name] => Ok(name.clone()),
        _ => bail!(
            "{} should hold one entry, has {names:?}",
            directory.display()
        ),
    }
}

/// The files of [`MODULES`] and of their dependencies, in load order.
fn load_order(root: &Path, release: &str) -> Result<Vec<PathBuf>> {
    let mut order = Vec::new();
    for module in MODULES {
        let listing = output_of(Command::new("modprobe").arg("-d").arg(root).args([
            "-S",
            release,
            "--show-depends",
            module,
        ]))?;
        for path in String::from_utf8(listing)?.lines().filter_map(listed) {
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    Ok(order)
}

/// The file in a line `insmod FILE OPTIONS`; a module built into the kernel has a line `builtin
/// NAME` and no file.
fn listed(line: &str) -> Option<PathBuf> {
    let rest = line.strip_prefix("insmod ")?;
    // The path may contain spaces; the suffix `.ko` and that of the compression do not.
    let name = rest.rfind(".ko")?;
    let end = rest[name..]
        .find(' ')
        .map_or(rest.len(), |space| name + space);
    Some(PathBuf::from(&rest[..end]))
}

/// `rdma_rxe.ko` for `.../rdma_rxe.ko.xz`.
fn module_name(path: &Path) -> Result<String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.split_once(".ko") {
        Some((name, _)) => Ok(format!("{name}.ko")),
        None => bail!("{} is not a kernel module", path.display()),
    }
}

fn module(path: &Path) -> Result<Vec<u8>> {
    let content = fs::read(path).with_context(|| path.display().to_string())?;
    match Packing::of(&content) {
        Some(packing) => packing.unpack(&content),
        None => Ok(content),
    }
}

/// Compression of kernels and modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Xz,
    Zstd,
    Gzip,
}

impl Packing {
    fn of(content: &[u8]) -> Option<Self> {
        match content {
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            _ => None,
        }
    }

    fn unpack(self, packed: &[u8]) -> Result<Vec<u8>> {
        let program = match self {
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        };
        let mut child = Command::new(program)
            .arg("-dc")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(mut input), Some(mut output)) = (input, output) else {
            bail!("{program} has no pipes");
        };
        let unpacked = std::thread::scope(|scope| {
            let fed = scope.spawn(move || input.write_all(packed));
            let mut unpacked = Vec::new();
            output.read_to_end(&mut unpacked)?;
            match fed.join() {
                Ok(result) => result.map(|()| unpacked),
                Err(_) => Err(std::io::Error::other(
                    "the thread that writes to it panicked",
                )),
            }
        });
        let status = child.wait()?;
        ensure!(status.success(), "{program} -dc ended with {status}");
        unpacked.with_context(|| format!("{program} -dc"))
    }
}

/// The compressed kernel inside a `vmlinuz`, its compression, and its unpacked length unless the
/// compression is gzip.
///
/// ```text
/// offset  field           0x1f1: setup_sects (1 byte; 0 means 4)
///                         0x202: "HdrS"
///                         0x206: version, from 2.08 on with the two below
///                         0x248: payload_offset, from the end of the setup sectors
///                         0x24c: payload_length
/// payload: the packed ELF file, then, unless by gzip, the unpacked length (4 bytes, little-endian)
/// ```
fn payload(image: &[u8]) -> Result<(&[u8], Packing, Option<u32>)> {
    let bytes = |at: usize, count: usize| {
        let end = at.checked_add(count);
        end.and_then(|end| image.get(at..end))
            .with_context(|| format!("the kernel image ends at {}, before {at}", image.len()))
    };
    let word = |at: usize| -> Result<u32> {
        let four: [u8; 4] = bytes(at, 4)?.try_into()?;
        Ok(u32::from_le_bytes(four))
    };
    ensure!(
        bytes(0x202, 4)? == b"HdrS",
        "not a kernel image: no HdrS at 0x202"
    );
    let version: [u8; 2] = bytes(0x206, 2)?.try_into()?;
    let version = u16::from_le_bytes(version);
    ensure!(
        version >= 0x0208,
        "boot protocol {version:#x}: the lab needs 0x208 or newer"
    );
    let sectors = match bytes(0x1f1, 1)? {
        [0] => 4,
        [sectors] => usize::from(*sectors),
        _ => bail!("the size of the setup is missing"),
    };
    let start = (sectors + 1) * 512 + usize::try_from(word(0x248)?)?;
    let payload = bytes(start, usize::try_from(word(0x24c)?)?)?;
    let packing = Packing::of(payload).with_context(|| {
        format!(
            "the kernel has an unknown compression: {:x?}",
            payload.get(..6)
        )
    })?;
    if packing == Packing::Gzip {
        return Ok((payload, packing, None));
    }
    let (packed, length) = payload
        .split_last_chunk::<4>()
        .context("the kernel's payload is shorter than 4 bytes")?;
    Ok((packed, packing, Some(u32::from_le_bytes(*length))))
}

/// The ELF file inside a `vmlinuz`.
fn vmlinux(image: &[u8]) -> Result<Vec<u8>> {
    let (packed, packing, length) = payload(image)?;
    let kernel = packing.unpack(packed)?;
    if let Some(length) = length {
        let found = kernel.len();
        ensure!(
            u32::try_from(found) == Ok(length),
            "the kernel should be {length} bytes unpacked, is {found}"
        );
    }
    ensure!(
        kernel.starts_with(b"\x7fELF"),
        "the unpacked kernel is not an ELF file"
    );
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of two setup sectors, with the payload 16 bytes behind them.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 3 * 512 + 16];
        image[0x1f1] = 2;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        let length = u32::try_from(payload.len()).unwrap();
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        image.extend_from_slice(payload);
        image.extend_from_slice(b"a signature behind it");
        image
    }

    #[test]
    fn the_payload_is_where_the_header_says() {
        let xz = b"\xfd7zXZ\0packed\x05\0\0\0";
        let (packed, packing, length) = (&xz[..12], Packing::Xz, Some(5));
        assert_eq!(payload(&image(xz)).unwrap(), (packed, packing, length));
        let gzip = b"\x1f\x8bpacked";
        assert_eq!(
            payload(&image(gzip)).unwrap(),
            (&gzip[..], Packing::Gzip, None)
        );
    }

    #[test]
    fn no_setup_sectors_mean_four() {
        let mut image = image(b"");
        image[0x1f1] = 0;
        image.truncate(3 * 512 + 16);
        image.resize(5 * 512 + 16, 0);
        let zstd = b"\x28\xb5\x2f\xfdpacked\x01\x02\0\0";
        image[0x24c] = 14;
        image.extend_from_slice(zstd);
        assert_eq!(
            payload(&image).unwrap(),
            (&zstd[..10], Packing::Zstd, Some(0x201))
        );
    }

    #[test]
    fn images_without_a_kernel_are_errors() {
        assert!(payload(b"").is_err());
        assert!(payload(&[0; 4096]).is_err(), "no HdrS");
        assert!(payload(&image(b"unknown packing")).is_err());
        let mut old = image(b"\x1f\x8bpacked");
        old[0x206] = 7;
        old[0x207] = 2;
        assert!(payload(&old).is_err(), "before 2.08");
        let mut long = image(b"\x1f\x8bpacked");
        long[0x24f] = 0xff;
        assert!(payload(&long).is_err(), "payload beyond the end");
    }

    #[test]
    fn the_newest_kernel_has_a_version_in_its_name() {
        let listing = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n  Suggests: x\n";
        assert_eq!(
            dependency(listing).as_deref(),
            Some("linux-image-6.1.0-56-amd64")
        );
        assert_eq!(
            dependency("linux-image-amd64\n  Depends: linux-image-amd64\n"),
            None
        );
    }

    #[test]
    fn files_are_parsed_from_a_load_order() {
        let found = |line: &str| listed(line).map(|path| path.display().to_string());
        assert_eq!(found("insmod /a b/9p.ko ").as_deref(), Some("/a b/9p.ko"));
        assert_eq!(
            found("insmod /a/dummy.ko.xz numdummies=0").as_deref(),
            Some("/a/dummy.ko.xz")
        );
        assert_eq!(found("builtin virtio"), None);
    }

    #[test]
    fn module_names_lose_the_suffix_of_their_compression() {
        let name = |path: &str| module_name(Path::new(path)).ok();
        assert_eq!(name("/a/9p.ko").as_deref(), Some("9p.ko"));
        assert_eq!(name("/a/rdma_rxe.ko.xz").as_deref(), Some("rdma_rxe.ko"));
        assert_eq!(name("/a/modules.dep"), None);
    }
}
