//! A program that hosts a node, and uses its memory.

use farcore_pool::{Placement, Plain, PoolError, RemotePool, RemoteSlice};

use crate::nodes::{EXTENT, connect, isolated_node, node, node_at, until};

#[derive(Clone, Copy, PartialEq, Debug, Plain)]
struct Pair {
    first: u64,
    second: u8,
}

#[test]
fn a_host_allocates_and_accesses_its_own_memory() {
    for host in [node(16), isolated_node(16)] {
        let pool = connect(&[&host]);
        // Longer than an extent, and than a buffer on the stack.
        let count = 3 * usize::try_from(EXTENT).expect("a length") / 16;
        let pairs: RemoteSlice<Pair> = pool.alloc(count).wait().expect("memory");
        let local = pairs.local(&host).expect("its own node");
        let value = |index: usize| Pair {
            first: index as u64 * 7,
            second: index.to_le_bytes()[0],
        };
        let all: Vec<Pair> = (0..count).map(value).collect();
        local.write_range(0, &all).expect("a write");
        assert_eq!(pairs.to_vec().wait().expect("a read"), all);
        let other = value(9_999);
        pairs.write(5_000, &other).wait().expect("a write");
        assert_eq!(local.read(5_000).expect("a read"), other);
        local.write(4_095, &other).expect("a write");
        let mut some = [value(0); 3];
        local.read_range(4_094, &mut some).expect("a read");
        assert_eq!(some, [value(4_094), other, value(4_096)]);
        assert!(matches!(
            local.read(count),
            Err(PoolError::OutOfBounds { .. })
        ));
        assert!(matches!(
            local.write_range(count - 1, &some),
            Err(PoolError::OutOfBounds { .. })
        ));
        let nothing: RemoteSlice<u64> = pool.alloc(0).wait().expect("nothing");
        let local = nothing.local(&host).expect("nothing");
        local.read_range(0, &mut []).expect("nothing");
        assert!(local.read(0).is_err());
    }
}

#[test]
fn memory_of_another_node_is_not_local() {
    let (host, other) = (node(16), node(16));
    let pool = connect(&[&host, &other]);
    let there = pool.at(Placement::Node(1));
    let away: RemoteSlice<u64> = there.alloc(4).wait().expect("memory");
    assert!(matches!(away.local(&host), Err(PoolError::NotLocal { .. })));
    assert!(away.local(&other).is_ok());
    let embedded = RemotePool::embedded(1 << 20).expect("some memory");
    let inside: RemoteSlice<u64> = embedded.alloc(4).wait().expect("memory");
    assert!(matches!(
        inside.local(&host),
        Err(PoolError::NotLocal { .. })
    ));
}

#[test]
fn what_was_not_granted_is_refused_and_what_was_lost_is_known() {
    let host = isolated_node(16);
    let (owner, sharer) = (connect(&[&host]), connect(&[&host]));
    let values: RemoteSlice<u64> = owner.alloc(4).wait().expect("memory");
    let text = values.export(false).wait().expect("a pointer");
    let shared = sharer.import(&text).wait().expect("a share");
    values
        .local(&host)
        .expect("its node")
        .write(1, &7)
        .expect("a write");
    let local = shared.local(&host).expect("its node");
    assert!(matches!(local.read(1), Err(PoolError::Refused { .. })));
    assert!(matches!(local.write(1, &8), Err(PoolError::ReadOnly)));
    assert_eq!(shared.read(1).wait().expect("a read"), 7);

    let address = host.address();
    host.stop();
    let host = node_at(address, 16);
    until(|| values.loss().is_some());
    assert!(matches!(
        values.local(&host),
        Err(PoolError::Renewed { .. } | PoolError::Down { .. })
    ));
}
