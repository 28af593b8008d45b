//! Visits all keys page by page, counts them, exports them with their values, and removes them.

use farcore::{Config, Cursor, Engine, Error, ExportOptions, ScanOptions};

fn main() -> Result<(), Error> {
    let engine = Engine::open(Config {
        local_bytes: 64 << 20,
        far_bytes: 64 << 20,
        keys_expected: 10_000,
        ..Config::default()
    })?;
    let mut handle = engine.handle()?;
    for number in 0..10_000u32 {
        handle
            .put(format!("user:{number}").as_bytes(), b"...")
            .wait()?;
    }

    // A cursor is 16 bytes, and stays valid whatever is written between two pages.
    let mut cursor = Some(Cursor::START);
    let (mut keys, mut pages) = (0, 0);
    while let Some(from) = cursor {
        let page = handle.scan(from, ScanOptions::default())?;
        keys += page.entries().count();
        pages += 1;
        cursor = page.next();
    }
    println!("{keys} keys in {pages} pages; len() says {}", handle.len()?);

    // An export visits the records in the order of the log: far memory is read in long pieces.
    let mut bytes = 0;
    let summary = handle.export(ExportOptions::default(), |entry| {
        bytes += entry.key.len() + entry.value.map_or(0, <[u8]>::len);
    })?;
    println!("{} records, {bytes} bytes", summary.entries);

    println!("{} keys removed at once", handle.clear()?);
    assert_eq!(handle.len()?, 0);
    Ok(())
}
