//! Scripts over several cores: atomic, bounded, and known everywhere. Their replies are compared
//! with those of Redis in `recorded/replies.txt`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::support::{Client, Reply, Served, on_servers, wait_until};

/// Clients that move between two counters at once.
const CLIENTS: usize = 16;
const MOVES: usize = 100;

fn eval(client: &mut Client, script: &str, keys: &[&str]) -> Reply {
    let count = keys.len().to_string();
    let mut words = vec!["EVAL", script, &count];
    words.extend_from_slice(keys);
    client.ask(&words)
}

/// Keys of two shards, if there are two.
fn two_keys(served: &Served) -> [String; 2] {
    let first = "k0".to_owned();
    let other = (1..1000).map(|number| format!("k{number}"));
    let mut other = other.filter(|key| {
        served.shards() == 1 || served.shard_of(key.as_bytes()) != served.shard_of(first.as_bytes())
    });
    let other = other.next().unwrap();
    [first, other]
}

#[test]
fn no_client_sees_a_part_of_a_script() {
    on_servers(|served| {
        let keys = two_keys(served);
        let [from, to] = [&keys[0][..], &keys[1][..]];
        let script = "local a = redis.call('incr', KEYS[1]) local b = redis.call('decr', KEYS[2]) \
                      if a + b ~= 0 then return redis.error_reply('TORN ' .. a .. ' ' .. b) end \
                      return a";
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                scope.spawn(move || {
                    let mut client = served.client();
                    for _ in 0..MOVES {
                        let reply = match number % 4 {
                            0 => client.ask(&["MGET", from, to]),
                            _ => eval(&mut client, script, &[from, to]),
                        };
                        assert!(!reply.is_error(), "{reply}");
                    }
                });
            }
        });
        let moved = (CLIENTS - CLIENTS / 4) * MOVES;
        let mut client = served.client();
        assert_eq!(client.say(&format!("GET {from}")), format!("\"{moved}\""));
        assert_eq!(client.say(&format!("GET {to}")), format!("\"-{moved}\""));
        assert_eq!(served.section_figures().sections_lost, 0);
    });
}

#[test]
fn a_script_may_use_any_key_and_then_holds_all_cores() {
    let served = Served::roomy(2);
    let [declared, other] = two_keys(&served);
    let mut client = served.client();
    let script = format!("return redis.call('set', '{other}', 'x')");
    assert_eq!(eval(&mut client, &script, &[&declared]).text(), "OK");
    assert_eq!(
        eval(&mut client, "return redis.call('dbsize')", &[]),
        Reply::Integer(1)
    );
    // Keys that a script makes of its keys, as job queues do.
    let script = "local total = 0 for number = 1, 20 do local key = KEYS[1] .. ':' .. number \
                  redis.call('set', key, number) total = total + redis.call('get', key) end \
                  redis.call('set', KEYS[1], 'y') return {total, #redis.call('keys', '*')}";
    let reply = eval(&mut client, script, &[&declared]).to_string();
    assert_eq!(reply, "[:210, :22]");
    for (command, reply) in [("MULTI", "+OK"), (&format!("GET {other}")[..], "+QUEUED")] {
        assert_eq!(client.say(command), reply);
    }
    let script = format!("redis.call('set', KEYS[1], 'z') return redis.call('get', '{other}')");
    assert_eq!(eval(&mut client, &script, &[&declared]).text(), "QUEUED");
    assert_eq!(client.say("EXEC"), "[\"x\", \"x\"]");
    assert_eq!(client.say(&format!("GET {declared}")), "\"z\"");
}

#[test]
fn scripts_are_known_to_all_cores_until_they_are_flushed() {
    let served = Served::roomy(2);
    // Connections go to the core with the fewest.
    let mut clients: Vec<_> = (0..4).map(|_| served.client()).collect();
    let mut digests = Vec::new();
    for number in 0..20 {
        let script = format!("return {number}");
        let place = number % 4;
        if number < 10 {
            let digest = clients[place].ask(&["SCRIPT", "LOAD", &script]).text();
            digests.push(digest);
        } else {
            assert_eq!(
                eval(&mut clients[place], &script, &[]),
                Reply::Integer(number as i64)
            );
            let digest = eval(
                &mut clients[place],
                &format!("return redis.sha1hex('{script}')"),
                &[],
            );
            digests.push(digest.text());
        }
        for client in &mut clients {
            let reply = client.ask(&["EVALSHA", &digests[number], "0"]);
            assert_eq!(reply, Reply::Integer(number as i64));
        }
    }
    let mut words = vec!["SCRIPT", "EXISTS"];
    words.extend(digests.iter().map(String::as_str));
    let reply = clients[1].ask(&words);
    assert!(
        reply.elements().iter().all(|one| *one == Reply::Integer(1)),
        "{reply}"
    );
    let info = clients[0].say("INFO memory");
    assert!(info.contains("number_of_cached_scripts:30"), "{info}");
    assert_eq!(clients[2].say("SCRIPT FLUSH"), "+OK");
    for client in &mut clients {
        for digest in &digests {
            let reply = client.ask(&["EVALSHA", digest, "0"]).to_string();
            assert!(reply.contains("NOSCRIPT"), "{reply}");
        }
    }
}

