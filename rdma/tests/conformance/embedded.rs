//! The fixture of the `embedded` backend, with and without latency.
//!
//! Owns two endpoints of this process and the nodes between them.

use std::sync::Arc;

use farcore_rdma::{EmbeddedEndpoint, EmbeddedNode, Endpoint, LinkModel, Region, RemoteKey};

use crate::fixture::{Bench, DEPTH, Fixture, REGION_BYTES, region};

struct Embedded {
    near: EmbeddedEndpoint,
    far: EmbeddedEndpoint,
    node: Arc<EmbeddedNode>,
}

impl Fixture for Embedded {
    type End = EmbeddedEndpoint;

    fn near(&mut self) -> &mut EmbeddedEndpoint {
        &mut self.near
    }

    fn far(&mut self) -> &mut EmbeddedEndpoint {
        &mut self.far
    }

    fn key(&self) -> RemoteKey {
        self.node.remote_key()
    }

    fn kill(&mut self) {
        self.node.lose();
    }

    async fn revive(&mut self) {
        self.node.restore();
        for queue in 0..2 {
            self.near.renew(queue);
            self.far.renew(queue);
        }
    }
}

fn bench(link: LinkModel) -> Bench<Embedded> {
    let remote: Arc<Region> = region(REGION_BYTES);
    let node = Arc::new(EmbeddedNode::new(Arc::clone(&remote), link));
    let nodes = std::slice::from_ref(&node);
    let mut near = EmbeddedEndpoint::new(nodes, 2, DEPTH, 1);
    let mut far = EmbeddedEndpoint::new(nodes, 2, DEPTH, 2);
    for queue in 0..2 {
        near.connect(queue, &mut far, queue);
    }
    Bench::new(Embedded { near, far, node }, remote)
}

macro_rules! at_once {
    ($case:expr) => {
        futures_lite::future::block_on($case(bench(LinkModel::default())))
    };
}

macro_rules! far_away {
    ($case:expr) => {
        futures_lite::future::block_on($case(bench(LinkModel {
            latency_ns: 20_000,
            jitter_ns: 10_000,
            bandwidth_bytes_per_second: Some(1 << 34),
            ..LinkModel::default()
        })))
    };
}

mod immediate {
    use super::bench;
    use farcore_rdma::LinkModel;
    crate::conformance!(at_once);
}

mod distant {
    use super::bench;
    use farcore_rdma::LinkModel;
    crate::conformance!(far_away);
}
