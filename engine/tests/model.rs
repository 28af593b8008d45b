//! The whole engine against `HashMap`s: two handles and a job on a core at once, while the main thread flushes and compacts.
//!
//! Each client has keys of its own and so an exact model, although many requests are under way: those on one key keep
//! their order, so their answers are checked in that order once they are there. The counters that all clients share are
//! changed by compare-and-swap only and checked at the end. `FARCORE_SEED=n` runs one seed again; with threads, the
//! calls of each client repeat, their interleaving does not.

#![expect(clippy::cast_possible_truncation, reason = "test data wraps")]

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use farcore::{
    Answer, Config, Core, EncryptionKey, Engine, Error, FaultPlan, Handle, LinkModel, Operation,
    Refused, Swap, Version,
};

/// Keys of each client.
const KEYS: u16 = 6_000;
/// Keys of each client that a third of the calls go to.
const HOT: u16 = 12;
/// Requests that a client has in flight.
const WINDOW: usize = 32;
/// Calls in a batch, at most.
const BATCH: u64 = 64;
/// Keys that all clients count in.
const COUNTERS: usize = 6;
/// Times that the main thread disturbs the clients.
const ROUNDS: u64 = 6;
/// Times that a call is made again when requests fail at random.
const TRIES: usize = 50;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// What a value holds, in two words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Content {
    seed: u64,
    bytes: usize,
}

impl Content {
    fn random(random: &mut Random) -> Self {
        let bytes = match random.below(50) {
            0 => 20_000 + random.below(10_000),
            1 => 0,
            _ => random.below(1_501),
        };
        Self {
            seed: random.next(),
            bytes: bytes as usize,
        }
    }

    fn make(self) -> Vec<u8> {
        let mut random = Random(self.seed);
        let words = (0..self.bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes());
        words.take(self.bytes).collect()
    }
}

/// The key of a number: 1 to 200 bytes, no two alike.
fn key_of(client: u8, number: u16) -> Vec<u8> {
    let [low, high] = number.to_le_bytes();
    let mut key = vec![client];
    match number {
        0 => {}
        1..10 => key.push(low),
        _ => {
            key.extend([low, high]);
            let mut random = Random(u64::from(number));
            let padding = random.below(198);
            key.extend((0..padding).map(|_| random.next() as u8));
        }
    }
    key
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Get,
    Put(Content),
    Delete,
    Swap(Version, Content),
}

impl Call {
    fn value(self) -> Vec<u8> {
        match self {
            Self::Put(content) | Self::Swap(_, content) => content.make(),
            Self::Get | Self::Delete => Vec::new(),
        }
    }

    fn operation<'a>(self, key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
        match self {
            Self::Get => Operation::Get { key },
            Self::Put(_) => Operation::Put { key, value },
            Self::Delete => Operation::Delete { key },
            Self::Swap(expected, _) => Operation::CompareAndSwap {
                key,
                expected,
                value,
            },
        }
    }
}

/// An answer, owned.
#[derive(Debug)]
enum Given {
    Value(Version, Vec<u8>),
    Absent,
    Stored(Version),
    Deleted,
    Mismatch(Version),
    Failed(Error),
}

impl Given {
    fn of(answer: &Answer<'_>) -> Self {
        match answer {
            Answer::Value { version, value } => Self::Value(*version, value.to_vec()),
            Answer::Absent => Self::Absent,
            Answer::Stored { version } => Self::Stored(*version),
            Answer::Deleted => Self::Deleted,
            Answer::Mismatch { current } => Self::Mismatch(*current),
            Answer::Failed(error) => Self::Failed(error.clone()),
        }
    }

    fn deleted(found: bool) -> Self {
        if found { Self::Deleted } else { Self::Absent }
    }

    fn swapped(swap: Swap) -> Self {
        match swap {
            Swap::Stored(version) => Self::Stored(version),
            Swap::Mismatch(current) => Self::Mismatch(current),
        }
    }

