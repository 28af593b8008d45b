//! The directory of a store: who has it, what its manifest says, and what may be removed.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::storage::block::Chain;
use crate::storage::directory::{Directory, FIRST_GENERATION, Files};
use crate::storage::manifest::{BaseFile, Manifest};

fn manifest(base: u64, files: usize) -> Manifest {
    let chain = Chain(77);
    Manifest {
        engine: [3; 16],
        base,
        files: vec![BaseFile { bytes: 0, chain }; files],
        unix_ms: 12,
        keys: 34,
        log: base,
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn a_new_directory_is_made_for_its_owner_alone() {
    let folder = Folder::new();
    let path = folder.0.join("a/b");
    let directory = Directory::open(&path).unwrap();
    assert!(directory.stored().unwrap().is_new());
    for path in [&folder.0.join("a"), &path] {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
    assert_eq!(names(&path), ["LOCK"]);
    let made = directory.create(FileKind::Log, 1, 0..2).unwrap();
    assert_eq!(made[1], directory.path_of(FileKind::Log, 1, 1));
    let name = "log-00000000000000000001-00001";
    assert_eq!(made[1].file_name().unwrap(), name);
    let mode = fs::metadata(&made[1]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = directory.create(FileKind::Log, 1, 1..3);
    assert!(matches!(
        again,
        Err(StorageError::Io { call: "create", .. })
    ));
}

#[test]
fn a_directory_has_one_owner_at_a_time() {
    let folder = Folder::new();
    let first = Directory::open(&folder.0).unwrap();
    let pid = Some(std::process::id());
    let directory = folder.0.canonicalize().unwrap();
    let locked = StorageError::Locked { directory, pid };
    let message = locked.to_string();
    assert!(message.contains(&format!("in use by process {}", std::process::id())));
    assert_eq!(Directory::open(&folder.0).map(drop), Err(locked));
    drop(first);
    // What a process left that has ended says nothing.
    fs::write(
        folder.0.join("LOCK"),
        "a line that is longer than 32 bytes, of no process\n",
    )
    .unwrap();
    Directory::open(&folder.0).unwrap();
}

#[test]
fn a_manifest_is_replaced_and_kept() {
    let folder = Folder::new();
    let directory = Directory::open(&folder.0).unwrap();
    directory.write_manifest(&manifest(0, 0)).unwrap();
    let stored = directory.stored().unwrap();
    assert_eq!(stored.manifest, Some(manifest(0, 0)));
    assert!(!stored.is_new());
    let first = fs::read(folder.0.join("MANIFEST")).unwrap();
    directory.create(FileKind::Base, 2, 0..2).unwrap();
    let logs = directory.create(FileKind::Log, 2, 0..2).unwrap();
    directory.write_manifest(&manifest(2, 2)).unwrap();
    assert_eq!(directory.stored().unwrap().manifest, Some(manifest(2, 2)));
    assert_eq!(fs::read(folder.0.join("MANIFEST.old")).unwrap(), first);
    for log in logs {
        fs::remove_file(&log).unwrap();
        assert!(matches!(
            directory.stored(),
            Err(StorageError::Missing { .. })
        ));
    }
    directory.create(FileKind::Base, 3, 0..1).unwrap();
    directory.write_manifest(&manifest(3, 1)).unwrap();
    let all = ["LOCK", "MANIFEST", "MANIFEST.old"];
    assert_eq!(names(&folder.0)[..3], all);
    assert_eq!(names(&folder.0).len(), 6);
}

#[test]
fn a_damaged_or_missing_manifest_never_opens_an_empty_store() {
    let folder = Folder::new();
    let directory = Directory::open(&folder.0).unwrap();
    let logs = directory
        .create(FileKind::Log, FIRST_GENERATION, 0..1)
        .unwrap();
    let stored = directory.stored().unwrap();
    assert!(stored.manifest.is_none() && !stored.is_new());
    assert_eq!(stored.files.logs[&1], [0]);
    // The second generation comes after a manifest, and a base does.
    let refused = |file: &str| match directory.stored() {
        Err(StorageError::NoManifest { file: found, .. }) => assert_eq!(found, file),
        other => panic!("{other:?}"),
    };
    for (kind, name) in [
        (FileKind::Log, "log-00000000000000000002-00003"),
        (FileKind::Base, "base-00000000000000000002-00003"),
    ] {
        let made = directory.create(kind, 2, 3..4).unwrap();
        refused(name);
        fs::remove_file(&made[0]).unwrap();
    }
    directory.stored().unwrap();
    fs::write(folder.0.join("MANIFEST.old"), "").unwrap();
    refused("MANIFEST.old");
    fs::remove_file(folder.0.join("MANIFEST.old")).unwrap();
    fs::remove_file(&logs[0]).unwrap();
    assert!(directory.stored().unwrap().is_new());
    // Damage at each place.
    directory.create(FileKind::Base, 2, 0..1).unwrap();
    directory.create(FileKind::Log, 2, 0..1).unwrap();
    directory.write_manifest(&manifest(2, 1)).unwrap();
    let path = folder.0.join("MANIFEST");
    let text = fs::read(&path).unwrap();
    for place in 0..text.len() {
        let mut changed = text.clone();
        changed[place] ^= 1 << (place % 8);
        for damaged in [&changed[..], &text[..place]] {
            fs::write(&path, damaged).unwrap();
            let found = directory.stored();
            assert!(
                matches!(found, Err(StorageError::Manifest { .. })),
                "{place}"
            );
            assert!(directory.remove_before(9).is_err());
        }
    }
    fs::write(&path, &text).unwrap();
    directory.stored().unwrap();
    // A base that is missing, or of another length.
    let base = directory.path_of(FileKind::Base, 2, 0);
    fs::write(&base, "x").unwrap();
    assert!(matches!(
        directory.stored(),
        Err(StorageError::Corrupt { at: 0, .. })
    ));
    fs::remove_file(&base).unwrap();
    assert!(matches!(
        directory.stored(),
        Err(StorageError::Io { call: "stat", .. })
    ));
}

#[test]
fn only_what_nothing_needs_is_removed() {
    let folder = Folder::new();
    let directory = Directory::open(&folder.0).unwrap();
    for generation in 1..5 {
        directory.create(FileKind::Log, generation, 0..2).unwrap();
        directory.create(FileKind::Base, generation, 0..2).unwrap();
    }
    let others = ["base-1-1", "log-00000000000000000001-00001.bak", "notes"];
    for name in others {
        fs::write(folder.0.join(name), "").unwrap();
    }
    fs::write(folder.0.join("MANIFEST.tmp"), "half").unwrap();
    let all = directory.files().unwrap();
    assert_eq!((all.bases.len(), all.logs.len()), (4, 4));
    assert_eq!(directory.remove_before(9), Ok(0), "there is no manifest");
    assert_eq!(directory.remove_leftovers(), Ok(0));
    assert_eq!(directory.files(), Ok(all));
    directory.write_manifest(&manifest(3, 2)).unwrap();
    fs::write(folder.0.join("MANIFEST.tmp"), "half").unwrap();
    assert_eq!(directory.remove_leftovers(), Ok(3));
    assert_eq!(directory.remove_before(2), Ok(4));
    assert_eq!(directory.remove_before(9), Ok(4));
    let left = Files {
        bases: [(3, vec![0, 1])].into(),
        logs: [(3, vec![0, 1]), (4, vec![0, 1])].into(),
    };
    assert_eq!(directory.files(), Ok(left));
    for name in others {
        assert!(folder.0.join(name).exists());
    }
    directory.stored().unwrap();
}
