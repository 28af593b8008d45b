//! `farcore rdb check` with files that are whole and damaged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use farcore_rdb::write::{self, types};
use farcore_rdb::{FileWriter, Packer};

fn check(file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farcore"))
        .args(["rdb", "check"])
        .arg(file)
        .output()
        .unwrap()
}

/// A file of two databases.
fn file() -> Vec<u8> {
    let (mut file, mut writer, mut packer) = (Vec::new(), FileWriter::default(), Packer::default());
    writer.begin(&mut file);
    writer.aux(&mut file, b"redis-ver", b"7.0.15");
    writer.database(&mut file, 0, (1, 1));
    writer.key(&mut file, b"text", (types::STRING, Some(1_900_000_000_000)));
    // It is longer than what is read at once.
    write::string(&mut file, &vec![b'x'; 3 << 20], &mut packer);
    writer.database(&mut file, 7, (1, 0));
    writer.key(&mut file, b"set", (types::SET, None));
    write::length(&mut file, 1000);
    for member in 0..1000 {
        write::string(
            &mut file,
            format!("member {member}").as_bytes(),
            &mut packer,
        );
    }
    writer.note(&file);
    file.extend(writer.end());
    file
}

#[test]
fn a_whole_file_is_counted_and_a_damaged_one_is_an_error_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.rdb");
    let whole = file();
    fs::write(&path, &whole).unwrap();
    let output = check(&path);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let rows: Vec<Vec<_>> = said
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["RDB", "version", "10", "of", "Redis", "7.0.15"]);
    assert_eq!(rows[2], ["0", "strings", "1", "1", "1"]);
    assert_eq!(rows[3], ["7", "sets", "1", "1000", "0"]);
    assert_eq!(rows[4], ["the", "checksum", "is", "right"]);
    let mut damaged = whole.clone();
    damaged[1 << 20] = b'y';
    for (bytes, why) in [
        (&whole[..2 << 20], "the bytes end too early at byte"),
        (&damaged[..], "the checksum is wrong at byte"),
        (b"REDISxxxx", "it is not an RDB file"),
    ] {
        fs::write(&path, bytes).unwrap();
        let output = check(&path);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
