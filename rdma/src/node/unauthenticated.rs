//! One connection that has not authenticated itself: the handshake up to its proof, without waiting
//! for anything.
//!
//! ```text
//! silent -> connect request: control -> requested -> hello -> challenged -> proof -> authenticated
//!                            memory, with its proof -------------------------------> authenticated
//! ```
//!
//! Owns the socket. Until the peer has sent a whole message, its bytes stay in the kernel.
//!
//! - I1: a peer is authenticated in one step without waiting, or not at all: a session is opened,
//!   and a line joined, only for a connection that is then passed on.
//! - I2: a challenge is good for its own connection only, and for one proof.
//! - I3: a message is at most [`MESSAGE_BYTES`] long, and an answer always fits the empty buffer of
//!   the socket.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};
use tracing::{debug, info, warn};

use super::metrics::{Place, Why};
use super::serve::Ended;
use super::service::Service;
use super::sessions::Speaker;
use crate::control::{Join, NodeGreeted, Opening, Refused, Reply};
use crate::tcp::wire::{self, CONNECT_REQUEST_BYTES};
use crate::tcp::{ConnectRequest, PROTOCOL_VERSION, Purpose, Refusal};

/// Limit on a hello or a proof, in bytes.
const MESSAGE_BYTES: usize = 1 << 10;
/// Bytes of a message's length.
const LENGTH_BYTES: usize = 4;

/// The stages of a connection that waits for its peer.
pub(super) const STAGES: usize = 3;

#[derive(Debug)]
enum Stage {
    /// It has sent no whole connect request.
    Silent,
    /// It has requested a control connection.
    Requested,
    /// It has said hello and was challenged.
    Challenged(Box<NodeGreeted>),
}

/// What has arrived from a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrived {
    /// No whole message.
    Nothing,
    /// A whole message, of this length.
    Message(usize),
    /// The end of the stream, or what is no message.
    End,
}

/// A connection that has authenticated itself, for an executor.
#[derive(Debug)]
pub(super) enum AuthenticatedPeer {
    /// A control connection, to which the welcome is to be sent.
    Control {
        stream: TcpStream,
        speaker: Speaker,
        welcome: Vec<u8>,
        place: Place,
    },
    /// A memory connection whose request is to be answered.
    Memory {
        stream: TcpStream,
        request: ConnectRequest,
        place: Place,
        /// Reports the line's end. Dropped last: nothing can be performed any more then.
        ended: Ended,
    },
}

impl AuthenticatedPeer {
    pub(super) fn stream(&self) -> &TcpStream {
        match self {
            Self::Control { stream, .. } | Self::Memory { stream, .. } => stream,
        }
    }
}

/// What a message of a peer led to.
#[derive(Debug)]
pub(super) enum Proceeded {
    /// The next stage.
    Further(UnauthenticatedPeer),
    Authenticated(AuthenticatedPeer),
    /// It was refused, and the reason sent.
    Refused,
}

/// A connection that has not authenticated itself.
#[derive(Debug)]
pub(super) struct UnauthenticatedPeer {
    stream: TcpStream,
    address: SocketAddr,
    stage: Stage,
}