#[test]
fn a_script_that_runs_on_is_killed_or_ends_and_others_are_served_meanwhile() {
    for cores in [1, 2] {
        let served = Served::roomy(cores);
        let mut client = served.client();
        let mut other = served.client();
        assert_eq!(
            other.say("SCRIPT KILL"),
            "-NOTBUSY No scripts in execution right now."
        );
        client.send(&[
            "EVAL",
            "while true do pcall(function() while true do end end) end",
            "1",
            "k",
        ]);
        let mut killed = String::new();
        wait_until("the script is killed", || {
            killed = other.say("SCRIPT KILL");
            assert_eq!(other.say("PING"), "+PONG");
            killed == "+OK"
        });
        let reply = client.read().unwrap().to_string();
        assert!(
            reply.contains("Script killed by user with SCRIPT KILL"),
            "{reply}"
        );
        assert_eq!(client.say("SET k v"), "+OK");
        // One that has written is not killed, and ends when its sections do.
        client.send(&[
            "EVAL",
            "redis.call('set', KEYS[1], 'w') while true do end",
            "1",
            "k",
        ]);
        wait_until("it has written", || {
            let reply = other.say("SCRIPT KILL");
            assert_ne!(reply, "+OK");
            reply.starts_with("-UNKILLABLE")
        });
        let reply = client.read().unwrap().to_string();
        assert!(reply.contains("What it wrote stays"), "{reply}");
        assert_eq!(client.say("GET k"), "\"w\"");
    }
    let served = Served::with(2, |options| {
        options.script_time_limit = Duration::from_millis(20);
    });
    let mut client = served.client();
    let reply = eval(&mut client, "while true do end", &["k"]).to_string();
    assert!(reply.contains("--script-time-limit"), "{reply}");
    assert_eq!(client.say("SET k v"), "+OK");
}

#[test]
fn a_client_that_leaves_ends_its_script() {
    on_servers(|served| {
        let mut other = served.client();
        for is_killed in [true, false] {
            let mut client = served.client();
            let number = client.say("CLIENT ID");
            client.send(&["EVAL", "while true do end", "1", "k"]);
            let number = number.trim_start_matches(':');
            if is_killed {
                wait_until("it is killed", || {
                    other.say(&format!("CLIENT KILL ID {number}")) == ":1"
                });
            }
            drop(client);
            assert_eq!(other.say("SET k v"), "+OK");
        }
        // The server ends while one runs.
        let mut client = served.client();
        client.send(&[
            "EVAL",
            "redis.call('set', KEYS[1], 1) while true do end",
            "1",
            "k",
        ]);
    });
}

#[test]
fn hostile_scripts_are_errors() {
    on_servers(|served| {
        let mut client = served.client();
        for script in [
            "local t = {} while true do t[#t + 1] = {} end",
            "local s = 'x' while true do s = s .. s end",
            "return string.rep('x', 1e9)",
            "local function f() return f() + 1 end return f()",
            "local function f() return coroutine.wrap(f)() end return f()",
            "return cjson.decode(string.rep('[', 100000))",
            "local t = {} t[1] = t return cjson.encode(t)",
            "return string.find(string.rep('a', 1000), string.rep('.-', 1000))",
            "return redis.call('set', KEYS[1])",
        ] {
            let reply = eval(&mut client, script, &["k"]);
            assert!(reply.is_error(), "{script}: {reply}");
            assert_eq!(client.say("PING"), "+PONG");
        }
        let deep = eval(
            &mut client,
            "local t = {} for _ = 1, 100 do t = {t} end return t",
            &["k"],
        );
        assert!(!deep.is_error());
        let huge = vec!["x"; 3000];
        let mut words = vec!["EVAL", "return #ARGV", "0"];
        words.extend(&huge);
        assert_eq!(client.ask(&words), Reply::Integer(3000));
    });
}

