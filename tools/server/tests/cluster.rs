//! Servers that share the slots of keys by a map: what each refuses as Redis does, who may change
//! the map, and that clients which follow it lose nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::too_many_lines, reason = "a test tells one story")]

mod support;

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use farcore_server::{ClusterOptions, MapPlace, SourceAddress, slot_of};

use self::support::clusters::{Cluster, THIRDS, id_of};
use self::support::followers::wait_for_link;
use self::support::{Client, PATIENCE, Served};

/// Redis's words.
const CROSSING: &str = "-CROSSSLOT Keys in request don't hash to the same slot";
const NOT_SERVED: &str = "-CLUSTERDOWN Hash slot not served";
const NOT_LOCAL: &str = "-ERR Script attempted to access a non local key in a cluster node";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

/// Sends words, and returns the reply.
fn said(client: &mut Client, words: &[&str]) -> String {
    client.ask(words).to_string()
}

fn moved(key: &str, to: SocketAddr) -> String {
    format!("-MOVED {} {to}", slot_of(key.as_bytes()))
}

#[test]
fn commands_are_refused_as_by_a_redis_cluster() {
    for cores in [1, 2] {
        let cluster = Cluster::of_three(cores);
        let mut client = cluster.servers[0].client();
        let elsewhere = moved("a", cluster.address(2));
        // Slots: a 15495, b 3300, k2 449.
        for (words, reply) in [
            (&["SET", "b", "1"][..], "+OK"),
            (&["GET", "b"], "\"1\""),
            (&["GET", "a"], &elsewhere),
            (&["SET", "a", "1"], &elsewhere),
            (&["OBJECT", "ENCODING", "a"], &elsewhere),
            (&["XREAD", "STREAMS", "a", "0"], &elsewhere),
            (&["ZUNION", "1", "a"], &elsewhere),
            (&["WATCH", "a"], &elsewhere),
            (&["MGET", "a", "b"], CROSSING),
            (&["MGET", "b", "k2"], CROSSING),
            (&["ZUNIONSTORE", "b", "1", "k2"], CROSSING),
            (&["MGET", "b", "{b}c"], "[\"1\", null]"),
            (&["SELECT", "0"], "+OK"),
            (
                &["SELECT", "1"],
                "-ERR SELECT is not allowed in cluster mode",
            ),
            (
                &["SELECT", "99"],
                "-ERR SELECT is not allowed in cluster mode",
            ),
            (
                &["SELECT", "x"],
                "-ERR value is not an integer or out of range",
            ),
            (
                &["SWAPDB", "0", "1"],
                "-ERR SWAPDB is not allowed in cluster mode",
            ),
            (
                &["MOVE", "b", "1"],
                "-ERR MOVE is not allowed in cluster mode",
            ),
            (
                &["COPY", "b", "{b}c", "DB", "1"],
                "-ERR Copying to another database is not allowed in cluster mode",
            ),
            (&["COPY", "b", "{b}c", "DB", "0"], ":1"),
            (
                &["REPLICAOF", "NO", "ONE"],
                "-ERR REPLICAOF not allowed in cluster mode.",
            ),
            (
                &["SORT", "b", "BY", "w*"],
                "-ERR BY option of SORT denied in Cluster mode.",
            ),
            (
                &["SORT", "b", "GET", "#"],
                "-ERR GET option of SORT denied in Cluster mode.",
            ),
            (&["READONLY"], "+OK"),
            (&["GET", "a"], &elsewhere),
            (&["READWRITE"], "+OK"),
            (&["ASKING"], "+OK"),
            (&["GET", "a"], &elsewhere),
            (&["CLUSTER", "KEYSLOT", "foo{hash_tag}"], ":2515"),
            (
                &["CLUSTER", "FOO"],
                "-ERR unknown subcommand 'FOO'. Try CLUSTER HELP.",
            ),
            (
                &["CLUSTER", "KEYSLOT"],
                "-ERR wrong number of arguments for 'cluster|keyslot' command",
            ),
            (
                &["CLUSTER", "COUNTKEYSINSLOT", "16384"],
                "-ERR Invalid slot",
            ),
            (
                &["CLUSTER", "COUNTKEYSINSLOT", "x"],
                "-ERR value is not an integer or out of range",
            ),
            (&["CLUSTER", "COUNTKEYSINSLOT", "3300"], ":2"),
            (&["CLUSTER", "COUNTKEYSINSLOT", "3301"], ":0"),
            (
                &["CLUSTER", "GETKEYSINSLOT", "3300", "-1"],
                "-ERR Invalid slot or number of keys",
            ),
            (&["CLUSTER", "GETKEYSINSLOT", "3300", "0"], "[]"),
            (&["CLUSTER", "REPLICAS", "x"], "-ERR Unknown node x"),
            (&["CLUSTER", "LINKS"], "[]"),
        ] {
            assert_eq!(said(&mut client, words), reply, "{words:?}");
        }
        let keys = client.ask(&["CLUSTER", "GETKEYSINSLOT", "3300", "9"]);
        assert_eq!(keys.elements().len(), 2);
        assert_eq!(client.ask(&["CLUSTER", "MYID"]).text(), id_of(0));
        let reset = said(&mut client, &["CLUSTER", "RESET"]);
        assert!(
            reset.starts_with("-ERR CLUSTER RESET is not supported"),
            "{reset}"
        );
        assert!(said(&mut client, &["HELLO"]).contains("\"mode\", \"cluster\""));
        let information = client.ask(&["INFO", "everything"]).text();
        assert!(information.contains("cluster_enabled:1"));
        assert!(information.contains("redis_mode:cluster"));
    }
}

