//! A server whose figures are read as `farcore top` and Prometheus read them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{PATIENCE, Serve, farcore, output_of};

/// A server, and where it is watched.
pub(crate) struct Watched {
    pub(crate) server: Serve,
    pub(crate) socket: PathBuf,
    http: SocketAddr,
}

impl Watched {
    /// Starts a server whose socket lies in a folder.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        // A port that was free a moment ago.
        let probe = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let http: SocketAddr = probe.local_addr().expect("an address");
        drop(probe);
        let socket = folder.join("socket");
        let (path, address) = (socket.to_str().expect("a plain path"), http.to_string());
        let watched = ["--stats-socket", path, "--http", &address];
        let server = Serve::start(&[&watched, arguments].concat());
        Self {
            server,
            socket,
            http,
        }
    }

    /// What `farcore top --json` says.
    pub(crate) fn figures(&self) -> Value {
        let mut command = farcore();
        command.arg("top").arg(&self.socket);
        let output = output_of(command.args(["--once", "--json", "--interval", "100ms"]));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// A part of it, once that is as wanted.
    pub(crate) fn figures_when(&self, part: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let figures = self.figures()[part].take();
            if is_wanted(&figures) {
                return figures;
            }
            assert!(began.elapsed() < PATIENCE, "{figures:#}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.http).expect("a server");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let sent = stream.write_all(request.as_bytes());
        sent.expect("a connection");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("text");
        text
    }

    /// The text at `/metrics`, without the head of HTTP.
    pub(crate) fn metrics(&self) -> String {
        let text = self.get("/metrics");
        text[text.find("# HELP").expect("metrics")..].to_owned()
    }

    pub(crate) fn end(mut self) {
        self.server.process.signal("TERM");
        assert_eq!(self.server.process.end().code(), Some(0));
    }
}

/// The value of a series without labels, if there is one; its name is without `farcore_`.
pub(crate) fn value(metrics: &str, name: &str) -> Option<f64> {
    let start = format!("farcore_{name} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&start))?;
    Some(line.parse().expect("a number"))
}
