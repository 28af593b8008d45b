//! For tests: what the cores of a server share, without a loop that serves them, so that a test
//! does by hand what it is about.

use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farcore::{Config, Core, Engine};

use crate::commands::{CATALOGUE, command_names};
use crate::conn::connection::Connection;
use crate::cores::message::{Arrival, ArrivalKind};
use crate::cores::port::CorePort;
use crate::cores::shared::Shared;
use crate::memory::{Account, CoreMemory};
use crate::options::Options;
use crate::serving::Serving;
use crate::tasks::event_sink::EventSink;
use crate::tasks::output::TaskOutput;
use crate::types::stream::programs::TREE_PROGRAMS;
use crate::users::table::Users;

/// What a job on the first core of an engine has at hand.
pub(crate) struct Bench {
    pub(crate) core: Core,
    pub(crate) shared: Arc<Shared>,
    /// A key of each shard.
    pub(crate) keys: Vec<Vec<u8>>,
}

impl Bench {
    /// The loop of a core, which does not run.
    pub(crate) fn serving(&self, place: usize) -> Serving {
        let shared = Arc::clone(&self.shared);
        let value_bytes_max = shared.value_bytes_max;
        Serving::new(shared, place, value_bytes_max).expect("descriptors")
    }

    /// Has the loop of the first core serve a client; returns its socket, and the number of its
    /// connection.
    pub(crate) fn connect(&self, serving: &mut Serving) -> (TcpStream, usize) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("a connection");
        let (stream, peer) = listener.accept().expect("a connection");
        stream.set_nonblocking(true).expect("a socket");
        self.shared.connected.fetch_add(1, Ordering::Relaxed);
        let connections = &self.shared.cores[0].connections;
        connections.fetch_add(1, Ordering::Relaxed);
        serving.accept(Arrival {
            stream,
            peer,
            is_encrypted: false,
            is_unauthenticated: false,
            is_above_limit: false,
            kind: ArrivalKind::Client,
        });
        let is_it =
            |one: &Option<Box<Connection>>| one.as_ref().is_some_and(|one| one.peer == peer);
        let number = serving.connections.iter().position(is_it);
        (client, number.expect("it is served"))
    }

    /// The output of a command.
    pub(crate) fn output(&self) -> TaskOutput {
        let events = EventSink::new(Arc::clone(&self.shared));
        let account = Account::new(&CoreMemory::new(Arc::clone(&self.shared.client_memory)));
        TaskOutput::new(&account, &events, &Rc::default(), &Rc::default())
    }
}

/// Runs a job on the first core of an engine that has `cores`.
pub(crate) fn on_first_core<F: Future<Output = ()> + 'static>(
    cores: usize,
    job: impl FnOnce(Bench) -> F + Send + 'static,
) {
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(cores).collect(),
        local_bytes: 32 << 20,
        far_bytes: 64 << 20,
        page_bytes: Some(128 << 10),
        keys_expected: 20_000,
        spin_ns: 0,
        prefault: false,
        huge_pages: false,
        tree_programs: TREE_PROGRAMS,
        ..Config::default()
    })
    .expect("an engine");
    let ports = (0..engine.shards()).map(|_| CorePort::new().expect("descriptors"));
    let shared = Arc::new(Shared::new(
        (Options::new(([127, 0, 0, 1], 0).into()), None),
        ports.collect(),
        (
            engine.reporter(),
            engine.durability(),
            engine.feed(),
            engine.value_bytes_max(),
        ),
        (String::new(), 0),
        command_names(),
        Users::new(None, &CATALOGUE),
    ));
    let key_of = |shard| {
        let mut keys = (0..).map(|number: u32| number.to_string().into_bytes());
        keys.find(|key| engine.shard_of(key) == shard).expect("one")
    };
    let keys = (0..engine.shards()).map(key_of).collect();
    let job = engine.run_on_core(0, move |core| job(Bench { core, shared, keys }));
    job.expect("it starts").join().expect("it succeeds");
}
