//! Handshakes between both sides, with right and wrong tokens, replayed and altered messages.

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
