//! `farcore serve --data`: what is stored survives servers that are ended and killed, as far as
//! `--log` promises.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use self::support::{PATIENCE, Serve};

/// A client that reads replies as one line of text.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(bytes.as_bytes())
    }

    fn read(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        match kind {
            "$" | "*" if rest == "-1" => Ok("nil".to_owned()),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(bytes.escape_ascii().to_string())
            }
            "*" => {
                let count = rest.parse::<usize>().unwrap();
                let all: io::Result<Vec<_>> = (0..count).map(|_| self.read()).collect();
                Ok(format!("[{}]", all?.join(", ")))
            }
            "-" => Ok(format!("error {rest}")),
            _ => Ok(rest.to_owned()),
        }
    }

    fn try_ask(&mut self, words: &[&str]) -> io::Result<String> {
        self.send(words)?;
        self.read()
    }

    fn ask(&mut self, line: &str) -> String {
        let words: Vec<_> = line.split(' ').collect();
        self.try_ask(&words).unwrap()
    }
}

fn serve(dir: &Path, arguments: &[&str]) -> Serve {
    let dir = dir.to_str().unwrap();
    Serve::start(&[&["--data", dir, "--hash-tags"][..], arguments].concat())
}

fn client(server: &Serve) -> Client {
    Client::connect(server.address).unwrap()
}

/// Ends a server at once.
fn kill(mut server: Serve) {
    server.process.0.kill().unwrap();
    server.process.0.wait().unwrap();
}

/// Ends a server in order.
fn end(mut server: Serve) {
    server.process.signal("TERM");
    assert_eq!(server.process.end().code(), Some(0));
}

/// What one client was told to be stored, before its server was killed.
#[derive(Default)]
struct Told {
    set: u64,
    counted: u64,
    pairs: u64,
}

/// Writes until the server is gone; `second` is the command that an `EXEC` has behind a `SET`.
fn write(
    (address, second): (SocketAddr, &str),
    number: usize,
    before: &Told,
    ends: &AtomicBool,
) -> Told {
    let mut told = Told {
        set: before.set,
        counted: before.counted,
        pairs: before.pairs,
    };
    let _: io::Result<()> = (|| {
        let mut client = Client::connect(address)?;
        while !ends.load(Ordering::Relaxed) {
            let next = (told.set + 1).to_string();
            let key = format!("set:{number}:{next}");
            if client.try_ask(&["SET", &key, &next])? == "OK" {
                told.set += 1;
            }
            if client
                .try_ask(&["INCR", &format!("count:{number}")])?
                .parse()
                == Ok(told.counted + 1)
            {
                told.counted += 1;
            }
            let pair = (told.pairs + 1).to_string();
            let (one, other) = (format!("{{p{number}}}one"), format!("{{p{number}}}other"));
            client.send(&["MULTI"])?;
            client.send(&["SET", &one, &pair])?;
            client.send(&[second, &other, &pair])?;
            client.send(&["EXEC"])?;
            for _ in 0..3 {
                client.read()?;
            }
            if client.read()?.starts_with("[OK") {
                told.pairs += 1;
            }
        }
        Ok(())
    })();
    told
}