#[test]
fn a_server_of_its_own_has_no_cluster() {
    let served = Served::start(1);
    let mut client = served.client();
    for words in ["CLUSTER INFO", "CLUSTERX VERSION", "READONLY", "ASKING"] {
        let disabled = "-ERR This instance has cluster support disabled";
        assert_eq!(client.say(words), disabled);
    }
    assert!(
        client
            .ask(&["INFO", "cluster"])
            .text()
            .contains("cluster_enabled:0")
    );
}

#[test]
fn the_map_is_shown_as_by_redis() {
    let cluster = Cluster::start(3, 2);
    let mut client = cluster.servers[0].client();
    assert_eq!(client.say("GET b"), NOT_SERVED);
    assert_eq!(client.say("CLUSTER SLOTS"), "[]");
    assert_eq!(client.ask(&["CLUSTERX", "VERSION"]).text(), "-1");
    let follows = format!("slave {}", id_of(0));
    let nodes = cluster.nodes(&["master - 0-8000 8005", "master - 8010-16383", &follows]);
    cluster.write(&format!("# a comment\nversion 7\n\n{nodes}"));
    cluster.wait_for("7");
    let [one, two, three] = [0, 1, 2].map(|number| cluster.address(number));
    let described = |number: usize, address: SocketAddr| {
        let (host, port) = (address.ip(), address.port());
        format!("[\"{host}\", :{port}, \"{}\", []]", id_of(number))
    };
    let owner = format!("{}, {}", described(0, one), described(2, three));
    assert_eq!(
        client.say("CLUSTER SLOTS"),
        format!(
            "[[:0, :8000, {owner}], [:8005, :8005, {owner}], [:8010, :16383, {}]]",
            described(1, two)
        )
    );
    let line = |number: usize, address: SocketAddr, rest: &str| {
        let bus = u32::from(address.port()) + 10_000;
        format!("{} {address}@{bus} {rest}\n", id_of(number))
    };
    let follower = line(2, three, &format!("slave {} 0 0 7 connected", id_of(0)));
    let expected = line(0, one, "myself,master - 0 0 7 connected 0-8000 8005")
        + &line(1, two, "master - 0 0 7 connected 8010-16383")
        + &follower;
    assert_eq!(client.ask(&["CLUSTER", "NODES"]).text(), expected);
    let replicas = client.ask(&["CLUSTER", "REPLICAS", &id_of(0)]);
    assert_eq!(replicas.elements()[0].text(), follower.trim_end());
    assert_eq!(
        said(&mut client, &["CLUSTER", "SLAVES", &id_of(2)]),
        "-ERR The specified node is not a master"
    );
    let information = client.ask(&["CLUSTER", "INFO"]).text();
    for line in [
        "cluster_state:ok",
        "cluster_slots_assigned:16376",
        "cluster_known_nodes:3",
        "cluster_size:2",
        "cluster_current_epoch:7",
    ] {
        assert!(information.contains(&format!("{line}\r\n")), "{line}");
    }
    let shards = client.ask(&["CLUSTER", "SHARDS"]).to_string();
    let node = |number: usize, address: SocketAddr, role: &str| {
        let (host, port) = (address.ip(), address.port());
        format!(
            "[\"id\", \"{}\", \"port\", :{port}, \"ip\", \"{host}\", \"endpoint\", \"{host}\", \"role\", \"{role}\", \"replication-offset\", :0, \"health\", \"online\"]",
            id_of(number)
        )
    };
    let (first, second) = (node(0, one, "master"), node(1, two, "master"));
    let third = node(2, three, "replica");
    assert_eq!(
        shards,
        format!(
            "[[\"slots\", [:0, :8000, :8005, :8005], \"nodes\", [{first}, {third}]], [\"slots\", [:8010, :16383], \"nodes\", [{second}]]]"
        )
    );
    // A key of a slot without an owner.
    let key = (0..).map(|number| number.to_string());
    let key = key.into_iter().find(|key| slot_of(key.as_bytes()) == 8009);
    assert_eq!(said(&mut client, &["GET", &key.unwrap()]), NOT_SERVED);
}

