//! How many instructions the hot paths take: the same on any machine of a kind, so a growth is a change of the code.
//!
//! `cargo xtask instructions` runs it under valgrind; it fails where a path takes more than 5 % above what stands here. Whoever
//! makes one dearer, and means it, writes the new figure here.

mod support;

use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

use support::{
    Asked, Crossing, Sealing, absent, cross, crossing, far, get, local, open, put, seal, sealing,
};

/// What is asked for, with 5 % above it.
fn limited(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions + instructions / 20)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

#[library_benchmark(config = limited(1), setup = local)]
#[bench::of_1024()]
fn get_local(mut asked: Asked) -> usize {
    get(&mut asked)
}

#[library_benchmark(config = limited(1), setup = absent)]
#[bench::of_1024()]
fn get_absent(mut asked: Asked) -> usize {
    get(&mut asked)
}

#[library_benchmark(config = limited(1), setup = far)]
#[bench::of_1024()]
fn get_far(mut asked: Asked) -> usize {
    get(&mut asked)
}

#[library_benchmark(config = limited(1), setup = local)]
#[bench::of_1024()]
fn put_local(mut asked: Asked) -> u64 {
    put(&mut asked)
}

#[library_benchmark(config = limited(1), setup = crossing)]
#[bench::of_1024()]
fn cross_lane(mut lane: Crossing) -> usize {
    cross(&mut lane)
}

#[library_benchmark(config = limited(1), setup = sealing)]
#[bench::of_16_kib()]
fn open_records(mut sealed: Sealing) -> u8 {
    open(&mut sealed)
}

#[library_benchmark(config = limited(1), setup = sealing)]
#[bench::of_16_kib()]
fn seal_page(mut sealed: Sealing) -> u8 {
    seal(&mut sealed)
}

library_benchmark_group!(
    name = hot_paths,
    benchmarks = [
        get_local,
        get_absent,
        get_far,
        put_local,
        cross_lane,
        open_records,
        seal_page
    ]
);
main!(library_benchmark_groups = hot_paths);
