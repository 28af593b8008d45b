//! `farcore cli` against `farcore serve --native`: each command, JSON, scripts, the prompt, exit
//! codes, errors.

mod support;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::Receiver;

use serde_json::{Value, json};

use self::support::{Lines, PATIENCE, Process, Serve, TokenFile, farcore, output_until_end};

/// A server, and the command against it.
struct Cli {
    server: Serve,
}

impl Cli {
    fn start(serve: &[&str]) -> Self {
        let native = ["--native", "tcp://127.0.0.1:0", "--cores", "0"];
        Self {
            server: Serve::start(&[&native, serve].concat()),
        }
    }

    fn command<W: AsRef<OsStr>>(&self, words: &[W]) -> Command {
        let mut command = farcore();
        let address = self.server.native.as_deref().expect("a native address");
        command
            .arg("cli")
            .args(words)
            .env("FARCORE_SERVER", address)
            .env_remove("RUST_LOG");
        command
    }

    fn run<W: AsRef<OsStr>>(&self, words: &[W], input: &[u8]) -> Output {
        let mut command = self.command(words);
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.expect("the command runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_owned();
        let writer = std::thread::spawn(move || {
            // The command may end before it has read all.
            let _ = stdin.write_all(&input);
        });
        let output = output_until_end(child);
        writer.join().expect("no panic");
        output
    }

    /// What a command of these words prints, and its exit code.
    fn ends(&self, line: &str, code: i32) -> Output {
        let words: Vec<&str> = line.split(' ').collect();
        let output = self.run(&words, b"");
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        output
    }

    fn prints(&self, line: &str) -> String {
        let output = self.ends(line, 0);
        assert_eq!(said(&output), "", "{line}");
        text(&output)
    }

    /// The JSON objects that a command prints.
    fn json(&self, line: &str, code: i32) -> Vec<Value> {
        let output = self.ends(&format!("{line} --json"), code);
        let text = text(&output);
        let objects = text.lines().map(serde_json::from_str);
        objects.map(|one| one.expect(line)).collect()
    }

    /// An error: one line on stderr, nothing on stdout.
    fn fails(&self, line: &str) -> String {
        let output = self.ends(line, 1);
        let said = said(&output);
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
        assert_eq!(text(&output), "", "{line}");
        said
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn version(text: &str) -> u64 {
    let number = text.trim_end().rsplit(' ').next();
    number.and_then(|word| word.parse().ok()).expect(text)
}

#[test]
fn each_command_does_what_it_says() {
    let cli = Cli::start(&[]);
    let first = version(&cli.prints("put k one"));
    assert_eq!(cli.prints("get k"), "one");
    let second = version(&cli.prints(&format!("cas k {first} two")));
    assert!(second > first);
    let output = cli.ends(&format!("cas k {first} three"), 3);
    let current = format!("`k` has version {second}");
    assert!(said(&output).contains(&current), "{}", said(&output));
    assert_eq!(text(&output), "");
    let output = cli.ends("put k four --if-absent", 3);
    assert!(said(&output).contains(&current), "{}", said(&output));
    cli.ends("put k five --if-version 1", 3);
    cli.prints(&format!("put k six --if-version {second}"));
    cli.prints("put new 7 --if-absent");
    assert_eq!(cli.prints("incr new"), "8\n");
    assert_eq!(cli.prints("incr new -10"), "-2\n");
    assert_eq!(cli.prints("incr other 5"), "5\n");
    assert!(cli.fails("incr k").contains("incr"), "no number");
    assert_eq!(
        cli.prints("mget k other new"),
        "k\tsix\nother\t5\nnew\t-2\n"
    );
    let output = cli.ends("mget k gone other", 2);
    assert_eq!(text(&output), "k\tsix\nother\t5\n");
    assert!(
        said(&output).contains("`gone` is absent"),
        "{}",
        said(&output)
    );
    cli.prints("put brief 1 --ttl 1000");
    let left = cli.prints("ttl brief");
    let seconds = left
        .trim_start_matches("expires in ")
        .trim_end_matches(" s\n");
    let seconds: f64 = seconds.parse().expect(&left);
    assert!(seconds > 0.0 && seconds <= 1000.0, "{left}");
    assert_eq!(cli.prints("ttl k"), "does not expire\n");
    cli.ends("ttl gone", 2);
    expiries_are_set_and_removed(&cli);
    cli.ends("get gone", 2);
    cli.ends("del gone", 2);
    cli.ends("del k --if-version 1", 3);
    assert_eq!(cli.prints("del k"), "deleted\n");
    cli.ends("get k", 2);
    let stats = cli.prints("stats");
    assert!(
        stats.contains("native_requests") || stats.contains("gets"),
        "{stats}"
    );
}

fn expiries_are_set_and_removed(cli: &Cli) {
    assert_eq!(cli.prints("expire k 5000"), "expires in 5000 s\n");
    assert!(cli.prints("ttl k").starts_with("expires in 49"));
    let output = cli.ends("expire k 6000 --only-if earlier", 3);
    assert!(said(&output).contains("`k` is not so"), "{}", said(&output));
    cli.prints("expire k 4000 --only-if earlier");
    cli.ends("expire k 9000 --only-if unset", 3);
    assert!(cli.prints("ttl k").starts_with("expires in 39"));
    assert_eq!(cli.prints("expire k --never"), "does not expire\n");
    assert_eq!(cli.prints("ttl k"), "does not expire\n");
    for line in ["expire gone 3", "expire gone --never --only-if set"] {
        cli.ends(line, 2);
    }
}

#[test]
fn values_of_any_bytes_and_lengths_come_back() {
    let cli = Cli::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("value");
    let name = file.to_str().expect("text");
    let long: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let short = b"\xff\x00\r\n\x1b[2J".to_vec();
    for value in [Vec::new(), short.clone(), vec![7; 5000], long.clone()] {
        fs::write(&file, &value).expect("a file");
        cli.prints(&format!("put k --file {name}"));
        let output = cli.ends("get k", 0);
        assert!(output.stdout == value, "{} bytes", value.len());
        fs::write(&file, "what was there").expect("a file");
        let line = cli.prints(&format!("get k --output {name}"));
        assert!(line.contains("bytes, version"), "{line}");
        assert!(fs::read(&file).expect("a file") == value);
        let output = cli.run(&["put", "from-stdin", "--stdin"], &value);
        assert!(output.status.success(), "{}", said(&output));
        assert!(cli.ends("get from-stdin", 0).stdout == value);
    }
    // An absent key leaves the file as it was, and none where there was none.
    fs::write(&file, "kept").expect("a file");
    cli.ends(&format!("get gone --output {name}"), 2);
    assert_eq!(fs::read(&file).expect("a file"), b"kept");
    cli.ends(&format!("get gone --output {name}.new"), 2);
    assert!(!folder.path().join("value.new").exists());
    // A key of any bytes.
    let key = OsStr::from_bytes(b"\xfe\x01 key");
    let put = [OsStr::new("put"), key, OsStr::new("v")];
    assert!(cli.run(&put, b"").status.success());
    let get = cli.run(&[OsStr::new("get"), key], b"");
    assert_eq!(get.stdout, b"v");
    let output = cli.run(&[OsStr::new("mget"), key], b"");
    assert_eq!(text(&output), "\\xfe\\u{1} key\tv\n");
}

#[test]
fn json_is_one_object_a_result() {
    let cli = Cli::start(&[]);
    let stored = cli.json("put k one", 0);
    let version = stored[0]["version"].as_u64().expect("a version");
    let key = |rest: Value| {
        let mut object = json!({"key": "k"});
        let fields = object.as_object_mut().expect("an object");
        fields.extend(rest.as_object().expect("an object").clone());
        vec![object]
    };
    assert_eq!(stored, key(json!({"stored": true, "version": version})));
    let found = json!({"found": true, "value": "one", "version": version});
    assert_eq!(cli.json("get k", 0), key(found.clone()));
    assert_eq!(
        cli.json("cas k 999999 x", 3),
        key(json!({"stored": false, "version": version}))
    );
    assert_eq!(
        cli.json("mget k gone", 2),
        [key(found), vec![json!({"key": "gone", "found": false})]].concat()
    );
    assert_eq!(
        cli.json("ttl k", 0),
        key(json!({"found": true, "expiry_ms": null, "left_ms": null}))
    );
    assert_eq!(cli.json("incr n -3", 0), [json!({"key": "n", "sum": -3})]);
    let scanned = cli.json("scan --prefix k", 0);
    assert_eq!(scanned, key(json!({"version": version, "bytes": 3})));
    let set = |set: bool| key(json!({"set": set}));
    assert_eq!(cli.json("expire k 9 --only-if set", 3), set(false));
    assert_eq!(cli.json("expire k --never", 0), set(true));
    let output = cli.run(&["put", "k", "--stdin"], b"\xff\x00");
    assert!(output.status.success());
    let found = &cli.json("get k", 0)[0];
    assert_eq!(found["value"], "/wA=");
    assert_eq!(found["value_encoding"], "base64");
    assert_eq!(cli.json("del k", 0), key(json!({"deleted": true})));
    assert_eq!(cli.json("del k", 2), key(json!({"found": false})));
    let stats = cli.json("stats", 0);
    assert!(stats[0]["uptime_ms"].is_u64(), "{stats:?}");
}

#[test]
fn a_scan_lists_every_key_and_its_value() {
    let cli = Cli::start(&[]);
    let mut script = String::new();
    for n in 0..1500 {
        script.push_str(&format!("put a{n} {n}\n"));
    }
    // Values that fit no page.
    let long = "x".repeat(900_000);
    script.push_str(&format!("put b1 {long}\nput b2 {long}\n"));
    let output = cli.run::<&str>(&[], script.as_bytes());
    assert!(output.status.success(), "{}", said(&output));
    let keys = cli.prints("scan");
    let mut keys: Vec<&str> = keys.lines().collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 1502);
    let listed = cli.prints("scan --values");
    for line in listed.lines() {
        let (key, value) = line.split_once('\t').expect("a value");
        let expected = key.strip_prefix('a').unwrap_or(&long);
        assert!(value == expected, "{key}");
    }
    assert_eq!(listed.lines().count(), 1502);
    assert_eq!(cli.prints("scan --prefix b").lines().count(), 2);
    assert_eq!(cli.prints("scan --limit 700").lines().count(), 700);
    assert_eq!(cli.prints("scan --prefix a --limit 3").lines().count(), 3);
    assert_eq!(cli.prints("scan --prefix c"), "");
    assert_eq!(cli.prints("scan a?").lines().count(), 10);
    assert_eq!(cli.prints("scan *[02] --prefix a14").lines().count(), 22);
    assert_eq!(cli.prints("scan b* --limit 1").lines().count(), 1);
    assert_eq!(cli.prints("scan A*"), "");
}

#[test]
fn a_hash_is_listed_and_its_value_is_not() {
    let cli = Cli::start(&[]);
    assert_eq!(cli.server.line("HSET h field value"), ":1");
    let error = cli.fails("get h");
    let remedy = "a hash, set or list: clients of the Redis protocol read it";
    assert!(error.contains(remedy), "{error}");
    let line = cli.prints("scan --values");
    assert_eq!(line, "h\t(a hash, set or list: Redis clients read it)\n");
    let listed = &cli.json("scan --values", 0)[0];
    assert_eq!(listed["collection"], true);
    assert!(listed.get("value").is_none(), "{listed}");
}

#[test]
fn a_measurement_leaves_no_keys() {
    let cli = Cli::start(&[]);
    let line = "bench --operations 2000 --in-flight 8 --keys 50 --value-bytes 5KiB";
    let measured = &cli.json(line, 0)[0];
    let count = |of: &str| measured[of]["count"].as_u64().expect(of);
    assert_eq!((count("all"), &measured["absent"]), (2000, &json!(0)));
    assert_eq!(count("get") + count("put"), 2000);
    assert!(
        count("get") > count("put") && count("put") > 0,
        "{measured}"
    );
    for field in ["p50_ns", "p99_ns", "p999_ns", "max_ns"] {
        assert!(measured["all"][field].as_u64() > Some(0), "{measured}");
    }
    assert_eq!(cli.prints("scan"), "");
    let table = cli.prints("bench --operations 100 --reads 0 --keys 1");
    assert!(
        table.contains("p99.9") && !table.contains("get "),
        "{table}"
    );
    assert_eq!(cli.prints("scan"), "");
}

#[test]
fn a_script_stops_at_the_first_error() {
    let cli = Cli::start(&[]);
    let script = b"# a comment\n\nput a '1 2'\nget gone\ncas a 999999 x\nincr a\nput b 2\n";
    let output = cli.run::<&str>(&[], script);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let lines = text(&output);
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[1], "`gone` is absent");
    assert!(lines[2].starts_with("nothing is stored: `a` has version"));
    let error = said(&output);
    assert!(error.starts_with("farcore cli: line 6: "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    cli.ends("get b", 2);
    let output = cli.run(
        &["--keep-going"],
        b"incr a\nfetch\nput b --stdin\nput b 2\nget b",
    );
    assert_eq!(output.status.code(), Some(1));
    let error = said(&output);
    for part in ["line 1: ", "line 2: ", "line 3: --stdin"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(error.lines().count(), 3, "{error}");
    assert!(text(&output).ends_with("\n2\n"), "{}", text(&output));
    let output = cli.run(&["--json"], b"get a\nget gone\nquit\nfetch\n");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(text(&output).lines().count(), 2);
    let output = cli.run::<&str>(&[], b"get a --json\nget a\nhelp\n");
    assert!(text(&output).starts_with('{') && text(&output).contains("\n1 2\n"));
    assert!(text(&output).contains("Commands:"), "{}", text(&output));
}

#[test]
fn errors_name_what_is_wrong_and_the_remedy() {
    let cli = Cli::start(&[]);
    let long = "k".repeat(1025);
    for (line, parts) in [
        (format!("get {long}"), &["1025", "1024"][..]),
        (
            "put k --file /nowhere/at/all".to_owned(),
            &["--file", "No such file"],
        ),
        (
            "get k --output /nowhere/at/all".to_owned(),
            &["--output", "cannot be written"],
        ),
        ("--keep-going get k".to_owned(), &["--keep-going", "omit"]),
        ("--timeout 0s get k".to_owned(), &["--timeout 0", "1ms"]),
        ("--device mlx5_0 get k".to_owned(), &["--device", "omit"]),
        (
            "--token-file /nowhere get k".to_owned(),
            &["--token-file /nowhere"],
        ),
        (
            "bench --value-bytes 65MiB".to_owned(),
            &["--value-bytes", "67108864"],
        ),
        (
            "bench --value-bytes 64MiB --in-flight 17".to_owned(),
            &["--in-flight 17", "1 GiB"],
        ),
        (
            "--server tcp://127.0.0.1:1 get k".to_owned(),
            &["tcp://127.0.0.1:1", "farcore serve --native", "--server"],
        ),
    ] {
        let said = cli.fails(&line);
        for part in parts {
            assert!(said.contains(part), "{line}: no `{part}` in {said}");
        }
    }
    // Exit code 2 is an absent key's alone.
    for line in [
        "get",
        "put k",
        "fetch k",
        "--server here get k",
        "get k --ttl 3",
    ] {
        cli.ends(line, 1);
    }
    cli.ends("get --help", 0);
}

#[test]
fn the_token_of_a_file_is_proved() {
    let token = TokenFile::new("cli");
    let cli = Cli::start(&["--native-token-file", token.path()]);
    let address = cli.server.native.clone().expect("an address");
    let said = cli.fails("get k");
    let missing = format!("{address} requires a token: give --token-file the server's");
    assert!(said.contains(&missing), "{said}");
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other");
    fs::write(&other, "another token of the tests").expect("a file");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).expect("a mode");
    let other = other.display();
    let said = cli.fails(&format!("--token-file {other} get k"));
    let differs = format!("{address} rejected the token: --token-file {other} differs from");
    assert!(said.contains(&differs), "{said}");
    let token = format!("--token-file {}", token.path());
    assert!(cli.prints(&format!("{token} put k v")).contains("version"));
    assert_eq!(cli.prints(&format!("{token} get k")), "v");
}

/// The engine behind the server names fields of its configuration.
#[test]
fn errors_of_the_server_name_flags() {
    let cli = Cli::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("value");
    fs::write(&file, vec![7; 30_000_000]).expect("a file");
    let put = format!("--file {}", file.display());
    cli.prints(&format!("put one {put}"));
    let said = cli.fails(&format!("put two {put}"));
    let start = "farcore cli put: the far memory of shard 0 is full: ";
    assert!(said.starts_with(start), "{said}");
    assert!(
        said.ends_with("delete keys or raise --far of the server\n"),
        "{said}"
    );
    // An address is named once.
    let said = cli.fails("--server tcp://127.0.0.1:1 get k");
    assert_eq!(said.matches("127.0.0.1:1").count(), 1, "{said}");
}

/// The client library says in its log that the connection ended and that it cannot connect again;
/// what a user reads is the operation's error.
#[test]
fn a_server_that_ends_is_one_line_of_error() {
    let mut cli = Cli::start(&[]);
    let mut child = cli
        .command(&["--timeout", "300ms"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"put k v\n").expect("it reads");
    let mut out = Lines::of(child.stdout.take().expect("a pipe"));
    out.wait("stored, version");
    cli.server.process.signal("KILL");
    cli.server.process.end();
    stdin.write_all(b"get k\n").expect("it reads");
    let output = output_until_end(child);
    assert_eq!(output.status.code(), Some(1));
    let error = said(&output);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("farcore cli: line 2: get"), "{error}");
}

/// The prompt on a terminal.
struct Prompt {
    process: Process,
    keys: File,
    output: Receiver<String>,
    seen: String,
}

impl Prompt {
    fn start(cli: &Cli, state: &Path) -> Self {
        let (keys, line) = support::terminal();
        let end = || Stdio::from(OwnedFd::from(line.try_clone().expect("a terminal")));
        let child = cli
            .command::<&str>(&[])
            .env("XDG_STATE_HOME", state)
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn();
        Self {
            process: Process(child.expect("the command runs")),
            output: support::text_of(keys.try_clone().expect("a terminal")),
            keys,
            seen: String::new(),
        }
    }

    /// Waits for a text, and forgets it and what came before.
    fn wait(&mut self, wanted: &str) {
        loop {
            if let Some(at) = self.seen.find(wanted) {
                self.seen.drain(..at + wanted.len());
                return;
            }
            match self.output.recv_timeout(PATIENCE) {
                Ok(text) => self.seen.push_str(&text),
                Err(error) => panic!("no {wanted:?}: {error}\n{:?}", self.seen),
            }
        }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Types a line at the prompt and waits for what it prints.
    fn line(&mut self, line: &str, wanted: &str) {
        self.wait("> ");
        self.types(&format!("{line}\r"));
        self.wait(wanted);
    }
}

#[test]
fn the_prompt_remembers_commands_but_no_values() {
    let cli = Cli::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut prompt = Prompt::start(&cli, folder.path());
    prompt.line("put k 'a secret'", "stored, version");
    prompt.line("get k", "a secret\r\n");
    prompt.line("putt k 'a secret'", "error: unrecognized subcommand 'putt'");
    prompt.line("put k 'a secret", "error: a quotation mark");
    prompt.line("incr k", "error: ");
    prompt.line("get gone", "`gone` is absent");
    prompt.line("help", "Commands:");
    // Control-C gives a new line.
    prompt.line("get k\u{3}", "> ");
    prompt.types("quit\r");
    assert_eq!(prompt.process.end().code(), Some(0));
    let file = folder.path().join("farcore/history");
    let kept = fs::read_to_string(&file).expect("a history");
    assert_eq!(kept, "put k\nget k\nincr k\nget gone\nhelp\n");
    let mode = fs::metadata(&file).expect("a history").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The next one has it: two lines back is `get gone`.
    let mut prompt = Prompt::start(&cli, folder.path());
    prompt.line("\u{1b}[A\u{1b}[A", "`gone` is absent");
    prompt.wait("> ");
    prompt.types("sta\t\r");
    prompt.wait("uptime_ms");
    prompt.wait("> ");
    // The end of the input ends it, too.
    prompt.types("\u{4}");
    assert_eq!(prompt.process.end().code(), Some(0));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let cli = Cli::start(&[]);
    cli.prints("put k v");
    for line in ["get k", "scan", "stats", "get k --json"] {
        let mut command = cli.command(&line.split(' ').collect::<Vec<_>>());
        let output = command
            .stdin(Stdio::null())
            .stdout(support::closed_pipe())
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{line}: {}", said(&output));
        assert_eq!(said(&output), "", "{line}");
    }
}
