//! Keys that expire: sessions that end when they are not used.
//!
//! `cargo run -p farcore --example expiry`

use farcore::{
    Condition, Config, Engine, Error, Expiry, ExpiryCondition, PutOptions, PutOutcome, TimeToLive,
};

fn main() -> Result<(), Error> {
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 64 << 20,
        keys_expected: 10_000,
        prefault: false,
        ..Config::default()
    })?;
    let mut handle = engine.handle()?;

    // A lock of ten seconds: only one client gets it.
    let lock = PutOptions {
        expiry: Expiry::In(10_000),
        condition: Condition::Absent,
    };
    let first = handle.put_with(b"lock", b"client 1", lock).wait()?;
    let second = handle.put_with(b"lock", b"client 2", lock).wait()?;
    assert!(matches!(first, PutOutcome::Stored(_)));
    assert!(matches!(second, PutOutcome::Unmet(_)));

    // A session lives another hour from each use.
    let hour = Expiry::In(3_600_000);
    let session = PutOptions {
        expiry: hour,
        ..PutOptions::default()
    };
    let stored = handle.put_with(b"session", b"user 7", session).wait()?;
    assert!(matches!(stored, PutOutcome::Stored(_)));
    let used = handle.get_and_expire(b"session", hour).wait()?;
    assert_eq!(used.as_deref(), Some(&b"user 7"[..]));
    if let Some(TimeToLive::Milliseconds(left)) = handle.time_to_live(b"session").wait()? {
        println!("the session ends in {left} ms");
    }

    // A time in the past removes the key at once.
    let ended = handle.expire(b"session", Expiry::At(0), ExpiryCondition::Always);
    println!("signed out: {:?}", ended.wait()?);
    assert!(handle.get(b"session").wait()?.is_none());
    Ok(())
}
