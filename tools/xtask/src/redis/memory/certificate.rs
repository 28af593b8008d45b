//! A certificate for the server, and what its clients connect with.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

const NAME: &str = "localhost";

/// The files of a certificate, and the settings of clients that trust it.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    pub(super) file: PathBuf,
    pub(super) key: PathBuf,
    config: Arc<ClientConfig>,
}

impl Certificate {
    /// Makes one that signs itself, in a folder.
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let key = KeyPair::generate().context("a key")?;
        let params = CertificateParams::new(vec![NAME.to_owned()]).context("a name")?;
        let signed = params.self_signed(&key).context("a certificate")?;
        let files = (folder.join("memory.pem"), folder.join("memory.key"));
        fs::write(&files.0, signed.pem())?;
        fs::write(&files.1, key.serialize_pem())?;
        let mut roots = RootCertStore::empty();
        roots.add(signed.der().clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            file: files.0,
            key: files.1,
            config: Arc::new(config),
        })
    }

    /// The client's side of a new connection.
    pub(super) fn connection(&self) -> Result<ClientConnection> {
        let name = ServerName::try_from(NAME).context("a name")?;
        Ok(ClientConnection::new(Arc::clone(&self.config), name)?)
    }
}
