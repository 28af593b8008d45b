//! Clients of one executor, of which some send more than their share.

use super::*;

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&length.to_le_bytes(), message].concat()
}

/// A control connection with a session of its own, as a plain socket.
fn raw_control(node: &NodeHandle) -> std::net::TcpStream {
    let mut stream = raw_connection(node, &ConnectRequest::new(Purpose::Control));
    let receive = |stream: &mut std::net::TcpStream| {
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut message = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut message).unwrap();
        message
    };
    let (hello, message) = handshake::ClientHello::new("raw", Opening::New).unwrap();
    stream.write_all(&framed(&message)).unwrap();
    let challenge = receive(&mut stream);
    let key = token::key_of(options().token.as_ref()).to_vec();
    let (_, proof) = hello.challenged(&challenge, Some(&token()), &key).unwrap();
    stream.write_all(&framed(&proof)).unwrap();
    let welcome = Reply::decode(&receive(&mut stream));
    assert!(matches!(welcome, Some(Reply::Welcome { .. })));
    stream
}

#[test]
fn requests_sent_ahead_keep_no_other_client_waiting() {
    const AHEAD: u64 = 20_000;
    const ROUNDS: u64 = 9;
    let node = MemoryNode::start(NodeOptions {
        threads: 1,
        ..options()
    })
    .unwrap();
    run(async {
        let mut other = session(&node).await;
        // Requests that are refused, and so counted; their answers fit the socket.
        let all = framed(&[99]).repeat(usize::try_from(AHEAD).unwrap());
        let mut last = 0;
        for round in 1..=ROUNDS {
            let mut greedy = raw_control(&node);
            greedy.write_all(&all).unwrap();
            other.heartbeat().await.unwrap();
            let performed = node.metrics().statistics().refusals;
            last += u64::from(performed >= round * AHEAD);
            until(&node, |now| now.refusals == round * AHEAD).await;
        }
        // This thread may be away while the node answers, but not in many rounds.
        assert!(
            last <= ROUNDS / 4,
            "the other client came last in {last} of {ROUNDS} rounds"
        );
    });
    node.stop();
}