#[test]
fn long_values_pass_through_scripts() {
    on_servers(|served| {
        let mut client = served.client();
        let value = "v".repeat(1 << 20);
        let set = [
            "EVAL",
            "return redis.call('set', KEYS[1], ARGV[1])",
            "1",
            "k",
            &value,
        ];
        assert_eq!(client.ask(&set).text(), "OK");
        let length = eval(&mut client, "return #redis.call('get', KEYS[1])", &["k"]);
        assert_eq!(length, Reply::Integer(1 << 20));
        let both = "redis.call('append', KEYS[1], 'end') return {redis.call('strlen', KEYS[1]), \
                    redis.call('getrange', KEYS[1], -4, -1)}";
        assert_eq!(
            eval(&mut client, both, &["k"]).to_string(),
            "[:1048579, \"vend\"]"
        );
        let list = "for i = 1, 1000 do redis.call('rpush', KEYS[1], i) end \
                    return #redis.call('lrange', KEYS[1], 0, -1)";
        assert_eq!(eval(&mut client, list, &["l"]), Reply::Integer(1000));
        // What is said to the client before and after stays in order.
        client.write(b"PING\r\nEVAL \"return redis.call('get', KEYS[1])\" 1 x\r\nECHO a\r\n");
        let replies: Vec<_> = (0..3).map(|_| client.read().unwrap().to_string()).collect();
        assert_eq!(replies, ["+PONG", "null", "\"a\""]);
    });
}

#[test]
fn errors_are_counted_once_and_at_the_command_that_made_them() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let figures =
        |client: &mut Client| client.say("INFO errorstats") + &client.say("INFO commandstats");
    assert_eq!(client.say("SET k text"), "+OK");
    for (script, read_only, expected) in [
        (
            "return redis.call('incr', KEYS[1])",
            false,
            [
                "errorstat_ERR:count=1",
                "cmdstat_incr:calls=1",
                "rejected_calls=0,failed_calls=1",
            ],
        ),
        (
            "return redis.pcall('incr', KEYS[1])",
            false,
            [
                "errorstat_ERR:count=1",
                "cmdstat_incr:calls=1",
                "rejected_calls=0,failed_calls=1",
            ],
        ),
        (
            "return redis.call('set', KEYS[1], 1)",
            true,
            [
                "errorstat_ERR:count=1",
                "cmdstat_set:calls=0",
                "rejected_calls=1,failed_calls=0",
            ],
        ),
        (
            "return redis.call({})",
            false,
            [
                "errorstat_ERR:count=1",
                "cmdstat_eval:calls=1",
                "rejected_calls=0,failed_calls=1",
            ],
        ),
        (
            "return redis.error_reply('MINE is mine')",
            false,
            [
                "errorstat_MINE:count=1",
                "cmdstat_eval:calls=1",
                "rejected_calls=0,failed_calls=1",
            ],
        ),
    ] {
        assert_eq!(client.say("CONFIG RESETSTAT"), "+OK");
        let name = if read_only { "EVAL_RO" } else { "EVAL" };
        assert!(client.ask(&[name, script, "1", "k"]).is_error(), "{script}");
        let shown = figures(&mut client);
        let all = expected.iter().all(|one| shown.contains(one));
        assert!(all, "{script}: {shown}");
    }
    // An error that a script deals with is one of its command alone.
    assert_eq!(client.say("CONFIG RESETSTAT"), "+OK");
    let script = "redis.pcall('incr', KEYS[1]) return 1";
    assert_eq!(eval(&mut client, script, &["k"]), Reply::Integer(1));
    let shown = figures(&mut client);
    let uncounted =
        "cmdstat_eval:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0";
    assert!(shown.contains(uncounted), "{shown}");
    assert!(shown.contains("errorstat_ERR:count=1"), "{shown}");
}