#[test]
fn a_transaction_has_keys_of_one_slot_that_is_served_here() {
    let cluster = Cluster::of_three(2);
    let mut client = cluster.servers[0].client();
    let elsewhere = moved("a", cluster.address(2));
    for (words, reply) in [
        ("MULTI", "+OK"),
        ("SET b 1", "+QUEUED"),
        ("GET {b}c", "+QUEUED"),
        ("EXEC", "[+OK, null]"),
        ("MULTI", "+OK"),
        ("SET b 2", "+QUEUED"),
        ("GET a", &elsewhere),
        ("GET b", "+QUEUED"),
        ("EXEC", ABORTED),
        ("MULTI", "+OK"),
        ("SET b 3", "+QUEUED"),
        ("SET k2 3", "+QUEUED"),
        ("EXEC", CROSSING),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("MULTI", "+OK"),
        ("MGET b k2", CROSSING),
        ("EXEC", ABORTED),
        ("GET b", "\"1\""),
    ] {
        assert_eq!(client.say(words), reply, "{words}");
    }
    // The slot moves between MULTI and EXEC.
    for words in ["MULTI", "SET b 4"] {
        client.say(words);
    }
    let nodes = cluster.nodes(&["master - 0", "master - 1-10922", THIRDS[2]]);
    cluster.write(&format!("version 2\n{nodes}"));
    cluster.wait_for("2");
    assert_eq!(client.say("EXEC"), moved("b", cluster.address(1)));
    assert_eq!(client.say("EXEC"), "-ERR EXEC without MULTI");
}