    fn short(&self) -> String {
        match self {
            Self::Value(version, bytes) => format!(
                "Value({version}, {} bytes {:?}..)",
                bytes.len(),
                &bytes[..bytes.len().min(8)]
            ),
            other => format!("{other:?}"),
        }
    }
}

/// A call under way, or answered behind one that is under way.
#[derive(Debug)]
struct Waiting {
    token: u64,
    step: u64,
    call: Call,
    given: Option<Given>,
}

/// One client's side of the test: what it asks, and what it must be told.
struct Client {
    /// Seed and client, for messages.
    name: String,
    number: u8,
    faulty: bool,
    random: Random,
    step: u64,
    truth: HashMap<u16, (Version, Content)>,
    /// The latest version that each key was seen to get.
    latest: HashMap<u16, Version>,
    waiting: HashMap<u16, VecDeque<Waiting>>,
    key_of_token: HashMap<u64, u16>,
    tokens: u64,
    /// Swaps stored on the shared counters.
    counted: [u64; COUNTERS],
    failures: u64,
}

impl Client {
    fn new(seed: u64, number: u8, faulty: bool) -> Self {
        Self {
            name: format!("FARCORE_SEED={seed} client {number}"),
            number,
            faulty,
            random: Random(seed ^ u64::from(number) << 56),
            step: 0,
            truth: HashMap::new(),
            latest: HashMap::new(),
            waiting: HashMap::new(),
            key_of_token: HashMap::new(),
            tokens: 0,
            counted: [0; COUNTERS],
            failures: 0,
        }
    }

    fn key(&self, key: u16) -> Vec<u8> {
        key_of(self.number, key)
    }

    fn any_key(&mut self) -> u16 {
        let keys = if self.random.below(3) == 0 { HOT } else { KEYS };
        self.random.below(u64::from(keys)) as u16
    }

    fn any_call(&mut self, key: u16) -> Call {
        match self.random.below(100) {
            0..40 => Call::Get,
            40..75 => Call::Put(Content::random(&mut self.random)),
            75..85 => Call::Delete,
            _ => {
                let expected = match self.random.below(4) {
                    0 => 0,
                    _ => self.latest.get(&key).copied().unwrap_or(0),
                };
                Call::Swap(expected, Content::random(&mut self.random))
            }
        }
    }

    /// Calls on one key, most likely a far one, so that the later ones wait behind the first.
    fn burst(&mut self) -> Vec<(u16, Call)> {
        let key = self.random.below(u64::from(KEYS)) as u16;
        let count = 2 + self.random.below(8);
        (0..count).map(|_| (key, self.any_call(key))).collect()
    }

    /// Keys of a batch: a run in order, or any.
    fn any_keys(&mut self) -> Vec<u16> {
        let count = 1 + self.random.below(BATCH) as u16;
        if self.random.below(2) == 0 {
            let first = self.random.below(u64::from(KEYS)) as u16;
            (0..count).map(|place| (first + place) % KEYS).collect()
        } else {
            (0..count).map(|_| self.any_key()).collect()
        }
    }

    /// Notes a call that is about to be made, and answers its token.
    fn begin(&mut self, key: u16, call: Call) -> u64 {
        self.tokens += 1;
        let token = self.tokens;
        self.key_of_token.insert(token, key);
        self.waiting.entry(key).or_default().push_back(Waiting {
            token,
            step: self.step,
            call,
            given: None,
        });
        token
    }

    /// Takes an answer, and checks it once those to earlier calls on its key are there.
    fn end(&mut self, token: u64, given: Given) {
        let Some(key) = self.key_of_token.remove(&token) else {
            panic!(
                "{} step {}: token {token} is answered twice, or was never sent: {}",
                self.name,
                self.step,
                given.short()
            );
        };
        let mut queue = self.waiting.remove(&key).unwrap_or_default();
        for waiting in &mut queue {
            if waiting.token == token {
                waiting.given = Some(given);
                break;
            }
        }
        while let Some(given) = queue.front_mut().and_then(|first| first.given.take()) {
            if let Some(Waiting { step, call, .. }) = queue.pop_front() {
                self.check(key, step, call, given);
            }
        }
        if !queue.is_empty() {
            self.waiting.insert(key, queue);
        }
    }

