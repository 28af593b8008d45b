//! The client's side of a handshake.

use std::time::Duration;

use farcore_protocol::handshake::{Challenge, Hello, Welcome, decode_refusal, encode_proof};
use farcore_protocol::{Credits, HEADER_BYTES, Header, Kind, PROTOCOL_VERSION, message_bytes};
use farcore_rdma::control::{PeerProof, PeerSide};
use farcore_rdma::{Completion, FabricAddress, PeerEndpoint, Status as WorkStatus, Work};
use farcore_tuning::Clock;

use super::{Purpose, Session, SessionError};
use crate::buffers::{Messages, Pool};
use crate::error::{Error, Result};
use crate::figures::Counters;
use crate::flights::Flights;
use crate::options::{ClientOptions, Transfer};

/// A connection whose handshake is under way.
struct Handshake {
    session: Session,
    clock: Clock,
    started_ns: u64,
    limit: Duration,
    address: FabricAddress,
}

impl Session {
    /// Connects and shakes hands, on the calling executor.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`], [`Error::Token`].
    pub(crate) async fn connect(
        address: &FabricAddress,
        options: &ClientOptions,
        counters: &Counters,
    ) -> Result<Self> {
        let unreachable = |reason: String| Error::Unreachable {
            address: address.clone(),
            reason,
        };
        let endpoint = PeerEndpoint::connect(address, &options.peer(), options.timeout).await;
        let endpoint = endpoint.map_err(|error| unreachable(error.to_string()))?;
        let session = Self::begin(endpoint, options, counters);
        let session = session.map_err(|error| unreachable(error.to_string()))?;
        let clock = Clock::new();
        let mut handshake = Handshake {
            session,
            started_ns: clock.now_ns(),
            clock,
            limit: options.timeout,
            address: address.clone(),
        };
        handshake.run(options, counters).await?;
        counters.connections.add(1);
        Ok(handshake.session)
    }

    /// A connection whose receives are posted.
    fn begin(
        mut endpoint: PeerEndpoint,
        options: &ClientOptions,
        counters: &Counters,
    ) -> std::result::Result<Self, SessionError> {
        let bytes = message_bytes(options.small_bytes);
        let messages = Messages::new(&mut endpoint, options.credits, bytes)?;
        let mut session = Self {
            endpoint,
            messages,
            credits: Credits::new(options.credits),
            welcome: Welcome {
                credits: 0,
                message_bytes: 0,
                small_bytes: 0,
                value_bytes_max: 0,
                slot_bytes_max: 0,
                uploads: farcore_protocol::handshake::SlotFacts {
                    memory_key: 0,
                    first: 0,
                    slots: 0,
                    slot_bytes: 0,
                },
            },
            uploads: Pool::default(),
            reads: Pool::default(),
            landings: Pool::default(),
            flights: Flights::default(),
            waiting_reads: std::collections::VecDeque::new(),
            reading: Vec::new(),
            done: Vec::new(),
            is_growing: false,
            may_not_grow: false,
            has_added: false,
            in_parts: Vec::new(),
            message: Vec::new(),
            value: Vec::new(),
            is_touched: true,
            acknowledge_ns: None,
            more: Vec::new(),
            limit: options.timeout,
        };
        for number in 0..options.credits {
            session.post_receive(number, counters)?;
        }
        if options.transfer == Transfer::Landing {
            let buffers = (options.landings, options.landing_bytes);
            session.landings.add(&mut session.endpoint, buffers, true)?;
        }
        Ok(session)
    }
}

