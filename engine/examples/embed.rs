//! One engine, one handle: put, get, compare-and-swap, delete, many at once, and what errors say.
//!
//! `cargo run -p farcore --example embed`

use farcore::{Answer, CasOutcome, Config, Engine, Error, Version};

fn config() -> Config {
    Config {
        // The default is every core that this process may use: here one shard.
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 64 << 20,
        keys_expected: 10_000,
        prefault: false,
        ..Config::default()
    }
}

/// Adds one to a counter, however many clients do the same: reads it, and stores the sum only if
/// the version is still the one that was read.
fn increment(handle: &mut farcore::Handle, key: &[u8]) -> Result<u64, Error> {
    loop {
        let (version, count): (Version, u64) = match handle.get(key).wait()? {
            // Version 0 expects the key to be absent.
            None => (0, 0),
            Some(value) => {
                let bytes = (*value).try_into().expect("a counter has 8 bytes");
                (value.version(), u64::from_le_bytes(bytes))
            }
        };
        let next = (count + 1).to_le_bytes();
        match handle.compare_and_swap(key, version, &next).wait()? {
            CasOutcome::Stored(_) => return Ok(count + 1),
            CasOutcome::Mismatch(_) => {} // another client was first
        }
    }
}

fn main() -> Result<(), Error> {
    let engine = Engine::open(config())?;
    let mut handle = engine.handle()?; // one a thread

    handle.put(b"name", b"Ada").wait()?;
    let value = handle.get(b"name").wait()?.expect("just stored");
    assert_eq!(&*value, b"Ada");

    for expected in 1..=100 {
        assert_eq!(increment(&mut handle, b"visits")?, expected);
    }

    assert!(handle.delete(b"name").wait()?, "it was there");
    assert!(!handle.delete(b"name").wait()?, "it is absent now");
    assert!(handle.get(b"name").wait()?.is_none());

    // Many at once: one round trip for all, answers by their position.
    let keys: Vec<[u8; 8]> = (0..1_000u64).map(u64::to_be_bytes).collect();
    let pairs: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &key[4..])).collect();
    handle.put_many(&pairs, |_, answer| {
        assert!(matches!(answer, Answer::Stored { .. }), "{answer:?}");
    })?;
    let names: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut found = 0;
    handle.get_many(&names, |position, answer| {
        assert_eq!(answer.value(), &keys[position][4..]);
        found += 1;
    })?;
    assert_eq!(found, keys.len());

    // Errors are typed, and say the limit, the value and the remedy.
    let error = handle.put(b"", b"value").wait().expect_err("it is refused");
    assert_eq!(error, Error::KeyEmpty { max: 1024 });
    let long = vec![0; engine.value_bytes_max() + 1];
    let error = handle
        .put(b"long", &long)
        .wait()
        .expect_err("it is refused");
    println!("refused: {error}");
    assert!(matches!(error, Error::ValueTooLong { bytes, .. } if bytes == long.len()));
    let bad = Config {
        batch: 0,
        ..config()
    };
    println!("refused: {}", Engine::open(bad).expect_err("0 is no batch"));

    drop(handle);
    engine.close();
    Ok(())
}
