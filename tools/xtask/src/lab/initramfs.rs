//! Builds the guest's initramfs: busybox, modules, the lab's scripts, and the command to run.
//!
//! It is built for every guest, so no cache can hold scripts of another version.
//!
//! Source: Documentation/driver-api/early-userspace/buffer-format.rst of Linux (the `newc` format).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};

const INIT: &str = include_str!("../../../lab/guest-init.sh");
const MAIN: &str = include_str!("../../../lab/guest-main.sh");

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// A `newc` archive.
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) -> Result<()> {
        self.entries += 1;
        let size = u32::try_from(content.len()).with_context(|| format!("{name} is too large"))?;
        let name_bytes = u32::try_from(name.len() + 1)?;
        let (major, minor) = device;
        self.bytes.extend_from_slice(b"070701");
        // inode, mode, uid, gid, links, time, size, device, device of a node, name, checksum
        for field in [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            major,
            minor,
            name_bytes,
            0,
        ] {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn directory(&mut self, name: &str) -> Result<()> {
        self.add(name, DIRECTORY, (0, 0), b"")
    }

    fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.add(name, mode, (0, 0), content)
    }

    fn finish(mut self) -> Result<Vec<u8>> {
        self.add("TRAILER!!!", 0, (0, 0), b"")?;
        Ok(self.bytes)
    }
}

/// Builds the initramfs of one guest, as `tools/lab/guest-init.sh` and `guest-main.sh` expect it.
pub(super) fn build(kernel: &Path, settings: &[u8], command: &[u8]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for name in [
        "bin", "proc", "sys", "dev", "host", "scratch", "new", "modules", "lab",
    ] {
        archive.directory(name)?;
    }
    archive.add("dev/console", CHARACTER_DEVICE, (5, 1), b"")?;
    archive.file("bin/busybox", PROGRAM, &read(Path::new("/bin/busybox"))?)?;
    archive.file("init", PROGRAM, INIT.as_bytes())?;
    let order = read(&kernel.join("boot/order"))?;
    archive.file("modules/order", FILE, &order)?;
    for name in String::from_utf8(order)?.lines() {
        archive.file(
            &format!("modules/{name}"),
            FILE,
            &read(&kernel.join("boot").join(name))?,
        )?;
    }
    archive.file("lab/guest-main.sh", FILE, MAIN.as_bytes())?;
    archive.file("lab/settings", FILE, settings)?;
    archive.file("lab/command", FILE, command)?;
    archive.finish()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Quotes any bytes as one word of the shell.
pub(super) fn quoted(text: &OsStr) -> Vec<u8> {
    let mut word = vec![b'\''];
    for &byte in text.as_bytes() {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            byte => word.push(byte),
        }
    }
    word.push(b'\'');
    word
}

/// Whether a variable belongs to bash: read-only, or its state.
fn is_of_the_shell(name: &[u8]) -> bool {
    matches!(
        name,
        b"UID" | b"EUID" | b"PPID" | b"SHELLOPTS" | b"SHLVL" | b"_"
    ) || name.starts_with(b"BASH")
}

fn is_a_name(name: &[u8]) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.first().is_some_and(|&first| letter(first))
        && name
            .iter()
            .all(|&byte| letter(byte) || byte.is_ascii_digit())
}

/// A script that runs a command with an environment in a directory.
pub(super) fn command(
    environment: impl Iterator<Item = (OsString, OsString)>,
    directory: &Path,
    words: &[OsString],
) -> Vec<u8> {
    let mut script = Vec::new();
    for (name, value) in environment {
        if is_a_name(name.as_bytes()) && !is_of_the_shell(name.as_bytes()) {
            script.extend_from_slice(b"export ");
            script.extend_from_slice(name.as_bytes());
            script.push(b'=');
            script.extend_from_slice(&quoted(&value));
            script.push(b'\n');
        }
    }
    script.extend_from_slice(b"cd -- ");
    script.extend_from_slice(&quoted(directory.as_os_str()));
    script.extend_from_slice(b" || exit\nexec --");
    for word in words {
        script.push(b' ');
        script.extend_from_slice(&quoted(word));
    }
    script.push(b'\n');
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_padded_and_has_a_trailer() {
        let mut archive = Archive::default();
        archive.file("init", PROGRAM, b"12345").unwrap();
        archive
            .add("dev/console", CHARACTER_DEVICE, (5, 1), b"")
            .unwrap();
        let bytes = archive.finish().unwrap();
        let head =
            b"07070100000001000081ed00000000000000000000000100000000000000050000000000000000\
                     00000000000000000000000500000000init\0";
        assert_eq!(&bytes[..115], &head[..]);
        // 110 bytes of header and 5 of name, padded to 116; 5 of content, padded to 8.
        assert_eq!(&bytes[115..130], b"\x0012345\0\0\x00070701");
        assert_eq!(bytes.len() % 4, 0);
        let trailer = b"TRAILER!!!\0";
        assert!(bytes.windows(trailer.len()).any(|window| window == trailer));
    }

    #[test]
    fn quoted_words_survive_the_shell() {
        let words = [
            "it's",
            "$HOME",
            "a b\n c",
            "",
            "--",
            "`x`",
            "\\",
            "\u{e9}\"!",
        ];
        let words = words.map(OsString::from);
        let environment = [
            ("LAB_TEST", "don't"),
            ("UID", "read-only"),
            ("BASH_FUNC_f%%", "() { :; }"),
            ("1x", ""),
        ]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let printer = [
            "sh",
            "-c",
            "pwd; echo \"$LAB_TEST\"; printf '%s|' \"$@\"",
            "sh",
        ];
        let all: Vec<_> = printer
            .iter()
            .map(OsString::from)
            .chain(words.clone())
            .collect();
        let script = command(environment.into_iter(), Path::new("/usr"), &all);
        let output = std::process::Command::new("bash")
            .arg("-c")
            .arg(OsStr::from_bytes(&script))
            .output()
            .unwrap();
        let expected = format!(
            "/usr\ndon't\n{}",
            words.map(|w| w.into_string().unwrap() + "|").concat()
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}
