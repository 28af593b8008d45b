//! Processes of clients that are killed inside large gets and puts: the server has everything back,
//! and no value is torn.
//!
//! Each round starts one client a way of transfer. A client has [`WINDOW`] operations under way
//! from its first line on, so whenever SIGKILL comes, it comes inside some. The test runs few
//! rounds; for many: `FARCORE_KILLS=200 cargo test -p farcore-client --test killed -- --nocapture`.

mod support;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use farcore_client::{Client, Error, Pending, Transfer};
use farcore_server::NativeFigures;

use crate::support::{Random, Served, options, pattern, wait_until};

/// Kills of the test, unless `FARCORE_KILLS` says how many.
const KILLS: usize = 16;
/// Operations that a client has under way.
const WINDOW: usize = 8;
/// The lengths of values: within one slot of each size, and in parts.
const LENGTHS: [usize; 4] = [60_000, 200_000, 900_000, 3 << 20];
/// Transfers that the server makes before a kill, at most.
const TRANSFERS_MAX: usize = 40;
/// What a client of this file receives: address, way, and a number that no other has.
const ORDER: &str = "FARCORE_KILLED_CLIENT";

/// Operation and transfer of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    LentGets,
    LandedGets,
    Puts,
    /// Puts and gets, with the values landing.
    Both,
}

const WAYS: [Way; 4] = [Way::LentGets, Way::LandedGets, Way::Puts, Way::Both];

impl Way {
    fn transfer(self) -> Transfer {
        match self {
            Self::LentGets | Self::Puts => Transfer::Read,
            Self::LandedGets | Self::Both => Transfer::Landing,
        }
    }
}

/// The key of a value that is there before the clients, and of one that they store.
fn key(kind: &str, place: usize) -> Vec<u8> {
    format!("{kind}-{place}").into_bytes()
}

/// A value that shows whether it is whole: it begins with the seed of the rest.
fn sealed(bytes: usize, seed: u64) -> Vec<u8> {
    let mut value = pattern(bytes, seed);
    value[..8].copy_from_slice(&seed.to_le_bytes());
    value
}

fn is_whole(value: &[u8]) -> bool {
    let seed = value.first_chunk().map(|seed| u64::from_le_bytes(*seed));
    LENGTHS.contains(&value.len()) && seed.is_some_and(|seed| value == sealed(value.len(), seed))
}

enum Flight {
    Get(Pending<Option<farcore_client::Value>>),
    Put(Pending<u64>),
}

fn begin(client: &Client, way: Way, number: usize, random: &mut Random) -> Flight {
    let place = random.below(LENGTHS.len());
    let gets = match way {
        Way::LentGets | Way::LandedGets => true,
        Way::Puts => false,
        Way::Both => random.below(2) == 0,
    };
    if gets {
        return Flight::Get(client.get(&key("kept", place)));
    }
    // Two clients store under each key.
    let value = sealed(LENGTHS[place], random.next());
    Flight::Put(client.put(&key("put", place * 2 + number % 2), &value))
}

/// What a client does until it is killed.
fn act(order: &str) -> Result<(), Error> {
    let mut words = order.split(' ');
    let mut word = || words.next().expect("a word");
    let address = word().parse().expect("an address");
    let way = WAYS[word().parse::<usize>().expect("a way")];
    let number = word().parse().expect("a number");
    let mut options = options(way.transfer());
    (options.landing_bytes, options.landings) = (1 << 20, 8);
    let client = Client::connect(&address, options)?;
    let mut random = Random::new();
    let mut flights = VecDeque::new();
    let mut is_begun = false;
    loop {
        while flights.len() < WINDOW {
            flights.push_back(begin(&client, way, number, &mut random));
        }
        match flights.pop_front() {
            Some(Flight::Get(pending)) => {
                let value = pending.wait()?.expect("it is kept");
                assert!(is_whole(&value.bytes), "a torn value is read");
            }
            Some(Flight::Put(pending)) => drop(pending.wait()?),
            None => {}
        }
        if !std::mem::replace(&mut is_begun, true) {
            println!("begun");
        }
    }
}

#[test]
#[ignore = "a process that the other test starts and kills"]
fn a_client_to_be_killed() {
    if let Ok(order) = std::env::var(ORDER) {
        act(&order).expect("the server serves");
    }
}