impl Handshake {
    async fn run(&mut self, options: &ClientOptions, counters: &Counters) -> Result<()> {
        let nonce = PeerProof::nonce()?;
        let hello = Hello {
            version: PROTOCOL_VERSION,
            credits: self.session.credits.grant_first(),
            // The server's own may be shorter.
            message_bytes: u32::try_from(message_bytes(options.small_bytes)).unwrap_or(u32::MAX),
            nonce,
            name: options.name.clone(),
        };
        let hello = hello.encode();
        self.send(&hello, counters)?;
        let challenge = self.receive(counters).await?;
        let challenge = Challenge::decode(&challenge).map_err(|error| self.violation(&error))?;
        let proofs = PeerProof {
            token: options.token.as_ref(),
            client: nonce,
            server: challenge.nonce,
            context: hello.get(HEADER_BYTES..).unwrap_or_default(),
        };
        if !proofs.is_of(PeerSide::Server, &challenge.proof) {
            return Err(Error::Token {
                address: self.address.clone(),
            });
        }
        self.send(&encode_proof(&proofs.of(PeerSide::Client)), counters)?;
        let welcome = self.receive(counters).await?;
        let welcome = Welcome::decode(&welcome).map_err(|error| self.violation(&error))?;
        let session = &mut self.session;
        session.credits.begin(welcome.credits);
        session.welcome = welcome;
        let added = session
            .uploads
            .add_uploads(&mut session.endpoint, &welcome.uploads);
        match added {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.unreachable("its upload slots do not begin at 0")),
            Err(error) => Err(self.unreachable(&error.to_string())),
        }
    }

    fn unreachable(&self, reason: &str) -> Error {
        Error::Unreachable {
            address: self.address.clone(),
            reason: reason.to_owned(),
        }
    }

    fn violation(&self, error: &farcore_protocol::WireError) -> Error {
        self.unreachable(&format!("no server of this protocol: {error}"))
    }

    fn send(&mut self, message: &[u8], counters: &Counters) -> Result<()> {
        let session = &mut self.session;
        let written = session.messages.write([message, &[], &[]]);
        let (send, local) = written.ok_or_else(|| Error::Start("no send buffer".to_owned()))?;
        let posted = session.post(Purpose::Send(send), Work::Send { local }, counters);
        posted.map_err(|error| self.unreachable(&error.to_string()))?;
        self.session.endpoint.ring(self.clock.now_ns());
        self.session.endpoint.flush();
        Ok(())
    }

    /// Waits for a message of the handshake.
    async fn receive(&mut self, counters: &Counters) -> Result<Vec<u8>> {
        let limit_ns = u64::try_from(self.limit.as_nanos()).unwrap_or(u64::MAX);
        loop {
            let mut completions = [Completion::NONE; 1];
            let now_ns = self.clock.now_ns();
            let count = self.session.endpoint.poll(now_ns, &mut completions);
            self.session.endpoint.flush();
            if count == 0 {
                if !self.session.endpoint.is_up() {
                    return Err(self.unreachable("the server closed the connection"));
                }
                if now_ns - self.started_ns > limit_ns {
                    let reason = format!("no answer within {} ms", self.limit.as_millis());
                    return Err(self.unreachable(&reason));
                }
                farcore_rdma::pause(HANDSHAKE_PAUSE).await;
                continue;
            }
            let [completion] = completions;
            if completion.status != WorkStatus::Success {
                return Err(self.unreachable(&completion.status.to_string()));
            }
            match Purpose::of(completion.id) {
                Purpose::Receive(number) => {
                    return self.take(number, completion.bytes as usize, counters);
                }
                Purpose::Send(number) => self.session.messages.free_send(number),
                Purpose::Upload | Purpose::Read(_) => {}
            }
        }
    }

    fn take(&mut self, number: u16, bytes: usize, counters: &Counters) -> Result<Vec<u8>> {
        let mut message = Vec::new();
        self.session.messages.read(number, bytes, &mut message);
        let counted = self.session.credits.received(0);
        counted.map_err(|error| self.unreachable(&error.to_string()))?;
        let posted = self.session.post_receive(number, counters);
        posted.map_err(|error| self.unreachable(&error.to_string()))?;
        self.session.credits.posted();
        let header = Header::decode(&message).map_err(|error| self.violation(&error))?;
        if header.kind == Kind::Refused {
            let refusal = decode_refusal(&message);
            let (_, reason) = refusal.map_err(|error| self.violation(&error))?;
            return Err(Error::Refused {
                address: self.address.clone(),
                reason,
            });
        }
        Ok(message)
    }
}

/// Between two looks for a message of the handshake.
const HANDSHAKE_PAUSE: Duration = Duration::from_micros(100);
