//! Handshakes between both sides, with right and wrong tokens, replayed and altered messages.

use farcore_fuzz::Input;

use super::*;
use crate::pool::{NodeMap, OwnerId, RegionDescriptor};
use crate::work::RemoteKey;

fn token(text: &str) -> Token {
    Token::new(text.as_bytes()).expect("long enough")
}

fn welcome() -> Welcome {
    let region = |key| RegionDescriptor {
        key: RemoteKey(key),
        address: 0,
        bytes: 1 << 20,
    };
    Welcome {
        session: OwnerId::new(7).expect("not 0"),
        incarnation: 1,
        lease_ms: 30_000,
        map: NodeMap {
            extent_bytes: 1 << 20,
            table: region(1),
            regions: vec![region(2)],
        },
    }
}

fn refused(bytes: Refused) -> Vec<u8> {
    Reply::Refused(bytes).encode()
}

/// Both sides, each with its token.
fn shake(client: Option<&Token>, node: Option<&Token>) -> Result<Welcome, SessionError> {
    let (client_key, node_key) = (token::key_of(client), token::key_of(node));
    let (hello, message) = ClientHello::new("test", Opening::New)?;
    let (greeted, message) = NodeGreeted::hello(&message, node.is_some())?;
    let (sent, message) = hello.challenged(&message, client, client_key)?;
    let reply = match greeted.proved(&message, node_key, node.is_some()) {
        Ok(proved) => proved.welcome(node_key, &welcome()),
        Err(error) => refused(error),
    };
    sent.welcomed(&reply, client_key)
        .map(|(welcome, _)| welcome)
}

#[test]
fn only_peers_with_equal_tokens_agree() {
    let (one, other) = (token("0123456789abcdef"), token("0123456789abcdeF"));
    assert_eq!(shake(Some(&one), Some(&one)).unwrap(), welcome());
    assert_eq!(shake(None, None).unwrap(), welcome());
    let error = shake(Some(&one), Some(&other)).unwrap_err();
    assert!(matches!(error, SessionError::WrongToken), "{error}");
    let error = shake(Some(&one), None).unwrap_err();
    assert!(matches!(error, SessionError::NoTokenAtNode), "{error}");
    let error = shake(None, Some(&one)).unwrap_err();
    assert!(matches!(error, SessionError::TokenMissing), "{error}");
}

#[test]
fn a_node_without_the_token_is_detected() {
    let one = token("0123456789abcdef");
    let key = token::key_of(Some(&one));
    let (hello, message) = ClientHello::new("test", Opening::New).unwrap();
    // It requires a token, accepts any proof and echoes what it received.
    let (greeted, message) = NodeGreeted::hello(&message, true).unwrap();
    let (sent, message) = hello.challenged(&message, Some(&one), key).unwrap();
    let Ok(Request::Prove { proof }) = Request::decode(&message) else {
        panic!("no proof");
    };
    greeted.proved(&message, b"", false).unwrap();
    let reply = Reply::Welcome {
        welcome: encode(&welcome()),
        proof,
    };
    let error = sent.welcomed(&reply.encode(), key).unwrap_err();
    assert!(matches!(error, SessionError::NodeNotProved), "{error}");
}

#[test]
fn a_recorded_handshake_cannot_be_replayed() {
    let one = token("0123456789abcdef");
    let key = token::key_of(Some(&one));
    let (hello, first) = ClientHello::new("test", Opening::New).unwrap();
    let (greeted, challenge) = NodeGreeted::hello(&first, true).unwrap();
    let (sent, proof) = hello.challenged(&challenge, Some(&one), key).unwrap();
    let proved = greeted.proved(&proof, key, true).unwrap();
    let reply = proved.welcome(key, &welcome());
    sent.welcomed(&reply, key).unwrap();
    // Replayed to the node: its challenge differs.
    let (again, _) = NodeGreeted::hello(&first, true).unwrap();
    let error = again.proved(&proof, key, true).unwrap_err();
    assert_eq!(error, Refused::WrongToken);
    // Replayed to a client.
    let (hello, _) = ClientHello::new("test", Opening::New).unwrap();
    let (sent, _) = hello.challenged(&challenge, Some(&one), key).unwrap();
    let error = sent.welcomed(&reply, key).unwrap_err();
    assert!(matches!(error, SessionError::NodeNotProved), "{error}");
}

