//! Typed pointers: values read and written, errors, and arithmetic that never leaves the bounds.

use bytemuck::Zeroable;
use proptest::prelude::*;

use super::*;
use crate::testing::{TestEndpoint, TestNode, block_on, initiator};

#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable)]
#[repr(C)]
struct Point {
    x: u32,
    y: u32,
    z: u64,
}

const KEY: RemoteKey = RemoteKey(2);

fn far() -> (TestNode, Initiator<TestEndpoint>) {
    let node = TestNode::new(&[1], 0);
    let initiator = initiator(std::slice::from_ref(&node));
    (node, initiator)
}

fn pointer<T: Pod>(offset: u64, bytes: u64) -> RemotePtr<T> {
    RemotePtr::at(0, RemoteSlice { key: KEY, offset }, bytes)
}

#[test]
fn written_values_are_read() {
    let (_node, initiator) = far();
    block_on(async {
        let points = pointer::<Point>(64, 160);
        let all: Vec<Point> = (0..10)
            .map(|x| Point {
                x,
                y: 2 * x,
                z: u64::from(x) << 40,
            })
            .collect();
        points.write_slice(&initiator, &all).await.unwrap();
        assert_eq!(points.index(3).read(&initiator).await.unwrap(), all[3]);
        let mut back = vec![Point::zeroed(); 9];
        points
            .offset(1)
            .read_slice(&initiator, &mut back)
            .await
            .unwrap();
        assert_eq!(back, all[1..]);
        let picked = [7, 0, 9].map(|index| points.index(index));
        let mut back = [Point::zeroed(); 3];
        RemotePtr::read_many(&initiator, &picked, &mut back)
            .await
            .unwrap();
        assert_eq!(back, [all[7], all[0], all[9]]);
        points
            .index(9)
            .offset(-1)
            .write(&initiator, &all[0])
            .await
            .unwrap();
        assert_eq!(points.index(8).read(&initiator).await.unwrap(), all[0]);
        let word = points.index(1).byte_offset(8).cast::<u64>();
        assert_eq!(word.fetch_add(&initiator, 5).await, Ok(1 << 40));
        assert_eq!(
            word.compare_and_swap(&initiator, (1 << 40) + 5, 1).await,
            Ok((1 << 40) + 5)
        );
        assert_eq!(points.index(1).read(&initiator).await.unwrap().z, 1);
        assert_eq!(
            (
                points.remaining(),
                points.index(9).remaining(),
                points.index(11).remaining()
            ),
            (10, 1, 0)
        );
    });
}

#[expect(clippy::too_many_lines, reason = "one list of wrong accesses")]
#[test]
fn errors_are_named_and_nothing_is_posted() {
    let (_node, initiator) = far();
    // No request may be posted.
    initiator.with_endpoint(|endpoint| endpoint.life = Some(0));
    let words = pointer::<u64>(64, 20);
    block_on(async {
        let error = words.index(2).read(&initiator).await.unwrap_err();
        assert_eq!(
            error,
            RemotePtrError::OutOfBounds {
                offset: 16,
                bytes: 8,
                limit: 20
            }
        );
        assert_eq!(
            error.to_string(),
            "8 bytes at 16 exceed an allocation of 20 bytes"
        );
        let error = words.offset(-1).write(&initiator, &1).await.unwrap_err();
        assert_eq!(
            error,
            RemotePtrError::OutOfBounds {
                offset: -8,
                bytes: 8,
                limit: 20
            }
        );
        let error = words
            .byte_offset(4)
            .fetch_add(&initiator, 1)
            .await
            .unwrap_err();
        assert_eq!(
            error,
            RemotePtrError::Unaligned {
                offset: 68,
                align: 8
            }
        );
        for far in [
            words.offset(i64::MAX).offset(i64::MAX),
            words.offset(i64::MIN),
            words.index(usize::MAX),
        ] {
            let error = far.compare_and_swap(&initiator, 0, 1).await;
            assert!(matches!(error, Err(RemotePtrError::OutOfBounds { .. })));
        }
        let mut three = [0; 3];
        let error = words.read_slice(&initiator, &mut three).await;
        assert!(matches!(
            error,
            Err(RemotePtrError::OutOfBounds { bytes: 24, .. })
        ));
        let error =
            RemotePtr::read_many(&initiator, &[words, words.index(2)], &mut three[..2]).await;
        assert!(matches!(error, Err(RemotePtrError::OutOfBounds { .. })));
        let (pointers, values) = (2, 3);
        let error = RemotePtr::read_many(&initiator, &[words; 2], &mut three).await;
        assert_eq!(error, Err(RemotePtrError::Lengths { pointers, values }));
        let error = RemotePtr::read_many(&initiator, &[], &mut three).await;
        assert!(matches!(
            error,
            Err(RemotePtrError::Lengths { pointers: 0, .. })
        ));
        let other = RemotePtr { queue: 1, ..words };
        let error = RemotePtr::read_many(&initiator, &[words, other], &mut three[..2]).await;
        assert_eq!(error, Err(RemotePtrError::Queues { first: 0, other: 1 }));
        words.cast::<()>().write(&initiator, &()).await.unwrap();
        assert_eq!(words.cast::<[u8; 0]>().remaining(), usize::MAX);
        let edge = pointer::<u8>(u64::MAX, u64::MAX)
            .index(1)
            .read(&initiator)
            .await;
        assert!(matches!(edge, Err(RemotePtrError::OutOfBounds { .. })));
        let posted = words.read(&initiator).await;
        assert!(matches!(
            posted,
            Err(RemotePtrError::Fabric(InitiatorError::Down { .. }))
        ));
    });
}

/// One step of arithmetic.
#[derive(Clone, Copy, Debug)]
enum Step {
    Bytes(i8),
    Offset(i8),
    Index(u8),
}

proptest! {
    #[test]
    fn no_arithmetic_leaves_the_allocation(base in 0u64..256, limit in 0u64..300, steps in prop::collection::vec(prop_oneof![any::<i8>().prop_map(Step::Bytes), any::<i8>().prop_map(Step::Offset), any::<u8>().prop_map(Step::Index)], 0..4), count in 0usize..5) {
        let (node, initiator) = far();
        let (mut far, mut place) = (pointer::<u8>(base, limit).cast::<u32>(), i128::from(base));
        for step in steps {
            (far, place) = match step {
                Step::Bytes(bytes) => (far.byte_offset(bytes.into()), place + i128::from(bytes)),
                Step::Offset(count) => (far.offset(count.into()), place + 4 * i128::from(count)),
                Step::Index(index) => (far.cast::<[u16; 2]>().index(index.into()).cast(), place + 4 * i128::from(index)),
            };
        }
        let end = place + 4 * count as i128;
        let inside = place >= i128::from(base) && end <= i128::from(base + limit);
        let done = block_on(far.write_slice(&initiator, &vec![u32::MAX; count]));
        prop_assert_eq!(done.is_ok(), inside && place % 4 == 0, "{:?}", done);
        // Only these bytes were written.
        let data = usize::try_from(node.map.table.bytes).unwrap();
        #[allow(unsafe_code)]
        // SAFETY: no request is in flight.
        let copy = unsafe { node.node.copy_for_inspection() };
        for (byte, value) in (0i128..).zip(&copy[data..data + 1024]) {
            let written = done.is_ok() && (place..end).contains(&byte);
            prop_assert_eq!(*value, if written { 0xFF } else { 0 });
        }
    }
}
