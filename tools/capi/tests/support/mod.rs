//! A server of the native protocol in this process, and its token; memory nodes; programs.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod compile;
pub(crate) mod nodes;

use std::path::PathBuf;
use std::time::Duration;

use farcore::{Config, Engine};
use farcore_client::Token;
use farcore_server::{Options, Server};
use tempfile::TempDir;

/// Time limit of everything that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const TOKEN: &str = "the token of a test";

/// A server that ends before its engine.
pub(crate) struct Served {
    server: Option<Server>,
    _engine: Engine,
    folder: TempDir,
    pub(crate) address: String,
}

impl Served {
    /// A server with a token on TCP, at a free port.
    pub(crate) fn start() -> Self {
        let engine = Engine::open(Config {
            cores: Config::default().cores.into_iter().take(1).collect(),
            local_bytes: 64 << 20,
            far_bytes: 64 << 20,
            page_bytes: Some(256 << 10),
            keys_expected: 20_000,
            spin_ns: 0,
            prefault: false,
            huge_pages: false,
            ..Config::default()
        });
        let engine = engine.expect("an engine");
        let mut options = Options::new(([127, 0, 0, 1], 0).into());
        options.native.listen = vec!["tcp://127.0.0.1:0".parse().expect("an address")];
        options.native.timeout = PATIENCE;
        options.native.token = Some(Token::new(TOKEN.as_bytes()).expect("a token"));
        let server = Server::start(&engine, options).expect("a server");
        let address = server.native_addresses().first().expect("an address");
        let served = Self {
            address: address.parse::<String>().expect("any text"),
            server: Some(server),
            _engine: engine,
            folder: tempfile::tempdir().expect("a folder"),
        };
        std::fs::write(served.token(), TOKEN).expect("written");
        served
    }

    /// A file with the server's token.
    pub(crate) fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// A folder that ends with the server.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Ends the server; the engine goes on.
    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().expect("it ran");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.server.take());
    }
}
