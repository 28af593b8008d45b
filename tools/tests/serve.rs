//! `farcore serve` from the command line: errors, the ready line, signals, passwords.

mod support;

use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use self::support::{Process, Serve, farcore, output_of};

/// A file that is removed with its owner.
#[derive(Debug)]
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, text).expect("a file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path of plain characters")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A file that remains harms no other test.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn ended(arguments: &[&str], code: i32) -> String {
    let mut command = farcore();
    command
        .arg("serve")
        .args(arguments)
        .env("RUST_LOG", "error");
    let Output { status, stderr, .. } = output_of(&mut command);
    let text = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(code), "{arguments:?}: {text}");
    text
}

fn refused(arguments: &[&str]) -> String {
    let text = ended(arguments, 1);
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn values_that_cannot_be_read_are_named() {
    for (arguments, part) in [
        (["--resp", "here"], "--resp"),
        (["--idle-timeout", "soon"], "--idle-timeout"),
        (["--token-file", "x"], "--fabric"),
        (["--tls", "127.0.0.1:0"], "--tls-cert"),
        (["--tls-ca", "x"], "--tls"),
        (["--replica-backlog", "0"], "--replica-backlog"),
        (["--replica-tls-key", "x"], "--replica-tls-c"),
    ] {
        let text = ended(&arguments, 2);
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
}

#[test]
fn errors_are_one_line_with_the_remedy() {
    let empty = File::new("empty.password", "\n");
    for (arguments, parts) in [
        (
            &["--resp", "0.0.0.0:0"][..],
            &["other hosts", "--password-file", "--open-to-all"][..],
        ),
        (
            &["--tls", "0.0.0.0:0", "--tls-cert", "x", "--tls-key", "x"],
            &["other hosts", "--password-file", "--tls-ca"],
        ),
        (&["--max-clients", "0"], &["--max-clients 0", "at least 1"]),
        (&["--backlog", "0"], &["--backlog is 0", "1 to 2147483647"]),
        (
            &["--config", "/nowhere/farcore.conf"],
            &["/nowhere/farcore.conf: No such file", "--config"],
        ),
        (
            &["--password-file", "/nowhere/at/all"],
            &["--password-file /nowhere/at/all"],
        ),
        (
            &["--password-file", empty.path()],
            &["first line is empty", "write the password there"],
        ),
        (
            &["--http", "0.0.0.0:0"],
            &["--http is 0.0.0.0:0", "--insecure"],
        ),
        (
            &["--native", "tcp://0.0.0.0:0"],
            &["--native", "other hosts", "--native-token-file"],
        ),
        (
            &["--native", "tcp://127.0.0.1:0", "--device", "mlx5_0"],
            &["--device", "omit it"],
        ),
    ] {
        let text = refused(arguments);
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: no `{part}` in {text}");
        }
    }
}

#[test]
fn a_busy_port_is_named_with_the_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a socket").to_string();
    let sizes = ["--local", "32MiB", "--far", "32MiB", "--no-huge-pages"];
    let text = refused(&[&["--resp", &address][..], &sizes].concat());
    assert!(text.contains(&address) && text.contains("--resp"), "{text}");
}

#[test]
fn a_certificate_that_cannot_be_read_is_named() {
    let sizes = ["--local", "32MiB", "--far", "32MiB", "--no-huge-pages"];
    let files = ["--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.key"];
    let addresses = ["--resp", "127.0.0.1:0", "--tls", "127.0.0.1:0"];
    let text = refused(&[&addresses[..], &files, &sizes].concat());
    assert!(text.contains("/nowhere.pem"), "{text}");
}

#[test]
fn native_addresses_are_printed_and_their_limits_checked() {
    let mut command = farcore();
    let child = command
        .args(["serve", "--resp", "127.0.0.1:0", "--no-huge-pages"])
        .args(["--local", "32MiB", "--far", "32MiB"])
        .args(["--native", "tcp://127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut process = Process(child.expect("a server"));
    let out = BufReader::new(process.0.stdout.take().expect("a pipe"));
    let lines: Vec<String> = out
        .lines()
        .take(2)
        .map(|line| line.expect("a line"))
        .collect();
    let address = lines[0].strip_prefix("native: tcp://").expect("an address");
    TcpStream::connect(address).expect("it listens");
    assert!(lines[1].starts_with("ready: redis://"), "{lines:?}");
    let sizes = ["--local", "32MiB", "--far", "32MiB", "--no-huge-pages"];
    let native = ["--native", "tcp://127.0.0.1:0", "--small-bytes", "100"];
    let text = refused(&[&["--resp", "127.0.0.1:0"][..], &native, &sizes].concat());
    assert!(text.contains("--small-bytes is 100: must be 512"), "{text}");
}

#[test]
fn signals_end_the_server_with_success() {
    for signal in ["TERM", "INT"] {
        let mut server = Serve::start(&[]);
        let mut client = server.connect();
        client
            .get_mut()
            .write_all(b"SET k v\r\n")
            .expect("a connection");
        let mut line = String::new();
        client.read_line(&mut line).expect("a reply");
        assert_eq!(line, "+OK\r\n");
        server.process.signal(signal);
        assert_eq!(server.process.end().code(), Some(0), "{signal}");
        line.clear();
        assert_eq!(client.read_line(&mut line).unwrap_or(0), 0, "{line}");
    }
}

#[test]
fn a_client_can_end_the_server() {
    let mut server = Serve::start(&["--cores", "0"]);
    assert_eq!(server.line("SHUTDOWN foo"), "-ERR syntax error");
    assert_eq!(server.line("SHUTDOWN NOSAVE"), "");
    assert_eq!(server.process.end().code(), Some(0));
    server.log.wait("stopped");
}

#[test]
fn the_password_of_a_file_is_required() {
    let file = File::new("server.password", "secret \nanother line\n");
    let server = Serve::start(&["--password-file", file.path()]);
    assert_eq!(server.line("PING"), "-NOAUTH Authentication required.");
    assert_eq!(server.line("AUTH \"secret \""), "+OK");
    assert!(server.line("AUTH secret").starts_with("-WRONGPASS"));
    assert!(
        server
            .line("AUTH \"secret \\nanother line\"")
            .starts_with("-WRONGPASS")
    );
}

#[test]
fn secrets_that_others_can_read_are_named() {
    // The mode of most new files.
    let password = File::new("exposed.password", "secret\n");
    let token = File::new("exposed.token", "a token of the tests of the server\n");
    for file in [&password, &token] {
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(file.path(), mode).expect("a file");
    }
    let mut server = Serve::start(&[
        "--password-file",
        password.path(),
        "--native",
        "tcp://127.0.0.1:0",
        "--native-token-file",
        token.path(),
    ]);
    // Tokens are read first.
    for (what, file) in [("token file", &token), ("--password-file", &password)] {
        let line = server.log.wait(&format!("run `chmod 600 {}`", file.path()));
        assert!(line.contains("mode 0644") && line.contains(what), "{line}");
    }
}

#[test]
fn monitor_needs_its_flag() {
    assert!(Serve::start(&[]).line("MONITOR").contains("--monitor"));
    assert_eq!(Serve::start(&["--monitor"]).line("MONITOR"), "+OK");
}
