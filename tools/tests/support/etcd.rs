//! Debian's etcd (package `etcd-server`) in a process; tests say so and pass where it is not
//! installed.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use farcore_etcd::{ANSWER_BYTES_MAX, EtcdAddress, EtcdOptions};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::PATIENCE;

const PAUSE: Duration = Duration::from_millis(20);

/// etcd in a process, which ends with its owner.
pub(crate) struct Etcd {
    process: Child,
    ports: [u16; 2],
    pub(crate) folder: TempDir,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    listener.local_addr().expect("an address").port()
}

/// A client of etcd at an address.
pub(crate) fn client(address: &str) -> farcore_etcd::Etcd {
    let options = EtcdOptions {
        address: EtcdAddress::parse(address).expect("an address"),
        user: None,
        tls: None,
        time_limit: PATIENCE,
        answer_bytes_max: ANSWER_BYTES_MAX,
    };
    farcore_etcd::Etcd::new(options).expect("a client")
}

/// Starts etcd without data at the ports for clients and peers; `None` if it is not installed.
fn started([port, peers]: [u16; 2]) -> Option<(Child, TempDir)> {
    let folder = TempDir::new().expect("a folder");
    let url = format!("http://127.0.0.1:{port}");
    let peer_url = format!("http://127.0.0.1:{peers}");
    let process = Command::new("etcd")
        .arg("--data-dir")
        .arg(folder.path().join("etcd"))
        .args(["--listen-client-urls", &url])
        .args(["--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &peer_url])
        .args(["--initial-advertise-peer-urls", &peer_url])
        .args(["--initial-cluster", &format!("default={peer_url}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    Some((process, folder))
}

impl Etcd {
    /// `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let ports = [free_port(), free_port()];
        let Some((process, folder)) = started(ports) else {
            eprintln!("not run: there is no etcd; install Debian's etcd-server");
            return None;
        };
        let etcd = Self {
            process,
            ports,
            folder,
        };
        etcd.wait();
        Some(etcd)
    }

    fn wait(&self) {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.ports[0])).is_err() {
            assert!(begun.elapsed() < PATIENCE, "etcd does not listen");
            thread::sleep(PAUSE);
        }
    }

    /// The address of a prefix. None listens at the first endpoint: calls go on to the next.
    pub(crate) fn address(&self, prefix: &str) -> String {
        format!("etcd://127.0.0.1:1,127.0.0.1:{}/{prefix}", self.ports[0])
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("a process");
    }

    /// Another one in its place, without data.
    pub(crate) fn replace(&mut self) {
        self.end();
        (self.process, self.folder) = started(self.ports).expect("etcd");
        self.wait();
    }

    fn end(&mut self) {
        // Both fail only if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.end();
    }
}
