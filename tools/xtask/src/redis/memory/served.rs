//! The server of a scenario: a fresh one on a memory node, both in processes of their own.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use farcore_client::{FabricAddress, Token};

use super::announced::Announced;
use super::certificate::Certificate;
use super::cores::Cores;
use super::load::Door;
use super::resident::{Resident, beside_of};
use super::scenarios::{Protocol, Scenario};
use crate::redis::place::Place;

/// Memory of the node, and what of it the server takes.
const LENT: &str = "1GiB";
const FAR: &str = "768MiB";
/// The password, where one is needed.
const PASSWORD: &str = "tea at four o'clock";
/// The token of native clients, where one is needed.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// What the servers of all scenarios use.
#[derive(Debug)]
pub(super) struct Setting {
    binary: PathBuf,
    logs: PathBuf,
    pub(super) cores: Cores,
    certificate: Certificate,
    password: PathBuf,
    token: PathBuf,
}

impl Setting {
    /// Writes the files that servers are started with.
    pub(super) fn create(binary: &Path, place: &Place) -> Result<Self> {
        let binary = binary.canonicalize().with_context(|| {
            format!(
                "no {}: build it with cargo build --profile published -p farcore-tools",
                binary.display()
            )
        })?;
        let folder = place.at("memory");
        fs::create_dir_all(&folder)?;
        let setting = Self {
            binary,
            certificate: Certificate::create(&folder)?,
            password: folder.join("password"),
            token: folder.join("token"),
            cores: Cores::here()?,
            logs: folder,
        };
        fs::write(&setting.password, PASSWORD)?;
        fs::write(&setting.token, TOKEN)?;
        Ok(setting)
    }
}

/// A running server.
#[derive(Debug)]
pub(super) struct Served {
    server: Announced,
    // Ends after the server.
    _node: Announced,
    pub(super) door: Door,
    pub(super) native: Option<(FabricAddress, Option<Token>)>,
    /// Resident memory that it may have: `--local` and what it prints.
    pub(super) allowed_bytes: u64,
    pub(super) beside_bytes: u64,
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn words(line: &str) -> impl Iterator<Item = String> {
    line.split_whitespace().map(str::to_owned)
}

/// An address with a port that is free now: not every flag takes port 0.
fn free_address() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.to_string())
}

fn socket_address(address: &str) -> Result<SocketAddr> {
    let (_, place) = address.split_once("://").context("a scheme")?;
    Ok(place.parse()?)
}

impl Served {
    /// Starts a memory node, and a server with a scenario's flags.
    pub(super) fn start(setting: &Setting, scenario: &Scenario) -> Result<Self> {
        let log = |what: &str| {
            let name = scenario.name.replace('/', "-");
            setting.logs.join(format!("{name}-{what}.log"))
        };
        let load = setting.cores.load.to_string();
        let line = format!("memnode --listen tcp://127.0.0.1:0 --memory {LENT} --no-huge-pages");
        let line: Vec<String> = words(&line).collect();
        let node = Announced::start(&setting.binary, &line, &load, &log("node"))?;
        let cores = setting.cores.list(scenario.cores);
        let line = format!(
            "serve --resp 127.0.0.1:0 --no-huge-pages --cores {cores} --far {FAR} --fabric {} --local {}",
            node.address("tcp")?,
            scenario.local_bytes
        );
        let mut line: Vec<String> = words(&line).collect();
        line.extend(scenario.flags.iter().flat_map(|flag| words(flag)));
        let mut flag = |flag: &str, value: String| line.extend([flag.to_owned(), value]);
        if scenario.has_strangers {
            flag("--password-file", path(&setting.password));
        }
        if scenario.protocol == Protocol::Tls {
            flag("--tls-cert", path(&setting.certificate.file));
            flag("--tls-key", path(&setting.certificate.key));
            flag("--tls", free_address()?);
        }
        let is_native = scenario.protocol == Protocol::Native;
        let has_token = is_native && scenario.has_strangers;
        if has_token {
            flag("--native-token-file", path(&setting.token));
        }
        if is_native {
            flag("--native", format!("tcp://{}", free_address()?));
        }
        let server = Announced::start(&setting.binary, &line, &cores, &log("server"))?;
        let beside_bytes = beside_of(&server.said()?)
            .context("the server does not say what it takes beside --local (`beside_bytes=`)")?;
        let native = match is_native {
            true => {
                let token = has_token.then(|| Token::new(TOKEN.as_bytes()));
                Some((server.address("tcp")?.parse()?, token.transpose()?))
            }
            false => None,
        };
        let encrypted = match scenario.protocol {
            Protocol::Tls => Some(socket_address(server.address("rediss")?)?),
            _ => None,
        };
        let door = Door {
            plain: socket_address(server.address("redis")?)?,
            encrypted,
            native: match &native {
                Some(_) => Some(socket_address(server.address("tcp")?)?),
                None => None,
            },
            certificate: setting.certificate.clone(),
            password: scenario.has_strangers.then_some(PASSWORD),
            is_third: scenario.protocol == Protocol::Resp3,
        };
        Ok(Self {
            allowed_bytes: scenario.local_bytes + beside_bytes,
            beside_bytes,
            server,
            _node: node,
            door,
            native,
        })
    }

    pub(super) fn resident(&self) -> Result<Resident> {
        Resident::of(self.server.id()).context("the server has ended")
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.server.is_running()
    }

    pub(super) fn kill(&mut self) {
        self.server.kill();
    }

    /// Ends the server in order; false if it had to be killed.
    pub(super) fn stop(&mut self) -> bool {
        self.server.stop()
    }
}
