//! Encrypted connections: TLS 1.2 and 1.3 by rustls, driven by the core's loop.
//!
//! A session turns received bytes into plain ones and plain output into bytes to send. It has no
//! task and no socket of its own: the loop hands it what it received and sends what it made.
//!
//! - I1: plain output is sealed only when what was sealed before is sent, so at most
//!   [`SEALED_BYTES_MAX`] and their framing wait in a session, and no more than its caller allows.
//! - I2: rustls holds nothing but an incomplete record between two calls, so [`RecordMeter`] knows
//!   how much memory its buffer takes.
//! - I3: a session that has failed takes no more bytes.

use std::fmt::Display;
use std::fs;
use std::io::{self, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};
use zeroize::Zeroizing;

use crate::options::{TlsClientOptions, TlsOptions};

/// What marks a private key that is encrypted with a password.
const ENCRYPTED: &[u8] = b"ENCRYPTED";
/// Plain bytes that are sealed at once, at most.
pub(crate) const SEALED_BYTES_MAX: usize = 64 << 10;
/// Bytes before a record's content: type, version, length.
const HEADER_BYTES: usize = 5;
/// Bytes by which rustls's buffer grows.
const BUFFER_STEP_BYTES: usize = 4 << 10;
/// What rustls keeps for a session beside its buffers, about: keys and states.
const SESSION_BYTES: usize = 3 << 10;
/// What a handshake keeps in addition, about.
const HANDSHAKE_BYTES: usize = 16 << 10;

/// What a session takes until its handshake has ended, about.
pub(crate) const OPENING_BYTES: usize = SESSION_BYTES + HANDSHAKE_BYTES + BUFFER_STEP_BYTES;

/// What the sessions of a server have in common.
pub(crate) type TlsConfig = Arc<ServerConfig>;
/// What sessions with other servers have in common.
pub(crate) type TlsClientConfig = Arc<ClientConfig>;

/// Reads certificates and key.
///
/// # Errors
/// The name of a file that cannot be used, what is wrong with it, and the remedy.
pub(crate) fn load(options: &TlsOptions) -> Result<TlsConfig, String> {
    // A file that is missing is named before what is wrong within another.
    let (certificate, key) = (Pem::read(&options.certificate)?, Pem::read(&options.key)?);
    let authority = options.client_authority.as_deref().map(Pem::read);
    let authority = authority.transpose()?;
    let (chain, private_key) = (certificate.certificates()?, key.private_key()?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    key.check_key(&private_key, &provider)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &authority {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = file.authorities("the clients' authorities")?;
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| {
                file.refused(format_args!(
                    "{error}: give the certificates of the clients' authorities"
                ))
            })?)
        }
    };
    let config = builder.with_single_cert(chain, private_key);
    let config = config.map_err(|error| unfit(&error, (&certificate, &key), "a server"));
    Ok(Arc::new(config?))
}

/// Reads what connections to another server need.
///
/// # Errors
/// The name of a file that cannot be used, what is wrong with it, and the remedy.
pub(crate) fn load_client(options: &TlsClientOptions) -> Result<TlsClientConfig, String> {
    let roots = Pem::read(&options.authority)?.authorities("the source's authority")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let Some((certificate, key)) = &options.identity else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let (certificate, key) = (Pem::read(certificate)?, Pem::read(key)?);
    let (chain, private_key) = (certificate.certificates()?, key.private_key()?);
    key.check_key(&private_key, &provider)?;
    let config = builder.with_client_auth_cert(chain, private_key);
    let config = config.map_err(|error| unfit(&error, (&certificate, &key), "a client"));
    Ok(Arc::new(config?))
}

/// The error that a certificate and a key do not go together, or are not for this.
fn unfit(error: &rustls::Error, (certificate, key): (&Pem<'_>, &Pem<'_>), owner: &str) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => key.refused(format_args!(
            "it is not the key of the certificate in {}: give the key that this certificate was made \
             with",
            certificate.file.display()
        )),
        error => certificate.refused(format_args!(
            "{error}: give a certificate that {owner} may show"
        )),
    }
}

