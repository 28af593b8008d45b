//! The server's side of a handshake.

use farcore_protocol::handshake::{Challenge, Hello, Welcome, decode_proof, encode_refusal};
use farcore_protocol::{HEADER_BYTES, VALUE_BYTES_MAX, message_bytes};
use farcore_protocol::{PROTOCOL_VERSION, Status, TRANSFER_SLOT_BYTES, TRANSFER_SLOT_BYTES_MAX};
use farcore_rdma::LogLimit;
use farcore_rdma::control::{PeerProof, PeerSide};

use super::connection::{NativeConnection, State};
use super::slots::UPLOADS;
use crate::cores::open_clients::OpenClients;
use crate::figures::native_counters::NativeCounters;
use crate::options::NativeOptions;

/// Any client that can connect can be refused.
static REFUSALS: LogLimit = LogLimit::new();

impl NativeConnection {
    /// Goes on with the handshake.
    pub(super) fn shake_hands(
        &mut self,
        (receive, bytes): (u16, usize),
        (options, open): (&NativeOptions, &OpenClients),
        counters: &NativeCounters,
    ) {
        let message = self.read_handshake(receive, bytes);
        counters.received_messages.add(1);
        let done = match std::mem::replace(&mut self.state, State::Refused) {
            State::Hello => self.hello(&message, options, counters),
            State::Prove(proof) => self.prove(&message, &proof, (options, open), counters),
            state @ (State::Open | State::Refused) => {
                self.state = state;
                Err((Status::Protocol, "a message out of turn".to_owned()))
            }
        };
        match done {
            Ok(state) => self.state = state,
            Err((status, reason)) => {
                if let Some(left_out) = REFUSALS.note() {
                    tracing::info!(peer = %self.peer, reason, left_out, "a native client is refused");
                }
                counters.refused.add(1);
                // One that speaks another protocol learns nothing.
                if self.credits.spend_in_handshake() {
                    self.send_handshake(&encode_refusal(status, &reason), counters);
                } else {
                    self.is_gone = true;
                }
            }
        }
    }

    fn hello(
        &mut self,
        message: &[u8],
        options: &NativeOptions,
        counters: &NativeCounters,
    ) -> Result<State, (Status, String)> {
        let hello = Hello::decode(message);
        let hello = hello.map_err(|error| (Status::Protocol, error.to_string()))?;
        self.credits.begin(hello.credits);
        if hello.version != PROTOCOL_VERSION {
            let reason = format!(
                "the server speaks version {PROTOCOL_VERSION} of the protocol and the client version {}: use the same release",
                hello.version
            );
            return Err((Status::Protocol, reason));
        }
        self.client_message_bytes = usize::try_from(hello.message_bytes).unwrap_or(usize::MAX);
        let internal = |error: std::io::Error| (Status::Internal, error.to_string());
        let nonce = PeerProof::nonce().map_err(internal)?;
        let proofs = PeerProof {
            token: options.token.as_ref(),
            client: hello.nonce,
            server: nonce,
            context: message.get(HEADER_BYTES..).unwrap_or_default(),
        };
        let challenge = Challenge {
            nonce,
            proof: proofs.of(PeerSide::Server),
        };
        self.credits.spend_in_handshake();
        self.send_handshake(&challenge.encode(), counters);
        tracing::debug!(peer = %self.peer, name = hello.name, "a native client says hello");
        Ok(State::Prove(Box::new(proofs.of(PeerSide::Client))))
    }

    fn prove(
        &mut self,
        message: &[u8],
        expected: &[u8; 32],
        (options, open): (&NativeOptions, &OpenClients),
        counters: &NativeCounters,
    ) -> Result<State, (Status, String)> {
        let proof = decode_proof(message);
        let proof = proof.map_err(|error| (Status::Protocol, error.to_string()))?;
        if !is_equal(expected, &proof) {
            return Err((
                Status::Protocol,
                "the client has another token than the server".to_owned(),
            ));
        }
        let full = || {
            let limit = options.slot_bytes;
            let reason = format!("the memory of native connections, {limit} bytes, is used up");
            (Status::NoMemory, reason)
        };
        let client = open.enter(options.connections_max).ok_or_else(|| {
            let limit = options.connections_max;
            let reason = format!("the server has {limit} native clients, which is its limit");
            (Status::Busy, reason)
        })?;
        if !self.open(options.credits, options.small_bytes) {
            return Err(full());
        }
        let added = self.uploads.add(
            &mut self.endpoint,
            &self.account,
            UPLOADS,
            TRANSFER_SLOT_BYTES,
        );
        let welcome = Welcome {
            credits: self.credits.grant_first(),
            message_bytes: u32::try_from(message_bytes(options.small_bytes)).unwrap_or(0),
            small_bytes: u32::try_from(options.small_bytes).unwrap_or(0),
            value_bytes_max: VALUE_BYTES_MAX,
            slot_bytes_max: u32::try_from(TRANSFER_SLOT_BYTES_MAX).unwrap_or(0),
            uploads: added.ok_or_else(full)?,
        };
        self.credits.spend_in_handshake();
        self.send_handshake(&welcome.encode(), counters);
        counters.credits.change(options.credits.into());
        client.stay();
        Ok(State::Open)
    }
}

/// Compares proofs in a time that does not depend on them.
fn is_equal(expected: &[u8; 32], given: &[u8; 32]) -> bool {
    let differs = expected
        .iter()
        .zip(given)
        .fold(0, |differs, (one, other)| differs | (one ^ other));
    std::hint::black_box(differs) == 0
}
