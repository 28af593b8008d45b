//! Files that are truncated and changed at every place, and read with other keys.

use std::os::unix::fs::FileExt;

use super::*;

/// A log of four blocks, of which the last is not durable, and the streams up to each.
fn a_log(key: Option<&EncryptionKey>) -> (Vec<u8>, Vec<u8>) {
    let disk = MemoryDisk::default();
    let mut log = writer(&disk, FileKind::Log, key);
    let stream = Numbers(4).bytes(4 * 600);
    for (place, part) in stream.chunks(600).enumerate() {
        append(&mut log, part);
        if place < 3 {
            log.sync();
        } else {
            log.flush();
        }
        settle(&mut log);
    }
    assert_eq!((log.synced(), log.appended()), (1800, 2400));
    (disk.written(), stream)
}

/// A finished file of two blocks and an end block.
fn finished(kind: FileKind, key: Option<&EncryptionKey>) -> (Vec<u8>, Vec<u8>) {
    let disk = MemoryDisk::default();
    let mut base = writer(&disk, kind, key);
    let stream = Numbers(5).bytes(1000);
    append(&mut base, &stream[..400]);
    base.flush();
    append(&mut base, &stream[400..]);
    base.finish();
    settle(&mut base);
    (disk.written(), stream)
}

/// Reads a file with each of its bytes changed, one after the other.
fn each_flip(
    bytes: &[u8],
    key: Option<&EncryptionKey>,
    mut check: impl FnMut(usize, Result<(Vec<u8>, ReadOutcome), (Vec<u8>, StorageError)>),
) {
    let folder = Folder::new();
    let path = folder.file(bytes);
    let file = fs::File::options().write(true).open(&path).unwrap();
    for (place, byte) in bytes.iter().enumerate() {
        file.write_all_at(&[byte ^ (1 << (place % 8))], place as u64)
            .unwrap();
        check(place, read(&path, key));
        file.write_all_at(&[*byte], place as u64).unwrap();
    }
}

#[test]
fn a_changed_byte_of_a_log_is_never_read() {
    for key in [None, Some(key(1))] {
        let (bytes, stream) = a_log(key.as_ref());
        each_flip(&bytes, key.as_ref(), |place, result| {
            match (place / 4096, result) {
                (0, Err((read, StorageError::Corrupt { at: 0, .. }))) => assert!(read.is_empty()),
                (block @ 1..4, Err((read, StorageError::Corrupt { at, .. }))) => {
                    assert_eq!(at, block as u64 * 4096);
                    assert!(read == stream[..(block - 1) * 600]);
                }
                (4, Ok((read, outcome))) => {
                    let (at, cut, blocks) = (4 * 4096, 4096, 0);
                    assert_eq!(outcome, ReadOutcome::Torn { at, cut, blocks });
                    assert!(read == stream[..1800]);
                }
                (_, other) => panic!("byte {place}: {other:?}"),
            }
        });
    }
}

#[test]
fn a_changed_byte_of_a_finished_file_is_an_error() {
    for key in [None, Some(key(1))] {
        let (bytes, _) = finished(FileKind::Base, key.as_ref());
        each_flip(&bytes, key.as_ref(), |place, result| match result {
            Err((_, StorageError::Corrupt { .. })) => {}
            other => panic!("byte {place}: {other:?}"),
        });
        let (bytes, stream) = finished(FileKind::Log, key.as_ref());
        each_flip(&bytes, key.as_ref(), |place, result| match result {
            Err((_, StorageError::Corrupt { .. })) if place < 3 * 4096 => {}
            // Without its end block it is a log that was not finished.
            Ok((read, ReadOutcome::Torn { .. })) if place >= 3 * 4096 => assert!(read == stream),
            other => panic!("byte {place}: {other:?}"),
        });
    }
}

