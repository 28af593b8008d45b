//! Values against a model of plain registers, and damaged ones.

use super::hash;
use super::layout::*;
use super::sparse::Place;
use super::value::*;

const SPARSE_MAX: usize = 3000;

#[test]
fn sparse_and_dense_values_have_the_same_registers() {
    let mut numbers = crate::random::Numbers::new();
    for count in [0, 1, 5, 100, 800, 3_000, 40_000] {
        let (mut sparse, mut dense) = (HyperLogLog::new(), HyperLogLog::new());
        dense.make_dense().unwrap();
        let mut model = Box::new([0; REGISTERS]);
        for _ in 0..count {
            let element = numbers.below(1 << 40).to_le_bytes();
            let (register, number) = hash::place(&element);
            let is_raised = model[register] < number;
            model[register] = number.max(model[register]);
            assert_eq!(sparse.add(&element, SPARSE_MAX), Ok(is_raised));
            assert_eq!(dense.add(&element, SPARSE_MAX), Ok(is_raised));
        }
        assert_eq!(sparse.registers().unwrap(), model);
        assert_eq!(dense.registers().unwrap(), model);
        assert_eq!(sparse.is_dense(), count > 800);
        let estimate = sparse.estimate().unwrap();
        assert_eq!(Ok(estimate), dense.estimate());
        assert_eq!(estimate, estimate_of(&model));
        let off = estimate.abs_diff(count);
        assert!(off <= 1 + count / 20, "{estimate} of {count}");
        // Those of all registers at once.
        let mut merged = HyperLogLog::new();
        merged.merge(&model, SPARSE_MAX).unwrap();
        assert_eq!(merged.registers().unwrap(), model);
        let mut one_by_one = HyperLogLog::new();
        for (register, number) in model.iter().enumerate() {
            let place = &mut Place::default();
            if *number > 0 {
                one_by_one
                    .raise(register, *number, SPARSE_MAX, place)
                    .unwrap();
            }
        }
        one_by_one.forget_estimate();
        assert_eq!(
            merged, one_by_one,
            "a search from the last place ends alike"
        );
    }
}

#[test]
fn elements_are_where_redis_has_them() {
    let mut value = HyperLogLog::new();
    for element in ["a", "b", "c", "d", "e", "f", "g"] {
        assert_eq!(value.add(element.as_bytes(), SPARSE_MAX), Ok(true));
    }
    assert_eq!(value.estimate(), Ok(7));
    // As Redis 7.0.15 replies to `GET` after `PFADD h a b c d e f g`.
    let expected = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80";
    assert!(value.bytes().starts_with(expected));
}

#[test]
fn an_estimate_is_kept_until_a_register_changes() {
    let mut value = HyperLogLog::new();
    assert_eq!(value.stored_estimate(), Some(0));
    value.add(b"a", SPARSE_MAX).unwrap();
    assert_eq!(value.stored_estimate(), None);
    value.store_estimate(1);
    assert_eq!(value.stored_estimate(), Some(1));
    value.add(b"a", SPARSE_MAX).unwrap();
    assert_eq!(value.stored_estimate(), Some(1));
}

#[test]
fn damaged_values_are_errors() {
    let of = |bytes: &[u8]| HyperLogLog::of(bytes.to_vec(), bytes.len() as u64);
    let whole = HyperLogLog::new();
    assert_eq!(of(b"x"), Err(Damage::Header));
    assert_eq!(of(&[0; DENSE_BYTES]), Err(Damage::Header));
    for (place, byte) in [(0, b'X'), (ENCODING_AT, 2), (ENCODING_AT, DENSE)] {
        let mut bytes = whole.bytes().to_vec();
        bytes[place] = byte;
        assert_eq!(of(&bytes), Err(Damage::Header));
    }
    let longer = [whole.bytes(), b"hello"].concat();
    assert_eq!(of(&longer).unwrap().estimate(), Err(Damage::Registers));
    let shorter = &whole.bytes()[..HEADER_BYTES + 1];
    let mut shorter = of(shorter).unwrap();
    assert_eq!(shorter.make_dense(), Err(Damage::Registers));
}

#[test]
fn any_bytes_are_a_value_or_an_error() {
    let mut some = HyperLogLog::new();
    for number in 0..60_u8 {
        some.add(&[number], SPARSE_MAX).unwrap();
    }
    farcore_fuzz::Target::new("hyperloglog")
        .seed(HyperLogLog::new().bytes())
        .seed(some.bytes())
        .longest(400)
        .run(|bytes| {
            let Ok(value) = HyperLogLog::of(bytes.to_vec(), bytes.len() as u64) else {
                return;
            };
            let registers = value.registers();
            let _ = value.decoded();
            assert_eq!(value.estimate().is_ok(), registers.is_ok());
            let mut added = value.clone();
            for element in [&b"a"[..], b"b", b"long element"] {
                let _ = added.add(element, SPARSE_MAX);
            }
            let Ok(registers) = registers else {
                return;
            };
            assert_eq!(value.estimate(), Ok(estimate_of(&registers)));
            let mut dense = value.clone();
            dense.make_dense().unwrap();
            assert_eq!(dense.registers(), Ok(registers));
            for element in [&b"a"[..], b"b", b"long element"] {
                dense.add(element, SPARSE_MAX).unwrap();
            }
            assert_eq!(dense.registers(), added.registers());
        });
}
