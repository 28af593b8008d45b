//! Clients that only send, as much as their credits allow: each message must find a receive.
//!
//! Over sockets a message without a receive waits, so only credits and connections are checked.
//! Over a device, its own counters say whether a receive was missing. The number of puts is fixed;
//! with `FARCORE_RNR_SECONDS`, clients send for so long instead (`cargo xtask lab rnr`).

mod support;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farcore_client::{Client, ClientFigures, Pending};
use farcore_rdma::FabricAddress;

use crate::support::{Random, Served, options, pattern};

/// The longest value of a first upload slot, beside its header and a key of 16 bytes.
const SLOT: usize = (64 << 10) - 48 - 16;
/// Keys of each client.
const KEYS: usize = 64;

/// What a client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lengths {
    /// Messages: SEND.
    Small,
    /// Whole upload slots: WRITE with immediate.
    Slots,
    /// Both, and values that need longer slots.
    Mixed,
}

impl Lengths {
    fn draw(self, random: &mut Random) -> usize {
        match (self, random.below(8)) {
            (Self::Small, _) | (Self::Mixed, 0..=3) => random.below(4096),
            (Self::Slots, 0..=5) | (Self::Mixed, 4) => SLOT,
            (Self::Slots, _) | (Self::Mixed, 5 | 6) => 4096 + random.below(SLOT - 4096),
            (Self::Mixed, _) => 66_000 + random.below(200_000),
        }
    }

    /// Puts of a client if no time is given.
    fn puts(self) -> u64 {
        match self {
            Self::Small => 1_500,
            Self::Slots | Self::Mixed => 250,
        }
    }

    /// Puts under way at once: more than there are credits, and few megabytes.
    fn depth(self) -> usize {
        match self {
            Self::Small => 1_000,
            Self::Slots => 100,
            Self::Mixed => 80,
        }
    }
}

/// The clients: what they send, and the receives that they post for answers.
const CLIENTS: [(Lengths, u16); 6] = [
    (Lengths::Small, 4),
    (Lengths::Slots, 4),
    (Lengths::Mixed, 4),
    (Lengths::Small, 64),
    (Lengths::Slots, 64),
    (Lengths::Mixed, 16),
];

/// What all clients did.
#[derive(Default)]
struct Sent {
    puts: AtomicU64,
    bytes: AtomicU64,
    /// A client has failed: the others stop.
    has_failed: AtomicBool,
}

/// Sends until the end, and waits only for the oldest of a long row of puts. Stops at a fault.
fn send(client: &Client, (number, lengths): (usize, Lengths), time: Option<Duration>, sent: &Sent) {
    let begun = Instant::now();
    let mut random = Random::of(number as u64);
    let bytes = pattern(300_000, number as u64);
    let mut under_way: VecDeque<Pending<u64>> = VecDeque::new();
    let mut puts = 0;
    let take = |pending: Pending<u64>| {
        if let Err(error) = pending.wait() {
            sent.has_failed.store(true, Ordering::SeqCst);
            panic!("client {number}: {error}");
        }
    };
    while !sent.has_failed.load(Ordering::SeqCst)
        && time.map_or(puts < lengths.puts(), |time| begun.elapsed() < time)
    {
        let length = lengths.draw(&mut random);
        let key = format!("client-{number}-{:06}", random.below(KEYS));
        under_way.push_back(client.put(key.as_bytes(), &bytes[..length]));
        puts += 1;
        sent.bytes.fetch_add(length as u64, Ordering::Relaxed);
        if under_way.len() > lengths.depth() {
            take(under_way.pop_front().expect("there is one"));
        }
    }
    for pending in under_way {
        take(pending);
    }
    sent.puts.fetch_add(puts, Ordering::Relaxed);
}

