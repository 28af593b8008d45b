//! A closing engine leaves no descriptor and no thread that the next engine does not use. A test
//! binary of its own, because both are counted for the whole process.

use farcore::{Config, Engine};

fn count(of: &str) -> usize {
    let entries = std::fs::read_dir(format!("/proc/self/{of}")).expect("Linux has it");
    entries.count()
}

fn open_and_close() {
    let config = Config {
        cores: Config::default().cores.into_iter().take(2).collect(),
        local_bytes: 32 << 20,
        far_bytes: 32 << 20,
        keys_expected: 1_000,
        prefault: false,
        huge_pages: false,
        ..Config::default()
    };
    let engine = Engine::open(config).expect("an engine opens");
    let mut handle = engine.handle().expect("there is a handle");
    handle.put(b"key", b"value").wait().expect("it is served");
    let job = engine.run_on_core(0, async |mut core: farcore::Core| {
        core.get(b"key").await.map(|value| value.is_some())
    });
    let found = job.expect("there is a core").join().expect("it ran");
    assert!(found.expect("it is served"));
}

#[test]
fn the_leftovers_of_closed_engines_do_not_grow() {
    open_and_close();
    let left = || [count("fd"), count("task")];
    let after_one = left();
    for _ in 0..200 {
        open_and_close();
    }
    let after_all = left();
    // The wake timer's thread ends a moment after the last engine and starts with the next: allow
    // one more or less.
    assert_eq!(after_all[0], after_one[0], "descriptors");
    assert!(
        after_all[1].abs_diff(after_one[1]) <= 1,
        "threads: {after_one:?}, {after_all:?}"
    );
}
