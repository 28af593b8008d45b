use std::collections::HashSet;

use super::*;

#[test]
fn keys_are_unique_and_depend_on_the_seed() {
    let (one, other) = (Generator::new(1), Generator::new(2));
    let mut seen = HashSet::new();
    for index in 0..50_000 {
        for generator in [one, other] {
            let mut key = [0; KEY_BYTES];
            generator.key(index, &mut key);
            assert!(seen.insert(key), "index {index}");
        }
    }
}

#[test]
fn sizes_follow_the_contest() {
    let generator = Generator::new(7);
    let (mut counts, mut total) = ([0_u32; 3], 0);
    for index in 0..100_000 {
        let word = generator.key_word(index);
        let written = generator.shape(word, Generation::Written).bytes;
        let updated = generator.shape(word, Generation::Updated).bytes;
        let again = generator.shape(word, Generation::Reinserted).bytes;
        let hot = generator.hot_shape(word).bytes;
        assert_ne!(written, updated);
        assert_eq!(written, generator.shape(word, Generation::Rewritten).bytes);
        assert!((80..=256).contains(&again) && (16..=128).contains(&hot));
        for bytes in [written, updated, again, hot] {
            assert!(bytes % VALUE_GRAIN_BYTES == 0 && bytes <= VALUE_BYTES_MAX);
        }
        counts[usize::from(written > 128) + usize::from(written > 256)] += 1;
        total += written as u64;
    }
    let near = |count: u32, share: u32| count.abs_diff(share * 1000) < 1000;
    assert!(
        near(counts[0], 70) && near(counts[1], 20) && near(counts[2], 10),
        "{counts:?}"
    );
    assert!(
        (total / 100_000).abs_diff(VALUE_BYTES_MEAN) <= 2,
        "mean {}",
        total / 100_000
    );
}

#[test]
fn bounded_lengths_keep_the_classes_and_30_gb() {
    let generator = Generator::new(7).with_lengths(Lengths::Bounded);
    const COUNT: u64 = 200_000;
    let (mut counts, mut longest) = ([0_u64; 3], 0);
    let (mut written, mut updated, mut again) = (0, 0, 0);
    for index in 0..COUNT {
        let word = generator.key_word(index);
        let of = |generation| generator.shape(word, generation).bytes;
        let bytes = of(Generation::Written);
        assert!((80..=VALUE_BYTES_MAX).contains(&bytes) && bytes % VALUE_GRAIN_BYTES == 0);
        assert!((80..=256).contains(&of(Generation::Reinserted)));
        assert_ne!(bytes, of(Generation::Updated));
        counts[usize::from(bytes > 128) + usize::from(bytes > 256)] += 1;
        longest = longest.max(bytes);
        written += bytes as u64;
        updated += of(Generation::Updated) as u64;
        again += of(Generation::Reinserted) as u64;
    }
    let shares = counts.map(|count| (count * 100 + COUNT / 2) / COUNT);
    assert_eq!((shares, longest), ([70, 20, 10], VALUE_BYTES_MAX));
    // A tenth is updated; then ten keys of twelve are written again.
    let (before, after) = (written * 9 + updated, written * 2 + again * 10);
    for (total, keys) in [(written, COUNT), (before, 10 * COUNT), (after, 12 * COUNT)] {
        let mean = total as f64 / keys as f64;
        let most = VALUE_BYTES_MEAN_BOUNDED as f64;
        assert!(mean <= most && mean > most - 4.0, "mean {mean}");
        assert!(mean * 192e6 <= 30e9);
    }
}

#[test]
fn long_values_differ_in_key_version_and_place() {
    let generator = Generator::new(3);
    for bytes in [0, 1, 7, 8, 9, 1023, 1024, 1025, 2048, 5003] {
        let mut value = vec![0; bytes];
        generator.fill_long(5, 2, &mut value);
        assert!(generator.is_long(5, 2, &value));
        assert!(bytes < 8 || !generator.is_long(6, 2, &value), "another key");
        assert!(bytes < 8 || !generator.is_long(5, 3, &value), "stale");
        for at in 0..bytes {
            value[at] ^= 0x10;
            assert!(!generator.is_long(5, 2, &value), "byte {at} of {bytes}");
            value[at] ^= 0x10;
        }
        if bytes > 1024 {
            value.rotate_left(1024);
            assert!(!generator.is_long(5, 2, &value), "blocks in another order");
        }
    }
}

