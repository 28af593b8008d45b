//! Memory without types: what is written at an offset is read there, and each misuse has its error.

use farcore_pool::plain::mark;
use farcore_pool::{BytesRead, BytesWrite, Exported, PoolError, PoolOptions, RemotePool, Token};

use crate::nodes::{connect, name, node};

#[test]
fn bytes_of_many_slices_are_read_and_written_together() {
    let nodes = [node(16), node(16)];
    let pool = connect(&[&nodes[0], &nodes[1]]);
    for align in [1, 8, 64, 4096] {
        let first = pool.alloc_bytes(1000, align).wait().unwrap();
        let second = pool.alloc_bytes(200_000, align).wait().unwrap();
        let long: Vec<u8> = (0..150_000_u32).map(|at| at.to_le_bytes()[0] ^ 7).collect();
        let writes = [
            BytesWrite {
                slice: &first,
                offset: 3,
                from: b"abc",
            },
            BytesWrite {
                slice: &second,
                offset: 50_000,
                from: &long,
            },
        ];
        pool.write_bytes(&writes).wait().unwrap();
        let (mut short, mut back) = ([0; 3], vec![0; 150_000]);
        let mut reads = [
            BytesRead {
                slice: &second,
                offset: 50_000,
                into: &mut back,
            },
            BytesRead {
                slice: &first,
                offset: 3,
                into: &mut short,
            },
        ];
        pool.read_bytes(&mut reads).wait().unwrap();
        assert_eq!((&short, back == long), (b"abc", true));
        pool.write_bytes(&writes[..0]).wait().unwrap();
        let word = BytesWrite {
            slice: &first,
            offset: 8,
            from: &7_u64.to_le_bytes(),
        };
        pool.write_bytes(&[word]).wait().unwrap();
        assert_eq!(first.fetch_add_at(8, 5).wait(), Ok(7));
        assert_eq!(first.compare_and_swap_at(8, 12, 1).wait(), Ok(12));
        assert_eq!(first.compare_and_swap_at(8, 12, 2).wait(), Ok(1));
    }
}

#[test]
fn misuse_of_bytes_is_named() {
    let pool = RemotePool::embedded(1 << 20).unwrap();
    let other = RemotePool::embedded(1 << 20).unwrap();
    let bytes = pool.alloc_bytes(20, 8).wait().unwrap();
    let read = |pool: &RemotePool, offset, length| {
        let mut into = vec![0; length];
        let mut reads = [BytesRead {
            slice: &bytes,
            offset,
            into: &mut into,
        }];
        pool.read_bytes(&mut reads).wait()
    };
    assert_eq!(read(&pool, 20, 0), Ok(()));
    for (offset, length) in [(-1, 1), (20, 1), (i64::MIN, 8), (i64::MAX, 8), (0, 21)] {
        let outside = read(&pool, offset, length);
        assert!(
            matches!(outside, Err(PoolError::OutOfBounds { .. })),
            "{outside:?}"
        );
    }
    assert!(matches!(read(&other, 0, 1), Err(PoolError::Foreign { .. })));
    let unaligned = bytes.fetch_add_at(4, 1).wait();
    assert!(matches!(unaligned, Err(PoolError::Unaligned { .. })));
    let outside = bytes.compare_and_swap_at(16, 0, 1).wait();
    assert!(matches!(outside, Err(PoolError::OutOfBounds { .. })));
    for (count, align, wanted) in [
        (1, 3, "align is 3: must be a power of two"),
        (1, 0, "align is 0"),
        (1, 8192, "4096 at most"),
        (usize::MAX, 1, "2^63"),
        (1 << 40, 1, "no remote memory"),
    ] {
        let error = pool
            .alloc_bytes(count, align)
            .wait()
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn bytes_are_shared_under_the_mark_of_a_type() {
    let node = node(16);
    let (first, second) = (connect(&[&node]), connect(&[&node]));
    let own = first.alloc_bytes(16, 8).wait().unwrap();
    own.fetch_add_at(8, 0).wait().unwrap();
    own.compare_and_swap_at(0, own.fetch_add_at(0, 0).wait().unwrap(), 5)
        .wait()
        .unwrap();
    let exported = own.export(true).wait().unwrap();
    let text = exported.to_text_as(mark("u64", &[]), 8).unwrap();
    // A program in Rust sees words, one in C bytes.
    let words: Exported<u64> = text.parse().unwrap();
    assert_eq!(words.len(), 2);
    assert_eq!(second.import(&words).wait().unwrap().read(0).wait(), Ok(5));
    let bytes = Exported::from_text_as(&text, mark("u64", &[]), 8).unwrap();
    assert_eq!(second.import(&bytes).wait().unwrap().len(), 16);
    for wrong in [
        exported.to_text_as(1, 3).unwrap_err(),
        exported.to_text_as(1, 0).unwrap_err(),
        Exported::from_text_as(&text, mark("i64", &[]), 8).unwrap_err(),
        text.parse::<Exported<u8>>().unwrap_err(),
    ] {
        assert!(matches!(wrong, PoolError::WrongType { .. }), "{wrong}");
    }
    let longer = Exported::from_text_as(&text, mark("u64", &[]), u64::MAX).unwrap_err();
    assert!(matches!(longer, PoolError::Malformed { .. }), "{longer}");
    let longer = Exported::from_text_as(&text, mark("u64", &[]), 9).unwrap();
    let longer = second.import(&longer).wait().unwrap_err();
    assert!(matches!(longer, PoolError::Malformed { .. }), "{longer}");
}

#[test]
fn a_token_that_a_node_does_not_have_is_named() {
    let node = node(16);
    let options = PoolOptions {
        token: Some(Token::new(b"the token of a test").unwrap()),
        ..PoolOptions::default()
    };
    let error = RemotePool::connect([name(&node)], options).unwrap_err();
    assert!(matches!(error, PoolError::Token(_)), "{error}");
}