    fn check(&mut self, key: u16, step: u64, call: Call, given: Given) {
        let state = self.truth.get(&key).copied();
        let latest = self.latest.get(&key).copied().unwrap_or(0);
        let right = match (call, &given) {
            (_, Given::Failed(Error::Unavailable { .. })) => {
                // It changed nothing.
                self.failures += 1;
                self.faulty
            }
            (Call::Get, Given::Value(version, bytes)) => state.is_some_and(|(known, content)| {
                known == *version && content.bytes == bytes.len() && content.make() == *bytes
            }),
            (Call::Get | Call::Delete, Given::Absent) => state.is_none(),
            (Call::Delete, Given::Deleted) => self.truth.remove(&key).is_some(),
            (Call::Put(content), Given::Stored(version)) => {
                self.truth.insert(key, (*version, content));
                self.latest.insert(key, *version);
                *version > latest
            }
            (Call::Swap(expected, content), Given::Stored(version)) => {
                self.truth.insert(key, (*version, content));
                self.latest.insert(key, *version);
                *version > latest && expected == state.map_or(0, |(known, _)| known)
            }
            (Call::Swap(expected, _), Given::Mismatch(current)) => {
                expected != *current && *current == state.map_or(0, |(known, _)| known)
            }
            _ => false,
        };
        assert!(
            right,
            "{} step {step}: {call:?} of key {key} was answered {}, but its state was {state:?}, and its latest version {latest}",
            self.name,
            given.short()
        );
    }

    /// The operands of one attempt to count: the key, and from what was read, the version to expect and the next count.
    fn count_after(
        &self,
        read: Option<(Version, &[u8])>,
        counter: usize,
    ) -> (Version, Vec<u8>, u64) {
        let (version, count) = read.map_or((0, 0), |(version, bytes)| {
            let count = bytes.first_chunk().map(|&count| u64::from_le_bytes(count));
            let Some(count) = count else {
                panic!(
                    "{} step {}: counter {counter} holds {} bytes",
                    self.name,
                    self.step,
                    bytes.len()
                );
            };
            (version, count)
        });
        let next = count + 1;
        let mut value = next.to_le_bytes().to_vec();
        value.resize(8 + (next * 89 % 1_000) as usize, counter as u8);
        (version, value, count)
    }

    /// What came of an attempt to count.
    fn counted(&mut self, counter: usize, expected: Version, swap: Result<Swap, Error>) {
        let right = match swap {
            Ok(Swap::Stored(version)) => {
                self.counted[counter] += 1;
                version > expected
            }
            Ok(Swap::Mismatch(current)) => current != expected,
            Err(Error::Unavailable { .. }) => self.faulty,
            Err(_) => false,
        };
        assert!(
            right,
            "{} step {}: counter {counter}, expected {expected}: {swap:?}",
            self.name, self.step
        );
    }

    /// The value that was read of a counter, unless that failed as it may.
    fn readable<T>(&self, counter: usize, read: Result<T, Error>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(error) => {
                assert!(
                    self.faulty && matches!(error, Error::Unavailable { .. }),
                    "{} step {}: counter {counter}: {error}",
                    self.name,
                    self.step
                );
                None
            }
        }
    }

    fn finish(&self) {
        assert!(
            self.waiting.is_empty() && self.key_of_token.is_empty(),
            "{} step {}: never answered: {:?}",
            self.name,
            self.step,
            self.waiting
        );
    }
}

const SHARED: u8 = 255;

