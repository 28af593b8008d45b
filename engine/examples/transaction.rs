//! Transactions: money that moves from one account to another, or stays.
//!
//! `cargo run -p farcore --example transaction`

use farcore::{Config, Engine, Error, Handle, Transaction, TransactionOutcome};

/// Reads a balance and its version.
fn read(handle: &mut Handle, account: &[u8]) -> Result<(u64, u64), Error> {
    let value = handle.get(account).wait()?;
    let balance = value
        .as_deref()
        .and_then(|bytes| std::str::from_utf8(bytes).ok());
    let version = value.as_ref().map_or(0, farcore::Value::version);
    Ok((
        balance.and_then(|text| text.parse().ok()).unwrap_or(0),
        version,
    ))
}

/// Moves an amount; false if there is too little. Retries when another client has changed one of
/// the accounts between the reads and the transaction.
fn transfer(handle: &mut Handle, from: &[u8], to: &[u8], amount: u64) -> Result<bool, Error> {
    loop {
        let (source, source_version) = read(handle, from)?;
        let (target, target_version) = read(handle, to)?;
        let Some(left) = source.checked_sub(amount) else {
            return Ok(false);
        };
        let (left, right) = (left.to_string(), (target + amount).to_string());
        let transaction = Transaction::new()
            .expect(from, source_version)
            .put(from, left.as_bytes())
            .expect(to, target_version)
            .put(to, right.as_bytes());
        match handle.transaction(&transaction).wait()? {
            TransactionOutcome::Committed { .. } => return Ok(true),
            TransactionOutcome::Conflict { place, .. } => {
                println!("account {place} has changed: again");
            }
        }
    }
}

fn main() -> Result<(), Error> {
    let engine = Engine::open(Config {
        local_bytes: 64 << 20,
        far_bytes: 64 << 20,
        keys_expected: 10_000,
        prefault: false,
        // Keys with one tag lie in one shard, as a transaction requires.
        hash_tags: true,
        ..Config::default()
    })?;
    let (anna, ben) = (b"{bank}:anna", b"{bank}:ben");
    assert!(engine.same_shard([anna.as_slice(), ben]));
    let mut handle = engine.handle()?;
    handle.put(anna, b"100").wait()?;

    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut handle = engine.handle()?;
                    (0..20).try_for_each(|_| transfer(&mut handle, anna, ben, 2).map(drop))
                })
            })
            .collect();
        let join = |mover: std::thread::ScopedJoinHandle<'_, _>| mover.join().unwrap_or(Ok(()));
        movers.into_iter().try_for_each(join)
    })?;

    let (left, _) = read(&mut handle, anna)?;
    let (moved, _) = read(&mut handle, ben)?;
    println!("{left} left, {moved} moved");
    assert_eq!((left, moved), (20, 80));
    assert!(
        !transfer(&mut handle, anna, ben, 50)?,
        "there is too little"
    );
    Ok(())
}