/// A file of certificates or of a key.
struct Pem<'a> {
    file: &'a Path,
    bytes: Zeroizing<Vec<u8>>,
}

impl<'a> Pem<'a> {
    fn read(file: &'a Path) -> Result<Self, String> {
        let bytes = fs::read(file).map(Zeroizing::new);
        let bytes = bytes.map_err(|error| {
            let file = file.display();
            format!("{file}: {error}: give a PEM file that this process can read")
        })?;
        Ok(Self { file, bytes })
    }

    /// The error that the file cannot be used.
    fn refused(&self, why: impl Display) -> String {
        format!("{}: {why}", self.file.display())
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let all = all.map_err(|error| self.refused(format_args!("{error}: give a PEM file")))?;
        if !all.is_empty() {
            return Ok(all);
        }
        Err(
            self.refused(match PrivateKeyDer::from_pem_slice(&self.bytes) {
                Ok(_) => "a private key is in it and no certificate: are the files exchanged?",
                Err(_) => "no certificate is in it: give a PEM file with one",
            }),
        )
    }

    /// The certificates of authorities, of which `whose` says more.
    fn authorities(&self, whose: &str) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        for authority in self.certificates()? {
            roots.add(authority).map_err(|error| {
                self.refused(format_args!("{error}: give the certificates of {whose}"))
            })?;
        }
        Ok(roots)
    }

    /// # Errors
    /// The key in the file is of a kind that is not supported.
    fn check_key(&self, key: &PrivateKeyDer<'_>, provider: &CryptoProvider) -> Result<(), String> {
        let loaded = provider.key_provider.load_private_key(key.clone_key());
        loaded.map(drop).map_err(|error| {
            self.refused(format_args!(
                "{error}: give a key of RSA, ECDSA (P-256 or P-384) or Ed25519"
            ))
        })
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, String> {
        let has_certificate = || CertificateDer::from_pem_slice(&self.bytes).is_ok();
        let mut parts = self.bytes.windows(ENCRYPTED.len());
        match PrivateKeyDer::from_pem_slice(&self.bytes) {
            Ok(key) => Ok(key),
            Err(pem::Error::NoItemsFound) if parts.any(|part| part == ENCRYPTED) => Err(self
                .refused(format_args!(
                    "the private key in it is encrypted: give what `openssl pkey -in {} -out FILE` \
                     writes",
                    self.file.display()
                ))),
            Err(pem::Error::NoItemsFound) => Err(self.refused(match has_certificate() {
                true => "a certificate is in it and no private key: are the files exchanged?",
                false => "no private key is in it: give a PEM file with one",
            })),
            Err(error) => Err(self.refused(format_args!("{error}: give a PEM file"))),
        }
    }
}

/// Follows the records in received bytes, for the size of the buffer in which rustls keeps them.
#[derive(Clone, Copy, Debug, Default)]
struct RecordMeter {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Bytes of the record's content that are still to come.
    left: usize,
    /// Bytes of the last record.
    record_bytes: usize,
}

impl RecordMeter {
    /// Notes received bytes.
    fn note(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let content = self.left.min(bytes.len());
            self.left -= content;
            bytes = &bytes[content..];
            if self.left > 0 {
                return;
            }
            let header = (HEADER_BYTES - self.header_bytes).min(bytes.len());
            let end = self.header_bytes + header;
            self.header[self.header_bytes..end].copy_from_slice(&bytes[..header]);
            bytes = &bytes[header..];
            self.header_bytes = end % HEADER_BYTES;
            if end == HEADER_BYTES {
                let [.., high, low] = self.header;
                self.left = usize::from(u16::from_be_bytes([high, low]));
                self.record_bytes = HEADER_BYTES + self.left;
            }
        }
    }

    /// Bytes that the buffer takes, at most, once it was read into.
    fn buffer_bytes(&self) -> usize {
        self.record_bytes + BUFFER_STEP_BYTES
    }
}

