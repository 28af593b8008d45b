//! The engine's log files, written over simulated disks that fail, reorder and crash.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use farcore::disk::{DISK_BLOCK_BYTES, Disk, DiskBuffer, DiskError, DiskRequest, DiskWork};
use farcore::{EncryptionKey, SimulatedLog, StorageError, read_simulated};

use super::{DiskFaults, SimulatedDisk};
use crate::random::Random;

const CAPACITY: u64 = 64 << 20;
const DEPTH: usize = 6;

/// A file with what a disk holds; it is removed at the end.
struct Image(PathBuf);

impl Image {
    fn of(disk: &mut SimulatedDisk) -> Self {
        let mut bytes = Vec::new();
        let mut buffer = Some(DiskBuffer::new(1));
        loop {
            let at = bytes.len() as u64;
            let buffer_of = buffer.take().expect("it came back");
            let work = DiskWork::Read {
                at,
                buffer: buffer_of,
            };
            let sent = disk.submit(DiskRequest { token: 0, work });
            assert!(sent.is_ok(), "nothing else is under way");
            let mut result = None;
            while result.is_none() {
                disk.poll(&mut |done| {
                    buffer = done.buffer;
                    result = Some(done.result);
                });
            }
            match result.expect("it has completed") {
                Ok(()) => bytes.extend_from_slice(buffer.as_ref().expect("it came back").bytes()),
                Err(DiskError::Short { bytes: rest }) => {
                    assert!(rest < DISK_BLOCK_BYTES);
                    let block = buffer.as_ref().expect("it came back").bytes();
                    bytes.extend_from_slice(&block[..rest]);
                    break;
                }
                Err(DiskError::Io { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        // Tests of one process use the same seeds beside each other.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("farcore-sim-log-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, bytes).expect("there is room");
        Self(path)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// What a log has come to.
struct Life {
    stream: Vec<u8>,
    synced: usize,
    has_failed_sync: bool,
    read: Result<(Vec<u8>, bool), StorageError>,
}

fn live(seed: u64, faults: DiskFaults, key: Option<&EncryptionKey>) -> Life {
    let mut random = Random::new(seed);
    let disk = SimulatedDisk::new(seed, faults, CAPACITY, DEPTH);
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&seed.to_le_bytes());
    salt[8..].fill(1);
    let mut log = SimulatedLog::new(disk, salt, key);
    let mut stream = Vec::new();
    for _ in 0..random.place(300) {
        match random.place(8) {
            0..3 => {
                let most = random.of(&[100, 5_000, 300_000]);
                let bytes = vec![random.place(256).to_le_bytes()[0]; random.place(most)];
                let count = log.append(&bytes);
                stream.extend_from_slice(&bytes[..count]);
            }
            3 => log.flush(),
            4 => drop(log.sync()),
            5 => log.retry(),
            _ => drop(log.poll()),
        }
    }
    let synced = usize::try_from(log.synced()).expect("it fits");
    let has_failed_sync = log.needs_new_file();
    log.disk_mut().crash();
    let image = Image::of(log.disk_mut());
    Life {
        stream,
        synced,
        has_failed_sync,
        read: read_simulated(&image.0, key),
    }
}

#[test]
fn a_log_of_the_engine_loses_nothing_that_it_calls_synced() {
    let key = EncryptionKey::Aes128([7; 16]);
    let (mut synced, mut given_up, mut longer) = (0, 0, 0);
    for seed in 0..400 {
        let faults = DiskFaults {
            delay: 2,
            fail: if seed % 2 == 0 { 0 } else { 30 },
            ..DiskFaults::default()
        };
        let life = live(seed, faults, (seed % 3 == 0).then_some(&key));
        given_up += u32::from(life.has_failed_sync);
        match life.read {
            Ok((bytes, false)) => {
                assert!(life.stream.starts_with(&bytes), "seed {seed}");
                assert!(bytes.len() >= life.synced, "seed {seed}: {}", life.synced);
                synced += u32::from(life.synced > 0);
                longer += u32::from(bytes.len() > life.synced);
            }
            Err(StorageError::NotBegun { .. }) => assert_eq!(life.synced, 0, "seed {seed}"),
            other => panic!("seed {seed}: {:?}", other.map(|(bytes, _)| bytes.len())),
        }
    }
    assert!(
        synced > 100 && given_up > 10 && longer > 10,
        "{synced} {given_up} {longer}"
    );
}

#[test]
fn a_log_whose_writes_went_astray_is_never_read_wrong() {
    let mut found = 0;
    for seed in 0..300 {
        let faults = DiskFaults {
            misdirect: 10,
            ..DiskFaults::default()
        };
        let life = live(seed, faults, None);
        match life.read {
            Ok((bytes, _)) => assert!(life.stream.starts_with(&bytes), "seed {seed}"),
            Err(error) => {
                found += u32::from(matches!(error, StorageError::Corrupt { .. }));
            }
        }
    }
    assert!(found > 10, "{found}");
}