fn poll(client: &mut Client, handle: &mut Handle) {
    let mut answers = Vec::new();
    let visited = handle.poll(|token, answer| answers.push((token, Given::of(&answer))));
    assert_eq!(
        visited,
        answers.len(),
        "{} step {}",
        client.name,
        client.step
    );
    if answers.is_empty() {
        thread::yield_now();
    }
    for (token, given) in answers {
        client.end(token, given);
    }
}

fn submit(client: &mut Client, handle: &mut Handle, key: u16, call: Call) {
    while handle.in_flight() >= WINDOW {
        poll(client, handle);
    }
    let (name, value) = (client.key(key), call.value());
    let token = client.begin(key, call);
    loop {
        match handle.submit(call.operation(&name, &value), token) {
            Ok(()) => return,
            Err(Refused::Full) => poll(client, handle),
            Err(Refused::Error(error)) => {
                panic!("{} step {}: {error}", client.name, client.step)
            }
        }
    }
}

fn wait(client: &mut Client, handle: &mut Handle, key: u16, call: Call) {
    let (name, value) = (client.key(key), call.value());
    let token = client.begin(key, call);
    let given = match call {
        Call::Get => handle.get(&name).wait().map(|read| {
            read.map_or(Given::Absent, |read| {
                Given::Value(read.version(), read.to_vec())
            })
        }),
        Call::Put(_) => handle.put(&name, &value).wait().map(Given::Stored),
        Call::Delete => handle.delete(&name).wait().map(Given::deleted),
        Call::Swap(expected, _) => handle
            .compare_and_swap(&name, expected, &value)
            .wait()
            .map(Given::swapped),
    };
    client.end(token, given.unwrap_or_else(Given::Failed));
}

fn batch(client: &mut Client, handle: &mut Handle) {
    let keys = client.any_keys();
    let form = client.random.below(10);
    let calls: Vec<_> = keys
        .iter()
        .map(|&key| match form {
            0..4 => Call::Get,
            4..7 => Call::Put(Content::random(&mut client.random)),
            7 => Call::Delete,
            _ => client.any_call(key),
        })
        .collect();
    let names: Vec<_> = keys.iter().map(|&key| client.key(key)).collect();
    let values: Vec<_> = calls.iter().map(|call| call.value()).collect();
    let names: Vec<_> = names.iter().map(|name| &name[..]).collect();
    let tokens: Vec<_> = keys
        .iter()
        .zip(&calls)
        .map(|(&key, &call)| client.begin(key, call))
        .collect();
    let mut answers = Vec::new();
    let visit =
        |place: usize, answer: Answer<'_>| answers.push((tokens[place], Given::of(&answer)));
    let done = match form {
        0..4 => handle.get_many(&names, visit),
        4..7 => {
            let pairs: Vec<_> = names
                .iter()
                .zip(&values)
                .map(|(&name, value)| (name, &value[..]))
                .collect();
            handle.put_many(&pairs, visit)
        }
        7 => handle.delete_many(&names, visit),
        _ => {
            let operations =
                (0..keys.len()).map(|place| calls[place].operation(names[place], &values[place]));
            handle.many(operations, visit)
        }
    };
    assert!(
        done.is_ok() && answers.len() == keys.len(),
        "{} step {}: {done:?}, {} of {}",
        client.name,
        client.step,
        answers.len(),
        keys.len()
    );
    for (token, given) in answers {
        client.end(token, given);
    }
}

fn count(client: &mut Client, handle: &mut Handle) {
    let counter = client.random.below(COUNTERS as u64) as usize;
    let name = key_of(SHARED, counter as u16);
    let read = handle.get(&name).wait();
    let Some(read) = client.readable(counter, read) else {
        return;
    };
    let read = read.map(|read| (read.version(), read.to_vec()));
    let read = read.as_ref().map(|(version, bytes)| (*version, &bytes[..]));
    let (expected, value, _) = client.count_after(read, counter);
    let swap = handle.compare_and_swap(&name, expected, &value).wait();
    client.counted(counter, expected, swap);
}

