//! A child process that plays a role. Owns its pipes and kills it on drop.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use crate::role::{NEWS, NODES, ROLE};
use crate::{LIMIT, NODE_COUNT};

/// A child process; it is killed when this is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) orders: ChildStdin,
}

impl Process {
    pub(crate) fn start(
        role: &str,
        nodes: &str,
        mut on_report: impl FnMut(&str) + Send + 'static,
    ) -> Self {
        let test = if role == "thief" { "client" } else { role };
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([&format!("role_{test}"), "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(NODES, nodes)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let output = child.stdout.take().expect("piped");
        let orders = child.stdin.take().expect("piped");
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(what) = line.strip_prefix(NEWS) {
                    on_report(what);
                }
            }
        });
        Self { child, orders }
    }

    pub(crate) fn order(&mut self) {
        // Fails if the child has just died.
        let _ = self.orders.write_all(b"leave\n");
    }

    pub(crate) fn kill(&mut self) {
        // Fails if the child has just ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn start_nodes() -> (Vec<Process>, String) {
    let (send, reported) = mpsc::channel();
    let start = |_| {
        let send = send.clone();
        Process::start("node", "", move |what| drop(send.send(what.to_owned())))
    };
    let nodes: Vec<_> = (0..NODE_COUNT).map(start).collect();
    let on_report = |_| reported.recv_timeout(LIMIT).expect("a node's address");
    let addresses: Vec<String> = (0..NODE_COUNT).map(on_report).collect();
    (nodes, addresses.join(","))
}
