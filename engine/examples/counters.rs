//! Counters, conditions and ranges: changes that depend on what a key holds, each in one step.
//!
//! `cargo run -p farcore --example counters`

use farcore::{CasOutcome, Condition, Config, Engine, Error};

fn main() -> Result<(), Error> {
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 64 << 20,
        keys_expected: 10_000,
        prefault: false,
        ..Config::default()
    })?;

    // Three threads count; no increment is lost, and none reads before it writes.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let mut handle = engine.handle().expect("there are four handles");
            scope.spawn(move || {
                for _ in 0..1_000 {
                    handle
                        .increment(b"visits", 1)
                        .wait()
                        .expect("it is a number");
                }
            });
        }
    });
    let mut handle = engine.handle()?;
    assert_eq!(handle.increment(b"visits", 0).wait()?, 3_000);

    // A lock: the first one takes it, and only its owner can release it.
    let taken = handle.put_if(b"lock", b"a", Condition::Absent).wait()?;
    assert!(matches!(taken, CasOutcome::Stored(_)));
    let refused = handle.put_if(b"lock", b"b", Condition::Absent).wait()?;
    assert!(matches!(refused, CasOutcome::Mismatch(_)));
    let released = handle.delete_if(b"lock", Condition::Equals(b"a")).wait()?;
    println!("released: {released:?}");

    // A log, and a part of it.
    handle.append(b"log", b"started; ").wait()?;
    let known = handle.append(b"log", b"stopped").wait()?;
    let last = u32::try_from(known.length).unwrap_or(0) - 7;
    let part = handle
        .get_range(b"log", last, 7)
        .wait()?
        .expect("just stored");
    assert_eq!(&*part, b"stopped");

    // What cannot be done says why, and changes nothing.
    let refused = handle.increment(b"log", 1).wait();
    println!("{}", refused.expect_err("a log is no number"));
    Ok(())
}
