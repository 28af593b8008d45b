//! The flags of a server that follows another one.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use farcore_command::parse_size;
use farcore_server::{ReplicaOptions, SourceAddress, TlsClientOptions};
use zeroize::Zeroizing;

use super::secret;
use crate::token;

/// As `repl-backlog-size` of `CONFIG SET`.
fn parse_backlog(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    let refusal = || "must be 1B or more: replicas go on by it after a cut link".to_owned();
    (bytes > 0).then_some(bytes).ok_or_else(refusal)
}

const FILE_FLAG: &str = "--replica-auth-file";

pub(super) fn parse_source(text: &str) -> Result<SourceAddress, String> {
    let parts = text.rsplit_once(':');
    let parts = parts.and_then(|(host, port)| {
        let host = host
            .strip_prefix('[')
            .map_or(Some(host), |host| host.strip_suffix(']'))?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        (!host.is_empty()).then(|| SourceAddress {
            host: host.to_owned(),
            port,
        })
    });
    parts.ok_or_else(|| "give HOST:PORT, e.g. redis.example:6379".to_owned())
}

#[derive(Debug, Args)]
pub(super) struct ReplicaArguments {
    /// Redis or Valkey to follow: its data replace those of this server, and what it writes is
    /// written here, until `REPLICAOF NO ONE`
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_source)]
    replica_of: Option<SourceAddress>,
    /// File with the password that --replica-of needs
    #[arg(long, value_name = "FILE")]
    replica_auth_file: Option<PathBuf>,
    /// User of the password [default: the default user]
    #[arg(long, value_name = "NAME", requires = "replica_auth_file")]
    replica_user: Option<String>,
    /// Bytes of the stream of changes that are kept for replicas whose link breaks, 1B or more;
    /// `CONFIG SET repl-backlog-size` changes it [default: 16MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_backlog)]
    replica_backlog: Option<u64>,
    /// File with the authorities of the certificate of the server that is followed; PEM: links to
    /// it are encrypted
    #[arg(long, value_name = "FILE")]
    replica_tls_ca: Option<PathBuf>,
    /// File with the certificate that is shown to it; PEM [default: none is shown]
    #[arg(
        long,
        value_name = "FILE",
        requires = "replica_tls_ca",
        requires = "replica_tls_key"
    )]
    replica_tls_cert: Option<PathBuf>,
    /// File with the private key of that certificate; PEM
    #[arg(long, value_name = "FILE", requires = "replica_tls_cert")]
    replica_tls_key: Option<PathBuf>,
}

impl ReplicaArguments {
    /// The source, and what `REPLICAOF` needs later.
    pub(super) fn options(&self) -> Result<ReplicaOptions> {
        let file = self.replica_auth_file.as_deref();
        let password = file.map(|file| secret::read(FILE_FLAG, file)).transpose()?;
        Ok(ReplicaOptions {
            source: self.replica_of.clone(),
            user: self.replica_user.clone().unwrap_or_default(),
            password: password.unwrap_or_else(|| Zeroizing::new(String::new())),
            backlog_bytes: self.replica_backlog,
            tls: self
                .replica_tls_ca
                .clone()
                .map(|authority| TlsClientOptions {
                    authority,
                    identity: self
                        .replica_tls_cert
                        .clone()
                        .zip(self.replica_tls_key.clone()),
                }),
        })
    }

    /// The flag that names a file, with which a text begins.
    pub(super) fn flag_of_file(&self, text: &str) -> &'static str {
        let is_in = |file: &Option<PathBuf>| {
            let name = file.as_ref().map(|file| file.display().to_string());
            name.is_some_and(|name| text.starts_with(&format!("{name}: ")))
        };
        match () {
            () if is_in(&self.replica_tls_cert) => "--replica-tls-cert ",
            () if is_in(&self.replica_tls_key) => "--replica-tls-key ",
            () => "--replica-tls-ca ",
        }
    }

    /// Warns if others can read the password or the key.
    pub(super) fn warn_if_exposed(&self) {
        if let Some(file) = &self.replica_tls_key {
            token::warn_if_exposed("--replica-tls-key", file, "key");
        }
        if let Some(file) = &self.replica_auth_file {
            token::warn_if_exposed(FILE_FLAG, file, "password");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_host_and_a_port() {
        let parsed = |text: &str| {
            parse_source(text)
                .map(|source| (source.host, source.port))
                .ok()
        };
        assert_eq!(
            parsed("redis.example:6379"),
            Some(("redis.example".to_owned(), 6379))
        );
        assert_eq!(parsed("[::1]:7000"), Some(("::1".to_owned(), 7000)));
        for text in [
            "",
            "redis",
            ":1",
            "redis:",
            "redis:0",
            "redis:70000",
            "[::1:7",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
