//! A Redis beside the server, where that is installed.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::wait_until;

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
