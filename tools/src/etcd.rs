//! The flags by which etcd is reached.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use farcore_etcd::{ANSWER_BYTES_MAX, Etcd, EtcdAddress, EtcdOptions, EtcdTls};

use crate::serve::secret;
use crate::token;

const PASSWORD_FLAG: &str = "--etcd-password-file";
/// How long an endpoint may take for a command's question.
const TIME_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct EtcdArguments {
    /// User of etcd, with --etcd-password-file [default: none]
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// File with the password of that user
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// File with the authorities of etcd's certificates, for etcds://; PEM
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,
    /// File with the certificate that is shown to etcd; PEM [default: none is shown]
    #[arg(long, value_name = "FILE", requires = "etcd_ca", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// File with the private key of that certificate; PEM
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
}

impl EtcdArguments {
    /// How etcd is reached at an address.
    ///
    /// # Errors
    /// A file is missing, or cannot be read.
    pub(crate) fn options(&self, address: EtcdAddress, limit: Duration) -> Result<EtcdOptions> {
        ensure!(
            address.is_encrypted() == self.etcd_ca.is_some(),
            "{address}: an address that begins with etcds:// needs --etcd-ca, and no other does"
        );
        let user = match (&self.etcd_user, &self.etcd_password_file) {
            (Some(user), Some(file)) => {
                token::warn_if_exposed(PASSWORD_FLAG, file, "password");
                Some((user.clone(), secret::read(PASSWORD_FLAG, file)?))
            }
            _ => None,
        };
        if let Some(key) = &self.etcd_key {
            token::warn_if_exposed("--etcd-key", key, "key");
        }
        let identity = self.etcd_cert.clone().zip(self.etcd_key.clone());
        let tls = self.etcd_ca.clone().map(|authority| EtcdTls {
            authority,
            identity,
        });
        Ok(EtcdOptions {
            address,
            user,
            tls,
            time_limit: limit,
            answer_bytes_max: ANSWER_BYTES_MAX,
        })
    }

    /// A client of etcd at an address, for a command.
    ///
    /// # Errors
    /// A file is missing, or cannot be read.
    pub(crate) fn client(&self, address: &EtcdAddress) -> Result<Etcd> {
        let options = self.options(address.clone(), TIME_LIMIT)?;
        Etcd::new(options).map_err(|error| anyhow!("{error}"))
    }
}
