//! Another client of a node, which rewrites the records of an engine.

use farcore::{Answer, Config, EncryptionKey, EncryptionMode, Engine, Error};
use farcore_rdma::node::NodeHandle;
use farcore_rdma::session::NodeSession;
use farcore_rdma::tcp::{Exposed, TcpEndpoint, connect_control, connect_queue};
use farcore_rdma::{Initiator, InitiatorOptions, Lock, RemoteSlice};

use crate::support::{KEYS, PAGE_BYTES, PATIENCE, config, key, node};

/// What the attack changes: values that were stored one after another under rising keys.
const BALANCE_BYTES: usize = 200;

fn balance(number: u32, coins: u32) -> Vec<u8> {
    let text = format!("account {number:08}: {coins:08} coins ");
    text.repeat(8).into_bytes()[..BALANCE_BYTES].to_vec()
}

/// Another client of the node, which knows its token and none of the engine's keys. It reads every
/// page of the node's memory. Where it guesses which record is there, it turns the ciphertext into
/// that of another value and its checksum.
async fn rewrite_balances(node: &NodeHandle) -> u32 {
    let channel = connect_control(node.address(), PATIENCE).await.unwrap();
    let session = NodeSession::open(channel, "another", None).await.unwrap();
    let endpoint = TcpEndpoint::new(1, 64, 60_000_000_000, Exposed::default());
    let joined = connect_queue(node.address(), &session.memory_request(0), PATIENCE).await;
    endpoint.connection_slot(0).offer(joined.unwrap());
    let options = InitiatorOptions {
        lock: Lock::Off,
        ..InitiatorOptions::default()
    };
    let initiator = Initiator::new(endpoint, options).unwrap();
    initiator.renew(0);
    let mut pages = Vec::new();
    for region in &session.map().regions {
        for offset in (0..region.bytes).step_by(PAGE_BYTES as usize) {
            let place = RemoteSlice {
                key: region.key,
                offset,
            };
            let mut page = vec![0; PAGE_BYTES as usize];
            initiator.read(0, place, &mut page).await.unwrap();
            let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
            let (magic, sequence) = (word(0), word(16));
            let (units, records) = (word(12) as usize, word(24) as usize);
            if magic == 0x4643_5047 {
                pages.push((sequence, place, units, records, page));
            }
        }
    }
    pages.sort_by_key(|page| page.0);
    let mut number = 0;
    for (_, place, units, records, mut page) in pages {
        let bytes = (units - 4) * 16 / records;
        for record in page[64..units * 16].chunks_exact_mut(bytes) {
            let body = |coins| [&key(number)[..], &balance(number, coins)].concat();
            let (old, new) = (body(100), body(99_999_999));
            let check = |body: &[u8]| {
                let hash = xxhash_rust::xxh3::xxh3_64(body);
                (hash ^ hash >> 32).to_le_bytes()
            };
            let flip = |bytes: &mut [u8], old: &[u8], new: &[u8]| {
                for (byte, (old, new)) in bytes.iter_mut().zip(old.iter().zip(new)) {
                    *byte ^= old ^ new;
                }
            };
            flip(&mut record[12..16], &check(&old)[..4], &check(&new)[..4]);
            flip(&mut record[16..], &old, &new);
            number += 1;
        }
        initiator.write(0, place, &page).await.unwrap();
    }
    session.bye().await.unwrap();
    number
}

#[test]
fn records_that_another_client_rewrote_are_damaged() {
    for mode in [EncryptionMode::Authenticated, EncryptionMode::SecrecyOnly] {
        let node = node();
        let engine = Engine::open(Config {
            cores: vec![0],
            local_bytes: 8 << 20,
            far_bytes: 32 << 20,
            encryption: Some(EncryptionKey::random().unwrap()),
            encryption_mode: mode,
            ..config(&[&node])
        })
        .unwrap();
        let mut handle = engine.handle().unwrap();
        let pairs: Vec<_> = (0..KEYS).map(|n| (key(n), balance(n, 100))).collect();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (&key[..], &value[..]))
            .collect();
        handle
            .put_many(&pairs, |_, answer| {
                assert!(matches!(answer, Answer::Stored { .. }));
            })
            .unwrap();
        engine.flush().unwrap();
        let rewritten = farcore_rdma::run_local(rewrite_balances(&node)).unwrap();
        assert!(rewritten >= KEYS, "{rewritten}");
        let (mut believed, mut damaged) = (0, 0);
        for number in (0..KEYS).step_by(25) {
            match handle.get(&key(number)).wait() {
                Ok(Some(read)) if *read == balance(number, 99_999_999) => believed += 1,
                Ok(Some(read)) => assert_eq!(*read, balance(number, 100)),
                Ok(None) => panic!("{number} is gone"),
                Err(Error::Damaged { .. }) => damaged += 1,
                Err(error) => panic!("{number}: {error}"),
            }
        }
        match mode {
            // A put that waits for far memory is written after later ones. Up to there the records
            // are not the guessed ones.
            EncryptionMode::SecrecyOnly => assert!(believed > 300, "{believed} {damaged}"),
            _ => assert!(believed == 0 && damaged > 300, "{believed} {damaged}"),
        }
        engine.close();
    }
}
