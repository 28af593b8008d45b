//! The fixture of the `tcp` backend: two endpoints over sockets of this machine.
//!
//! Also tests that a silent peer is lost after the time limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcore_rdma::tcp::{
    ConnectRequest, Connected, Exposed, Purpose, TcpAcceptor, TcpAddress, TcpEndpoint,
    connect_queue,
};
use farcore_rdma::{Completion, Endpoint, QueuePairState, RemoteKey, Status, Work};

use crate::fixture::{Bench, DEPTH, Fixture, REGION_BYTES, region};

const KEY: RemoteKey = RemoteKey(0x1234_5678);
/// In the bench's time, which a poll advances by a microsecond.
const SILENCE_NS: u64 = 50_000_000;

struct Tcp {
    near: TcpEndpoint,
    far: TcpEndpoint,
    acceptor: TcpAcceptor,
    address: SocketAddr,
}

impl Tcp {
    async fn pair(&self) -> (Connected, Connected) {
        let request = ConnectRequest::new(Purpose::Peer);
        let near = connect_queue(self.address, &request, Duration::from_secs(10));
        let far = async {
            let accepted = self.acceptor.accept().await.expect("accepted");
            let arrival = accepted.arrive().expect("arrived");
            let incoming = arrival.request().await.expect("a request");
            incoming.accept_peer().await.expect("a peer")
        };
        let (near, far) = futures_lite::future::zip(near, far).await;
        (near.expect("connected"), far)
    }
}

impl Fixture for Tcp {
    type End = TcpEndpoint;

    fn near(&mut self) -> &mut TcpEndpoint {
        &mut self.near
    }

    fn far(&mut self) -> &mut TcpEndpoint {
        &mut self.far
    }

    fn key(&self) -> RemoteKey {
        KEY
    }

    fn kill(&mut self) {
        for queue in 0..2 {
            self.far.connection_slot(queue).fail();
        }
    }

    async fn revive(&mut self) {
        for queue in 0..2 {
            if self.near.state(queue) != QueuePairState::ReadyToSend {
                self.far.connection_slot(queue).fail();
                self.far.poll(0, &mut [farcore_rdma::Completion::NONE; 64]);
                let (near, far) = self.pair().await;
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

async fn bench() -> Bench<Tcp> {
    let remote = region(REGION_BYTES);
    let address = TcpAddress::bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let exposed = Exposed::new(vec![(KEY, Arc::clone(&remote))]);
    let mut fixture = Tcp {
        near: TcpEndpoint::new(2, DEPTH, SILENCE_NS, Exposed::default()),
        far: TcpEndpoint::new(2, DEPTH, SILENCE_NS, exposed),
        address: address.local_address().expect("an address"),
        acceptor: address.acceptor(),
    };
    assert_eq!(fixture.near.state(0), QueuePairState::Init);
    fixture.revive().await;
    Bench::new(fixture, remote)
}

macro_rules! on_executors {
    ($case:expr) => {
        farcore_rdma::run_local(async { $case(super::bench().await).await }).expect("an executor")
    };
}

mod sockets {
    crate::conformance!(on_executors);
}

#[test]
fn a_peer_that_is_silent_is_lost() {
    async fn case(mut bench: Bench<Tcp>) {
        let read = Work::Read {
            local: bench.local(0, 8),
            remote: bench.at(0),
        };
        bench.post(0, 1, read);
        bench.post(0, 2, read);
        bench.ring(0);
        // The far end is not polled, so it does not answer.
        let mut completions = [Completion::NONE; 4];
        assert_eq!(bench.fixture.near.poll(SILENCE_NS, &mut completions), 0);
        assert_eq!(bench.fixture.near.poll(SILENCE_NS + 1, &mut completions), 2);
        let statuses = [completions[0].status, completions[1].status];
        assert_eq!(statuses, [Status::RetryExceeded, Status::Flushed]);
        assert_eq!(bench.fixture.near.state(0), QueuePairState::Drained);
    }
    farcore_rdma::run_local(async { case(bench().await).await }).expect("an executor");
}