fn drive_handle(
    mut client: Client,
    mut handle: Handle,
    steps: u64,
    progress: &Sender<()>,
) -> Client {
    for step in 0..steps {
        client.step = step;
        if step % (steps / ROUNDS) == 0 {
            // Nobody listens once the main thread has had its rounds.
            let _ = progress.send(());
        }
        let key = client.any_key();
        match client.random.below(100) {
            0..3 => batch(&mut client, &mut handle),
            3..8 => {
                let call = client.any_call(key);
                wait(&mut client, &mut handle, key, call);
            }
            8 => count(&mut client, &mut handle),
            9..11 => {
                for (key, call) in client.burst() {
                    submit(&mut client, &mut handle, key, call);
                }
            }
            _ => {
                let call = client.any_call(key);
                submit(&mut client, &mut handle, key, call);
            }
        }
    }
    while handle.in_flight() > 0 {
        poll(&mut client, &mut handle);
    }
    client.finish();
    client
}

/// A panic in a visitor ends the process, so answers are taken first and checked afterwards.
async fn poll_core(client: &mut Client, core: &mut Core) {
    let mut answers = Vec::new();
    core.poll(|token, answer| answers.push((token, Given::of(&answer))));
    if answers.is_empty() {
        core.yield_now().await;
    }
    for (token, given) in answers {
        client.end(token, given);
    }
}

async fn submit_core(client: &mut Client, core: &mut Core, key: u16, call: Call) {
    while core.in_flight() >= WINDOW {
        poll_core(client, core).await;
    }
    let (name, value) = (client.key(key), call.value());
    let token = client.begin(key, call);
    loop {
        match core.submit(call.operation(&name, &value), token) {
            Ok(()) => return,
            Err(Refused::Full) => poll_core(client, core).await,
            Err(Refused::Error(error)) => {
                panic!("{} step {}: {error}", client.name, client.step)
            }
        }
    }
}

async fn await_core(client: &mut Client, core: &mut Core, key: u16, call: Call) {
    let (name, value) = (client.key(key), call.value());
    let token = client.begin(key, call);
    let given = match call {
        Call::Get => core.get(&name).await.map(|read| {
            read.map_or(Given::Absent, |(version, value)| {
                Given::Value(version, value)
            })
        }),
        Call::Put(_) => core.put(&name, &value).await.map(Given::Stored),
        Call::Delete => core.delete(&name).await.map(Given::deleted),
        Call::Swap(expected, _) => core
            .compare_and_swap(&name, expected, &value)
            .await
            .map(Given::swapped),
    };
    client.end(token, given.unwrap_or_else(Given::Failed));
}

async fn count_core(client: &mut Client, core: &mut Core) {
    let counter = client.random.below(COUNTERS as u64) as usize;
    let name = key_of(SHARED, counter as u16);
    let read = core.get(&name).await;
    let Some(read) = client.readable(counter, read) else {
        return;
    };
    let read = read.as_ref().map(|(version, bytes)| (*version, &bytes[..]));
    let (expected, value, _) = client.count_after(read, counter);
    let swap = core.compare_and_swap(&name, expected, &value).await;
    client.counted(counter, expected, swap);
}

async fn drive_core(
    mut client: Client,
    mut core: Core,
    steps: u64,
    progress: Sender<()>,
) -> Client {
    for step in 0..steps {
        client.step = step;
        if step % (steps / ROUNDS) == 0 {
            let _ = progress.send(());
        }
        let key = client.any_key();
        match client.random.below(100) {
            0..5 => {
                let call = client.any_call(key);
                await_core(&mut client, &mut core, key, call).await;
            }
            5 => count_core(&mut client, &mut core).await,
            6 => core.yield_now().await,
            7..9 => {
                for (key, call) in client.burst() {
                    submit_core(&mut client, &mut core, key, call).await;
                }
            }
            _ => {
                let call = client.any_call(key);
                submit_core(&mut client, &mut core, key, call).await;
            }
        }
    }
    while core.in_flight() > 0 {
        poll_core(&mut client, &mut core).await;
    }
    client.finish();
    client
}

