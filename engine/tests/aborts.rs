//! A panic that leaves a shard without a thread to serve it aborts the process with a message, so
//! that no client waits forever.
//!
//! Each test runs itself again in another process, which aborts.

use std::process::{Command, Output};
use std::time::Duration;

use farcore::{Config, Engine, Operation};

/// Names the case that a process runs.
const CASE: &str = "FARCORE_ABORT_CASE";
/// A process that would wait forever ends itself after this time.
const LIMIT: Duration = Duration::from_secs(120);

fn is_played(case: &str) -> bool {
    std::env::var(CASE).is_ok_and(|played| played == case)
}

/// Runs a case in another process.
fn play(case: &str) -> Output {
    let program = std::env::current_exe().expect("a test knows its program");
    Command::new(program)
        .args(["--exact", case, "--nocapture"])
        .env(CASE, case)
        .output()
        .expect("a process can be started")
}

fn assert_aborted(output: &Output, said: &str) {
    use std::os::unix::process::ExitStatusExt;
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(text.contains(said), "{text}");
}

/// The engine of a process that runs a case.
fn open() -> Engine {
    std::thread::spawn(|| {
        std::thread::sleep(LIMIT);
        eprintln!("nothing ends this process");
        std::process::exit(1);
    });
    let config = Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 32 << 20,
        ..Config::default()
    };
    Engine::open(config).expect("an engine of one core opens")
}

#[test]
fn a_visitor_that_panics() {
    let case = "a_visitor_that_panics";
    if is_played(case) {
        let job = |mut core: farcore::Core| async move {
            let request = Operation::Get { key: b"key" };
            core.submit(request, 1).expect("there is room for one");
            while core.poll(|_, _| panic!("a visitor's panic")) == 0 {}
        };
        let ended = open().run_on_core(0, job).expect("there is a core").join();
        unreachable!("the job has ended: {ended:?}");
    }
    let output = play(case);
    assert_aborted(&output, "a panic inside a shard's turn");
    assert_aborted(&output, "a visitor's panic");
}

#[test]
fn a_core_that_panics_outside_of_its_jobs() {
    let case = "a_core_that_panics_outside_of_its_jobs";
    if is_played(case) {
        let engine = open();
        let mut handle = engine.handle().expect("there is a handle");
        let job = |_: farcore::Core| async {
            // A task that the job does not poll.
            let task = async {
                glommio::timer::sleep(Duration::from_millis(1)).await;
                panic!("a task's panic")
            };
            glommio::spawn_local::<()>(task).detach();
        };
        drop(engine.run_on_core(0, job).expect("there is a core"));
        while handle.get(b"key").wait().is_ok() {}
        unreachable!("the core has answered: it lives, or it is only closed");
    }
    let output = play(case);
    assert_aborted(&output, "a panic on a core outside of its jobs");
    assert_aborted(&output, "a task's panic");
}