#[test]
fn the_first_line_of_a_script_says_whether_it_runs_now() {
    let served = Served::roomy(1);
    let mut client = served.client();
    let read_only = client.ask(&["EVAL_RO", "#!lua\nreturn 1", "0"]).to_string();
    assert!(
        read_only.contains("write flag using *_ro command"),
        "{read_only}"
    );
    assert_eq!(client.say("SET k text"), "+OK");
    assert_eq!(client.say("CONFIG SET maxmemory 1"), "+OK");
    for (script, is_refused) in [
        ("#!lua\nreturn 1", true),
        ("#!lua flags=no-writes\nreturn 1", false),
        (
            "#!lua flags=allow-oom\nredis.call('set', 'k', 1) return 1",
            false,
        ),
        ("return 1", false),
        ("redis.call('set', 'k', 1) return 1", true),
        ("redis.call('get', 'k') return 1", false),
    ] {
        let sha = client.ask(&["SCRIPT", "LOAD", script]).text();
        let by_sha = client.ask(&["EVALSHA", &sha, "0"]);
        for reply in [eval(&mut client, script, &[]), by_sha] {
            let text = reply.to_string();
            assert_eq!(
                text.contains("OOM command not allowed"),
                is_refused,
                "{script}: {text}"
            );
            assert!(is_refused || reply == Reply::Integer(1), "{script}: {text}");
        }
    }
}

#[test]
fn scripts_of_the_same_shards_run_under_one_entry() {
    const SCRIPTS: u64 = 100;
    on_servers(|served| {
        let mut client = served.client();
        let mut requests = Vec::new();
        for number in 0..SCRIPTS {
            let script = "return redis.call('incr', KEYS[1])";
            let request = format!("EVAL \"{script}\" 1 k\r\nECHO {number}\r\n");
            requests.extend_from_slice(request.as_bytes());
        }
        let mut last = 0;
        // An entry ends after a time, and a machine may be slow.
        wait_until("scripts share an entry", || {
            let before = served.section_figures().sections;
            client.write(&requests);
            for number in 0..SCRIPTS {
                last += 1;
                assert_eq!(client.read().unwrap(), Reply::Integer(last));
                assert_eq!(client.read().unwrap().to_string(), format!("\"{number}\""));
            }
            let entered = served.section_figures().sections - before;
            assert!((1..=SCRIPTS).contains(&entered), "{entered}");
            entered < SCRIPTS
        });
    });
}

#[test]
fn a_client_that_leaves_while_its_script_waits_holds_no_other_up() {
    on_servers(|served| {
        let mut first = served.client();
        first.send(&["EVAL", "while true do end", "1", "k"]);
        let mut waiting: Vec<_> = (0..8).map(|_| served.client()).collect();
        for (number, client) in waiting.iter_mut().enumerate() {
            let number = number.to_string();
            client.send(&[
                "EVAL",
                "return redis.call('rpush', KEYS[1], ARGV[1])",
                "1",
                "k",
                &number,
            ]);
        }
        // Half of them leave.
        let mut place = 0;
        waiting.retain(|_| {
            place += 1;
            place % 2 == 0
        });
        let mut other = served.client();
        wait_until("the script is killed", || other.say("SCRIPT KILL") == "+OK");
        assert!(first.read().unwrap().is_error());
        for client in &mut waiting {
            assert!(matches!(client.read().unwrap(), Reply::Integer(1..)));
        }
        assert_eq!(
            eval(&mut other, "return redis.call('type', KEYS[1])", &["k"]).text(),
            "list"
        );
    });
}

/// A client that waits for sections keeps the service of their core busy. The core's loop must
/// nevertheless be woken at once: else each message takes 10 ms, and the sections are taken away.
#[test]
fn messages_reach_a_core_whose_shard_another_waits_for() {
    const MESSAGES: usize = 2000;
    on_servers(|served| {
        // Of each of two clients in a row, one is on each core.
        let mut subscribers = [served.client(), served.client()];
        for subscriber in &mut subscribers {
            subscriber.ask(&["SUBSCRIBE", "news"]);
        }
        let mut publisher = served.client();
        let keys = two_keys(served);
        for mut other in [served.client(), served.client()] {
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let reply = other.ask(&["MSET", &keys[0], "1", &keys[1], "1"]);
                        assert_eq!(reply.to_string(), "+OK");
                    }
                });
                publisher.ask(&["MULTI"]);
                let script = "redis.call('get', KEYS[1]) return redis.call('publish', 'news', '')";
                for _ in 0..MESSAGES {
                    eval(&mut publisher, script, &[&keys[0], &keys[1]]);
                }
                let Reply::Array(counts) = publisher.ask(&["EXEC"]) else {
                    panic!("the transaction has not run");
                };
                is_over.store(true, Ordering::Relaxed);
                assert_eq!(counts, vec![Reply::Integer(2); MESSAGES]);
            });
        }
        assert_eq!(served.section_figures().sections_lost, 0);
    });
}
