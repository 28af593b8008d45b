//! Handles in an async executor: every call is a future that any executor can await.
//!
//! Here futures-lite polls four clients on one thread. A client is a task with a handle of its own;
//! while one waits for far memory the others go on.
//!
//! `cargo run -p farcore --example asynchronous`

use farcore::{Config, Core, Engine, Error, Handle, LinkModel};
use futures_lite::future::{block_on, or, zip};

const KEYS: u64 = 4_000;

fn value(client: u64, number: u64) -> Vec<u8> {
    let word = (client << 32 | number).to_le_bytes();
    word.repeat(128)
}

/// Stores and reads back its own keys; returns how many values were right.
async fn client(mut handle: Handle, client: u64) -> Result<u64, Error> {
    let key = |number: u64| [client.to_be_bytes(), number.to_be_bytes()].concat();
    for number in 0..KEYS {
        handle.put(&key(number), &value(client, number)).await?;
    }
    let mut right = 0;
    for number in 0..KEYS {
        let found = handle.get(&key(number)).await?;
        right += u64::from(found.is_some_and(|found| *found == value(client, number)));
    }
    Ok(right)
}

fn main() -> Result<(), Error> {
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 10 << 20,
        far_bytes: 64 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 10_000,
        // Far memory of this process, as far away as another host.
        link: LinkModel {
            latency_ns: 5_000,
            ..LinkModel::default()
        },
        prefault: false,
        handles_max: 4, // one for each client
        ..Config::default()
    })?;

    let [first, second, third, fourth] = [0, 1, 2, 3].map(|number| {
        let handle = engine.handle().expect("four handles are there");
        client(handle, number)
    });
    let all = zip(zip(first, second), zip(third, fourth));
    let ((first, second), (third, fourth)) = block_on(all);
    assert_eq!([first?, second?, third?, fourth?], [KEYS; 4]);
    println!(
        "{} values verified, {} far reads",
        4 * KEYS,
        engine.stats().total.far_reads
    );

    // A call that is dropped, as by a timeout, is forgotten: the handle can be used at once. A put
    // may have been carried out or not.
    let mut handle = engine.handle()?;
    let given_up = block_on(or(
        async { handle.put(b"key", b"first").await.map(|_| false) },
        async { Ok(true) },
    ))?;
    println!("the put was given up: {given_up}");
    block_on(handle.put(b"key", b"second"))?;
    let read = block_on(handle.get(b"key"))?.expect("just stored");
    assert_eq!(&*read, b"second");

    // A job on a core is a future as well. So are its calls.
    let job = async move |mut core: Core| -> Result<_, Error> {
        let value = core.get(b"key").await?;
        Ok(value.expect("just stored").to_vec())
    };
    assert_eq!(block_on(engine.run_on_core(0, job)?)??, b"second");
    Ok(())
}
