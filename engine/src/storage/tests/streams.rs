//! What is appended is read back, whatever the disk does meanwhile.

use std::time::{Duration, Instant};

use super::*;
use crate::disk::{DiskError, RingDisk};
use crate::storage::block::PAYLOAD_BYTES_MAX;

const FULL: DiskError = DiskError::Full;
const EIO: DiskError = DiskError::Io { errno: 5 };

/// Appends, flushes and syncs at random, with writes that fail now and then, and crashes.
fn a_random_life(seed: u64, key: Option<&EncryptionKey>) {
    let folder = Folder::new();
    let mut numbers = Numbers(seed);
    let disk = MemoryDisk::random(seed);
    let mut log = writer(&disk, FileKind::Log, key);
    let mut stream = Vec::new();
    let (mut wanted, mut polled) = (0, 0);
    for _ in 0..numbers.next(120) {
        match numbers.next(12) {
            0..4 => {
                let most = [10, 4_000, 4_033, 70_000, 600_000][numbers.next(5)];
                let count = numbers.next(most);
                let bytes = numbers.bytes(count);
                let count = log.append(&bytes);
                stream.extend_from_slice(&bytes[..count]);
            }
            4 => log.flush(),
            5 => wanted = log.sync(),
            6 => disk.fail_writes((numbers.next(3) == 0).then_some(FULL)),
            7 => log.retry(),
            _ => polled += log.poll(),
        }
        assert_eq!(log.appended(), stream.len() as u64);
        assert!(log.synced() <= log.appended());
    }
    let synced = usize::try_from(log.synced()).unwrap();
    for _ in 0..3 {
        let path = folder.file(&disk.crashed(&mut numbers));
        match read(&path, key) {
            Ok((bytes, ReadOutcome::Torn { .. })) => {
                assert!(bytes.len() >= synced, "seed {seed}: {synced}");
                assert!(stream.starts_with(&bytes), "seed {seed}");
            }
            Err((_, StorageError::NotBegun { .. })) => assert_eq!(synced, 0, "seed {seed}"),
            other => panic!("seed {seed}: {:?}", other.map(|(_, outcome)| outcome)),
        }
    }
    // It goes on as if nothing had been.
    disk.fail_writes(None);
    log.retry();
    wanted = wanted.max(log.sync());
    settle(&mut log);
    assert_eq!((log.synced(), log.error()), (wanted, None), "seed {seed}");
    log.finish();
    settle(&mut log);
    assert!(log.is_finished() && log.room() == 0 && polled < POLLS);
    let path = folder.file(&disk.crashed(&mut numbers));
    let (bytes, outcome) = read(&path, key).unwrap();
    assert_eq!(outcome, ReadOutcome::End);
    assert!(bytes == stream, "seed {seed}");
}

#[test]
fn what_was_synced_survives_and_nothing_else_is_read() {
    for seed in 0..150 {
        a_random_life(seed, None);
    }
}

#[test]
fn what_was_encrypted_and_synced_survives_too() {
    for seed in 0..60 {
        a_random_life(seed, Some(&key(1)));
    }
}

#[test]
fn a_file_of_the_system_is_read_as_it_was_written() {
    let folder = Folder::new();
    for key in [None, Some(key(1))] {
        let path = folder.0.join(format!("file-{}", key.is_some()));
        let disk = RingDisk::open(&path, u64::MAX, 8).unwrap();
        let super_block = super_block(FileKind::Log, 3);
        let mut log = FileWriter::new(disk, &super_block, key.as_ref(), 2);
        let stream = Numbers(9).bytes(3 << 20);
        let mut rest = &stream[..];
        let begin = Instant::now();
        while !log.is_finished() {
            let count = log.append(&rest[..rest.len().min(100_000)]);
            rest = &rest[count..];
            if rest.is_empty() {
                log.finish();
            }
            log.poll();
            assert_eq!(log.error(), None);
            assert!(begin.elapsed() < Duration::from_secs(60), "{log:?}");
        }
        let (read, outcome) = read(&path, key.as_ref()).unwrap();
        assert_eq!(outcome, ReadOutcome::End);
        assert!(read == stream);
        let bytes = fs::metadata(&path).unwrap().len();
        assert_eq!(bytes, log.file_bytes());
    }
}

#[test]
#[ignore = "prints rates; run it in release"]
fn rates() {
    for key in [None, Some(key(1))] {
        let disk = MemoryDisk::default();
        let mut log = writer(&disk, FileKind::Log, key.as_ref());
        settle(&mut log);
        let bytes = vec![7; 1000];
        let (mut appending, mut count) = (Duration::ZERO, 0);
        while count < 256 << 20 {
            let begin = Instant::now();
            while log.room() >= bytes.len() {
                count += log.append(&bytes);
            }
            appending += begin.elapsed();
            settle(&mut log);
            disk.forget();
        }
        let rate = count as f64 / appending.as_secs_f64() / 1e9;
        println!("{}: {rate:.2} GB/s", key.map_or("clear", |_| "encrypted"));
    }
}