/// Every key of a client is as its model says.
fn read_back(client: &Client, handle: &mut Handle, when: &str) {
    let mut left: Vec<u16> = (0..KEYS).collect();
    for _ in 0..TRIES {
        let names: Vec<_> = left.iter().map(|&key| client.key(key)).collect();
        let names: Vec<_> = names.iter().map(|name| &name[..]).collect();
        let mut failed = Vec::new();
        let done = handle.get_many(&names, |place, answer| {
            let key = left[place];
            let state = client.truth.get(&key).copied();
            let right = match &answer {
                Answer::Value { version, value } => state.is_some_and(|(known, content)| {
                    known == *version && content.bytes == value.len() && content.make() == *value
                }),
                Answer::Absent => state.is_none(),
                Answer::Failed(Error::Unavailable { .. }) => {
                    failed.push(key);
                    client.faulty
                }
                _ => false,
            };
            assert!(
                right,
                "{} step {} ({when}): key {key} reads {}, but its state is {state:?}",
                client.name,
                client.step,
                Given::of(&answer).short()
            );
        });
        assert!(
            done.is_ok(),
            "{} step {} ({when}): {done:?}",
            client.name,
            client.step
        );
        left = failed;
        if left.is_empty() {
            return;
        }
    }
    panic!(
        "{} step {} ({when}): {} keys are not readable",
        client.name,
        client.step,
        left.len()
    );
}

fn read_counters(clients: &[Client], handle: &mut Handle) {
    let first = &clients[0];
    for counter in 0..COUNTERS {
        let sum: u64 = clients.iter().map(|client| client.counted[counter]).sum();
        let name = key_of(SHARED, counter as u16);
        let read = (0..TRIES).find_map(|_| {
            first.readable(
                counter,
                handle
                    .get(&name)
                    .wait()
                    .map(|read| read.map(|read| read.to_vec())),
            )
        });
        let count = read
            .flatten()
            .map_or(0, |bytes| first.count_after(Some((0, &bytes)), counter).2);
        assert_eq!(
            count, sum,
            "{} step {}: counter {counter}",
            first.name, first.step
        );
    }
}

fn tiny() -> Config {
    Config {
        cores: Config::default().cores.into_iter().take(2).collect(),
        local_bytes: 16 << 20,
        far_bytes: 64 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 1_000,
        prefault: false,
        huge_pages: false,
        handles_max: 4,
        lane_bytes: 16 << 10,
        ..Config::default()
    }
}

/// A seed, with the environment's in its place.
fn seed(default: u64) -> u64 {
    match std::env::var("FARCORE_SEED") {
        Ok(text) => text.parse().expect("FARCORE_SEED is a number"),
        Err(_) => default,
    }
}

fn run(seed: u64, steps: u64, config: Config) {
    let faulty = config.link.faults.failed_completions_per_million > 0;
    let (engine, clients) = work(seed, steps, config);
    check_end(seed, &engine, &clients);

    // What the test is for has happened.
    let stats = engine.stats().total;
    let failures: u64 = clients.iter().map(|client| client.failures).sum();
    assert!(
        stats.far_reads > 100
            && stats.reads_shared > 100
            && stats.pages_evicted > 10
            && stats.compaction_records_moved > 100
            && stats.index_growth_steps > 0,
        "FARCORE_SEED={seed} step {steps}: {stats:?}"
    );
    assert_eq!(
        failures > 0,
        faulty,
        "FARCORE_SEED={seed} step {steps}: {failures}"
    );
}

