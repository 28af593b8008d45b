//! A Redis beside the server, where that is installed.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Client, Random, Served, wait_until};

/// A Redis of its own.
#[derive(Debug)]
pub(crate) struct Redis {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Redis {
    /// Starts one of the version whose replies are compared; none if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let version = Command::new("redis-server")
            .arg("--version")
            .output()
            .ok()?;
        if !String::from_utf8_lossy(&version.stdout).contains("v=7.0.15") {
            return None;
        }
        let port = TcpListener::bind(("127.0.0.1", 0))
            .expect("Redis")
            .local_addr()
            .expect("Redis")
            .port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            // A file that it makes for a replica goes with it.
            .args(["--rdb-del-sync-files", "yes", "--dir"])
            .arg(std::env::temp_dir())
            .stdout(Stdio::null())
            .spawn()
            .expect("Redis");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        wait_until("Redis serves", || {
            std::thread::sleep(Duration::from_millis(1));
            TcpStream::connect(address).is_ok()
        });
        Some(Self { process, address })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Compares replies to random commands with those of Redis, which is left out if it is not
/// installed: `before` are the first commands, `draw` draws each other one. `FARCORE_COMMANDS` says
/// how many there are for each protocol.
#[track_caller]
pub(crate) fn compare(before: &[&str], mut draw: impl FnMut(&mut Random, usize) -> Vec<Vec<u8>>) {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let commands = std::env::var("FARCORE_COMMANDS").ok();
    let commands = commands.and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let mut random = Random::new();
    for (cores, protocol) in [(1, "2"), (2, "3")] {
        let served = Served::roomy(cores);
        let mut here = served.client();
        let mut there = Client::connect(redis.address);
        let hello = format!("hello {protocol}");
        for line in ["flushall", &hello].iter().chain(before) {
            let words: Vec<_> = line.split(' ').collect();
            here.ask(&words);
            there.ask(&words);
        }
        let mut differing = Vec::new();
        for number in 0..commands {
            let words = draw(&mut random, number);
            let (ours, theirs) = (here.ask(&words), there.ask(&words));
            if ours.to_string() != theirs.to_string() {
                let shown: Vec<_> = words
                    .iter()
                    .map(|word| word.escape_ascii().to_string())
                    .collect();
                differing.push(format!("{shown:?}\n  here  {ours}\n  redis {theirs}"));
            }
        }
        let count = differing.len();
        differing.truncate(20);
        assert!(count == 0, "{count} differ:\n{}", differing.join("\n"));
    }
}

/// One of some words.
pub(crate) fn pick<'a>(random: &mut Random, words: &[&'a str]) -> &'a str {
    words[random.below(words.len())]
}

/// Words as the arguments of a command.
pub(crate) fn arguments(line: &str) -> Vec<Vec<u8>> {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}