#[test]
fn a_truncated_file_ends_where_it_was_cut_or_is_an_error() {
    let folder = Folder::new();
    let (bytes, stream) = a_log(None);
    let path = folder.file(&bytes);
    let file = fs::File::options().write(true).open(&path).unwrap();
    for length in (0..bytes.len()).rev() {
        file.set_len(length as u64).unwrap();
        match read(&path, None) {
            Err((_, StorageError::NotBegun { .. })) => assert!(length < 4096),
            Ok((read, outcome)) => {
                let at = (length / 4096).max(1) as u64 * 4096;
                let (cut, blocks) = (length as u64 - at, 0);
                assert_eq!(outcome, ReadOutcome::Torn { at, cut, blocks });
                assert!(read == stream[..(length / 4096 - 1) * 600]);
            }
            other => panic!("{length} bytes: {other:?}"),
        }
    }
    let (bytes, _) = finished(FileKind::Base, None);
    let path = folder.file(&bytes);
    let file = fs::File::options().write(true).open(&path).unwrap();
    for length in (0..bytes.len()).rev() {
        file.set_len(length as u64).unwrap();
        assert!(read(&path, None).is_err(), "{length} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    let result = read(&folder.file(&longer), None);
    assert!(matches!(result, Err((_, StorageError::Corrupt { .. }))));
}

#[test]
fn a_block_that_never_came_is_no_damage_if_nothing_calls_it_durable() {
    let folder = Folder::new();
    let disk = MemoryDisk::default();
    let mut log = writer(&disk, FileKind::Log, None);
    for part in [b"one", b"two", b"six"] {
        append(&mut log, part);
        log.flush();
        settle(&mut log);
    }
    // Block 2 of three that were not synced.
    let mut hole = disk.written();
    hole[2 * 4096..3 * 4096].fill(0);
    let (at, cut, blocks) = (2 * 4096, 2 * 4096, 1);
    let torn = ReadOutcome::Torn { at, cut, blocks };
    let found = read(&folder.file(&hole), None);
    assert_eq!(found.unwrap(), (b"one".to_vec(), torn));
}

#[test]
fn a_block_that_is_missing_or_elsewhere_is_found() {
    let folder = Folder::new();
    let (bytes, stream) = a_log(None);
    // One that was durable is gone, and the later ones are whole.
    let mut hole = bytes.clone();
    hole[2 * 4096..3 * 4096].fill(0);
    let result = read(&folder.file(&hole), None);
    assert!(
        matches!(result, Err((read, StorageError::Corrupt { at: 8192, .. })) if read == stream[..600])
    );
    // Two are swapped.
    let mut swapped = bytes.clone();
    swapped[2 * 4096..3 * 4096].copy_from_slice(&bytes[3 * 4096..4 * 4096]);
    swapped[3 * 4096..4 * 4096].copy_from_slice(&bytes[2 * 4096..3 * 4096]);
    let result = read(&folder.file(&swapped), None);
    assert!(matches!(
        result,
        Err((_, StorageError::Corrupt { at: 8192, .. }))
    ));
    // The blocks of a file with another salt.
    let disk = MemoryDisk::default();
    let mut other = FileWriter::new(disk.clone(), &super_block(FileKind::Log, 8), None, 2);
    append(&mut other, &stream);
    other.sync();
    settle(&mut other);
    let strange = [&bytes[..4096], &disk.written()[4096..]].concat();
    let (read, outcome) = read(&folder.file(&strange), None).unwrap();
    assert!(read.is_empty() && matches!(outcome, ReadOutcome::Torn { blocks: 0, .. }));
}

#[test]
fn a_file_of_another_mode_key_or_format_says_so() {
    let folder = Folder::new();
    let (clear, _) = a_log(None);
    let (secret, _) = a_log(Some(&key(1)));
    let open = |bytes: &[u8], key: Option<&EncryptionKey>| {
        FileReader::open(&folder.file(bytes), key).map(drop)
    };
    let path = folder.0.join("file");
    let path = || path.clone();
    let found = open(&clear, Some(&key(1)));
    assert_eq!(found, Err(StorageError::KeyNotNeeded { path: path() }));
    let found = open(&secret, None);
    assert_eq!(found, Err(StorageError::KeyNeeded { path: path() }));
    let long = EncryptionKey::Aes256([1; 32]);
    for key in [&key(2), &long] {
        let found = open(&secret, Some(key));
        assert_eq!(found, Err(StorageError::WrongKey { path: path() }));
    }
    // The magic and the format, with a right checksum.
    let summed = |place: usize, byte: u8| {
        let mut bytes = clear.clone();
        bytes[place] = byte;
        let sum = xxhash_rust::xxh3::xxh3_128(&bytes[..4080]).to_le_bytes();
        bytes[4080..4096].copy_from_slice(&sum);
        bytes
    };
    let found = open(&summed(0, b'X'), None);
    assert_eq!(found, Err(StorageError::Foreign { path: path() }));
    let found = open(&summed(8, 2), None);
    let (format, known) = (2, 1);
    let path = path();
    assert_eq!(
        found,
        Err(StorageError::Format {
            path,
            format,
            known
        })
    );
    let missing = folder.0.join("none");
    let found = FileReader::open(&missing, None).map(drop);
    assert!(matches!(found, Err(StorageError::Io { call: "open", .. })));
}