#[test]
fn a_file_says_what_it_is() {
    let folder = Folder::new();
    for key in [None, Some(key(1)), Some(EncryptionKey::Aes256([4; 32]))] {
        let disk = MemoryDisk::default();
        let mut base = writer(&disk, FileKind::Base, key.as_ref());
        append(&mut base, &[5; PAYLOAD_BYTES_MAX + 1]);
        base.finish();
        settle(&mut base);
        let bytes = disk.written();
        assert_eq!(base.file_bytes(), bytes.len() as u64);
        assert_eq!(bytes.len(), 4096 + (256 << 10) + 4096 + 4096);
        let path = folder.file(&bytes);
        let mut reader = FileReader::open(&path, key.as_ref()).unwrap();
        assert_eq!(*reader.super_block(), super_block(FileKind::Base, 3));
        let mut stream = Vec::new();
        while reader.read(&mut stream) == Ok(ReadOutcome::More) {}
        assert_eq!(stream.len(), PAYLOAD_BYTES_MAX + 1);
        assert_eq!(reader.chain(), base.chain());
        assert_eq!(reader.file_bytes(), base.file_bytes());
        let is_secret = !bytes.windows(64).any(|window| window == [5; 64]);
        assert_eq!(is_secret, key.is_some());
    }
}

#[test]
fn a_short_block_holds_nothing_of_those_before() {
    let disk = MemoryDisk::default();
    let mut log = writer(&disk, FileKind::Log, None);
    append(&mut log, &[5; 4 * PAYLOAD_BYTES_MAX]);
    append(&mut log, b"short");
    log.sync();
    settle(&mut log);
    let written = disk.written();
    let last = &written[written.len() - 4096..];
    assert_eq!(&last[64..69], b"short");
    assert!(last[69..].iter().all(|&byte| byte == 0));
}

#[test]
fn nothing_is_written_before_the_super_block_is_durable() {
    let disk = MemoryDisk::default();
    let mut log = writer(&disk, FileKind::Log, None);
    append(&mut log, &[1; 5000]);
    log.flush();
    disk.fail_syncs(Some(EIO));
    settle(&mut log);
    assert_eq!(disk.counts(), (vec![0], 1));
    assert!(log.needs_new_file());
    assert_eq!((log.synced(), log.appended()), (0, 5000));
}

#[test]
fn a_full_disk_loses_nothing() {
    let folder = Folder::new();
    let disk = MemoryDisk::default();
    let mut log = writer(&disk, FileKind::Log, None);
    settle(&mut log);
    disk.fail_writes(Some(FULL));
    let bytes = Numbers(1).bytes(log.room());
    append(&mut log, &bytes);
    log.sync();
    settle(&mut log);
    assert_eq!((log.error(), log.needs_new_file()), (Some(&FULL), false));
    assert_eq!((log.room(), log.append(b"x"), log.synced()), (0, 0, 0));
    // Still full.
    log.retry();
    settle(&mut log);
    assert_eq!(log.error(), Some(&FULL));
    disk.fail_writes(None);
    log.retry();
    settle(&mut log);
    assert_eq!((log.error(), log.synced()), (None, bytes.len() as u64));
    let (read, _) = read(&folder.file(&disk.written()), None).unwrap();
    assert!(read == bytes);
}

#[test]
fn a_failed_sync_gives_the_file_up() {
    let disk = MemoryDisk::default();
    let mut log = writer(&disk, FileKind::Log, None);
    append(&mut log, b"one");
    log.sync();
    settle(&mut log);
    append(&mut log, b"two");
    disk.fail_syncs(Some(EIO));
    log.sync();
    settle(&mut log);
    disk.fail_syncs(None);
    log.retry();
    log.sync();
    log.finish();
    settle(&mut log);
    assert_eq!((log.error(), log.needs_new_file()), (Some(&EIO), true));
    assert_eq!((log.synced(), log.room()), (3, 0));
    assert!(!log.is_finished());
}

#[test]
fn syncs_join_while_one_is_under_way() {
    let disk = MemoryDisk::default();
    let mut log = writer(&disk, FileKind::Log, None);
    settle(&mut log);
    let (_, before) = disk.counts();
    append(&mut log, b"a");
    log.sync();
    disk.stall(true);
    log.poll();
    for _ in 0..2 {
        append(&mut log, b"b");
        log.sync();
        log.poll();
    }
    disk.stall(false);
    settle(&mut log);
    assert_eq!((log.synced(), disk.counts().1 - before), (3, 2));
    log.sync();
    settle(&mut log);
    assert_eq!(disk.counts().1 - before, 2, "nothing is new");
}