/// A client in a process of its own, which transfers.
struct Victim(Child);

impl Victim {
    fn start(served: &Served, way: usize, number: usize) -> Self {
        let test = std::env::current_exe().expect("this test");
        let child = Command::new(test)
            .args(["a_client_to_be_killed", "--exact", "--ignored"])
            .arg("--nocapture")
            .env(ORDER, format!("{} {way} {number}", served.address))
            .stdout(Stdio::piped())
            .spawn();
        Self(child.expect("a process"))
    }

    fn wait_for_transfers(&mut self) {
        let out = self.0.stdout.as_mut().expect("a pipe");
        let mut lines = BufReader::new(out).lines();
        let begun = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("begun")));
        assert!(begun.is_some(), "a client ended: {:?}", self.0.wait());
    }

    /// Kills it; false if it had ended by itself.
    fn kill(mut self) -> bool {
        let was_alive = self.0.try_wait().expect("a child").is_none();
        self.0.kill().expect("a child");
        self.0.wait().expect("a child");
        was_alive
    }
}

/// What must be as before: what connections hold.
fn held(figures: &NativeFigures) -> [u64; 4] {
    [
        figures.connections,
        figures.slots_in_use,
        figures.slot_bytes,
        figures.credits,
    ]
}

fn transfers(figures: &NativeFigures) -> u64 {
    figures.lends + figures.landings + figures.uploads
}

/// Every value that is stored is whole; removing all leaves nothing.
fn nothing_is_left(served: &Served, client: &Client) {
    for place in 0..2 * LENGTHS.len() {
        let key = key("put", place);
        if let Some(value) = client.get(&key).wait().expect("read") {
            assert!(is_whole(&value.bytes), "a torn value is stored: {place}");
        }
        client.delete(&key).wait().expect("removed");
    }
    for place in 0..LENGTHS.len() {
        let value = client.get(&key("kept", place)).wait().expect("read");
        assert!(value.is_some_and(|value| is_whole(&value.bytes)));
        client.delete(&key("kept", place)).wait().expect("removed");
    }
    wait_until("no key and no piece is left", || {
        let total = served.engine().stats().total;
        total.keys + total.long_values + total.pending == 0
    });
}

/// Stores the values that clients get, by a client that ends.
fn keep_values(served: &Served) {
    let client = served.client();
    for (place, bytes) in LENGTHS.into_iter().enumerate() {
        let put = client.put(&key("kept", place), &sealed(bytes, place as u64));
        put.wait().expect("stored");
    }
    drop(client);
    wait_until("its connection has ended", || {
        held(&served.figures()) == [0; 4]
    });
}

#[test]
fn clients_that_are_killed_leave_nothing() {
    let kills = std::env::var("FARCORE_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().expect("FARCORE_KILLS"));
    let served = Served::start(2);
    keep_values(&served);
    let client = served.client();
    client.ping().wait().expect("served");
    let before = held(&served.figures());
    let mut random = Random::new();
    let (mut killed, mut rounds_with_slots) = (0, 0);
    while killed < kills {
        let mut victims: Vec<Victim> = (0..WAYS.len())
            .map(|way| Victim::start(&served, way, killed + way))
            .collect();
        victims.iter_mut().for_each(Victim::wait_for_transfers);
        let some = transfers(&served.figures()) + random.below(TRANSFERS_MAX) as u64;
        wait_until("they transfer", || transfers(&served.figures()) >= some);
        rounds_with_slots += usize::from(served.figures().slots_in_use > 0);
        for victim in victims {
            assert!(victim.kill(), "a client ended by itself");
            killed += 1;
        }
        // Another client is served meanwhile.
        client.put(b"other", b"value").wait().expect("stored");
        wait_until("every slot, byte and credit is back", || {
            held(&served.figures()) == before
        });
    }
    let figures = served.figures();
    println!("{killed} kills, slots in use at {rounds_with_slots} of the rounds; held: {before:?}");
    println!("after: {figures:?}");
    assert!(rounds_with_slots > 0, "no kill came inside a transfer");
    assert_eq!(figures.violations, 0, "a death is no violation");
    client.delete(b"other").wait().expect("removed");
    nothing_is_left(&served, &client);
}
