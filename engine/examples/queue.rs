//! A queue of jobs that loses none: a job that is taken stays claimed until it is done, and goes
//! back to the queue if its worker does not finish in time.
//!
//! Waiting jobs are a list, claimed ones a map in the order of their deadlines.
//!
//! `cargo run -p farcore --example queue`

use farcore::{Config, Engine, Error, Handle, TreeBound, TreePage};

/// How long a worker has for a job, in the milliseconds of this program's clock.
const PATIENCE_MS: u64 = 30;

/// Claims are in the order of their deadlines.
fn claim_of(deadline_ms: u64, job: &[u8]) -> Vec<u8> {
    [&deadline_ms.to_be_bytes()[..], job].concat()
}

fn element(page: &TreePage) -> Option<Vec<u8>> {
    page.first().map(|(_, value)| value.to_vec())
}

/// A claim, and its job.
type Claimed = (Vec<u8>, Vec<u8>);

/// Takes the oldest job. It is claimed before it leaves the queue, so a worker that ends in between
/// leaves it in both, and it is done twice rather than never.
fn take(handle: &mut Handle, now_ms: u64) -> Result<Option<Claimed>, Error> {
    loop {
        let first = handle.tree(b"waiting").first().wait()?;
        let Some(job) = element(&first) else {
            return Ok(None);
        };
        let claim = claim_of(now_ms + PATIENCE_MS, &job);
        let _ = handle.tree(b"claimed").insert(&claim, &job).wait()?;
        let mut waiting = handle.tree(b"waiting").at_version(first.version());
        match waiting.take_at(0).wait() {
            Ok(_) => return Ok(Some((claim, job))),
            // Another worker was faster, or a job was added: look again.
            Err(Error::CollectionVersion { .. }) => {
                let _ = handle.tree(b"claimed").remove(&claim).wait()?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The job of a claim is done. False if it took too long, and went back to the queue.
fn finish(handle: &mut Handle, claim: &[u8]) -> Result<bool, Error> {
    Ok(handle.tree(b"claimed").remove(claim).wait()?.is_some())
}

/// Puts jobs back whose workers took too long; returns how many.
fn put_back(handle: &mut Handle, now_ms: u64) -> Result<usize, Error> {
    let end = now_ms.to_be_bytes();
    let (from, to) = (TreeBound::Unbounded, TreeBound::Excluded(&end[..]));
    let mut claimed = handle.tree(b"claimed");
    let late = claimed.range(from, to, false, 100).wait()?;
    for (claim, job) in late.iter() {
        handle.tree(b"waiting").push_first(&[job]).wait()?;
        let _ = handle.tree(b"claimed").remove(claim).wait()?;
    }
    Ok(late.iter().count())
}

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
    let jobs: Vec<String> = (0..10_000).map(|number| format!("job {number}")).collect();
    for jobs in jobs.chunks(100) {
        let jobs: Vec<&[u8]> = jobs.iter().map(String::as_bytes).collect();
        handle.tree(b"waiting").push_last(&jobs).wait()?;
    }
    println!(
        "{} jobs wait",
        handle.tree(b"waiting").len().wait()?.elements
    );

    // Every tenth worker stops before its job is done.
    let (mut now_ms, mut done, mut returned) = (0, 0, 0);
    while done < jobs.len() {
        now_ms += 1;
        returned += put_back(&mut handle, now_ms)?;
        if let Some((claim, _)) = take(&mut handle, now_ms)?
            && now_ms % 10 != 0
        {
            done += usize::from(finish(&mut handle, &claim)?);
        }
    }
    println!("{done} jobs are done, {returned} of them by a second worker");
    assert!(returned >= 1_000);
    assert_eq!(handle.tree(b"waiting").len().wait()?.elements, 0);
    assert_eq!(handle.tree(b"claimed").len().wait()?.elements, 0);
    Ok(())
}
