//! Values of the greatest length that a configuration accepts: half a page, so one value fills a
//! page.

use farcore::{Config, EncryptionKey, Engine, Error};

use crate::support::{cores, tiny};

const KEY_BYTES: usize = 1024;

fn key(number: usize) -> Vec<u8> {
    let mut key = vec![b'k'; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

fn value(number: usize, round: usize, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (number * 31 + round * 7 + at / 5) as u8)
        .collect()
}

/// The longest values go through everything: they are flushed, read from far memory, replaced,
/// deleted and compacted.
#[expect(
    clippy::too_many_lines,
    reason = "one life of the longest values, in order"
)]
fn hold_the_longest(page_bytes: u32, local_bytes: u64, encryption: Option<EncryptionKey>) {
    let page = u64::from(page_bytes);
    let count = usize::try_from(local_bytes / page).expect("a few pages");
    let engine = Engine::open(Config {
        cores: cores(1),
        page_bytes: Some(page_bytes),
        local_bytes,
        far_bytes: 3 * local_bytes,
        encryption,
        ..tiny()
    })
    .expect("an engine opens");
    let longest = engine.value_bytes_max();
    assert_eq!(longest, 1 << (page_bytes.ilog2().min(21) - 1));
    let mut handle = engine.handle().expect("there is a handle");
    let too_long = vec![1; longest + 1];
    let refused = Error::ValueTooLong {
        bytes: longest + 1,
        max: longest,
    };
    let remedy = match longest {
        1_048_576 => "in any engine; split the value",
        _ => "raise `local_bytes` or `page_bytes`",
    };
    assert!(refused.to_string().ends_with(remedy), "{refused}");
    assert_eq!(handle.put(b"key", &too_long).wait(), Err(refused));
    for number in 0..count {
        handle
            .put(&key(number), &value(number, 0, longest))
            .wait()
            .expect("it is served");
    }
    engine.flush().expect("there is room");
    for number in 0..count {
        let read = handle
            .get(&key(number))
            .wait()
            .expect("it is served")
            .expect("it is there");
        assert!(
            *read == value(number, 0, longest),
            "{number} of {page_bytes}"
        );
    }
    // Of three values, one is replaced, one deleted and one shortened.
    for number in 0..count {
        let key = key(number);
        match number % 3 {
            0 => drop(
                handle
                    .put(&key, &value(number, 1, longest))
                    .wait()
                    .expect("it is served"),
            ),
            1 => assert!(handle.delete(&key).wait().expect("it is served")),
            _ => drop(
                handle
                    .put(&key, &value(number, 1, 1_000))
                    .wait()
                    .expect("it is served"),
            ),
        }
    }
    engine.flush().expect("there is room");
    engine.compact().expect("there is room");
    for number in 0..count {
        let bytes = [longest, 0, 1_000][number % 3];
        let read = handle.get(&key(number)).wait().expect("it is served");
        let expected = (bytes > 0).then(|| value(number, 1, bytes));
        assert!(
            read.as_deref() == expected.as_deref(),
            "{number} of {page_bytes}"
        );
    }
    let total = engine.stats().total;
    assert!(total.far_reads > 0 && total.pages_flushed > 0, "{total:?}");
}

#[test]
fn a_value_of_a_mebibyte_fits_where_pages_have_two() {
    hold_the_longest(2 << 20, 128 << 20, None);
}

#[test]
fn a_value_of_half_a_page_fits_a_page_of_any_size() {
    hold_the_longest(64 << 10, 16 << 20, None);
    hold_the_longest(64 << 10, 16 << 20, Some(EncryptionKey::random().unwrap()));
    hold_the_longest(256 << 10, 32 << 20, Some(EncryptionKey::random().unwrap()));
}