/// One connection's session, of either end.
pub(crate) struct TlsSession {
    connection: Connection,
    meter: RecordMeter,
    /// Bytes to send.
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that are sent.
    sent: usize,
    is_ended: bool,
}

impl TlsSession {
    /// A session that waits for its client's first message.
    ///
    /// # Errors
    /// No random number is left.
    pub(crate) fn new(config: &TlsConfig) -> io::Result<Self> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        Ok(Self::of(connection.into()))
    }

    /// A session with a server, whose certificate must be for this host; its first message is to be
    /// sent.
    ///
    /// # Errors
    /// The host is neither a name nor an address, or no random number is left.
    pub(crate) fn to(host: &str, config: &TlsClientConfig) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::clone(config), name);
        let mut session = Self::of(connection.map_err(io::Error::other)?.into());
        session.collect()?;
        Ok(session)
    }

    fn of(connection: Connection) -> Self {
        Self {
            connection,
            meter: RecordMeter::default(),
            outgoing: Vec::new(),
            sent: 0,
            is_ended: false,
        }
    }

    /// True once the handshake is over.
    pub(crate) fn is_established(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// True once the client has said that it sends no more.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Takes received bytes, and adds the plain ones in them to `plain`. Messages of the handshake
    /// are answered, by alerts if it fails.
    ///
    /// # Errors
    /// The bytes are no TLS, or the client cannot be trusted. The session has ended.
    pub(crate) fn open(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        let mut opened = Ok(());
        while !bytes.is_empty() && !self.is_ended && opened.is_ok() {
            opened = self.open_some(&mut bytes, plain);
        }
        self.is_ended |= opened.is_err();
        self.collect()?;
        opened
    }

    /// Takes as many bytes as rustls takes at once.
    fn open_some(&mut self, bytes: &mut &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        let before = *bytes;
        let taken = self.connection.read_tls(bytes)?;
        self.meter.note(&before[..taken]);
        let state = self.connection.process_new_packets();
        let state = state.map_err(io::Error::other)?;
        let start = plain.len();
        plain.resize(start + state.plaintext_bytes_to_read(), 0);
        self.connection.reader().read_exact(&mut plain[start..])?;
        self.is_ended = state.peer_has_closed();
        Ok(())
    }

    /// Moves what rustls has to send to the bytes to send.
    fn collect(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.outgoing)?;
        }
        Ok(())
    }

    /// Seals plain output, `bytes_max` at most, if all that was sealed before is sent. Returns
    /// how many it took. Pieces that lie apart share records.
    ///
    /// # Errors
    /// The session has ended.
    pub(crate) fn seal(&mut self, pieces: &[IoSlice<'_>], bytes_max: usize) -> io::Result<usize> {
        if self.waiting_bytes() > 0 || pieces.is_empty() || !self.is_established() {
            return Ok(0);
        }
        let bytes_max = bytes_max.min(SEALED_BYTES_MAX);
        self.connection.set_buffer_limit(Some(bytes_max));
        let sealed = self.connection.writer().write_vectored(pieces)?;
        self.collect()?;
        Ok(sealed)
    }

    /// Tells the client that nothing more is sent.
    pub(crate) fn end(&mut self) {
        self.connection.send_close_notify();
        // A vector takes all bytes.
        let _ = self.collect();
    }

    /// Bytes to send.
    pub(crate) fn outgoing(&self) -> &[u8] {
        &self.outgoing[self.sent..]
    }

    /// How many there are.
    #[inline]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    /// Memory of the bytes to send.
    pub(crate) fn outgoing_bytes(&self) -> usize {
        self.outgoing.capacity()
    }

    /// Notes that `bytes` were sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.outgoing.len() {
            self.outgoing.clear();
            self.sent = 0;
        }
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        let handshake = if self.is_established() {
            0
        } else {
            HANDSHAKE_BYTES
        };
        SESSION_BYTES
            + size_of::<Self>()
            + handshake
            + self.meter.buffer_bytes()
            + self.outgoing.capacity()
    }

    /// Gives the buffer back that nothing is in.
    pub(crate) fn release_buffers(&mut self) {
        if self.outgoing.is_empty() {
            self.outgoing = Vec::new();
        }
    }
}

