//! What a program reads is what it wrote, through every kind of access, and each misuse has its
//! error.

use std::thread;

use farcore_pool::{Plain, PoolError, PoolOptions, RemotePool};
use futures_lite::future::{block_on, zip};

use crate::nodes::{connect, connect_with, node};

#[derive(Clone, Copy, PartialEq, Debug, Plain)]
struct Order {
    is_open: bool,
    price: f64,
    amount: u32,
}

fn orders(count: u32) -> Vec<Order> {
    let order = |amount| Order {
        is_open: amount % 3 == 0,
        price: f64::from(amount) / 4.0,
        amount,
    };
    (0..count).map(order).collect()
}

#[test]
fn values_are_read_as_they_were_written() {
    let (first, second) = (node(16), node(16));
    let pool = connect(&[&first, &second]);
    let all = orders(1000);
    let slice = pool.alloc_from(&all).wait().unwrap();
    assert_eq!(slice.to_vec().wait().unwrap(), all);
    assert_eq!(slice.read(999).wait().unwrap(), all[999]);
    slice.write(3, &all[7]).wait().unwrap();
    slice
        .write_many(&[10, 4], &[all[1], all[2]])
        .wait()
        .unwrap();
    let read = slice.read_many(&[4, 10, 3, 5]).wait().unwrap();
    assert_eq!(read, [all[2], all[1], all[7], all[5]]);
    let mut some = [all[0]; 5];
    slice.read_range(995, &mut some).wait().unwrap();
    assert_eq!(some, all[995..]);
    slice.write_range(0, &some).wait().unwrap();
    assert_eq!(slice.ptr(0).index(4).read(&pool).wait().unwrap(), all[999]);
    // As tasks, on a runtime that knows nothing of the pool.
    let both = block_on(zip(async { slice.read(0).await.unwrap() }, async {
        slice.read(1).await.unwrap()
    }));
    assert_eq!(both, (all[995], all[996]));
}

#[test]
fn words_are_changed_by_many_threads() {
    const EACH: u64 = 300;
    let one = node(16);
    for connections in [1, 3] {
        let options = PoolOptions {
            connections,
            ..PoolOptions::default()
        };
        let pool = connect_with(&[&one], options);
        let counter = pool.alloc_box(0_u64).wait().unwrap();
        let swapped = pool.alloc_box(0_u64).wait().unwrap();
        thread::scope(|scope| {
            for number in 0..4 {
                let (counter, swapped) = (&counter, &swapped);
                scope.spawn(move || {
                    for _ in 0..EACH {
                        // Some threads block, and some await.
                        if number % 2 == 0 {
                            counter.fetch_add(1).wait().unwrap();
                        } else {
                            block_on(async { counter.fetch_add(1).await }).unwrap();
                        }
                        let mut seen = swapped.read().wait().unwrap();
                        loop {
                            let old = swapped.compare_and_swap(seen, seen + 1).wait().unwrap();
                            if old == seen {
                                break;
                            }
                            seen = old;
                        }
                    }
                });
            }
        });
        assert_eq!(counter.read().wait().unwrap(), 4 * EACH);
        assert_eq!(swapped.read().wait().unwrap(), 4 * EACH);
    }
}

#[test]
fn misuse_is_named() {
    let pool = RemotePool::embedded(1 << 20).unwrap();
    let other = RemotePool::embedded(1 << 20).unwrap();
    let words = pool.alloc::<u64>(4).wait().unwrap();
    let outside = |offset: i128, bytes| PoolError::OutOfBounds {
        offset,
        bytes,
        limit: 32,
    };
    assert_eq!(words.read(4).wait(), Err(outside(32, 8)));
    assert!(words.write(usize::MAX, &1).wait().is_err());
    assert_eq!(words.write_range(2, &[0; 3]).wait(), Err(outside(16, 24)));
    assert_eq!(words.read_many(&[0, 9]).wait(), Err(outside(72, 8)));
    let lengths = PoolError::Lengths {
        places: 2,
        values: 1,
    };
    assert_eq!(words.write_many(&[0, 1], &[5]).wait(), Err(lengths));
    let ptr = words.ptr(1);
    assert_eq!(ptr.offset(-2).read(&pool).wait(), Err(outside(-8, 8)));
    assert!(
        ptr.offset(i64::MAX)
            .offset(i64::MAX)
            .read(&pool)
            .wait()
            .is_err()
    );
    let unaligned = PoolError::Unaligned {
        offset: 9,
        align: 8,
    };
    assert_eq!(
        ptr.byte_offset(1).fetch_add(&pool, 1).wait(),
        Err(unaligned)
    );
    assert!(matches!(
        ptr.read(&other).wait(),
        Err(PoolError::Foreign { .. })
    ));
    assert_eq!(ptr.write(&pool, &7).wait(), Ok(()));
    let wrong = ptr.cast::<[bool; 8]>().read(&pool).wait();
    assert!(matches!(wrong, Err(PoolError::Plain(_))), "{wrong:?}");
    words.free();
    assert_eq!(ptr.read(&pool).wait(), Err(PoolError::Freed));
    // The memory is given out again: the old pointer does not reach it.
    let again = pool.alloc::<u64>(4).wait().unwrap();
    again.write(1, &1).wait().unwrap();
    assert_eq!(ptr.write(&pool, &9).wait(), Err(PoolError::Freed));
    assert_eq!(again.read(1).wait(), Ok(1));
}

#[test]
fn nothing_is_allocated_for_no_values() {
    let pool = RemotePool::embedded(1 << 20).unwrap();
    let none = pool.alloc::<u64>(0).wait().unwrap();
    assert!(none.is_empty());
    assert_eq!(none.to_vec().wait().unwrap(), [0_u64; 0]);
    assert!(none.read(0).wait().is_err());
    let units = pool.alloc_from(&[(); 5]).wait().unwrap();
    assert_eq!(units.to_vec().wait().unwrap(), [(); 5]);
    assert_eq!(units.read_many(&[1, 4]).wait().unwrap(), [(), ()]);
    let huge = pool.alloc::<[u64; 1024]>(usize::MAX).wait().unwrap_err();
    assert!(matches!(huge, PoolError::TooLong { .. }));
}