#[cfg(feature = "scripts")]
#[test]
fn a_script_has_keys_that_are_served_here() {
    for cores in [1, 2] {
        let cluster = Cluster::of_three(cores);
        let mut client = cluster.servers[0].client();
        let get = |key: &str| format!("return redis.call('get', '{key}')");
        let both = "return redis.call('mget', 'b', 'k2')";
        for (script, keys, reply) in [
            (&get("b")[..], &["b"][..], "null"),
            (&get("a"), &["b"], NOT_LOCAL),
            (both, &["b"], NOT_LOCAL),
            ("return 1", &["a", "b"], CROSSING),
            ("return 1", &["a"], &moved("a", cluster.address(2))),
            ("return 1", &["b", "{b}c"], ":1"),
            (
                "redis.call('set', KEYS[1], 5) return redis.pcall('get', 'a')",
                &["b"],
                NOT_LOCAL,
            ),
        ] {
            let count = keys.len().to_string();
            let words = [&["EVAL", script, &count][..], keys].concat();
            let seen = said(&mut client, &words);
            assert!(seen.starts_with(reply), "{script}: {seen}");
        }
        assert_eq!(client.say("GET b"), "\"5\"");
    }
}

#[test]
fn keys_of_many_arguments_are_looked_at_in_pieces() {
    const KEYS: usize = 100_000;
    let cluster = Cluster::of_three(2);
    let mut client = cluster.servers[0].client();
    let keys: Vec<_> = (0..KEYS).map(|number| format!("{{b}}{number}")).collect();
    let mut words = vec!["MSET".to_owned()];
    words.extend(keys.iter().flat_map(|key| [key.clone(), "1".to_owned()]));
    assert_eq!(client.ask(&words).to_string(), "+OK");
    let mut words = vec!["DEL".to_owned()];
    words.extend(keys.iter().cloned());
    words.push("k2".to_owned());
    assert_eq!(client.ask(&words).to_string(), CROSSING);
    assert_eq!(client.say("DBSIZE"), format!(":{KEYS}"));
    words.pop();
    assert_eq!(client.ask(&words).to_string(), format!(":{KEYS}"));
    words[1..].iter_mut().for_each(|key| *key = "a".to_owned());
    let elsewhere = moved("a", cluster.address(2));
    assert_eq!(client.ask(&words).to_string(), elsewhere);
    assert_eq!(client.say("PING"), "+PONG");
}

#[test]
fn keys_behind_a_long_value_are_not_stored_unseen() {
    let cluster = Cluster::of_three(1);
    let mut client = cluster.servers[0].client();
    let long = "x".repeat(3 << 20);
    let words = ["MSET", "b", &long, "a", "1"];
    assert!(said(&mut client, &words).starts_with("-ERR in a cluster a value"));
    assert_eq!(said(&mut client, &["MSET", "{b}", "1", "b", &long]), "+OK");
    assert_eq!(client.say("STRLEN b"), format!(":{}", long.len()));
    let elsewhere = moved("a", cluster.address(2));
    assert_eq!(said(&mut client, &["SET", "a", &long]), elsewhere);
    assert_eq!(client.say("PING"), "+PONG");
}

#[test]
fn a_follower_reads_for_clients_that_allow_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map");
    let server = |id: usize, source: Option<SocketAddr>| {
        Served::with(1, |options| {
            options.cluster = Some(ClusterOptions {
                map: MapPlace::File(path.clone()),
                id: Some(id_of(id)),
                announced: None,
            });
            options.replica.source = source.map(|address| SourceAddress {
                host: address.ip().to_string(),
                port: address.port(),
            });
        })
    };
    let owner = server(0, None);
    let mut follower = server(1, Some(owner.address));
    follower.begin();
    let cluster = Cluster {
        paths: vec![path.clone()],
        servers: vec![owner, follower],
        folder,
    };
    let follows = format!("slave {}", id_of(0));
    let nodes = cluster.nodes(&["master - 0-16000", &follows]);
    cluster.write(&format!("version 1\n{nodes}"));
    cluster.wait_for("1");
    let mut there = cluster.servers[0].client();
    assert_eq!(there.say("SET b 1"), "+OK");
    let mut here = cluster.servers[1].client();
    wait_for_link(&mut here);
    let begun = Instant::now();
    while here.say("DBSIZE") != ":1" {
        assert!(begun.elapsed() < PATIENCE, "nothing came");
    }
    let elsewhere = moved("b", cluster.address(0));
    for (words, reply) in [
        ("GET b", &elsewhere[..]),
        ("READONLY", "+OK"),
        ("GET b", "\"1\""),
        ("SET b 2", &elsewhere),
        ("MULTI", "+OK"),
        ("GET b", "+QUEUED"),
        ("EXEC", "[\"1\"]"),
        ("MULTI", "+OK"),
        ("SET b 2", &elsewhere),
        ("EXEC", ABORTED),
        ("READWRITE", "+OK"),
        ("GET b", &elsewhere),
        ("READONLY", "+OK"),
        ("RESET", "+RESET"),
        ("GET b", &elsewhere),
    ] {
        assert_eq!(here.say(words), reply, "{words}");
    }
}

