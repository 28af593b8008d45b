//! A proxy before the server, in threads of this process. It records what clients send, and it cuts
//! all connections when something connects to its second port, so that a client's reconnection is
//! proved without a command of the server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;

use super::server::Server;

/// Bytes that are kept of each connection.
const RECORDED_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES: usize = 64 << 10;

/// The ports of a running proxy on 127.0.0.1; it runs until this process ends.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) port: u16,
    pub(super) cut_port: u16,
    shared: Arc<Mutex<Connections>>,
}

#[derive(Debug, Default)]
struct Connections {
    /// Both ends of those that are open.
    open: Vec<TcpStream>,
    /// What each client has sent, in the order of the connections.
    recorded: Vec<Vec<u8>>,
}

impl Proxy {
    pub(super) fn start(server: &Server) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let cutter = TcpListener::bind("127.0.0.1:0")?;
        let shared = Arc::new(Mutex::new(Connections::default()));
        let proxy = Self {
            port: listener.local_addr()?.port(),
            cut_port: cutter.local_addr()?.port(),
            shared: Arc::clone(&shared),
        };
        let (server, accepting) = (server.clone(), Arc::clone(&shared));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A client sees a closed connection if the server refuses one.
                let _ = accept(client, &server, &accepting);
            }
        });
        thread::spawn(move || {
            for mut asker in cutter.incoming().map_while(Result::ok) {
                cut(&shared);
                // The answer says that all are cut; a client may not wait for it.
                let _ = asker.write_all(b"cut\n");
            }
        });
        Ok(proxy)
    }

    /// What clients have sent so far, one connection after the other.
    pub(super) fn recorded(&self) -> Vec<u8> {
        lock(&self.shared).recorded.concat()
    }
}

/// A thread that panicked has left no half-made change.
fn lock(shared: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(client: TcpStream, server: &Server, shared: &Arc<Mutex<Connections>>) -> Result<()> {
    let server = server.connect()?;
    server.set_read_timeout(None)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let number = {
        let mut connections = lock(shared);
        connections.open.push(client.try_clone()?);
        connections.open.push(server.try_clone()?);
        connections.recorded.push(Vec::new());
        connections.recorded.len() - 1
    };
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        pass(from, to, |bytes| {
            let recorded = &mut lock(&shared).recorded[number];
            let room = RECORDED_BYTES_MAX - recorded.len();
            recorded.extend_from_slice(&bytes[..bytes.len().min(room)]);
        });
    });
    thread::spawn(move || pass(server, client, |_| {}));
    Ok(())
}

/// Passes bytes on until either side ends.
fn pass(mut from: TcpStream, mut to: TcpStream, mut see: impl FnMut(&[u8])) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        see(&buffer[..bytes]);
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    // The other side may have closed first.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn cut(shared: &Mutex<Connections>) {
    for stream in lock(shared).open.drain(..) {
        // It may have ended by itself.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_are_recorded_and_connections_are_cut() {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = echo.local_addr().unwrap().to_string().parse().unwrap();
        thread::spawn(move || {
            for stream in echo.incoming().map_while(Result::ok) {
                let other = stream.try_clone().unwrap();
                thread::spawn(move || pass(stream, other, |_| {}));
            }
        });
        let proxy = Proxy::start(&server).unwrap();
        for text in [b"first ", b"second"] {
            let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
            client.write_all(text).unwrap();
            let mut answer = [0; 6];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, text);
            let mut cutter = TcpStream::connect(("127.0.0.1", proxy.cut_port)).unwrap();
            cutter.read_exact(&mut [0; 4]).unwrap();
            assert!(matches!(client.read(&mut answer), Ok(0) | Err(_)));
        }
        assert_eq!(proxy.recorded(), b"first second");
    }
}