/// Lets all clients work on a new engine until they are done.
fn work(seed: u64, steps: u64, config: Config) -> (Engine, Vec<Client>) {
    let faulty = config.link.faults.failed_completions_per_million > 0;
    let mut config = Config {
        seed: Some(seed),
        ..config
    };
    config.link.faults.seed = seed;
    let engine =
        Engine::open(config).unwrap_or_else(|error| panic!("FARCORE_SEED={seed} step 0: {error}"));
    let (progress, rounds) = channel();
    let client = Client::new(seed, 0, faulty);
    let on_core = progress.clone();
    let task = engine
        .run_on_core(0, move |core| drive_core(client, core, steps, on_core))
        .unwrap_or_else(|error| panic!("FARCORE_SEED={seed} step 0: {error}"));
    let mut clients: Vec<Client> = thread::scope(|scope| {
        let threads: Vec<_> = (1..3)
            .map(|number| {
                let client = Client::new(seed, number, faulty);
                let (handle, progress) = (handle(&engine, seed), progress.clone());
                scope.spawn(move || drive_handle(client, handle, steps, &progress))
            })
            .collect();
        drop(progress);
        for round in 0..2 * ROUNDS {
            if rounds.recv().is_err() {
                break;
            }
            let done = if round % 2 == 0 {
                engine.flush()
            } else {
                engine.compact()
            };
            let allowed = faulty && matches!(done, Err(Error::Unavailable { .. }));
            assert!(
                done.is_ok() || allowed,
                "FARCORE_SEED={seed} step {round} of the main thread: {done:?}"
            );
        }
        let join = |thread: thread::ScopedJoinHandle<'_, Client>| {
            thread
                .join()
                .unwrap_or_else(|reason| std::panic::resume_unwind(reason))
        };
        threads.into_iter().map(join).collect()
    });
    let on_core = task.join();
    let on_core = on_core.unwrap_or_else(|error| panic!("FARCORE_SEED={seed} client 0: {error}"));
    clients.push(on_core);
    (engine, clients)
}

/// Everything reads as the models say, before and after all of it has been moved.
fn check_end(seed: u64, engine: &Engine, clients: &[Client]) {
    let mut handle = handle(engine, seed);
    for client in clients {
        read_back(client, &mut handle, "at the end");
    }
    read_counters(clients, &mut handle);
    let done = engine.flush().and_then(|()| engine.compact());
    let faulty = clients.iter().any(|client| client.faulty);
    let allowed = faulty && matches!(done, Err(Error::Unavailable { .. }));
    assert!(
        done.is_ok() || allowed,
        "FARCORE_SEED={seed} at the end: {done:?}"
    );
    for client in clients {
        read_back(client, &mut handle, "after a flush and a compaction");
    }
    read_counters(clients, &mut handle);
}

fn handle(engine: &Engine, seed: u64) -> Handle {
    let handle = engine.handle();
    handle.unwrap_or_else(|error| panic!("FARCORE_SEED={seed}: {error}"))
}

#[test]
fn many_clients_see_what_maps_would() {
    run(seed(1), 40_000, tiny());
}

#[test]
fn many_clients_see_what_maps_would_when_encrypted_and_far() {
    let link = LinkModel {
        latency_ns: 2_000,
        jitter_ns: 3_000,
        ..LinkModel::default()
    };
    let encryption = Some(EncryptionKey::Aes128([3; 16]));
    run(
        seed(2),
        40_000,
        Config {
            link,
            encryption,
            ..tiny()
        },
    );
}

#[test]
fn many_clients_see_what_maps_would_when_requests_fail() {
    let faults = FaultPlan {
        failed_completions_per_million: 5_000,
        ..FaultPlan::default()
    };
    let link = LinkModel {
        faults,
        ..LinkModel::default()
    };
    run(seed(3), 40_000, Config { link, ..tiny() });
}

#[test]
#[should_panic(expected = "(at the end): key 7 reads Value")]
fn a_foreign_change_is_noticed() {
    let (engine, clients) = work(4, 300, tiny());
    let name = clients[1].key(7);
    let put = handle(&engine, 4).put(&name, b"by nobody").wait();
    put.expect("the canary is stored");
    check_end(4, &engine, &clients);
}
