//! A server with a file of settings, which `CONFIG REWRITE` writes: what stays in it, and what a
//! server is that is started again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::too_many_lines, reason = "a test tells one story")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use farcore_server::{Server, SourceAddress};

use self::support::followers::{figure, said};
use self::support::{Client, Served};

/// A folder with a file of settings.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(text: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::write(folder.path(), text).unwrap();
        folder
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("farcore.conf")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    /// A server that is started with the file, and with a source of its options.
    fn start(&self, source: Option<SourceAddress>) -> Served {
        let mut served = Served::with(1, |options| {
            options.settings_file = Some(self.path());
            options.replica.source = source;
        });
        served.begin();
        served
    }
}

fn rewrite(client: &mut Client) {
    assert_eq!(said(client, "CONFIG REWRITE"), "OK");
}

/// The value of a setting.
fn value(client: &mut Client, name: &str) -> String {
    let reply = client.ask(&["CONFIG", "GET", name]).text();
    let value = reply.strip_prefix(&format!("[\"{name}\", \"")[..]);
    let value = value.and_then(|rest| rest.strip_suffix("\"]"));
    value.unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// Where it looks for its source: nothing is there.
const NOWHERE: &str = "127.0.0.1 1";

fn source(client: &mut Client) -> String {
    let host = figure(client, "master_host");
    match &host[..] {
        "" => "none".to_owned(),
        _ => format!("{host} {}", figure(client, "master_port")),
    }
}

#[test]
fn what_was_set_and_followed_is_there_after_a_restart_and_the_rest_of_the_file_stays() {
    let folder = Folder::with(
        "# of the office\n\nREPL-TIMEOUT 33\nslave-priority 7\n# masterauth is elsewhere\n",
    );
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o640)).unwrap();
    let before = folder.text();
    let mut served = folder.start(None);
    let mut client = served.client();
    assert_eq!(value(&mut client, "repl-timeout"), "33");
    assert_eq!(value(&mut client, "replica-priority"), "7");
    // Nothing has changed.
    rewrite(&mut client);
    assert_eq!(folder.text(), before);
    for set in [
        "slowlog-max-len 77",
        "replica-priority 9",
        "repl-backlog-size 3mb",
        "masterauth secret",
        "masteruser someone",
        "hash-max-listpack-entries 5",
    ] {
        assert_eq!(said(&mut client, &format!("CONFIG SET {set}")), "OK");
    }
    assert_eq!(said(&mut client, &format!("REPLICAOF {NOWHERE}")), "OK");
    rewrite(&mut client);
    let text = folder.text();
    let kept = "# of the office\n\nREPL-TIMEOUT 33\nslave-priority 9\n# masterauth is elsewhere\n";
    assert!(text.starts_with(kept), "{text}");
    for line in [
        "\nslowlog-max-len 77\n",
        "\nrepl-backlog-size 3145728\n",
        "\nmasteruser someone\n",
        "\nhash-max-listpack-entries 5\n",
        "\nreplicaof 127.0.0.1 1\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    // It was not in the file.
    assert!(
        !text.contains("secret") && !text.contains("ziplist"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 11, "{text}");
    let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let names = fs::read_dir(folder.0.path()).unwrap().count();
    assert_eq!(names, 1, "nothing is left beside");
    served.stop();

    let mut served = folder.start(None);
    let mut client = served.client();
    for (name, wanted) in [
        ("slowlog-max-len", "77"),
        ("replica-priority", "9"),
        ("slave-priority", "9"),
        ("repl-timeout", "33"),
        ("repl-backlog-size", "3145728"),
        ("masteruser", "someone"),
        ("hash-max-ziplist-entries", "5"),
        ("masterauth", ""),
    ] {
        assert_eq!(value(&mut client, name), wanted, "{name}");
    }
    assert_eq!(source(&mut client), NOWHERE);
    rewrite(&mut client);
    assert_eq!(folder.text(), text);
    // What becomes as it would be without the file stays said.
    assert_eq!(said(&mut client, "CONFIG SET slowlog-max-len 128"), "OK");
    assert_eq!(said(&mut client, "REPLICAOF NO ONE"), "OK");
    rewrite(&mut client);
    served.stop();
    let mut served = folder.start(None);
    let mut client = served.client();
    assert_eq!(value(&mut client, "slowlog-max-len"), "128");
    assert_eq!(source(&mut client), "none");
    served.stop();
}

/// As Redis's Sentinel has a server follow, and follow none.
#[test]
fn a_transaction_of_sentinel_is_carried_out_and_goes_before_the_source_of_the_options() {
    let folder = Folder::with("masterauth first\n");
    let options = Some(SourceAddress {
        host: "127.0.0.1".to_owned(),
        port: 2,
    });
    let transaction = |client: &mut Client, source: &str| {
        assert_eq!(said(client, "MULTI"), "OK");
        for command in [&format!("REPLICAOF {source}"), "CONFIG REWRITE"] {
            assert_eq!(said(client, command), "QUEUED");
        }
        assert_eq!(said(client, "CLIENT KILL TYPE pubsub"), "QUEUED");
        let replies = client.ask(&["EXEC"]).to_string();
        assert!(
            replies.matches("+OK").count() == 2 && !replies.contains('-'),
            "{replies}"
        );
    };
    for (said_source, wanted) in [
        (NOWHERE, NOWHERE),
        ("no one", "none"),
        ("h\u{e9} 7", "h\u{e9} 7"),
    ] {
        let mut served = folder.start(options.clone());
        let mut client = served.client();
        assert_eq!(said(&mut client, "CONFIG SET masterauth second"), "OK");
        transaction(&mut client, said_source);
        assert_eq!(source(&mut client), wanted);
        served.stop();
        let mut served = folder.start(options.clone());
        assert_eq!(source(&mut served.client()), wanted, "{}", folder.text());
        served.stop();
    }
    // One was there, so it is replaced.
    assert!(
        folder.text().starts_with("masterauth second\n"),
        "{}",
        folder.text()
    );
    // Without a line the options say it.
    fs::write(folder.path(), "").unwrap();
    let mut served = folder.start(options);
    assert_eq!(source(&mut served.client()), "127.0.0.1 2");
    rewrite(&mut served.client());
    assert_eq!(folder.text(), "");
    served.stop();
}

#[test]
fn the_backlog_of_the_options_is_a_setting_that_goes_on() {
    let mut served = Served::with(1, |options| {
        options.replica.backlog_bytes = Some(3 << 20);
    });
    let mut client = served.client();
    assert_eq!(figure(&mut client, "repl_backlog_size"), "3145728");
    assert_eq!(value(&mut client, "repl-backlog-size"), "3145728");
    assert_eq!(said(&mut client, "CONFIG SET repl-backlog-size 2mb"), "OK");
    assert_eq!(figure(&mut client, "repl_backlog_size"), "2097152");
    served.stop();
}

#[test]
fn what_cannot_be_written_or_read_is_said() {
    let served = Served::start(1);
    let reply = served.client().ask(&["CONFIG", "REWRITE"]).to_string();
    assert_eq!(reply, "-ERR The server is running without a config file");
    let folder = Folder::with("timeout 0\n");
    let mut served = folder.start(None);
    let mut client = served.client();
    assert_eq!(said(&mut client, "CONFIG SET slowlog-max-len 77"), "OK");
    fs::remove_dir_all(folder.0.path()).unwrap();
    let reply = client.ask(&["CONFIG", "REWRITE"]).to_string();
    let wanted = format!(
        "-ERR Rewriting config file: {}: No such file",
        folder.path().display()
    );
    assert!(reply.starts_with(&wanted), "{reply}");
    // A file that has gone comes again.
    fs::create_dir(folder.0.path()).unwrap();
    rewrite(&mut client);
    assert_eq!(
        folder.text(),
        "# Generated by CONFIG REWRITE\nslowlog-max-len 77\n"
    );
    served.stop();
}

fn refused(text: &str) -> String {
    let folder = Folder::with(text);
    if let Err(error) = Server::check_settings(&folder.path()) {
        return error.to_string();
    }
    let engine = support::small_engine(1);
    let mut options = farcore_server::Options::new(([127, 0, 0, 1], 0).into());
    options.settings_file = Some(folder.path());
    let error = Server::start(&engine, options).unwrap_err().to_string();
    engine.close();
    error
}

#[test]
fn a_line_that_is_no_setting_has_the_server_not_start() {
    for (text, part) in [
        (
            "timeout 0\nrequirepass x",
            "line 2: requirepass: there is no such setting",
        ),
        (
            "slowlog-max-len many",
            "line 1: slowlog-max-len: argument couldn't be parsed",
        ),
        ("port 1", "line 1: port: can't set immutable config"),
        (
            "repl-timeout 1 2",
            "line 1: repl-timeout: it has more than one value",
        ),
        (
            "replicaof somewhere",
            "line 1: replicaof: give a host and a port",
        ),
        (
            "replicaof somewhere 0",
            "line 1: replicaof: Invalid master port",
        ),
        ("masteruser 'a", "line 1: the quotes"),
        (
            "repl-timeout 3\n\nREPL-timeout 4",
            "line 3: repl-timeout is in line 1 already",
        ),
    ] {
        let error = refused(text);
        let remedy = "correct the file that --config names";
        assert!(error.contains(part) && error.ends_with(remedy), "{error}");
    }
    let error = Server::check_settings(Path::new("/none/farcore.conf"));
    assert!(
        error
            .unwrap_err()
            .to_string()
            .starts_with("/none/farcore.conf: No such file")
    );
}
