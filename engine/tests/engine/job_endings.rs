//! Jobs that panic, close their engine or drop it.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use farcore::{Config, Engine, Error};

use crate::signal::Signal;
use crate::support::{answer_to, cores, one_core, tiny};

#[test]
fn a_job_that_panics_ends_alone() {
    let engine = Engine::open(tiny()).unwrap();
    let job = |_core: farcore::Core| async { panic!("of its own") };
    let task = engine.run_on_core::<(), _>(0, job).unwrap();
    let reason = "of its own".to_owned();
    assert_eq!(task.join(), Err(Error::JobPanicked { reason }));
    let mut handle = engine.handle().unwrap();
    handle.put(b"a", b"still served").wait().unwrap();
    engine.close();
    let refused = engine.run_on_core(0, |_| async {}).map(drop);
    assert_eq!(refused.unwrap_err(), Error::Closed);
}

#[test]
fn a_job_may_close_its_engine() {
    for count in [1, 2] {
        let config = Config {
            cores: cores(count),
            ..tiny()
        };
        let engine = Arc::new(Engine::open(config).unwrap());
        let mut handle = engine.handle().unwrap();
        let closed = Arc::clone(&engine);
        let job = async move |mut core: farcore::Core| {
            closed.close();
            closed.close();
            // It continues as before.
            core.put(b"key", b"value").await.unwrap();
            closed.run_on_core(0, async |_| {}).map(drop)
        };
        let task = engine.run_on_core(0, job).unwrap();
        assert_eq!(answer_to(task), Ok(Err(Error::Closed)));
        engine.close();
        assert_eq!(handle.get(b"key").wait(), Err(Error::Closed));
    }
}

#[test]
fn a_job_may_drop_its_engine() {
    for count in [1, 2] {
        let config = || Config {
            cores: cores(count),
            ..tiny()
        };
        let engine = Arc::new(Engine::open(config()).unwrap());
        let (last, signal) = (Arc::clone(&engine), Arc::new(Signal::new()));
        let in_job = Arc::clone(&signal);
        let job = async move |mut core: farcore::Core| {
            in_job.wait().await;
            drop(Arc::into_inner(last).expect("it is the last one"));
            core.put(b"key", b"value").await.unwrap()
        };
        let task = engine.run_on_core(0, job).unwrap();
        drop(engine);
        signal.give();
        assert!(answer_to(task).unwrap() > 0);
        // Its cores serve another engine.
        let engine = Engine::open(config()).unwrap();
        engine
            .handle()
            .unwrap()
            .put(b"key", b"value")
            .wait()
            .unwrap();
    }
}

/// Panics when it is dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Payload(self.0));
    }
}

/// The payload of a panic, which panics when it is dropped.
struct Payload(#[expect(dead_code, reason = "the payload is never read")] &'static str);

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("a payload's panic");
    }
}

/// A future that is ready at once and panics when it is dropped.
struct Unsound<T>(
    Option<T>,
    #[expect(dead_code, reason = "it is dropped")] Bomb,
);

impl<T: Unpin> Future for Unsound<T> {
    type Output = T;

    fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        Poll::Ready(self.0.take().expect("it is polled once"))
    }
}

#[test]
fn panics_in_drops_of_a_job_end_no_core() {
    let engine = Engine::open(one_core()).unwrap();
    let reason = "a panic without a text".to_owned();
    // Its future.
    let job = |_| Unsound(Some(5), Bomb("future"));
    let task = engine.run_on_core(0, job).unwrap();
    assert_eq!(
        answer_to(task),
        Err(Error::JobPanicked {
            reason: reason.clone()
        })
    );
    // Both panic; the caller receives one.
    let job = |_| Unsound(Some(Arc::new(Bomb("result"))), Bomb("future"));
    let task = engine.run_on_core(0, job).unwrap();
    assert_eq!(
        answer_to(task).map(drop),
        Err(Error::JobPanicked {
            reason: reason.clone()
        })
    );
    // A result that no caller waits for.
    let signal = Arc::new(Signal::new());
    let in_job = Arc::clone(&signal);
    let job = async move |_| {
        in_job.wait().await;
        Bomb("result")
    };
    drop(engine.run_on_core(0, job).unwrap());
    signal.give();
    // A panic whose payload panics.
    let job = async |_| std::panic::panic_any(Payload("job"));
    let task = engine.run_on_core::<(), _>(0, job).unwrap();
    assert_eq!(answer_to(task), Err(Error::JobPanicked { reason }));
    engine
        .handle()
        .unwrap()
        .put(b"key", b"still served")
        .wait()
        .unwrap();
}
