//! Procedures of the program that hosts a node.

use std::thread;
use std::time::Duration;

use farcore_pool::procedures::{ProcedureCall, Procedures, constructor, procedure};
use farcore_pool::{Plain, PoolError};
use farcore_rdma::node::{MemoryNode, NodeHandle, NodeOptions};

use crate::nodes::{connect, options};

#[derive(Clone, Copy, PartialEq, Debug, Plain)]
struct Range {
    first: u64,
    last: u64,
}

/// Doubles each byte of the target, and returns how many there are.
fn double(call: &ProcedureCall, _: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; call.target_bytes()];
    call.read(0, &mut bytes)?;
    bytes.iter_mut().for_each(|byte| *byte *= 2);
    call.write(0, &bytes)?;
    Ok((bytes.len() as u64).to_le_bytes().to_vec())
}

fn host(isolate: bool) -> NodeHandle {
    let procedures = Procedures::new()
        .with(
            "sum",
            procedure(|range: &Range| Ok((range.first..=range.last).sum::<u64>())),
        )
        .with("pair", constructor(|first: &u64| Ok([*first, first + 1])))
        .with("double", double)
        .with(
            "refuse",
            procedure(|_: &()| Err::<(), _>("it never works".to_owned())),
        )
        .with(
            "panic",
            procedure(|_: &()| -> Result<(), String> { panic!("on purpose") }),
        )
        .with("long", |_: &ProcedureCall, _: &[u8]| Ok(vec![7; 40_000]))
        .with("slow", |call: &ProcedureCall, _: &[u8]| {
            while !call.is_late() {
                thread::sleep(Duration::from_millis(5));
            }
            Ok(Vec::new())
        })
        .with("outside", |call: &ProcedureCall, _: &[u8]| {
            call.write(call.target_bytes(), &[1])?;
            Ok(Vec::new())
        });
    let options = NodeOptions {
        isolate,
        procedures,
        // Procedures have an eighth of it.
        lease: Duration::from_secs(16),
        ..options(([127, 0, 0, 1], 0).into(), 16)
    };
    MemoryNode::start(options).expect("a node")
}

fn reason<T: std::fmt::Debug>(called: Result<T, PoolError>) -> String {
    match called {
        Err(PoolError::Procedure { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn procedures_are_called_and_construct_values() {
    for node in [host(false), host(true)] {
        let pool = connect(&[&node]);
        let range = Range {
            first: 1,
            last: 100,
        };
        assert_eq!(pool.call(0, "sum", &range).wait(), Ok(5050_u64));
        let pair = pool
            .construct::<[u64; 2], _>("pair", &7_u64)
            .wait()
            .unwrap();
        assert_eq!(pair.read().wait(), Ok([7, 8]));
        let bytes = pool.alloc_from(&[1_u8, 2, 3]).wait().unwrap();
        assert_eq!(bytes.call("double", &()).wait(), Ok(3_u64));
        assert_eq!(bytes.to_vec().wait().unwrap(), [2, 4, 6]);
        assert_eq!(pool.call_bytes(0, "double", &[]).wait().unwrap(), [0; 8]);
        let answer = bytes.call_bytes("double", &[]).wait().unwrap();
        assert_eq!(answer, 3_u64.to_le_bytes());
        assert_eq!(bytes.to_vec().wait().unwrap(), [4, 8, 12]);
    }
}

#[test]
fn calls_that_fail_say_why() {
    let node = host(true);
    let pool = connect(&[&node]);
    let none = |name: &'static str| reason(pool.call::<(), ()>(0, name, &()).wait());
    assert_eq!(none("refuse"), "it never works");
    assert!(none("panic").contains("panicked"));
    assert!(none("absent").contains("no procedure of this name"));
    // An eighth of the lease.
    assert!(none("slow").contains("took longer than 2000 ms"));
    assert!(none("long").contains("40000 bytes: at most 32768"));
    assert!(none("sum").contains("0 bytes, 16 are expected"));
    assert!(none("x".repeat(300).leak()).contains("name has 300 bytes: at most 256"));
    let long = pool.call_bytes(0, "sum", &[0; 40_000]).wait();
    assert!(reason(long).contains("argument has 40000 bytes"));
    let word = pool.alloc_box(1_u64).wait().unwrap().into_slice();
    let outside = reason(word.call::<(), ()>("outside", &()).wait());
    assert!(
        outside.contains("1 bytes at 8 exceed a target of 8 bytes"),
        "{outside}"
    );
    let wrong = reason(
        pool.call::<_, u8>(0, "sum", &Range { first: 1, last: 2 })
            .wait(),
    );
    assert!(wrong.contains("8 bytes, 1 are expected"), "{wrong}");
    assert!(matches!(
        pool.call::<(), ()>(9, "sum", &()).wait(),
        Err(PoolError::NoNode { .. })
    ));
    // The pool goes on.
    assert_eq!(
        pool.call(0, "sum", &Range { first: 1, last: 2 }).wait(),
        Ok(3_u64)
    );
}

/// A late procedure still writes its target, so no other value may lie there.
#[test]
fn memory_of_a_late_call_is_not_used_again() {
    let procedures = Procedures::new().with("late", |call: &ProcedureCall, _: &[u8]| {
        while !call.is_late() {
            thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..100 {
            call.write(0, &vec![0xee; call.target_bytes()])?;
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Vec::new())
    });
    let options = NodeOptions {
        procedures,
        lease: Duration::from_secs(4),
        ..options(([127, 0, 0, 1], 0).into(), 4)
    };
    let host = MemoryNode::start(options).expect("a node");
    let pool = connect(&[&host]);
    let target = pool.alloc_from(&[1_u8; 4096]).wait().unwrap();
    assert!(reason(target.call::<_, ()>("late", &()).wait()).contains("longer than 500 ms"));
    drop(target);
    let values: Vec<_> = (0..30)
        .map(|_| pool.alloc_from(&[2_u8; 4096]).wait().unwrap())
        .collect();
    thread::sleep(Duration::from_millis(700));
    for value in &values {
        assert_eq!(value.to_vec().wait().unwrap(), [2; 4096]);
    }
}

#[test]
fn only_an_owner_gives_a_slice_to_a_procedure() {
    for host in [host(false), host(true)] {
        let (owner, sharer) = (connect(&[&host]), connect(&[&host]));
        let values = owner.alloc_from(&[1_u8, 2, 3]).wait().unwrap();
        let text = values.export(true).wait().unwrap();
        let shared = sharer.import(&text).wait().unwrap();
        assert!(reason(shared.call::<_, u64>("double", &()).wait()).contains("target"));
        assert_eq!(values.call("double", &()).wait(), Ok(3_u64));
        assert_eq!(shared.to_vec().wait().unwrap(), [2, 4, 6]);
    }
}