#[test]
fn a_pushed_map_is_kept_and_an_older_one_is_refused() {
    let cluster = Cluster::start(2, 2);
    let mut client = cluster.servers[0].client();
    let nodes = |slots: usize| {
        let first = format!("master - 0-{slots}");
        cluster.nodes(&[&first, "master - 10000-16383"])
    };
    let mut push = |words: &[&str]| {
        let words = [&["CLUSTERX", "SETNODES"], words].concat();
        client.ask(&words).to_string()
    };
    assert_eq!(push(&[&nodes(1), "5"]), "+OK");
    let text = || fs::read_to_string(cluster.path()).unwrap();
    let first = format!("version 5\n{}", nodes(1));
    assert_eq!(text(), first);
    // It is repeated, as its reply may be lost; another one of that version is refused.
    assert_eq!(push(&[&nodes(1), "5"]), "+OK");
    let older = |version: u64| {
        format!("-ERR Invalid cluster version: version {version} is not greater than 5")
    };
    assert_eq!(push(&[&nodes(2), "5"]), older(5));
    assert_eq!(push(&[&nodes(2), "4"]), older(4));
    for version in ["0", "-1", "x", "99999999999999999999"] {
        let refused = push(&[&nodes(2), version]);
        assert!(refused.starts_with("-ERR Invalid cluster version"));
    }
    for hostile in ["x", "\r\n+OK\r\n", &"x ".repeat(1000), &first] {
        let refused = push(&[hostile, "9"]);
        assert!(
            refused.starts_with("-ERR Invalid cluster nodes info: line "),
            "{refused}"
        );
        assert!(refused.len() < 300);
    }
    let refused = push(&[&nodes(2), "9", "please"]);
    assert_eq!(refused, "-ERR Invalid setnodes options");
    assert_eq!(text(), first);
    assert_eq!(push(&[&nodes(2), "3", "FORCE"]), "+OK");
    assert_eq!(text(), format!("version 3\n{}", nodes(2)));
    // The other server had the map of the file, and goes back to no older one by itself.
    let mut other = cluster.servers[1].client();
    let begun = Instant::now();
    while other.ask(&["CLUSTERX", "VERSION"]).text() == "-1" {
        assert!(begun.elapsed() < PATIENCE, "the map is not read");
    }
    let id = id_of(1);
    assert_eq!(said(&mut client, &["CLUSTERX", "SETNODEID", &id]), "+OK");
    assert_eq!(client.ask(&["CLUSTER", "MYID"]).text(), id);
    assert_eq!(client.say("GET b"), NOT_SERVED);
    assert_eq!(client.say("GET a"), "null");
    assert!(said(&mut client, &["CLUSTERX", "SETNODEID", "x"]).starts_with("-ERR Invalid"));
}

#[test]
fn a_wrong_file_leaves_the_last_map() {
    let cluster = Cluster::of_three(1);
    let mut client = cluster.servers[0].client();
    let nodes = cluster.nodes(&THIRDS);
    for wrong in [
        "",
        "\u{0}",
        &format!("version 1\n{}", cluster.nodes(&["master - 0-16383"])),
        &format!("version 3\n{nodes}{nodes}"),
        &"#".repeat(2 << 20),
    ] {
        cluster.write(wrong);
        assert_eq!(client.ask(&["CLUSTERX", "VERSION"]).text(), "1");
    }
    cluster.write(&format!("version 4\n{nodes}"));
    cluster.wait_for("4");
    assert_eq!(client.say("SET b 1"), "+OK");
}

