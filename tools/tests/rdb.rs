//! `farcore rdb`: `check` with files that are whole and damaged, `import` and `export` with a
//! Farcore and a Redis 7.0.15, where that is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

use farcore_rdb::write::{self, types};
use farcore_rdb::{FileWriter, Packer};

use self::support::{Process, Serve};

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

/// Runs a command of `rdb`, which succeeds; what it has printed.
fn run(words: &[&str]) -> String {
    let output = rdb(words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn rdb(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farcore"))
        .arg("rdb")
        .args(words)
        .output()
        .unwrap()
}

/// A Redis of its own, if it is installed.
fn redis(folder: &Path) -> Option<(Process, String)> {
    let version = Command::new("redis-server")
        .arg("--version")
        .output()
        .ok()?;
    if !String::from_utf8_lossy(&version.stdout).contains("v=7.0.15") {
        println!("no Redis 7.0.15 is installed");
        return None;
    }
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let address = format!("127.0.0.1:{port}");
    let child = Command::new("redis-server")
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ])
        .args(["--dir", folder.to_str().unwrap()])
        .stdout(std::process::Stdio::null())
        .spawn();
    let process = Process(child.unwrap());
    let start = std::time::Instant::now();
    while TcpStream::connect(&address).is_err() {
        assert!(start.elapsed() < support::PATIENCE);
        std::thread::yield_now();
    }
    Some((process, address))
}

/// Sends inline commands; the replies as they come, of lines without a colon.
fn ask(address: &str, lines: &[String]) -> String {
    let stream = TcpStream::connect(address).unwrap();
    let mut stream = BufReader::new(stream);
    let text = lines.concat() + "ECHO the-end\r\n";
    stream.get_mut().write_all(text.as_bytes()).unwrap();
    let mut said = Vec::new();
    let mut piece = [0; 64 << 10];
    while !said.ends_with(b"the-end\r\n") {
        let bytes = stream.read(&mut piece).unwrap();
        assert!(bytes > 0, "the connection ended");
        said.extend_from_slice(&piece[..bytes]);
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Values of all types, in two databases.
fn filling() -> Vec<String> {
    let mut lines = Vec::new();
    for database in [0, 7] {
        lines.push(format!("SELECT {database}"));
        for line in [
            "SET text value",
            "SET number 42",
            "SET expiring value PXAT 33000000000000",
            "HSET hash a 1 b 2",
            "RPUSH list a b c 17",
            "SADD numbers 1 2 3",
            "SADD set a b",
            "ZADD sorted 1.5 a -inf b",
            "PFADD log a b c",
            "XADD stream 1-1 f v",
            "XADD stream 2-1 f v g w",
            "XGROUP CREATE stream group 0",
            "XREADGROUP GROUP group one COUNT 1 STREAMS stream >",
            "SETRANGE long 200000 x",
        ] {
            lines.push(line.to_owned());
        }
        for field in 0..1000 {
            lines.push(format!("HSET many field{field} {field}"));
            lines.push(format!("SET key{field} {database}"));
        }
    }
    lines.iter().map(|line| line.to_owned() + "\r\n").collect()
}

fn looks() -> Vec<String> {
    let mut lines = Vec::new();
    for database in [0, 7, 1] {
        lines.push(format!("SELECT {database}"));
        for line in [
            "DBSIZE",
            "GET text",
            "GET number",
            "PEXPIRETIME expiring",
            "HGET hash b",
            "LRANGE list 0 -1",
            "SORT numbers",
            "SORT set ALPHA",
            "ZRANGE sorted 0 -1 WITHSCORES",
            "PFCOUNT log",
            "XRANGE stream - +",
            "XPENDING stream group",
            "STRLEN long",
            "HLEN many",
            "HGET many field999",
            "GET key999",
        ] {
            lines.push(line.to_owned());
        }
    }
    lines.iter().map(|line| line.to_owned() + "\r\n").collect()
}

#[test]
fn all_that_a_server_has_moves_to_another_one_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.rdb");
    let file = file.to_str().unwrap();
    let farcore = Serve::start(&["--client-memory", "64MiB"]);
    let farcore = farcore.address.to_string();
    ask(&farcore, &filling());
    let held = ask(&farcore, &looks());
    let said = run(&["export", "--from", &farcore, file]);
    assert!(said.starts_with("wrote 2024 keys of "), "{said}");
    assert!(run(&["check", file]).contains("the checksum is right"));
    // Without --replace, what is there is named and stays.
    let output = rdb(&["import", file, "--to", &farcore]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("key \"") && errors.contains("BUSYKEY"),
        "{errors}"
    );
    let said = run(&["import", file, "--to", &farcore, "--replace"]);
    assert_eq!(said, "stored 2024, refused 0, expired already 0\n");
    assert_eq!(ask(&farcore, &looks()), held);
    let first = tempfile::tempdir().unwrap();
    let Some((_process, redis)) = redis(first.path()) else {
        return;
    };
    run(&["import", file, "--to", &redis]);
    assert_eq!(ask(&redis, &looks()), held);
    // A file of Redis itself, and one that is made from it.
    let saved = ask(&redis, &["SAVE\r\n".to_owned()]);
    assert!(saved.starts_with("+OK"), "{saved}");
    let by_redis = first.path().join("dump.rdb");
    let exported = folder.path().join("exported.rdb");
    run(&["export", "--from", &redis, exported.to_str().unwrap()]);
    for made in [&by_redis, &exported] {
        let other = Serve::start(&["--client-memory", "64MiB"]);
        let other = other.address.to_string();
        let said = run(&["import", made.to_str().unwrap(), "--to", &other]);
        assert_eq!(said, "stored 2024, refused 0, expired already 0\n");
        assert_eq!(ask(&other, &looks()), held);
    }
    // Redis loads what was exported.
    let second = tempfile::tempdir().unwrap();
    fs::copy(&exported, second.path().join("dump.rdb")).unwrap();
    let (_process, redis) = self::redis(second.path()).unwrap();
    assert_eq!(ask(&redis, &looks()), held);
    let left = fs::read_dir(folder.path()).unwrap();
    assert!(
        left.flatten()
            .all(|file| !file.file_name().to_string_lossy().ends_with(".tmp"))
    );
}

#[test]
fn what_cannot_be_moved_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.rdb");
    let target = file.to_str().unwrap();
    for (words, part) in [
        (
            &["import", target, "--to", "127.0.0.1:1"][..],
            "cannot be read",
        ),
        (
            &["export", "--from", "127.0.0.1:1", target],
            "cannot be reached",
        ),
        (&["export", "--from", "here", target], "HOST:PORT"),
    ] {
        let output = rdb(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && said.contains(part),
            "{said}"
        );
    }
    assert!(!file.exists());
    let server = Serve::start(&[]);
    let address = server.address.to_string();
    fs::write(&file, &self::file()[..2 << 20]).unwrap();
    let output = rdb(&["import", target, "--to", &address]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("is damaged: the bytes end too early"),
        "{said}"
    );
}