impl std::fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSession")
            .field("is_ended", &self.is_ended)
            .field("meter", &self.meter)
            .field("waiting", &self.waiting_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_measured_however_they_are_cut() {
        let lengths = [0_u16, 1, 300, 16_384];
        let mut bytes = Vec::new();
        for length in lengths {
            bytes.extend([23, 3, 3]);
            bytes.extend(length.to_be_bytes());
            bytes.resize(bytes.len() + usize::from(length), 7);
        }
        for step in [1, 2, 4, 5, 6, 299, 20_000] {
            let mut meter = RecordMeter::default();
            for piece in bytes.chunks(step) {
                meter.note(piece);
            }
            assert_eq!((meter.left, meter.header_bytes), (0, 0), "step {step}");
            assert_eq!(meter.record_bytes, HEADER_BYTES + 16_384);
        }
    }
    /// A certificate and its key.
    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one case per file")]
    fn a_file_that_cannot_be_used_is_named_with_what_is_wrong_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let ((certificate, key), (_, other)) = (made(), made());
        let encrypted =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let wrong = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for (name, text) in [
            ("certificate", &*certificate),
            ("key", &key),
            ("both", &format!("{certificate}{key}")),
            ("other", &other),
            ("encrypted", encrypted),
            ("wrong", wrong),
            ("cut", &key[..60]),
            ("text", "text"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let used = |certificate: &str, key: &str, authority: Option<&str>| {
            let file = |name: &str| folder.path().join(name);
            let options = TlsOptions {
                listen: ([127, 0, 0, 1], 0).into(),
                certificate: file(certificate),
                key: file(key),
                client_authority: authority.map(file),
            };
            load(&options).map(|_| ())
        };
        assert_eq!(used("certificate", "key", Some("certificate")), Ok(()));
        assert_eq!(used("both", "both", None), Ok(()));
        for (files, named, parts) in [
            (
                ("none", "key", None),
                "none",
                ["No such file", "give a PEM file that"],
            ),
            (
                ("text", "none", None),
                "none",
                ["No such file", "give a PEM file that"],
            ),
            (
                ("certificate", "key", Some("none")),
                "none",
                ["No such file", "give a PEM"],
            ),
            (
                ("text", "key", None),
                "text",
                ["no certificate is in it", "give a PEM file"],
            ),
            (
                ("key", "certificate", None),
                "key",
                ["no certificate", "exchanged"],
            ),
            (
                ("certificate", "certificate", None),
                "certificate",
                ["no private key", "exchanged"],
            ),
            (
                ("certificate", "text", None),
                "text",
                ["no private key is in it", "give a PEM"],
            ),
            (
                ("certificate", "cut", None),
                "cut",
                ["section end", "give a PEM file"],
            ),
            (
                ("certificate", "encrypted", None),
                "encrypted",
                ["is encrypted", "openssl pkey"],
            ),
            (
                ("certificate", "wrong", None),
                "wrong",
                ["private key", "give a key of RSA"],
            ),
            (
                ("certificate", "other", None),
                "other",
                ["not the key of", "give the key that"],
            ),
            (
                ("certificate", "key", Some("text")),
                "text",
                ["no certificate", "give a PEM"],
            ),
        ] {
            let (certificate, key, authority) = files;
            let error = used(certificate, key, authority).unwrap_err();
            let start = format!("{}: ", folder.path().join(named).display());
            assert!(
                error.starts_with(&start) && parts.iter().all(|part| error.contains(part)),
                "{files:?}: {error}"
            );
        }
    }
}