/// Ends clients also if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Increments counters until it is over, and follows each `MOVED`. Returns the increments that were
/// acknowledged.
fn increment(from: SocketAddr, is_over: &AtomicBool, redirected: &AtomicUsize) -> usize {
    let (mut client, mut acknowledged) = (Client::connect(from), 0);
    while !is_over.load(Ordering::Relaxed) {
        for key in ["b", "{b}c", "{b}d"] {
            let reply = client.say(&format!("INCR {key}"));
            if let Some(moved) = reply.strip_prefix("-MOVED ") {
                let (_, address) = moved.split_once(' ').unwrap();
                client = Client::connect(address.parse().unwrap());
                redirected.fetch_add(1, Ordering::Relaxed);
            } else {
                assert!(reply.starts_with(':'), "{reply}");
                acknowledged += 1;
            }
        }
    }
    acknowledged
}

#[test]
fn a_client_that_follows_the_map_loses_nothing_while_it_changes() {
    let cluster = Cluster::of_three(2);
    let (is_over, redirected) = (AtomicBool::new(false), AtomicUsize::new(0));
    let acknowledged: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let from = cluster.address(number % 3);
                let (is_over, redirected) = (&is_over, &redirected);
                scope.spawn(move || increment(from, is_over, redirected))
            })
            .collect();
        let mut managers: Vec<_> = cluster.servers.iter().map(Served::client).collect();
        let over = Over(&is_over);
        // The map of version 1 is as that of each even one.
        for version in 3..40_usize {
            // The first slots go round.
            let mut slots = ["master -", "master -", "master - 10923-16383"].map(str::to_owned);
            slots[version % 2] += " 0-5460";
            slots[1 - version % 2] += " 5461-10922";
            let slots: Vec<_> = slots.iter().map(String::as_str).collect();
            let (nodes, version) = (cluster.nodes(&slots), version.to_string());
            let before = redirected.load(Ordering::Relaxed);
            // The one that loses them first: at no time do two serve them.
            let order = match version.parse::<usize>().unwrap() % 2 {
                0 => [1, 0, 2],
                _ => [0, 1, 2],
            };
            for number in order {
                let words = ["CLUSTERX", "SETNODES", &nodes, &version];
                assert_eq!(managers[number].ask(&words).to_string(), "+OK");
                let shown = managers[number].ask(&["CLUSTERX", "VERSION"]);
                assert_eq!(shown.text(), version);
            }
            let begun = Instant::now();
            while redirected.load(Ordering::Relaxed) == before && begun.elapsed() < PATIENCE {
                thread::yield_now();
            }
        }
        drop(over);
        clients.into_iter().map(|one| one.join().unwrap()).sum()
    });
    let mut stored = 0;
    for server in &cluster.servers {
        let mut client = server.client();
        // Each server has what it was given while it owned the slot, by whatever map.
        let own = server.address;
        let nodes = cluster.nodes(&[THIRDS[0]]).replace(
            &format!("{}", cluster.address(0).port()),
            &own.port().to_string(),
        );
        let words = ["CLUSTERX", "SETNODES", &nodes, "99", "FORCE"];
        assert_eq!(
            said(&mut client, &["CLUSTERX", "SETNODEID", &id_of(0)]),
            "+OK"
        );
        assert_eq!(said(&mut client, &words), "+OK");
        for key in ["b", "{b}c", "{b}d"] {
            let value = client.ask(&["GET", key]).to_string();
            stored += value.trim_matches('"').parse().unwrap_or(0);
        }
    }
    assert!(redirected.load(Ordering::Relaxed) > 0);
    assert_eq!(stored, acknowledged);
}
