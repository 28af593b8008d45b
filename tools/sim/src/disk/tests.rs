//! What both kinds of disk do alike, and a log that is crashed at every step.

use std::collections::BTreeMap;
use std::path::PathBuf;

use farcore::disk::{
    DISK_BLOCK_BYTES, Disk, DiskBuffer, DiskCompletion, DiskError, DiskRefused, DiskRequest,
    DiskWork, RingDisk,
};

use super::appended::{LeftOut, recover};
use super::{DiskFaults, SimulatedDisk};
use crate::random::Random;

const BLOCK: u64 = DISK_BLOCK_BYTES as u64;
const CAPACITY: u64 = 16 * BLOCK;
const DEPTH: u16 = 4;
/// Polls within which a request completes.
const POLLS: u32 = 200_000_000;

fn write(token: u64, at: u64, byte: u8) -> DiskRequest {
    let mut buffer = DiskBuffer::new(1);
    buffer.bytes_mut().fill(byte);
    let work = DiskWork::Write { at, buffer };
    DiskRequest { token, work }
}

fn read(token: u64, at: u64, blocks: usize) -> DiskRequest {
    let buffer = DiskBuffer::new(blocks);
    let work = DiskWork::Read { at, buffer };
    DiskRequest { token, work }
}

fn sync(token: u64) -> DiskRequest {
    let work = DiskWork::Sync;
    DiskRequest { token, work }
}

/// Submits requests and waits for all of them; the completions by token.
fn all(disk: &mut dyn Disk, requests: Vec<DiskRequest>) -> BTreeMap<u64, DiskCompletion> {
    let mut done = BTreeMap::new();
    let wanted = requests.len();
    for request in requests {
        disk.submit(request).expect("there is room");
    }
    for _ in 0..POLLS {
        disk.poll(&mut |one| {
            let before = done.insert(one.token, one);
            assert!(before.is_none(), "{before:?} completed twice");
        });
        if done.len() == wanted {
            return done;
        }
    }
    panic!("{} of {wanted} requests have completed", done.len());
}

fn one(disk: &mut dyn Disk, request: DiskRequest) -> Result<Vec<u8>, DiskError> {
    let token = request.token;
    let done = all(disk, vec![request]).remove(&token).expect("its own");
    let bytes = done
        .buffer
        .map_or(Vec::new(), |buffer| buffer.bytes().to_vec());
    done.result.map(|()| bytes)
}

/// What every disk does. `reopen`: opens the file again, with what was synced.
fn conforms<D: Disk>(mut disk: D, reopen: impl FnOnce(D) -> D) {
    assert_eq!(disk.capacity(), CAPACITY);
    assert_eq!(disk.room(), usize::from(DEPTH));
    // A round trip, out of order.
    let writes = vec![write(7, BLOCK, 2), write(3, 0, 1), write(9, 2 * BLOCK, 3)];
    for (token, done) in all(&mut disk, writes) {
        assert_eq!(done.result, Ok(()), "{token}");
        assert!(done.buffer.is_some());
    }
    let bytes = one(&mut disk, read(1, 0, 3)).expect("it was written");
    let wanted: Vec<u8> = (1..4).flat_map(|byte| [byte; DISK_BLOCK_BYTES]).collect();
    assert!(bytes == wanted, "three blocks are read at once");
    // The end of the file.
    let short = one(&mut disk, read(1, 2 * BLOCK, 2));
    let bytes = DISK_BLOCK_BYTES;
    assert_eq!(short, Err(DiskError::Short { bytes }));
    let behind = one(&mut disk, read(1, 9 * BLOCK, 1));
    assert_eq!(behind, Err(DiskError::Short { bytes: 0 }));
    // A hole is zeros.
    one(&mut disk, write(1, 5 * BLOCK, 6)).expect("there is room");
    let hole = one(&mut disk, read(1, 4 * BLOCK, 1)).expect("it lies before the end");
    assert!(hole.iter().all(|&byte| byte == 0));
    // The end of what it may take.
    one(&mut disk, write(1, CAPACITY - BLOCK, 8)).expect("the last block is free");
    assert_eq!(one(&mut disk, write(1, CAPACITY, 9)), Err(DiskError::Full));
    let full = one(&mut disk, write(1, u64::MAX - BLOCK + 1, 9));
    assert_eq!(full, Err(DiskError::Full));
    // What is wrong or too much is given back.
    match disk.submit(write(5, 512, 1)) {
        Err(DiskRefused::Wrong(back, DiskError::Misaligned { at: 512 })) => {
            assert_eq!(back.token, 5);
            assert!(back.work.into_buffer().is_some());
        }
        other => panic!("{other:?}"),
    }
    for token in 0..u64::from(DEPTH) {
        disk.submit(read(token, 0, 1)).expect("there is room");
    }
    assert_eq!(disk.room(), 0);
    match disk.submit(read(99, 0, 1)) {
        Err(DiskRefused::Busy(back)) => assert_eq!(back.token, 99),
        other => panic!("{other:?}"),
    }
    let mut left = usize::from(DEPTH);
    for _ in 0..POLLS {
        left -= disk.poll(&mut |done| assert_eq!(done.result, Ok(())));
        if left == 0 {
            break;
        }
    }
    assert_eq!((left, disk.room()), (0, usize::from(DEPTH)));
    // What was synced is there afterwards.
    one(&mut disk, sync(1)).expect("it syncs");
    let mut disk = reopen(disk);
    let bytes = one(&mut disk, read(1, 0, 3)).expect("it was synced");
    assert!(bytes == wanted, "what was synced is there");
    let last = one(&mut disk, read(1, CAPACITY - BLOCK, 1)).expect("it was synced");
    assert!(last.iter().all(|&byte| byte == 8));
    // Requests that are under way when it closes do no harm.
    disk.submit(write(1, 0, 9)).expect("there is room");
    disk.submit(read(2, 0, 3)).expect("there is room");
}

