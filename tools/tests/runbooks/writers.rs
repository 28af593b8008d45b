//! Clients that write counted values, to one server after the other, and what must be there of
//! them.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::peers::{Client, wait_until};

const WRITERS: usize = 3;
/// Places that a writer writes to in turn, of four kinds.
const PLACES: usize = 40;
/// Between two writes: all that is written fits a small server.
const PAUSE: Duration = Duration::from_micros(500);

/// Where clients are sent, and their connections there.
struct Route {
    address: SocketAddr,
    links: Vec<TcpStream>,
}

struct Shared {
    route: Mutex<Route>,
    password: Option<&'static str>,
    is_over: AtomicBool,
    acknowledged: [AtomicUsize; WRITERS],
}

impl Shared {
    /// A connection to the server where clients are sent, which is cut when they are sent
    /// elsewhere.
    fn connect(&self) -> Client {
        let mut route = self.route.lock().unwrap();
        let mut client = Client::connect(route.address);
        let link = client.stream.get_ref().try_clone().unwrap();
        route.links.push(link);
        drop(route);
        if let Some(password) = self.password {
            // A server without a password refuses it, and serves all the same.
            let _ = client.try_ask(&["AUTH", password]);
        }
        client
    }
}

/// The write of a number: what it writes twice is there once, but for lists.
fn command(writer: usize, number: usize) -> Vec<String> {
    let place = number % PLACES;
    let text = match number % 4 {
        0 => format!("SET w{writer}:{place} {number}"),
        1 => format!("HSET w{writer}:hash {place} {number}"),
        2 => format!("ZADD w{writer}:sorted {number} {place}"),
        _ => format!("RPUSH w{writer}:list {number}"),
    };
    text.split(' ').map(str::to_owned).collect()
}

/// Writes until it is over. A write whose reply did not come is sent again, elsewhere.
fn write(shared: &Shared, writer: usize) {
    let mut client = None;
    let mut number = 0;
    while !shared.is_over.load(SeqCst) {
        let words = command(writer, number + 1);
        let connected = client.get_or_insert_with(|| shared.connect());
        let Some(reply) = connected.try_ask(&words) else {
            client = None;
            continue;
        };
        assert!(!reply.is_error(), "{words:?}: {reply}");
        number += 1;
        shared.acknowledged[writer].store(number, SeqCst);
        thread::sleep(PAUSE);
    }
}

/// Clients that write until they are stopped.
pub(crate) struct Writers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    pub(crate) fn start(address: SocketAddr, password: Option<&'static str>) -> Self {
        let shared = Arc::new(Shared {
            route: Mutex::new(Route {
                address,
                links: Vec::new(),
            }),
            password,
            is_over: AtomicBool::new(false),
            acknowledged: Default::default(),
        });
        let threads = (0..WRITERS).map(|writer| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || write(&shared, writer))
        });
        let threads = threads.collect();
        Self { shared, threads }
    }

    /// Has all of them write at another server.
    pub(crate) fn send_to(&self, address: SocketAddr) {
        let mut route = self.shared.route.lock().unwrap();
        route.address = address;
        for link in route.links.drain(..) {
            // It fails if the link has ended.
            let _ = link.shutdown(Shutdown::Both);
        }
    }

    fn acknowledged(&self) -> [usize; WRITERS] {
        let load = |writer: usize| self.shared.acknowledged[writer].load(SeqCst);
        [0, 1, 2].map(load)
    }

    /// Waits until each has written this many more.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) {
        let before = self.acknowledged();
        wait_until("clients write", || {
            let now = self.acknowledged();
            now.iter()
                .zip(before)
                .all(|(now, before)| *now >= before + count)
        });
    }

    /// Stops them; returns how many writes of each were acknowledged.
    pub(crate) fn stop(self) -> Written {
        self.shared.is_over.store(true, SeqCst);
        let acknowledged =
            || [0, 1, 2].map(|one: usize| self.shared.acknowledged[one].load(SeqCst));
        for thread in self.threads {
            thread.join().unwrap();
        }
        Written(acknowledged())
    }
}

/// How many writes of each writer were acknowledged.
pub(crate) struct Written([usize; WRITERS]);

impl Written {
    /// Checks that each place has the last number that was acknowledged for it, and that each list
    /// has all of its numbers.
    #[track_caller]
    pub(crate) fn check(&self, client: &mut Client) {
        for (writer, count) in self.0.into_iter().enumerate() {
            for place in (0..PLACES).filter(|place| place % 4 != 3) {
                let last = count - (count - place) % PLACES;
                let text = match place % 4 {
                    0 => format!("GET w{writer}:{place}"),
                    1 => format!("HGET w{writer}:hash {place}"),
                    _ => format!("ZSCORE w{writer}:sorted {place}"),
                };
                let words: Vec<_> = text.split(' ').collect();
                assert_eq!(client.ask(&words).text(), last.to_string(), "{text}");
            }
            let list = client.ask(&["LRANGE", &format!("w{writer}:list"), "0", "-1"]);
            let numbers = list.elements().iter();
            let mut numbers: Vec<usize> = numbers.map(|one| one.text().parse().unwrap()).collect();
            // One whose reply did not come may have been written, and then again.
            numbers.dedup();
            let wanted: Vec<_> = (1..=count).filter(|number| number % 4 == 3).collect();
            assert_eq!(numbers, wanted, "the list of writer {writer}");
        }
    }
}

/// A client that reads one key of a writer, and sees its values in their order.
pub(crate) struct Reader {
    is_over: Arc<AtomicBool>,
    reads: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Reader {
    pub(crate) fn start(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let reads = Arc::new(AtomicUsize::new(0));
        let thread = thread::spawn({
            let (is_over, reads) = (Arc::clone(&is_over), Arc::clone(&reads));
            move || {
                let (mut client, mut last) = (Client::connect(address), 0);
                while !is_over.load(SeqCst) {
                    let reply = client.ask(&["GET", "w0:4"]);
                    let value: usize = reply.text().parse().expect("a value that was written");
                    assert!(value >= last, "{value} after {last}");
                    last = value;
                    reads.fetch_add(1, SeqCst);
                    thread::sleep(PAUSE);
                }
            }
        });
        Self {
            is_over,
            reads,
            thread,
        }
    }

    /// Waits until it has read this many more values.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) {
        let before = self.reads.load(SeqCst);
        wait_until("a client reads", || {
            self.reads.load(SeqCst) >= before + count
        });
    }

    pub(crate) fn stop(self) {
        self.is_over.store(true, SeqCst);
        self.thread.join().unwrap();
    }
}
