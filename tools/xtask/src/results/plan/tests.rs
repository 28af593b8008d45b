use super::*;

fn request(cores: &[usize]) -> Request {
    Request {
        cores: cores.to_vec(),
        keys_per_core: KEYS_PER_CORE,
        runs: 5,
        engines: ["dashmap", OURS].map(str::to_owned).to_vec(),
        far_baseline: false,
        file_stores: false,
        largest: false,
    }
}

#[test]
fn two_cores_run_everything() {
    let plan = plan(&request(&[2, 5, 7])).unwrap();
    let commands: Vec<String> = plan.measurements.iter().map(Measurement::command).collect();
    assert_eq!(
        commands[0],
        "target/published/farcore-bench contest --cores 2,5 --keys-per-core 1000000 --local 2GiB --far 256MiB --window 64 \
         --engines dashmap,farcore --json target/results/two-cores.json"
    );
    assert!(commands[1].contains("--cores 2 ") && commands[2].contains("--far-latency 2us"));
    assert!(
        commands[2].contains("--local 100MiB --far 1GiB"),
        "{}",
        commands[2]
    );
    assert_eq!((commands.len(), plan.sections.len()), (12, 9));
    assert!(plan.measurements.iter().all(|one| one.rounds == 5));
    assert!(
        plan.measurements
            .iter()
            .all(|one| one.cores == 1 + usize::from(one.command().contains(" --cores 2,5 ")))
    );
    assert!(plan.notes.is_empty());
    assert_eq!(plan.sections[0].columns[0].engine, OURS);
}

#[test]
fn one_core_leaves_out_sections_of_two() {
    let plan = plan(&request(&[3])).unwrap();
    assert!(
        plan.measurements
            .iter()
            .all(|run| run.command().contains(" --cores 3 "))
    );
    assert!(
        plan.sections
            .iter()
            .all(|section| !section.title.contains("wo cores"))
    );
    assert_eq!((plan.measurements.len(), plan.sections.len()), (7, 5));
    assert_eq!(plan.notes.len(), 1);
    assert!(plan.measurements[1].command().contains("--local 50MiB"));
    assert!(super::plan(&request(&[])).is_err());
}

#[test]
fn every_column_has_its_measurement() {
    let plan = plan(&Request {
        far_baseline: true,
        file_stores: true,
        largest: true,
        ..request(&[0, 1])
    })
    .unwrap();
    let columns = plan.sections.iter().flat_map(|section| &section.columns);
    for column in columns {
        let known = plan.measurements.iter().any(|run| {
            run.name == column.measurement && run.arguments.join(" ").contains(&column.engine)
        });
        assert!(known, "{column:?}");
    }
}

/// The benchmark refuses a flag without effect.
#[test]
fn only_runs_of_ours_have_a_window() {
    let plan = plan(&Request {
        far_baseline: true,
        file_stores: true,
        ..request(&[0, 1])
    })
    .unwrap();
    let contests = plan.measurements.iter();
    let mut without = 0;
    for run in contests.filter(|run| run.arguments[0] == "contest") {
        let is_ours =
            run.command().contains("farcore --json") || run.command().contains("farcore,");
        assert_eq!(run.command().contains("--window"), is_ours, "{run:?}");
        without += usize::from(!is_ours);
    }
    assert_eq!(without, 1);
}

#[test]
fn the_largest_run_is_of_its_own_size() {
    let plan = plan(&Request {
        largest: true,
        ..request(&[0, 1])
    })
    .unwrap();
    let largest = plan.measurements.iter().find(|run| run.name == "largest");
    assert_eq!(largest.unwrap().rounds, 1);
    assert_eq!(
        largest.unwrap().command(),
        "target/published/farcore-bench contest --scale 2 --cores 0,1 --far-latency 2us --encrypt=secrecy-only \
         --engines farcore --json target/results/largest.json"
    );
}

#[test]
fn stores_that_keep_files_run_separately() {
    let plan = plan(&Request {
        file_stores: true,
        ..request(&[0, 1])
    })
    .unwrap();
    let commands: Vec<String> = plan.measurements.iter().map(Measurement::command).collect();
    let theirs: Vec<_> = commands
        .iter()
        .filter(|command| command.contains("rocksdb"))
        .collect();
    assert_eq!(
        theirs,
        [
            "target/published/farcore-bench contest --cores 0,1 --keys-per-core 200000 --local 24MiB --far 1GiB --far-latency 2us \
          --hot-ops 400000 --window 64 --engines farcore,fjall,rocksdb --json target/results/file-stores.json"
        ]
    );
}

#[test]
fn memory_grows_with_the_keys() {
    assert_eq!(
        all_local(2 * KEYS_PER_CORE),
        ("4GiB".into(), "512MiB".into())
    );
    assert_eq!(all_local(10), ("512MiB".into(), "256MiB".into()));
    assert_eq!(size(100, KEYS_PER_CORE / 2, 32), "50MiB");
    assert_eq!(size(100, 10, 32), "32MiB");
}
