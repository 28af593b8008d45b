//! An engine takes no more memory than its cap, from the smallest accepted size on. The measure is
//! the kernel's count of memory that belongs to no file. Each size is measured in a process of its
//! own.

use std::process::Command;

use farcore::{Answer, Config, EncryptionKey, Engine, Operation};

/// Names what a process measures: cores, local memory in bytes, whether far memory is encrypted.
const CASE: &str = "FARCORE_CAP_CASE";
const NAME: &str = "the_cap_is_held_from_the_smallest_size_on";

/// A value of the kernel's status of this process, in bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .expect("it has such a line");
    let number = line.split_whitespace().nth(1).expect("it has a number");
    number.parse::<u64>().expect("it is one") << 10
}

fn config(cores: usize, local_bytes: u64, is_encrypted: bool) -> Config {
    let key = || EncryptionKey::random().expect("there are random bytes");
    Config {
        cores: Config::default().cores.into_iter().take(cores).collect(),
        local_bytes,
        far_bytes: 3 * local_bytes + (32 << 20),
        keys_expected: 1_000,
        encryption: is_encrypted.then(key),
        huge_pages: false,
        // Short ones take the table of trees too.
        inline_collection_bytes: 0,
        ..Config::default()
    }
}

/// Uses all that an engine has; the most memory that the process took meanwhile.
fn use_it(engine: &Engine, local_bytes: u64) -> u64 {
    let mut handles: Vec<_> = (0..4)
        .map(|_| engine.handle().expect("there are four"))
        .collect();
    let mut peak = 0;
    let mut look = || peak = peak.max(status("RssAnon:"));
    let values = local_bytes * 3 / 2 / 1_000;
    let key = |number: u64| format!("key-{number:012}").into_bytes();
    for round in 0..2 {
        for number in 0..values {
            let value = vec![7; (number * 37 % 2_000) as usize];
            let handle = &mut handles[(number % 4) as usize];
            let name = key(number);
            let operation = match round {
                0 => Operation::Put {
                    key: &name,
                    value: &value,
                },
                _ => Operation::Get { key: &name },
            };
            while handle.submit(operation, number).is_err() {
                handle
                    .poll(|_, answer| assert!(!matches!(answer, Answer::Failed(_)), "{answer:?}"));
            }
            if number % 256 == 0 {
                look();
            }
        }
        for handle in &mut handles {
            while handle.in_flight() > 0 {
                handle.poll(|_, _| {});
            }
        }
        look();
    }
    // Collections, until their table is full.
    for number in 0.. {
        let name = format!("collection-{number}");
        let mut tree = handles[number % 4].tree(name.as_bytes());
        match tree.insert(b"element", b"value").wait() {
            Ok(_) => {}
            Err(farcore::Error::Collections { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        if number % 64 == 0 {
            look();
        }
    }
    let longest = vec![1; engine.value_bytes_max()];
    for (number, handle) in handles.iter_mut().enumerate() {
        handle
            .put(&key(1 << 40 | number as u64), &longest)
            .wait()
            .expect("it fits");
        handle
            .get(&key(1 << 40 | number as u64))
            .wait()
            .expect("it is there");
    }
    let job = async move |mut core: farcore::Core| {
        for number in 0..1_000 {
            core.get(&key(number)).await.expect("it is served");
        }
    };
    let task = engine.run_on_core(0, job).expect("there is a core");
    task.join().expect("it runs");
    engine.flush().expect("there is room");
    engine.compact().expect("there is room");
    look();
    peak
}

fn play(case: &str) {
    let mut parts = case.split(' ');
    let mut part = || {
        parts
            .next()
            .expect("three parts")
            .parse::<u64>()
            .expect("a number")
    };
    let (cores, local_bytes, is_encrypted) = (part(), part(), part() == 1);
    let cores = usize::try_from(cores).expect("a few");
    let before = ["RssAnon:", "RssFile:"].map(status);
    let engine = Engine::open(config(cores, local_bytes, is_encrypted)).expect("an engine opens");
    let far = engine.stats().far_resident_bytes;
    let peak = use_it(&engine, local_bytes);
    let taken = peak - before[0] - far;
    let code = status("RssFile:") - before[1];
    println!("{cores} cores, cap {local_bytes}: took {taken}, and {code} of the program's files");
    assert!(taken <= local_bytes, "{case}: {taken}");
    // The measurement sees the engine's memory.
    assert!(taken > local_bytes / 2, "{case}: {taken}");
}

/// The least local memory that is accepted, to within a page of the kernel.
fn least(cores: usize, is_encrypted: bool) -> u64 {
    let is_taken = |bytes: &u64| config(cores, *bytes, is_encrypted).validate().is_ok();
    let sizes = (0..).map(|step| (1 << 20) + step * 4_096);
    sizes
        .into_iter()
        .find(is_taken)
        .expect("some size is taken")
}

#[test]
fn the_cap_is_held_from_the_smallest_size_on() {
    if let Ok(case) = std::env::var(CASE) {
        return play(&case);
    }
    let program = std::env::current_exe().expect("a test knows its program");
    for (cores, is_encrypted, larger) in [
        (1, false, 64 << 20),
        (1, true, 8 << 20),
        (2, true, 16 << 20),
    ] {
        let least = least(cores, is_encrypted);
        for local_bytes in [least, least + (1 << 20), larger] {
            let output = Command::new(&program)
                .args(["--exact", NAME, "--nocapture"])
                .env(
                    CASE,
                    format!("{cores} {local_bytes} {}", u8::from(is_encrypted)),
                )
                .output()
                .expect("a process can be started");
            let text = String::from_utf8_lossy(&output.stdout);
            let reported = text.lines().filter(|line| line.contains("took"));
            reported.for_each(|line| println!("{line}"));
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {text}", output.status);
        }
    }
}
