//! Writes of native clients beside `EXEC` of watched keys that cannot be carried out at once: none
//! comes between the compare and the last write, and none waits without end.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::support::Served;

/// What each client adds.
const TIMES: i64 = 40;

/// A client of the server's other protocol, whose replies have no line feed in them.
struct Lines(BufReader<TcpStream>);

impl Lines {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream
            .set_read_timeout(Some(support::PATIENCE))
            .expect("a socket");
        Self(BufReader::new(stream))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a reply in time");
        line.trim_end().to_owned()
    }

    /// Sends commands at once, reads as many lines as their replies have, and returns the last one.
    fn call(&mut self, commands: &str, lines: usize) -> String {
        let commands = commands.replace(';', "\r\n") + "\r\n";
        let mut stream = self.0.get_ref();
        stream.write_all(commands.as_bytes()).expect("it is sent");
        let mut last = String::new();
        for _ in 0..lines {
            last = self.line();
        }
        last
    }

    /// Adds one by a transaction that cannot be planned. False if another was faster.
    fn add(&mut self, key: &str) -> bool {
        let found = self.call(&format!("WATCH {key};GET {key}"), 3);
        let next = found.parse::<i64>().expect("a number") + 1;
        let head = self.call(&format!("MULTI;DBSIZE;SET {key} {next};EXEC"), 4);
        match head.as_str() {
            "*-1" => false,
            "*2" => {
                self.line();
                assert_eq!(self.line(), "+OK");
                true
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn native_writes_come_before_a_held_transaction_or_after_it() {
    for cores in [1, 2] {
        let served = Served::start(cores);
        let natives = [(); 3].map(|()| served.client());
        natives[0].put(b"n", b"0").wait().expect("it is stored");
        let conflicts = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut client = Lines::connect(served.resp_address());
                    for _ in 0..TIMES {
                        while !client.add("n") {
                            conflicts.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for native in &natives {
                scope.spawn(|| {
                    for time in 0..TIMES {
                        native.increment(b"n", 1).wait().expect("it is added");
                        // These are held too: a batch, and a value in parts.
                        let pairs: [(&[u8], &[u8]); 2] = [(b"a", b"1"), (b"b", b"2")];
                        let stored = native.put_many(&pairs).wait().expect("an answer");
                        assert!(stored.iter().all(Result::is_ok));
                        if time % 10 == 0 {
                            let long = vec![7; 1 << 20];
                            native.put(b"long", &long).wait().expect("it is stored");
                        }
                    }
                });
            }
        });
        let total = natives[0].increment(b"n", 0).wait().expect("a number");
        let adding = 2 + i64::try_from(natives.len()).expect("few");
        assert_eq!(total, adding * TIMES, "{conflicts:?} conflicts");
        let (sections, lost) = served.section_figures();
        assert!(sections > 0);
        assert_eq!(lost, 0);
    }
}
