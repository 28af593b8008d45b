//! An engine in a process of its own, which can be stopped: the test starts itself again. Commands
//! go to its standard input; its replies come on standard output behind a mark.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The environment variable with the node that the process uses.
pub(crate) const NODE: &str = "FARCORE_ENGINE_NODE";
/// The test that is the engine's process.
const ROLE: &str = "leases::role_engine";
const MARK: &str = "reply: ";

/// Replies to an order, in the process.
pub(crate) fn say(reply: &str) {
    println!("\n{MARK}{reply}");
}

pub(crate) struct EngineProcess {
    child: Child,
    orders: ChildStdin,
    reply: BufReader<ChildStdout>,
}

impl EngineProcess {
    pub(crate) fn start(node: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([ROLE, "--exact", "--nocapture"])
            .env(NODE, node)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            orders: child.stdin.take().unwrap(),
            reply: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub(crate) fn send(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            let bytes = self.reply.read_line(&mut line).unwrap();
            assert!(bytes > 0, "the engine's process has ended");
            if let Some(reply) = line.trim_end().strip_prefix(MARK) {
                return reply.to_owned();
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &process]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
