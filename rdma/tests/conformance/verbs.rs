//! The fixture of the `verbs` backend: reliable connections of an RDMA device, established by an
//! exchange over TCP, and by RDMA-CM.
//!
//! Needs an RDMA device; the lab has one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use farcore_rdma::tcp::{ConnectRequest, Purpose, TcpAcceptor, TcpAddress};
use farcore_rdma::verbs::{
    Access, CmEvent, CmListener, Connected, Context, VerbsEndpoint, accept_peer, connect_by_cm,
    connect_by_exchange,
};
use farcore_rdma::{
    Completion, Endpoint, FabricOptions, QueuePairState, RemoteKey, VerbsOptions, rdma_devices,
};

use super::fixture::{Bench, DEPTH, Fixture, REGION_BYTES, region};

const LIMIT: Duration = Duration::from_secs(10);
/// In the bench's time, which a poll advances by a microsecond.
const SILENCE_NS: u64 = 100_000_000;

#[derive(Debug)]
enum Way {
    Exchange(TcpAcceptor, SocketAddr),
    Cm(CmListener, SocketAddr),
}

struct Verbs {
    near: VerbsEndpoint,
    far: VerbsEndpoint,
    way: Way,
    key: RemoteKey,
}

fn options() -> VerbsOptions {
    VerbsOptions {
        // A dead peer is noticed after a quarter of a second. Not sooner: an answer that is slow on
        // an emulated machine would be requested again, and Soft-RoCE then completes READs and
        // atomics whose answer it has not stored.
        retry_count: 3,
        ..VerbsOptions::default()
    }
}

fn endpoint(context: &Arc<Context>, access: Access) -> VerbsEndpoint {
    let options = FabricOptions {
        verbs: options(),
        queues: 2,
        depth: DEPTH,
        limit_ns: SILENCE_NS,
    };
    VerbsEndpoint::on(context, &options, access).expect("an endpoint")
}

/// An address of the device's interface, by which RDMA-CM identifies devices.
fn device_address(device: &str) -> IpAddr {
    let devices = rdma_devices();
    let facts = devices
        .iter()
        .find(|one| one.name == device)
        .expect("it was opened");
    let gids = facts.ports.iter().flat_map(|port| &port.gids);
    gids.filter_map(|gid| gid.address().to_ipv4_mapped())
        .next()
        .expect("an interface with an IPv4 address")
        .into()
}

impl Verbs {
    async fn pair(&self, queue: usize) -> (Connected, Connected) {
        let request = ConnectRequest::new(Purpose::Peer);
        let (near, far) = (
            self.near.connection_slot(queue),
            self.far.connection_slot(queue),
        );
        match &self.way {
            Way::Exchange(acceptor, address) => {
                let near = connect_by_exchange(near.adapter(), *address, &request, LIMIT);
                let far = async {
                    let accepted = acceptor.accept().await.expect("accepted");
                    let incoming = accepted.arrive().expect("arrived").request().await;
                    accept_peer(far.adapter(), incoming.expect("a request"))
                        .await
                        .expect("a peer")
                };
                let (near, far) = futures_lite::future::zip(near, far).await;
                (near.expect("connected"), far)
            }
            Way::Cm(listener, address) => {
                let near = connect_by_cm(near.adapter(), *address, &request, LIMIT);
                let far = async {
                    let arrival = loop {
                        if let CmEvent::Arrival(arrival) = listener.next().await.expect("an event")
                        {
                            break arrival;
                        }
                    };
                    assert_eq!(arrival.request().expect("a request").purpose, Purpose::Peer);
                    arrival.accept_peer(far.adapter()).expect("accepted")
                };
                let (near, far) = futures_lite::future::zip(near, far).await;
                (near.expect("connected"), far)
            }
        }
    }
}

impl Fixture for Verbs {
    type End = VerbsEndpoint;

    fn near(&mut self) -> &mut VerbsEndpoint {
        &mut self.near
    }

    fn far(&mut self) -> &mut VerbsEndpoint {
        &mut self.far
    }

    fn key(&self) -> RemoteKey {
        self.key
    }

    fn kill(&mut self) {
        for queue in 0..2 {
            self.far.connection_slot(queue).fail();
        }
        self.far.poll(0, &mut [Completion::NONE; 64]);
    }

    async fn revive(&mut self) {
        for queue in 0..2 {
            if self.near.state(queue) != QueuePairState::ReadyToSend {
                self.far.connection_slot(queue).fail();
                while self.far.state(queue) == QueuePairState::Error {
                    self.far.poll(0, &mut [Completion::NONE; 64]);
                }
                let (near, far) = self.pair(queue).await;
                self.near.connection_slot(queue).offer(near);
                self.far.connection_slot(queue).offer(far);
                self.near.renew(queue);
                self.far.renew(queue);
            }
            assert_eq!(self.near.state(queue), QueuePairState::ReadyToSend);
            assert_eq!(self.far.state(queue), QueuePairState::ReadyToSend);
        }
    }
}

async fn bench(by_cm: bool) -> Bench<Verbs> {
    let context = Context::open(&options()).expect("an RDMA device: run this in the lab");
    let remote = region(REGION_BYTES);
    let way = if by_cm {
        let listen = SocketAddr::new(device_address(context.name()), 0);
        let listener = CmListener::bind(listen).expect("a port");
        let address = listener.local_address();
        Way::Cm(listener, address)
    } else {
        let address = TcpAddress::bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let bound = address.local_address().expect("an address");
        Way::Exchange(address.acceptor(), bound)
    };
    let mut far = endpoint(&context, Access::Remote);
    let local_key = far.register(Arc::clone(&remote)).expect("registered");
    let key = far.remote_key(local_key).expect("a region");
    let mut fixture = Verbs {
        near: endpoint(&context, Access::Local),
        far,
        way,
        key,
    };
    assert_eq!(fixture.near.state(0), QueuePairState::Init);
    fixture.revive().await;
    Bench::new(fixture, remote)
}

macro_rules! by_exchange {
    ($case:expr) => {
        farcore_rdma::run_local(async { $case(super::bench(false).await).await })
            .expect("an executor")
    };
}

macro_rules! by_cm {
    ($case:expr) => {
        farcore_rdma::run_local(async { $case(super::bench(true).await).await })
            .expect("an executor")
    };
}

mod exchange {
    crate::conformance!(
        #[ignore = "needs an RDMA device: cargo xtask lab test"]
        by_exchange
    );
}

mod rdma_cm {
    crate::conformance!(
        #[ignore = "needs an RDMA device: cargo xtask lab test"]
        by_cm
    );
}