/// A file that is gone when this is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn files_of_the_system_and_simulated_ones_behave_alike() {
    for seed in 0..20 {
        let delay = DiskFaults {
            delay: 2,
            ..DiskFaults::default()
        };
        let disk = SimulatedDisk::new(seed, delay, CAPACITY, DEPTH.into());
        conforms(disk, |mut disk| {
            disk.crash();
            disk
        });
    }
    let name = format!("farcore-disk-{}", std::process::id());
    let scratch = Scratch(std::env::temp_dir().join(name));
    let open = || RingDisk::open(&scratch.0, CAPACITY, DEPTH).expect("a file");
    conforms(open(), |disk| {
        drop(disk);
        open()
    });
    // The log goes through it as well.
    std::fs::write(&scratch.0, []).expect("a file");
    let mut disk = open();
    let (entries, mut log) = recover(&mut disk, LeftOut::Nothing);
    assert!(entries.is_empty());
    let mut appended = 0;
    for _ in 0..POLLS {
        if appended < 12 {
            log.append(100 + appended);
            appended += 1;
        }
        let is_full = log.step(&mut disk);
        assert!(!is_full);
        if log.acknowledged == 12 {
            break;
        }
    }
    drop(disk);
    let wanted: Vec<_> = (100..112).collect();
    assert_eq!(recover(&mut open(), LeftOut::Nothing).0, wanted);
}

/// Writes a log, crashes at a step, recovers, and so on: what is recovered must be the first of
/// what was appended, and all that was acknowledged unless the disk damages what it holds.
fn crashes(seed: u64, step: u64, (faults, left_out): (DiskFaults, LeftOut)) -> Result<(), String> {
    let mut random = Random::new(seed);
    let damages = faults.flip > 0 || faults.misdirect > 0;
    let mut disk = SimulatedDisk::new(seed, faults, 24 * BLOCK, 6);
    let mut appended: Vec<u64> = Vec::new();
    // What was appended in each life: a disk that damages what it reads may hide the latest.
    let mut all: Vec<Vec<u64>> = Vec::new();
    let mut acknowledged = 0;
    let mut fresh = seed << 20;
    for life in 0..4 {
        let (entries, mut log) = recover(&mut disk, left_out);
        all.push(appended.clone());
        let known = if damages { 0 } else { all.len() - 1 };
        if !all[known..].iter().any(|one| one.starts_with(&entries)) {
            return Err(format!("life {life}: {entries:x?} of {appended:x?}"));
        }
        if (entries.len() as u64) < acknowledged && !damages {
            let count = entries.len();
            return Err(format!(
                "life {life}: {count} of {acknowledged} acknowledged"
            ));
        }
        appended = entries;
        acknowledged = log.acknowledged;
        let end = if life == 1 { step } else { random.below(20) };
        for _ in 0..end {
            for _ in 0..random.below(3) {
                fresh += 1;
                appended.push(fresh);
                log.append(fresh);
            }
            let is_full = log.step(&mut disk);
            acknowledged = log.acknowledged;
            if is_full {
                break;
            }
        }
        disk.crash();
    }
    Ok(())
}

/// The first of many runs that fails.
fn first_failure(faults: DiskFaults, left_out: LeftOut) -> Option<String> {
    let runs = (0..300).flat_map(|seed| (0..24).map(move |step| (seed, step)));
    let mut failures = runs.filter_map(|(seed, step)| {
        let failed = crashes(seed, step, (faults, left_out)).err()?;
        Some(format!("seed {seed}, step {step}: {failed}"))
    });
    failures.next()
}

const FAILING: DiskFaults = DiskFaults {
    delay: 3,
    fail: 8,
    misdirect: 0,
    flip: 0,
    forget: 0,
};
const DAMAGING: DiskFaults = DiskFaults {
    misdirect: 6,
    flip: 6,
    ..FAILING
};

#[test]
fn a_log_that_crashes_at_any_step_keeps_what_was_acknowledged() {
    assert_eq!(first_failure(DiskFaults::default(), LeftOut::Nothing), None);
    assert_eq!(first_failure(FAILING, LeftOut::Nothing), None);
}

#[test]
fn a_log_on_a_disk_that_damages_what_it_holds_is_never_taken_for_another() {
    assert_eq!(first_failure(DAMAGING, LeftOut::Nothing), None);
}

#[test]
fn a_step_of_a_log_that_is_left_out_is_found() {
    for left_out in [LeftOut::Sync, LeftOut::Digest, LeftOut::Chain] {
        let found = first_failure(FAILING, left_out);
        assert!(found.is_some(), "{left_out:?} is not found");
    }
}
