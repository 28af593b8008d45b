//! Times of the hot paths alone: `cargo bench -p farcore --features internals --bench hot_paths`.
//!
//! Each benchmark runs one path of `support` over 1024 requests.

mod support;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};

use support::{
    REQUESTS, absent, churn, cross, crossing, far, get, local, open, open_tagged, put, seal,
    seal_tagged, sealing, tagged,
};

fn main() {
    divan::main();
}

#[divan::bench]
fn get_local(bencher: Bencher<'_, '_>) {
    let mut prepared = local();
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .bench_local(|| get(&mut prepared));
}

#[divan::bench]
fn get_absent(bencher: Bencher<'_, '_>) {
    let mut prepared = absent();
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .bench_local(|| get(&mut prepared));
}

#[divan::bench]
fn get_far(bencher: Bencher<'_, '_>) {
    let mut prepared = far();
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .bench_local(|| get(&mut prepared));
}

#[divan::bench]
fn put_local(bencher: Bencher<'_, '_>) {
    let mut prepared = local();
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .bench_local(|| put(&mut prepared));
}

/// Two requests for each key.
#[divan::bench]
fn insert_delete(bencher: Bencher<'_, '_>) {
    let mut prepared = absent();
    bencher
        .counter(ItemsCount::new(2 * REQUESTS))
        .bench_local(|| churn(&mut prepared));
}

#[divan::bench]
fn cross_lane(bencher: Bencher<'_, '_>) {
    let mut lane = crossing();
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .bench_local(|| cross(&mut lane));
}

#[divan::bench]
fn open_records(bencher: Bencher<'_, '_>) {
    let mut sealed = sealing();
    bencher
        .counter(BytesCount::new(16usize << 10))
        .bench_local(|| open(&mut sealed));
}

#[divan::bench]
fn open_tagged_records(bencher: Bencher<'_, '_>) {
    let mut records = tagged();
    bencher
        .counter(BytesCount::new(16usize << 10))
        .bench_local(|| open_tagged(&mut records));
}

#[divan::bench]
fn seal_tagged_records(bencher: Bencher<'_, '_>) {
    let mut records = tagged();
    bencher
        .counter(BytesCount::new(16usize << 10))
        .bench_local(|| seal_tagged(&mut records));
}

#[divan::bench]
fn seal_page(bencher: Bencher<'_, '_>) {
    let mut sealed = sealing();
    bencher
        .counter(BytesCount::new(16usize << 10))
        .bench_local(|| seal(&mut sealed));
}
