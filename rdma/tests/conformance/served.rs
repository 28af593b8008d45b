//! The second fixture of the `tcp` backend: a far side that performs one-sided requests on a thread
//! of its own, as a memory node does. It accepts no messages, so cases that need a second endpoint
//! are left out.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use farcore_rdma::tcp::{
    Carrier, Closer, ConnectRequest, Exposed, Purpose, ServedMetrics, TcpAddress, TcpEndpoint,
    connect_queue,
};
use farcore_rdma::{Endpoint, QueuePairState, Region, RemoteKey};

use crate::fixture::{Bench, DEPTH, Fixture, REGION_BYTES, region};

const KEY: RemoteKey = RemoteKey(0x9ABC_DEF0);
/// In the bench's time, which a poll advances by a microsecond; the far side is on another thread.
const SILENCE_NS: u64 = 60_000_000_000;

struct Served {
    near: TcpEndpoint,
    /// Takes the place of a second endpoint; it is not connected.
    unconnected: TcpEndpoint,
    address: SocketAddr,
    closers: Arc<Mutex<Vec<Closer>>>,
    /// Connections established since the far side last died.
    connected: usize,
    _server: Server,
}

/// Ends the serving thread when the test ends.
struct Server(Option<JoinHandle<()>>, SocketAddr);

impl Drop for Server {
    fn drop(&mut self) {
        // A connection that sends no valid connect request ends the loop.
        let end = || -> std::io::Result<()> {
            use std::io::Write;
            let mut last = std::net::TcpStream::connect(self.1)?;
            last.write_all(b"the end, which is not a connect request but at least as long as one")
        };
        if end().is_ok()
            && let Some(thread) = self.0.take()
        {
            let _ = thread.join();
        }
    }
}

fn serve(remote: &Arc<Region>, closers: &Arc<Mutex<Vec<Closer>>>) -> Server {
    let address = TcpAddress::bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let bound = address.local_address().expect("an address");
    let exposed = Exposed::new(vec![(KEY, Arc::clone(remote))]);
    let closers = Arc::clone(closers);
    let (ready, is_ready) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let served = farcore_rdma::run_local(async move {
            let acceptor = address.acceptor();
            ready.send(()).expect("somebody waits");
            loop {
                let accepted = acceptor.accept().await.expect("accepted");
                let Ok(incoming) = accepted.arrive().expect("arrived").request().await else {
                    break;
                };
                let metrics = Arc::new(ServedMetrics::default());
                let queue = incoming.accept_memory(exposed.clone(), metrics).await;
                let queue = queue.expect("served");
                closers.lock().expect("the list").push(queue.closer());
                glommio::spawn_local(queue.serve()).detach();
            }
            for closer in closers.lock().expect("the list").iter() {
                closer.close();
            }
        });
        served.expect("an executor");
    });
    is_ready.recv().expect("it listens");
    Server(Some(thread), bound)
}

impl Fixture for Served {
    type End = TcpEndpoint;

    fn near(&mut self) -> &mut TcpEndpoint {
        &mut self.near
    }

    fn far(&mut self) -> &mut TcpEndpoint {
        &mut self.unconnected
    }

    fn key(&self) -> RemoteKey {
        KEY
    }

    fn kill(&mut self) {
        // The other thread lists a connection a little after this one has seen that it is accepted.
        loop {
            let mut closers = self.closers.lock().expect("the list");
            if closers.len() == self.connected {
                closers.drain(..).for_each(|closer| closer.close());
                break;
            }
            drop(closers);
            std::thread::yield_now();
        }
        self.connected = 0;
    }

    async fn revive(&mut self) {
        for queue in 0..2 {
            if self.near.state(queue) != QueuePairState::ReadyToSend {
                let purpose = Purpose::Memory {
                    session: 1,
                    slot: 0,
                    counter: 0,
                    proof: [0; 16],
                    carrier: Carrier::Socket,
                };
                let request = ConnectRequest::new(purpose);
                let connected = connect_queue(self.address, &request, Duration::from_secs(10));
                self.near
                    .connection_slot(queue)
                    .offer(connected.await.expect("connected"));
                self.near.renew(queue);
                self.connected += 1;
            }
            assert_eq!(self.near.state(queue), QueuePairState::ReadyToSend);
        }
    }
}

async fn bench() -> Bench<Served> {
    let remote = region(REGION_BYTES);
    let closers = Arc::default();
    let server = serve(&remote, &closers);
    let mut fixture = Served {
        near: TcpEndpoint::new(2, DEPTH, SILENCE_NS, Exposed::default()),
        unconnected: TcpEndpoint::new(2, DEPTH, SILENCE_NS, Exposed::default()),
        address: server.1,
        closers,
        connected: 0,
        _server: server,
    };
    fixture.revive().await;
    Bench::new(fixture, remote)
}

macro_rules! beside_a_thread {
    ($case:expr) => {
        farcore_rdma::run_local(async { $case(super::bench().await).await }).expect("an executor")
    };
}

mod one_sided {
    crate::conformance!(beside_a_thread:
        written_bytes_are_read
        atomics_return_the_old_value
        requests_of_a_queue_pair_keep_their_order
        only_signalled_requests_produce_completions
        a_full_queue_returns_the_request
        a_wrong_key_is_refused
        out_of_bounds_is_refused
        local_bounds_are_checked_before_anything_is_sent
        an_unaligned_atomic_is_refused
        long_transfers_arrive_whole
        zero_bytes_can_be_transferred
        a_node_that_dies_fails_what_is_in_flight_once
        a_restored_node_serves_again
        one_queue_pair_in_error_leaves_the_other_alone
        a_message_without_a_receiver_is_refused
    );
}
