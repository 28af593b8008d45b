//! Stores a value that is too long for a record, reads it whole and in part, and replaces it.

use farcore::{Config, Engine, Error, PutOptions, PutOutcome};

fn main() -> Result<(), Error> {
    let engine = Engine::open(Config {
        local_bytes: 64 << 20,
        far_bytes: 256 << 20,
        keys_expected: 1_000,
        ..Config::default()
    })?;
    let mut handle = engine.handle()?;

    // From a slice.
    let film = vec![7u8; 5 << 20];
    handle.put_long(b"film", &film)?;

    // From parts that come one by one; the length is said before.
    let parts = (0..40u8).map(|part| vec![part; 100_000]);
    let stored = handle.put_long_with(b"log", 4_000_000, parts, PutOptions::default())?;
    assert!(matches!(stored, PutOutcome::Stored(_)));

    // Whole, into a buffer of the caller.
    let mut value = Vec::new();
    handle.get_long(b"film", &mut value)?;
    assert_eq!(value, film);

    // A part: only the pieces that hold it are read.
    handle.get_long_range(b"log", 2_000_000, 10, &mut value)?;
    assert_eq!(value, [20; 10]);

    // Piece by piece, with little memory.
    let mut sum = 0u64;
    handle.read_long(b"log", |_, part| {
        sum += part.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    })?;
    println!("the bytes of the log add up to {sum}");

    // One key, whatever its length; inspect and scans know how long it is.
    let known = handle.inspect(b"film").wait()?;
    println!("film: {:?}", known.map(|known| known.length));
    handle.delete(b"film").wait()?;
    assert_eq!(handle.len()?, 1);
    Ok(())
}