/// Has all clients send, and checks what both sides counted. `missing` is called before and after
/// the handshakes and at the end. Whatever it says in the handshakes, it must not grow after them.
fn flood(
    served: &Served,
    addresses: &[FabricAddress],
    time: Option<Duration>,
    missing: impl Fn() -> u64,
) {
    let first = missing();
    let clients: Vec<Client> = CLIENTS
        .iter()
        .zip(addresses.iter().cycle())
        .map(|((_, credits), address)| {
            let mut options = options(farcore_client::Transfer::Read);
            options.credits = *credits;
            let client = Client::connect(address, options).expect("a client");
            client.ping().wait().expect("an answer");
            client
        })
        .collect();
    let (before, begun) = (missing(), Instant::now());
    let sent = Sent::default();
    thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            let (sent, lengths) = (&sent, CLIENTS[number].0);
            scope.spawn(move || send(client, (number, lengths), time, sent));
        }
    });
    let after = missing();
    let figures = served.figures();
    let seconds = begun.elapsed().as_secs_f64();
    let own: Vec<ClientFigures> = clients.iter().map(Client::figures).collect();
    let total = |of: fn(&ClientFigures) -> u64| own.iter().map(of).sum::<u64>();
    println!(
        "receives: {} clients sent {} puts, {} MiB, in {seconds:.1} s: {} by SEND, {} writes with \
         immediate, {} NOOPs, {} from the server; {} receives missing after the handshakes, {} in \
         them",
        clients.len(),
        sent.puts.load(Ordering::Relaxed),
        sent.bytes.load(Ordering::Relaxed) >> 20,
        total(|figures| figures.messages),
        total(|figures| figures.uploads),
        total(|figures| figures.noops),
        figures.noops,
        after - before,
        before - first,
    );
    assert_eq!(after, before, "a receive was missing");
    for figures in &own {
        assert_eq!(figures.connections, 1, "a connection was lost: {figures:?}");
        assert!(figures.messages + figures.uploads > 1, "{figures:?}");
    }
    assert_eq!((figures.violations, figures.failed), (0, 0), "{figures:?}");
    // Each message that a client sent has arrived, and none else; three more are of a handshake.
    let arrived = total(|figures| figures.messages + figures.uploads + figures.noops);
    assert!(figures.received_messages >= arrived, "{figures:?}");
    assert!(total(|figures| figures.uploads) > 100 && total(|figures| figures.messages) > 100);
}

#[test]
fn clients_that_only_send_keep_their_connections() {
    for credits in [4, 32] {
        let served = Served::with(1, |options| options.credits = credits);
        flood(&served, &served.addresses(), None, || 0);
    }
}

/// What each connection keeps, so that its credits always name receives that are there.
#[test]
fn an_idle_connection_holds_its_messages_and_two_slots() {
    let served = Served::start(1);
    let clients: Vec<Client> = (0..10).map(|_| served.client()).collect();
    for client in &clients {
        client.ping().wait().expect("an answer");
    }
    // 32 receives and 32 sends of 5168 bytes, rounded up to 64, and two upload slots.
    let one = 2 * 32 * 5184 + 2 * (64 << 10);
    assert_eq!(served.figures().slot_bytes, 10 * one);
}

#[cfg(feature = "verbs")]
mod verbs {
    use std::time::Duration;

    use super::support::device;
    use super::support::peer::{Peer, RECEIVES};
    use super::support::wait_until;
    use super::{Served, flood};

    /// How long clients send, if that is given.
    fn time() -> Option<Duration> {
        let seconds = std::env::var("FARCORE_RNR_SECONDS").ok()?;
        let seconds = seconds.parse().expect("FARCORE_RNR_SECONDS: a number");
        Some(Duration::from_secs(seconds))
    }

    /// Listens for connections of both ways.
    fn serve(credits: u16) -> Served {
        let address = |scheme: &str| format!("{scheme}://{}:0", device::address());
        Served::at(&address("rdma+tcp"), 1, |options| {
            let other = address("rdma").parse().expect("an address");
            options.listen.push(other);
            options.credits = credits;
        })
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask lab test"]
    fn clients_that_only_send_find_every_receive() {
        // The least, and the default.
        for (credits, time) in [(4, None), (32, time())] {
            let served = serve(credits);
            flood(
                &served,
                &served.addresses(),
                time,
                device::receivers_not_ready,
            );
        }
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask lab test"]
    fn a_missing_receive_is_counted() {
        let before = device::receivers_not_ready();
        let work = async {
            let address = format!("rdma+tcp://{}:0", device::address());
            let address = address.parse().expect("an address");
            let (mut sender, mut receiver) = Peer::pair(&address).await;
            // The last finds no receive until the receiver looks at the others.
            let messages = usize::from(RECEIVES) + 1;
            for _ in 0..messages {
                sender.send(b"a message");
            }
            wait_until("the device counts a missing receive", || {
                device::receivers_not_ready() > before
            });
            // It is sent again, so only the count tells.
            wait_until("all messages arrive", || {
                receiver.poll();
                receiver.received.len() == messages
            });
        };
        farcore_rdma::run_local(work).expect("an executor");
    }
}
