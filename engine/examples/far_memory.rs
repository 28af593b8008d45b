//! Far memory on memory nodes over TCP: two nodes, a token, an encryption key, and what is lost
//! with a node.
//!
//! The nodes run in this process here. Elsewhere they are `farcore memnode` on other hosts.
//!
//! `cargo run -p farcore --example far_memory`

use std::error::Error as StdError;

use farcore::{Config, EncryptionKey, Engine, Error, Lock, Token};
use farcore_rdma::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};

const KEYS: u32 = 12_000;

fn start_node(token: &Token) -> Result<NodeHandle, Box<dyn StdError>> {
    let memory = MemoryOptions {
        region_bytes: 16 << 20,
        huge_pages: false,
        lock: Lock::Try,
        ..MemoryOptions::new(16 << 20)
    };
    // Port 0 takes a free one.
    let options = NodeOptions::new(([127, 0, 0, 1], 0).into(), memory);
    let token = Some(token.clone());
    Ok(MemoryNode::start(NodeOptions { token, ..options })?)
}

fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(256)
}

/// Reads every key: how many were right, and how many unavailable.
fn verify(engine: &Engine) -> Result<(u32, u32), Error> {
    let mut handle = engine.handle()?;
    let (mut right, mut unavailable) = (0, 0);
    for number in 0..KEYS {
        match handle.get(&number.to_be_bytes()).wait() {
            Ok(Some(found)) => {
                assert_eq!(*found, value(number), "a wrong value for {number}");
                right += 1;
            }
            Ok(None) => panic!("{number} is gone"),
            // Its memory node does not answer, or has lost it. All other keys are served.
            Err(Error::Unavailable { .. }) => unavailable += 1,
            Err(error) => return Err(error),
        }
    }
    Ok((right, unavailable))
}

fn main() -> Result<(), Box<dyn StdError>> {
    // Elsewhere: `Token::read("token".as_ref())`, of the file that the nodes were given.
    let token = Token::new(b"a secret of 16 bytes or more")?;
    let (first, second) = (start_node(&token)?, start_node(&token)?);
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 10 << 20,
        far_bytes: 24 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: u64::from(KEYS),
        nodes: vec![
            format!("tcp://{}", first.address()).parse()?,
            format!("tcp://{}", second.address()).parse()?,
        ],
        // Opens with one of the two. The other joins when it comes.
        nodes_min: Some(1),
        token: Some(token),
        // Far memory and the wire hold ciphertext with a tag. A key can be read by
        // `EncryptionKey::from_file`.
        encryption: Some(EncryptionKey::random()?),
        prefault: false,
        ..Config::default()
    })?;
    let mut handle = engine.handle()?;
    for number in 0..KEYS {
        handle.put(&number.to_be_bytes(), &value(number)).wait()?;
    }
    drop(handle);
    engine.flush()?; // what was only local is copied to far memory
    assert_eq!(verify(&engine)?, (KEYS, 0));

    // A node ends. What lies on it alone is unavailable; no wrong value is returned.
    second.stop();
    let (right, unavailable) = verify(&engine)?;
    println!("{right} of {KEYS} keys are served without the second node");
    assert!(right > 0 && unavailable > 0 && right + unavailable == KEYS);
    engine.close();
    first.stop();
    Ok(())
}
