//! A memory node or a server in a separate process, the commands that there are, and terminals,
//! for the tests of this folder. The output of a process is read line by line, and it ends with its
//! owner.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod etcd;
pub(crate) mod watched;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Time limit of everything that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A stdout or stderr whose reader is gone.
pub(crate) fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// The command `farcore`, which acts on every signal: what a shell without job control starts in
/// the background ignores SIGINT, the tests included.
pub(crate) fn farcore() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_farcore")]);
    command
}

/// The program, started by a command that runs the words after it.
fn farcore_after(before: &[&str]) -> Command {
    let Some((first, others)) = before.split_first() else {
        return farcore();
    };
    let mut command = Command::new(first);
    command.args(others);
    command.args(["env", "--default-signal", env!("CARGO_BIN_EXE_farcore")]);
    command
}

/// The output of a command, which ends by itself.
pub(crate) fn output_of(command: &mut Command) -> Output {
    let piped = command.stdin(Stdio::null());
    let child = piped.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    output_until_end(child.expect("the command runs"))
}

/// What a process writes until it ends, by itself or by a signal that it has got.
pub(crate) fn output_until_end(mut child: Child) -> Output {
    drop(child.stdin.take());
    let all = |source: Option<Box<dyn Read + Send>>| {
        let (sender, read) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = source.map_or(Ok(0), |mut source| source.read_to_end(&mut bytes));
            sender.send(read.map(|_| bytes))
        });
        read
    };
    let out = all(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let error = all(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let mut process = Process(child);
    let status = process.end();
    // A process that it has left behind may hold a pipe open.
    let end = |read: Receiver<std::io::Result<Vec<u8>>>| {
        let read = read.recv_timeout(PATIENCE).expect("its output ends");
        read.expect("a pipe")
    };
    Output {
        status,
        stdout: end(out),
        stderr: end(error),
    }
}

/// The commands that can be run, from the parser of the flags itself: each has a manual page. Words
/// of one command are separated by a space.
pub(crate) fn commands() -> BTreeSet<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = farcore();
    let made = command.arg("man").arg("--out").arg(folder.path()).status();
    assert!(made.expect("the command runs").success());
    let pages = std::fs::read_dir(folder.path()).expect("pages");
    let names: BTreeSet<String> = pages
        .filter_map(|page| {
            let name = page.expect("a page").file_name().into_string();
            let name = name.expect("a plain name");
            // The page of all commands has no hyphen.
            let name = name.strip_prefix("farcore-")?.strip_suffix(".1")?;
            let name = name.replace('-', " ");
            // Names with a hyphen of their own.
            let name = name.replace("forget lost", "forget-lost");
            Some(name.replace("move slots", "move-slots"))
        })
        // Hidden, so without a page.
        .chain([String::from("run-one")])
        .collect();
    // A name before those of other commands runs nothing, but for `cli`.
    let is_group = |name: &String| {
        let start = format!("{name} ");
        name != "cli" && names.iter().any(|other| other.starts_with(&start))
    };
    let groups: BTreeSet<String> = names
        .iter()
        .filter(|name| is_group(name))
        .cloned()
        .collect();
    &names - &groups
}

/// The token of these tests.
pub(crate) const TOKEN: &str = "a token of the tests of the tools";

/// A file with the token; it is removed with its owner.
#[derive(Debug)]
pub(crate) struct TokenFile(PathBuf);

impl TokenFile {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("{name}-{}.token", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        // Others must not read it, or the command warns.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(&path)
            .and_then(|mut file| file.write_all(TOKEN.as_bytes()));
        written.expect("a token file");
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a path of plain characters")
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // A file that remains harms no other test.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Lines of a process as they arrive.
#[derive(Debug)]
pub(crate) struct Lines {
    incoming: Receiver<String>,
    seen: Vec<String>,
}

impl Lines {
    pub(crate) fn of(source: impl Read + Send + 'static) -> Self {
        let (sender, incoming) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            incoming,
            seen: Vec::new(),
        }
    }

    /// Waits for a line that contains `wanted`.
    pub(crate) fn wait(&mut self, wanted: &str) -> String {
        let line = self.find(wanted);
        line.unwrap_or_else(|| panic!("no `{wanted}` before the end\n{}", self.seen.join("\n")))
    }

    /// The first line that contains `wanted`; `None` if the process closes its output before.
    pub(crate) fn find(&mut self, wanted: &str) -> Option<String> {
        let start = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(start.elapsed());
            match self.incoming.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(wanted) {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("no `{wanted}`\n{}", self.seen.join("\n"))
                }
            }
        }
    }

    /// All lines until the process closes its output.
    pub(crate) fn rest(mut self) -> Vec<String> {
        let start = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(start.elapsed());
            match self.incoming.recv_timeout(left) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return self.seen,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("its output does not end\n{}", self.seen.join("\n"))
                }
            }
        }
    }
}