#[test]
fn an_invalid_map_is_refused_by_the_client() {
    let (hello, message) = ClientHello::new("test", Opening::New).unwrap();
    let (greeted, message) = NodeGreeted::hello(&message, false).unwrap();
    let (sent, message) = hello.challenged(&message, None, b"").unwrap();
    let proved = greeted.proved(&message, b"", false).unwrap();
    let mut wrong = welcome();
    wrong.map.extent_bytes = 3;
    let error = sent
        .welcomed(&proved.welcome(b"", &wrong), b"")
        .unwrap_err();
    assert!(matches!(error, SessionError::Map(_)), "{error}");
}

#[test]
fn a_lease_out_of_range_is_refused_by_the_client() {
    for lease_ms in [0, 999, 86_400_001, u64::MAX] {
        let (hello, message) = ClientHello::new("test", Opening::New).unwrap();
        let (greeted, message) = NodeGreeted::hello(&message, false).unwrap();
        let (sent, message) = hello.challenged(&message, None, b"").unwrap();
        let proved = greeted.proved(&message, b"", false).unwrap();
        let wrong = Welcome {
            lease_ms,
            ..welcome()
        };
        let error = sent
            .welcomed(&proved.welcome(b"", &wrong), b"")
            .unwrap_err();
        assert!(matches!(error, SessionError::Lease { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("{lease_ms} ms")) && text.contains("1000 to 86400000"),
            "{text}"
        );
    }
}

#[test]
fn messages_out_of_turn_are_refused() {
    let bye = Request::Bye.encode();
    assert_eq!(
        NodeGreeted::hello(&bye, true).unwrap_err(),
        Refused::OutOfTurn
    );
    let (_, hello) = ClientHello::new("test", Opening::New).unwrap();
    let (greeted, _) = NodeGreeted::hello(&hello, true).unwrap();
    let error = greeted.proved(&hello, b"", true).unwrap_err();
    assert_eq!(error, Refused::OutOfTurn);
    let (hello, _) = ClientHello::new("test", Opening::New).unwrap();
    let reply = Reply::Farewell.encode();
    let error = hello.challenged(&reply, None, b"").unwrap_err();
    assert!(matches!(error, SessionError::Unexpected(_)), "{error}");
    let (hello, _) = ClientHello::new("test", Opening::New).unwrap();
    let reply = refused(Refused::Version { node: 2, client: 1 });
    let error = hello.challenged(&reply, None, b"").unwrap_err();
    assert!(matches!(
        error,
        SessionError::Version { node: 2, client: 1 }
    ));
}

/// The message with which a peer answers in place of the right one: some bits of it changed, bytes
/// appended or cut off.
fn altered(message: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let mut message = message.to_vec();
    let kept = message.len().saturating_sub(usize::from(input.byte()));
    message.truncate(kept);
    for _ in 0..input.below(4) {
        if !message.is_empty() {
            let at = usize::from(input.short()) % message.len();
            message[at] ^= input.byte();
        }
    }
    message.extend(input.rest());
    message
}

/// Whatever a peer without the token answers, and whatever stands between two that have it changes:
/// they agree only on what both have sent.
#[test]
fn a_changed_message_of_a_handshake_is_refused() {
    let token = token("0123456789abcdef");
    let key = token::key_of(Some(&token));
    farcore_fuzz::Target::new("handshake")
        .seeds((0..4).map(|place| vec![place, 0, 1, 9, 0, 1]))
        .seeds((0..4).map(|place| vec![place, 3, 0]))
        .rounds(4000)
        .run(|bytes| {
            let input = &mut Input::new(bytes);
            let place = input.below(4);
            let mut is_changed = false;
            let mut carry = |at: usize, message: Vec<u8>| {
                if at != place {
                    return message;
                }
                let other = altered(&message, input);
                // A number can be encoded in more than one way.
                is_changed = Request::decode(&other) != Request::decode(&message)
                    || Reply::decode(&other) != Reply::decode(&message);
                other
            };
            let (hello, message) = ClientHello::new("test", Opening::New).unwrap();
            let message = carry(0, message);
            let Ok((greeted, message)) = NodeGreeted::hello(&message, true) else {
                return assert!(is_changed);
            };
            let message = carry(1, message);
            let Ok((sent, message)) = hello.challenged(&message, Some(&token), key) else {
                return assert!(is_changed);
            };
            let message = carry(2, message);
            let Ok(proved) = greeted.proved(&message, key, true) else {
                return assert!(is_changed);
            };
            let message = carry(3, proved.welcome(key, &welcome()));
            match sent.welcomed(&message, key) {
                Ok((found, _)) => {
                    assert_eq!(found, welcome());
                    // No proof covers the name of a hello.
                    assert!(!is_changed || place == 0, "message {place}");
                }
                Err(_) => assert!(is_changed),
            }
        });
}