/// The value of a shape, computed word by word.
fn expected(generator: &Generator, word: u64, shape: Shape) -> Vec<u8> {
    let stream = generator.stream(word, shape.nonce);
    let table = (1..=shape.bytes as u64 / 8).map(|n| mix(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let mut value: Vec<u8> = table.flat_map(|one| (one ^ stream).to_le_bytes()).collect();
    value[..8].copy_from_slice(&shape.nonce.to_le_bytes());
    value
}

#[test]
fn values_of_every_length_are_exact() {
    let generator = Generator::new(11);
    let mut room = [0xAA; VALUE_BYTES_MAX];
    for grains in (1..=GRAINS_MAX).rev() {
        let (word, bytes) = (
            generator.key_word(grains as u64),
            grains * VALUE_GRAIN_BYTES,
        );
        let shape = Shape { nonce: 77, bytes };
        let mut value = generator.fill(word, shape, &mut room).to_vec();
        assert_eq!(value, expected(&generator, word, shape));
        assert!(generator.is(word, shape, &value));
        for at in 0..bytes {
            value[at] ^= 1;
            assert!(!generator.is(word, shape, &value), "byte {at} of {bytes}");
            value[at] ^= 1;
        }
        for other in [
            bytes - 16,
            bytes - 8,
            bytes - 1,
            bytes + 1,
            bytes + 8,
            bytes + 16,
        ] {
            let mut longer = value.clone();
            longer.resize(other, 0);
            assert!(!generator.is(word, shape, &longer), "{other} for {bytes}");
            let wrong = Shape {
                bytes: other,
                ..shape
            };
            assert!(!generator.is(word, wrong, &value), "{bytes} for {other}");
            if other % VALUE_GRAIN_BYTES != 0 {
                assert!(
                    !generator.is(word, wrong, &longer),
                    "{other} is no length of a value"
                );
            }
        }
    }
}

#[test]
fn sizes_and_values_are_those_of_earlier_runs() {
    let generator = Generator::new(5);
    let (mut room, mut digest) = ([0; VALUE_BYTES_MAX], 0_u64);
    for index in 0..2000 {
        let word = generator.key_word(index);
        for shape in [
            generator.shape(word, Generation::Written),
            generator.shape(word, Generation::Updated),
            generator.shape(word, Generation::Reinserted),
            generator.hot_shape(word),
        ] {
            for bytes in generator.fill(word, shape, &mut room).chunks_exact(8) {
                digest = mix(digest ^ load(bytes));
            }
        }
    }
    assert_eq!(digest, 17_243_192_160_106_649_703);
}

#[test]
fn every_changed_byte_is_detected() {
    let generator = Generator::new(3);
    let mut room = [0; VALUE_BYTES_MAX];
    for index in 0..40 {
        let word = generator.key_word(index);
        for shape in [
            generator.shape(word, Generation::Updated),
            generator.hot_shape(index),
        ] {
            let mut value = generator.fill(word, shape, &mut room).to_vec();
            assert!(generator.is(word, shape, &value));
            assert!(!generator.is(word ^ 1, shape, &value), "another key");
            assert!(
                !generator.is(word, shape, &value[..shape.bytes - 8]),
                "shortened"
            );
            assert_eq!(generator.is_hot(word, &value), shape.nonce & HOT_BIT != 0);
            assert!(generator.is_any(word, shape.bytes, &value));
            for at in 0..value.len() {
                value[at] ^= 0x10;
                assert!(!generator.is(word, shape, &value), "byte {at}");
                assert!(!generator.is_hot(word, &value), "byte {at}");
                value[at] ^= 0x10;
            }
        }
    }
    assert!(!generator.is_hot(1, b"") && !generator.is_any(1, 16, b"short"));
}