/// A process that ends with its owner.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.0.id().to_string()])
            .status();
        assert!(sent.expect("kill").success());
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("a child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            thread::yield_now();
        }
    }

    /// Whether it handles a signal.
    pub(crate) fn handles(&self, signal: i32) -> bool {
        let status = format!("/proc/{}/status", self.0.id());
        let status = std::fs::read_to_string(status).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap_or(0));
        mask >> (signal - 1) & 1 == 1
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A memory node that serves.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) log: Lines,
    pub(crate) out: Lines,
}

impl Node {
    /// Starts `farcore memnode` behind the command `before`, e.g. `ip netns exec NAME`.
    pub(crate) fn start(before: &[&str], arguments: &[&str]) -> Self {
        let mut command = farcore_after(before);
        command.arg("memnode").args(arguments);
        command.env_remove("RUST_LOG");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = Process(child.expect("a memory node"));
        let out = process.0.stdout.take().expect("a pipe");
        let log = process.0.stderr.take().expect("a pipe");
        let (mut out, log) = (Lines::of(out), Lines::of(log));
        let line = out.wait("ready: tcp://");
        let address = line
            .trim_start_matches("ready: tcp://")
            .split(' ')
            .next()
            .and_then(|address| address.parse().ok());
        Self {
            process,
            address: address.expect("an address"),
            log,
            out,
        }
    }
}

/// A server of Redis clients that serves.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    /// The address of native clients, if it serves them.
    pub(crate) native: Option<String>,
    pub(crate) log: Lines,
}

impl Serve {
    /// Starts `farcore serve` with little memory at a free port.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_after(&[], arguments)
    }

    /// Starts `farcore serve` with little memory at a free port, by a command that runs the words
    /// after it.
    pub(crate) fn start_after(before: &[&str], arguments: &[&str]) -> Self {
        Self::start_with(before, ["32MiB", "32MiB"], arguments)
    }

    /// As [`Serve::start_after`], with so much local and far memory.
    pub(crate) fn start_with(before: &[&str], sizes: [&str; 2], arguments: &[&str]) -> Self {
        let [local, far] = sizes;
        let mut command = farcore_after(before);
        command
            .args(["serve", "--resp", "127.0.0.1:0", "--no-huge-pages"])
            .args(["--local", local, "--far", far])
            .args(arguments)
            .env_remove("RUST_LOG");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = Process(child.expect("a server"));
        let out = process.0.stdout.take().expect("a pipe");
        let mut log = Lines::of(process.0.stderr.take().expect("a pipe"));
        let mut out = Lines::of(out);
        let Some(line) = out.find("ready: redis://") else {
            // Why it did not start.
            log.wait("ready: redis://");
            unreachable!("the log has no such line")
        };
        let native = out
            .seen
            .iter()
            .find_map(|line| line.strip_prefix("native: "));
        // The address of encrypted connections may follow.
        let mut addresses = line.trim_start_matches("ready: redis://").split(' ');
        let address = addresses.next().and_then(|address| address.parse().ok());
        Self {
            process,
            address: address.expect("an address"),
            native: native.map(str::to_owned),
            log,
        }
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.address).expect("a server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        BufReader::new(stream)
    }

    /// The first line of the reply to an inline command; empty if the connection ends.
    pub(crate) fn line(&self, command: &str) -> String {
        let mut stream = self.connect();
        let request = format!("{command}\r\n");
        let sent = stream.get_mut().write_all(request.as_bytes());
        sent.expect("a connection");
        let mut line = String::new();
        stream.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }
}

/// A new terminal of 80 columns: its master and its line.
pub(crate) fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).expect("a terminal");
    grantpt(&master)
        .and_then(|()| unlockpt(&master))
        .expect("a terminal");
    let name = ptsname(&master, Vec::new()).expect("a terminal");
    let line = OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().expect("a path of plain characters"))
        .expect("a terminal");
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&line, size).expect("a terminal");
    (File::from(master), line)
}

/// What a terminal shows, as it comes.
pub(crate) fn text_of(mut source: File) -> Receiver<String> {
    let (sender, output) = mpsc::channel();
    thread::spawn(move || {
        let mut piece = [0; 4096];
        // A terminal without a process reads as an error.
        while let Ok(bytes @ 1..) = source.read(&mut piece) {
            let text = String::from_utf8_lossy(&piece[..bytes]).into_owned();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    output
}