fn number_of(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// Checks that all that clients were told is there, and no part of an `EXEC` alone.
fn check(client: &mut Client, told: &mut [Told]) {
    for (number, told) in told.iter_mut().enumerate() {
        for set in 1..=told.set {
            let found = client.ask(&format!("GET set:{number}:{set}"));
            assert_eq!(found, set.to_string(), "set:{number}:{set} of {}", told.set);
        }
        // One that was under way may be there, and is stored again.
        let counted = number_of(&client.ask(&format!("GET count:{number}")));
        assert!(counted >= told.counted, "{counted} of {}", told.counted);
        told.counted = counted;
        let pairs = number_of(&client.ask(&format!("GET {{p{number}}}one")));
        assert!(pairs >= told.pairs, "{pairs} of {}", told.pairs);
        let key = format!("{{p{number}}}other");
        let is_list = client.ask(&format!("TYPE {key}")) == "list";
        let other = match is_list {
            true => client.ask(&format!("LLEN {key}")),
            false => client.ask(&format!("GET {key}")),
        };
        let other = number_of(&other);
        // Of one with a list that was under way the first command alone may be there.
        assert!(other >= told.pairs, "{other} of {}", told.pairs);
        assert!(is_list || pairs == other, "a half of an EXEC");
        told.pairs = pairs.min(other);
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_by_kills() {
    kill_again_and_again("SET");
}

#[test]
fn no_acknowledged_transaction_of_several_types_is_lost() {
    kill_again_and_again("RPUSH");
}

fn kill_again_and_again(second: &'static str) {
    let dir = TempDir::new().unwrap();
    let mut told: Vec<Told> = (0..4).map(|_| Told::default()).collect();
    for round in 0..5 {
        let cores = if round % 2 == 0 { "0-1" } else { "0" };
        let server = serve(dir.path(), &["--log", "always", "--cores", cores]);
        let mut client = client(&server);
        check(&mut client, &mut told);
        let (address, ends) = (server.address, AtomicBool::new(false));
        told = thread::scope(|scope| {
            let ends = &ends;
            let start =
                |(number, told)| scope.spawn(move || write((address, second), number, told, ends));
            let writers: Vec<_> = told.iter().enumerate().map(start).collect();
            thread::sleep(Duration::from_millis(300 + 100 * round));
            if round == 2 {
                // A snapshot is under way when it is killed.
                assert_eq!(client.ask("BGSAVE"), "Background saving started");
            }
            kill(server);
            ends.store(true, Ordering::Relaxed);
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .collect()
        });
        assert!(told.iter().all(|told| told.set > 0), "all were served");
    }
    let server = serve(dir.path(), &["--log", "always"]);
    check(&mut client(&server), &mut told);
}

#[test]
fn a_log_of_each_second_loses_no_more() {
    let dir = TempDir::new().unwrap();
    let server = serve(dir.path(), &[]);
    let mut told = [Told::default()];
    let ends = AtomicBool::new(false);
    let address = server.address;
    thread::scope(|scope| {
        let writer = scope.spawn(|| write((address, "SET"), 0, &Told::default(), &ends));
        thread::sleep(Duration::from_millis(300));
        ends.store(true, Ordering::Relaxed);
        told = [writer.join().unwrap()];
    });
    assert!(told[0].set > 0);
    // It is on the disk within a second, and some more on a machine that is busy.
    let mut asking = client(&server);
    thread::sleep(Duration::from_secs(2));
    let start = Instant::now();
    while !asking
        .ask("INFO persistence")
        .contains("aof_buffer_length:0\\r\\n")
    {
        assert!(start.elapsed() < PATIENCE, "the log is never on the disk");
        thread::sleep(Duration::from_millis(50));
    }
    println!("on the disk after {:?}", start.elapsed());
    kill(server);
    let server = serve(dir.path(), &[]);
    check(&mut client(&server), &mut told);
}

/// Stores values of all types in several databases.
const STORING: &[&str] = &[
    "SET text value",
    "SET number 42",
    "SET expiring value PX 100000000",
    "SETBIT bits 9000 1",
    "PFADD log a b c d e",
    "HSET hash a 1 b 2 c 3",
    "RPUSH list a b c d",
    "LPOP list",
    "SADD set a b c 17",
    "SADD numbers 1 2 3",
    "ZADD sorted 1.5 a -inf b 2 c",
    "EXPIRE sorted 1000000",
    "XADD stream 1-1 f v",
    "XADD stream 1-2 f v g w",
    "XADD stream 5-0 f v",
    "XDEL stream 1-2",
    "XGROUP CREATE stream group 0",
    "XREADGROUP GROUP group one COUNT 1 STREAMS stream >",
    "XGROUP CREATECONSUMER stream group two",
    "GEOADD places 13.4 52.5 berlin",
    "SET gone value",
    "DEL gone",
    "RENAME number moved",
];

/// All that a server has, as text.
fn contents(client: &mut Client) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for database in 0..16 {
        assert_eq!(client.ask(&format!("SELECT {database}")), "OK");
        let keys = client.ask("KEYS *");
        let keys = keys.trim_start_matches('[').trim_end_matches(']');
        for key in keys.split(", ").filter(|key| !key.is_empty()) {
            let kind = client.ask(&format!("TYPE {key}"));
            let mut text = match &kind[..] {
                "string" => client.ask(&format!("GET {key}")),
                "list" => client.ask(&format!("LRANGE {key} 0 -1")),
                "hash" => client.ask(&format!("HGETALL {key}")),
                "set" => client.ask(&format!("SORT {key} ALPHA")),
                "zset" => client.ask(&format!("ZRANGE {key} 0 -1 WITHSCORES")),
                "stream" => {
                    let entries = client.ask(&format!("XRANGE {key} - +"));
                    let groups = client.ask(&format!("XINFO GROUPS {key}"));
                    let pending = client.ask(&format!("XPENDING {key} group - + 10"));
                    let pending = pending.split(", ").take(2).collect::<Vec<_>>().join(" ");
                    entries + &groups + &pending
                }
                other => panic!("{key} is a {other}"),
            };
            text += &client.ask(&format!("PEXPIRETIME {key}"));
            all.insert(format!("{database}/{key}"), format!("{kind} {text}"));
        }
        let size = client.ask("DBSIZE");
        all.insert(format!("{database}"), size);
    }
    all.insert("keyspace".to_owned(), client.ask("INFO keyspace"));
    all
}

/// Stores much, and checks that it survives `end`.
fn restart(arguments: &[&str], mut end: impl FnMut(Serve)) {
    let dir = TempDir::new().unwrap();
    let mut before = None;
    for cores in ["0-1", "0", "0-1"] {
        let arguments = [arguments, &["--cores", cores]].concat();
        let server = serve(dir.path(), &arguments);
        let mut client = client(&server);
        if let Some(before) = &before {
            assert_eq!(&contents(&mut client), before, "{arguments:?}");
        }
        for database in [0, 3, 15] {
            client.ask(&format!("SELECT {database}"));
            for line in STORING {
                let reply = client.ask(line);
                assert!(
                    before.is_some() || !reply.starts_with("error"),
                    "{line}: {reply}"
                );
            }
            client.ask(&format!("SET {cores} {database}"));
            for piece in 0..300 {
                client.ask(&format!("HSET many field{piece} value"));
            }
            let long = "x".repeat(300_000);
            assert_eq!(client.ask(&format!("SET long {long}")), "OK");
        }
        for database in 0..16 {
            client.ask(&format!("SELECT {database}"));
            client.ask(&format!("SET of {database}"));
        }
        assert_eq!(client.ask("SWAPDB 0 5"), "OK");
        assert_eq!(client.ask("SWAPDB 5 9"), "OK");
        client.ask("SELECT 7");
        client.ask("FLUSHDB");
        before = Some(contents(&mut client));
        drop(client);
        end(server);
    }
    let server = serve(dir.path(), arguments);
    let mut client = client(&server);
    assert_eq!(Some(contents(&mut client)), before);
    // What SWAPDB has done survives that all keys are removed.
    let swapped = client.ask("SELECT 0");
    assert_eq!(swapped, "OK");
    client.ask("FLUSHALL");
    client.ask("SET in 0");
    // INFO may show counts of a moment before.
    let but_info = |client: &mut Client| {
        let mut contents = contents(client);
        contents.remove("keyspace");
        contents
    };
    let before = but_info(&mut client);
    drop(client);
    end(server);
    let server = serve(dir.path(), arguments);
    let mut client = Client::connect(server.address).unwrap();
    assert_eq!(but_info(&mut client), before);
    assert_eq!(client.ask("GET in"), "nil");
    client.ask("SELECT 0");
    assert_eq!(client.ask("GET in"), "0");
}

#[test]
fn all_types_and_databases_survive_in_the_log() {
    restart(&[], end);
}

#[test]
fn all_types_and_databases_survive_kills() {
    restart(&["--log", "always"], kill);
}

#[test]
fn all_types_and_databases_survive_in_a_snapshot() {
    restart(&["--log", "no"], end);
    restart(&["--log", "no", "--save", ""], |mut server| {
        let mut client = client(&server);
        client.send(&["SHUTDOWN", "SAVE"]).unwrap();
        assert!(client.read().is_err(), "it closes the connection");
        assert_eq!(server.process.end().code(), Some(0));
    });
}

#[test]
fn a_snapshot_and_a_log_together_hold_everything() {
    let mut saves = 0;
    restart(&[], |server| {
        saves += 1;
        let mut client = client(&server);
        if saves < 3 {
            assert_eq!(client.ask("SAVE"), "OK");
        }
        kill_after_log(server, &mut client);
    });
}

fn kill_after_log(server: Serve, client: &mut Client) {
    // What is not written yet is not counted yet.
    thread::sleep(Duration::from_secs(2));
    let start = Instant::now();
    while !client
        .ask("INFO persistence")
        .contains("aof_buffer_length:0\\r\\n")
    {
        assert!(start.elapsed() < PATIENCE);
    }
    kill(server);
}

/// A field of `INFO`.
fn field(client: &mut Client, name: &str) -> String {
    let info = client.ask("INFO persistence");
    let start = format!("{name}:");
    let mut lines = info.split("\\r\\n");
    let line = lines.find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {name} in {info}"))
        .to_owned()
}

fn wait_for(client: &mut Client, name: &str, value: &str) {
    let start = Instant::now();
    while field(client, name) != value {
        assert!(start.elapsed() < PATIENCE, "{name} is never {value}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The settings of saves, and what of them cannot be set.
fn check_settings(client: &mut Client, dir: &std::path::Path) {
    let dir_path = std::path::absolute(dir).unwrap();
    for (name, value) in [
        ("save", "3600 1 300 100 60 10000"),
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("stop-writes-on-bgsave-error", "yes"),
        ("dir", dir_path.to_str().unwrap()),
    ] {
        let got = client.ask(&format!("CONFIG GET {name}"));
        assert_eq!(got, format!("[{name}, {value}]"));
    }
    for (line, reply) in [
        (
            "CONFIG SET save",
            "error ERR wrong number of arguments for 'config|set' command",
        ),
        (
            "CONFIG SET dir /tmp",
            "error ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected config",
        ),
        (
            "CONFIG SET appendonly yes",
            "error ERR CONFIG SET failed (possibly related to argument 'appendonly') - can't set immutable config",
        ),
        ("CONFIG SET stop-writes-on-bgsave-error no", "OK"),
    ] {
        assert_eq!(client.ask(line), reply, "{line}");
    }
}

#[test]
fn clients_save_and_see_what_is_saved() {
    let dir = TempDir::new().unwrap();
    let server = serve(dir.path(), &["--log", "no"]);
    let mut client = client(&server);
    let began = number_of(&client.ask("LASTSAVE"));
    assert!(began > 0);
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "0");
    client.ask("SET a 1");
    client.ask("HSET b c 1");
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "2");
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(client.ask("SAVE"), "OK");
    let saved = number_of(&client.ask("LASTSAVE"));
    assert!(saved > began, "{saved} {began}");
    for (name, value) in [
        ("loading", "0"),
        ("rdb_changes_since_last_save", "0"),
        ("rdb_bgsave_in_progress", "0"),
        ("rdb_last_bgsave_status", "ok"),
        ("rdb_last_bgsave_time_sec", "0"),
        ("rdb_saves", "1"),
        ("aof_enabled", "0"),
        ("aof_rewrite_in_progress", "0"),
        ("aof_last_bgrewrite_status", "ok"),
        ("aof_last_write_status", "ok"),
    ] {
        assert_eq!(field(&mut client, name), value, "{name}");
    }
    assert_eq!(client.ask("BGSAVE"), "Background saving started");
    wait_for(&mut client, "rdb_saves", "2");
    wait_for(&mut client, "rdb_bgsave_in_progress", "0");
    assert_eq!(client.ask("BGSAVE SCHEDULE"), "Background saving started");
    wait_for(&mut client, "rdb_saves", "3");
    let rewritten = client.ask("BGREWRITEAOF");
    assert_eq!(rewritten, "Background append only file rewriting started");
    wait_for(&mut client, "aof_rewrites", "1");
    assert_eq!(client.ask("BGSAVE NOW"), "error ERR syntax error");
    check_settings(&mut client, dir.path());
    assert_eq!(
        client.try_ask(&["CONFIG", "SET", "save", "1 1"]).unwrap(),
        "OK"
    );
    assert_eq!(client.ask("CONFIG GET save"), "[save, 1 1]");
    client.ask("SET a 2");
    // The rule has it saved.
    wait_for(&mut client, "rdb_saves", "4");
    client.ask("CONFIG SET stop-writes-on-bgsave-error yes");
    let wrong = client.try_ask(&["CONFIG", "SET", "save", "1 x"]).unwrap();
    assert!(wrong.ends_with("Invalid save parameters"), "{wrong}");
    // What is not to be saved is not.
    client.ask("SET a 3");
    assert_eq!(
        client.try_ask(&["CONFIG", "SET", "save", ""]).unwrap(),
        "OK"
    );
    client.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    assert!(client.read().is_err());
    let mut server = server;
    assert_eq!(server.process.end().code(), Some(0));
    let server = serve(dir.path(), &["--log", "no"]);
    let mut client = Client::connect(server.address).unwrap();
    assert_eq!(client.ask("GET a"), "2");
    assert_eq!(client.ask("HGET b c"), "1");
}

#[test]
fn without_a_directory_nothing_is_saved() {
    let server = Serve::start(&[]);
    let mut client = client(&server);
    for line in ["SAVE", "BGSAVE", "BGREWRITEAOF"] {
        assert!(
            client
                .ask(line)
                .starts_with("error ERR The server keeps its data in memory only")
        );
    }
    assert_eq!(client.ask("CONFIG GET save"), "[save, ]");
    assert_eq!(client.ask("CONFIG GET appendonly"), "[appendonly, no]");
    assert_eq!(field(&mut client, "aof_enabled"), "0");
}

#[test]
fn a_server_that_loads_says_so_and_never_answers_without_keys() {
    let dir = TempDir::new().unwrap();
    let server = serve(dir.path(), &[]);
    let mut filling = client(&server);
    for batch in 0..100 {
        for key in 0..500 {
            filling
                .send(&["SET", &format!("key{batch}:{key}"), "value"])
                .unwrap();
        }
        for _ in 0..500 {
            assert_eq!(filling.read().unwrap(), "OK");
        }
    }
    drop(filling);
    let port = server.address.port();
    end(server);
    let address = format!("127.0.0.1:{port}");
    let data = dir.path().to_str().unwrap();
    let child = support::farcore()
        .args([
            "serve",
            "--resp",
            &address,
            "--no-huge-pages",
            "--data",
            data,
        ])
        .args(["--hash-tags", "--local", "32MiB", "--far", "32MiB"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    let _process = support::Process(child.unwrap());
    let (start, mut loading) = (Instant::now(), 0);
    loop {
        assert!(start.elapsed() < PATIENCE, "it never serves");
        let Ok(mut client) = Client::connect(address.parse().unwrap()) else {
            continue;
        };
        let reply = client.ask("GET key99:499");
        if reply == "value" {
            break;
        }
        assert_eq!(
            reply,
            "error LOADING Redis is loading the dataset in memory"
        );
        loading += 1;
        let info = client.ask("INFO persistence");
        if info.contains("loading:1") {
            for name in [
                "loading_start_time:",
                "loading_total_bytes:",
                "loading_eta_seconds:",
            ] {
                assert!(info.contains(name), "{info}");
            }
        }
        let ping = client.ask("PING");
        assert!(
            ping.starts_with("error LOADING") || ping == "PONG",
            "{ping}"
        );
        assert_eq!(client.ask("SELECT 1"), "OK");
    }
    println!("{loading} were told that it loads");
}

#[test]
fn flags_of_the_directory_are_checked() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().to_str().unwrap();
    for (arguments, part) in [
        (&["--log", "no"][..], "--data"),
        (&["--save", "1 1"], "--data"),
        (&["--data", data, "--save", "1"], "give pairs"),
        (&["--data", "/dev/null/x"], "/dev/null/x"),
    ] {
        let mut command = support::farcore();
        command
            .args(["serve", "--resp", "127.0.0.1:0"])
            .args(arguments);
        command.args(["--local", "32MiB", "--far", "32MiB", "--no-huge-pages"]);
        let output = support::output_of(&mut command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(part),
            "{arguments:?}: {said}"
        );
    }
    // One server at a time has it.
    let _server = serve(dir.path(), &[]);
    let mut command = support::farcore();
    command.args(["serve", "--resp", "127.0.0.1:0", "--data", data]);
    command.args(["--local", "32MiB", "--far", "32MiB", "--no-huge-pages"]);
    let output = support::output_of(&mut command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(data), "{said}");
}

/// Runs `farcore data check`; whether it succeeds, and what it says.
fn data_check(dir: &Path) -> (bool, String) {
    let farcore = std::process::Command::new(env!("CARGO_BIN_EXE_farcore"))
        .args(["data", "check"])
        .arg(dir)
        .output()
        .unwrap();
    let text = [farcore.stdout, farcore.stderr].concat();
    (farcore.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_directory_is_checked_and_its_damage_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &[]);
    let mut all = client(&server);
    for number in 0..100 {
        all.send(&["SET", &format!("k{number}"), "value"]).unwrap();
        assert_eq!(all.read().unwrap(), "OK");
    }
    let (is_whole, said) = data_check(dir.path());
    assert!(!is_whole && said.contains("is in use by process"), "{said}");
    all.send(&["SAVE"]).unwrap();
    assert_eq!(all.read().unwrap(), "OK");
    end(server);
    let (is_whole, said) = data_check(dir.path());
    assert!(is_whole, "{said}");
    assert!(said.contains(": 100 keys"), "{said}");
    assert!(said.contains("all that counts is whole"), "{said}");
    let names = std::fs::read_dir(dir.path()).unwrap();
    let mut paths = names.map(|entry| entry.unwrap().path());
    let is_base = |path: &std::path::PathBuf| path.to_string_lossy().contains("/base-");
    let base = paths.find(is_base).unwrap();
    let mut bytes = std::fs::read(&base).unwrap();
    bytes[4096 + 100] ^= 1;
    std::fs::write(&base, bytes).unwrap();
    let (is_whole, said) = data_check(dir.path());
    assert!(!is_whole && said.contains("damaged"), "{said}");
    assert!(said.contains(&base.display().to_string()), "{said}");
}