impl UnauthenticatedPeer {
    pub(super) fn new(stream: TcpStream, address: SocketAddr) -> Self {
        Self {
            stream,
            address,
            stage: Stage::Silent,
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its stage, of [`STAGES`].
    pub(super) fn stage(&self) -> usize {
        match self.stage {
            Stage::Silent => 0,
            Stage::Requested => 1,
            Stage::Challenged(_) => 2,
        }
    }

    /// What has arrived, which stays unread. Cost: a system call.
    pub(super) fn arrived(&self) -> Arrived {
        let mut bytes = [0; LENGTH_BYTES + MESSAGE_BYTES];
        let silent = matches!(self.stage, Stage::Silent);
        let most = if silent {
            CONNECT_REQUEST_BYTES
        } else {
            bytes.len()
        };
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let count = match rustix::net::recv(&self.stream, &mut bytes[..most], flags) {
            Ok((_, 0)) => return Arrived::End,
            Ok((_, count)) => count,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Arrived::Nothing,
            Err(_) => return Arrived::End,
        };
        let whole = match bytes.first_chunk() {
            _ if silent => CONNECT_REQUEST_BYTES,
            Some(length) if count >= LENGTH_BYTES => {
                LENGTH_BYTES + u32::from_le_bytes(*length) as usize
            }
            _ => return Arrived::Nothing,
        };
        match whole {
            _ if whole > bytes.len() => Arrived::End,
            _ if whole > count => Arrived::Nothing,
            _ => Arrived::Message(whole),
        }
    }

    /// Processes a message that has arrived.
    pub(super) fn proceed(
        mut self,
        length: usize,
        node: &Arc<Service>,
        maintenance: &Thread,
    ) -> Proceeded {
        let mut bytes = [0; LENGTH_BYTES + MESSAGE_BYTES];
        let bytes = &mut bytes[..length];
        let read = rustix::net::recv(&self.stream, &mut *bytes, RecvFlags::DONTWAIT);
        if !matches!(read, Ok((_, count)) if count == length) {
            return self.gone(node);
        }
        match std::mem::replace(&mut self.stage, Stage::Silent) {
            Stage::Silent => self.requested(bytes, node, maintenance),
            Stage::Requested => self.greeted(&bytes[LENGTH_BYTES..], node),
            Stage::Challenged(greeted) => self.proved(&greeted, &bytes[LENGTH_BYTES..], node),
        }
    }

    /// The peer has ended the connection, or sends what is no message.
    pub(super) fn gone(self, node: &Service) -> Proceeded {
        node.metrics().refused(Why::Request);
        debug!(peer = %self.address, stage = self.stage(), "the connection ended in the handshake");
        Proceeded::Refused
    }

    /// Closes the connection at once, so that the kernel keeps nothing of it. It would keep it for
    /// a minute if the peer did not answer an orderly end: a flood would use up its memory.
    pub(super) fn reset(self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }

    fn send(&self, bytes: &[u8]) -> bool {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::send(&self.stream, bytes, flags) == Ok(bytes.len())
    }

    fn send_message(&self, message: &[u8]) -> bool {
        let Ok(length) = u32::try_from(message.len()) else {
            return false;
        };
        self.send(&[&length.to_le_bytes(), message].concat())
    }

    /// Enters the next stage if its answer was sent.
    fn further(mut self, stage: Stage, sent: bool, node: &Service) -> Proceeded {
        if !sent {
            return self.gone(node);
        }
        self.stage = stage;
        Proceeded::Further(self)
    }

    fn requested(self, bytes: &[u8], node: &Arc<Service>, maintenance: &Thread) -> Proceeded {
        let peer = self.address;
        let request = bytes.first_chunk().map(wire::decode_request);
        let request = match request {
            Some(Ok(request)) if request.version == PROTOCOL_VERSION => request,
            // The operator must act on these: the client is of another release, or not a client at
            // all.
            Some(Ok(ConnectRequest { version, .. })) => {
                if node.refused(Why::Request) {
                    warn!(%peer, version, "connection refused: it speaks another version of the wire format than {PROTOCOL_VERSION}");
                }
                self.send(&wire::encode_reply(Some(Refusal::Version(
                    PROTOCOL_VERSION,
                ))));
                return Proceeded::Refused;
            }
            Some(Err(error)) => {
                if node.refused(Why::Request) {
                    warn!(%peer, %error, "connection refused");
                }
                return Proceeded::Refused;
            }
            None => return self.gone(node),
        };
        let refusal = match request.purpose {
            // The place is taken with the proof: an unauthenticated peer takes none.
            Purpose::Control
                if node.metrics().controls.taken() >= node.options().connections_max =>
            {
                Refusal::Busy
            }
            Purpose::Control => {
                let sent = self.send(&wire::encode_reply(None));
                return self.further(Stage::Requested, sent, node);
            }
            Purpose::Memory {
                session,
                slot,
                counter,
                proof,
                carrier,
            } if Some(carrier) == node.carrier() => {
                let join = Join {
                    session,
                    slot,
                    counter,
                };
                match node.join(&join, &proof) {
                    Ok((place, ticket)) => {
                        return Proceeded::Authenticated(AuthenticatedPeer::Memory {
                            stream: self.stream,
                            request,
                            place,
                            ended: Ended {
                                node: Arc::clone(node),
                                maintenance: maintenance.clone(),
                                ticket,
                            },
                        });
                    }
                    Err(refusal) => refusal,
                }
            }
            Purpose::Memory { .. } | Purpose::Peer => Refusal::Purpose,
        };
        if node.refused(refusal) {
            warn!(%peer, %refusal, "connection refused");
        }
        self.send(&wire::encode_reply(Some(refusal.disclosed())));
        Proceeded::Refused
    }

    fn greeted(self, hello: &[u8], node: &Service) -> Proceeded {
        match NodeGreeted::hello(hello, node.options().token.is_some()) {
            Ok((greeted, challenge)) => {
                let sent = self.send_message(&challenge);
                self.further(Stage::Challenged(Box::new(greeted)), sent, node)
            }
            Err(refused) => self.refuse(refused, node),
        }
    }

    fn proved(self, greeted: &NodeGreeted, proof: &[u8], node: &Service) -> Proceeded {
        let connections_max = node.options().connections_max;
        let opened = match node.metrics().controls.take(connections_max) {
            Some(place) => node
                .open(greeted, proof)
                .map(|(speaker, welcome)| (speaker, welcome, place)),
            None => Err(Refused::Busy {
                sessions_max: connections_max,
            }),
        };
        let (speaker, welcome, place) = match opened {
            Ok(opened) => opened,
            Err(refused) => return self.refuse(refused, node),
        };
        let (peer, session, name) = (self.address, speaker.session.get(), &greeted.client);
        match greeted.opening {
            Opening::New => info!(%peer, session, name, "session opened"),
            Opening::Resume { .. } => info!(%peer, session, name, "session resumed"),
        }
        Proceeded::Authenticated(AuthenticatedPeer::Control {
            stream: self.stream,
            speaker,
            welcome,
            place,
        })
    }

    fn refuse(self, refused: Refused, node: &Service) -> Proceeded {
        if node.refused(refused) {
            warn!(peer = %self.address, %refused, "client refused");
        }
        self.send_message(&Reply::Refused(refused).encode());
        Proceeded::Refused
    }
}
