//! Certificates for a server, and clients that connect to it encrypted.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farcore_server::TlsOptions;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::support::client::request;
use crate::support::{PATIENCE, Reply, Served};

/// The name of the server's host.
pub(crate) const NAME: &str = "localhost";

/// Both versions of TLS.
pub(crate) const BOTH: &[&SupportedProtocolVersion] =
    &[&rustls::version::TLS12, &rustls::version::TLS13];

/// Files of certificates: `authority`, `server` and `client`, each `.pem` and the keys `.key`.
#[derive(Debug)]
pub(crate) struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        let files = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate of the same name as its authority for self-signed.
        let name = &mut authority.distinguished_name;
        name.push(DnType::CommonName, "authority");
        files.write("authority.pem", &authority.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(authority, key);
        for owner in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            files.write(&format!("{owner}.pem"), &certificate.pem());
            files.write(&format!("{owner}.key"), &key.serialize_pem());
        }
        files
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server on two cores; clients must show a certificate if `authority` says so.
    pub(crate) fn serve(&self, authority: Option<&str>) -> Served {
        self.serve_on(2, 64 << 20, authority)
    }

    /// A server with limited memory for clients, which must show a certificate if `authority` says
    /// so.
    pub(crate) fn serve_on(
        &self,
        cores: usize,
        client_bytes: usize,
        authority: Option<&str>,
    ) -> Served {
        Served::with(cores, |options| {
            options.client_bytes = client_bytes;
            options.tls = Some(TlsOptions {
                listen: ([127, 0, 0, 1], 0).into(),
                certificate: self.path("server.pem"),
                key: self.path("server.key"),
                client_authority: authority.map(|name| self.path(name)),
            });
        })
    }

    /// What a client connects with.
    pub(crate) fn client_config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        is_known: bool,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.path("authority.pem"))).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(if is_known {
            let chain = vec![certificate(&self.path("client.pem"))];
            let key = PrivateKeyDer::from_pem_file(self.path("client.key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        })
    }
}

fn certificate(file: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file).unwrap()
}

/// An encrypted client.
#[derive(Debug)]
pub(crate) struct Sealed(pub(crate) BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Sealed {
    pub(crate) fn connect(served: &Served, config: &Arc<ClientConfig>) -> Self {
        let name = NAME.try_into().unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        let stream = plain_stream(served);
        Self(BufReader::new(StreamOwned::new(connection, stream)))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)?;
        self.0.get_mut().flush()
    }

    pub(crate) fn try_ask<T: AsRef<[u8]>>(&mut self, arguments: &[T]) -> io::Result<Option<Reply>> {
        self.write(&request(arguments))?;
        Reply::read(&mut self.0)
    }

    pub(crate) fn ask<T: AsRef<[u8]>>(&mut self, arguments: &[T]) -> Reply {
        self.try_ask(arguments).unwrap().unwrap()
    }
}

/// A connection to the port for encrypted ones.
pub(crate) fn plain_stream(served: &Served) -> TcpStream {
    let address = served.server().tls_address().unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}
