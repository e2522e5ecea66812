//! A wire between a worker and its control plane that a test can spoil: answers lost after the request arrived,
//! silence, resets.
//!
//! It moves bytes and knows nothing of TLS or HTTP, so what it does to a conversation is what a network may do. A
//! connection that lost a byte never passes another one: it is reset as soon as bytes may pass again. (Design, *What may
//! fail*.)

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::net::sockopt::set_socket_linger;

/// How long an end that reads nothing holds up the other one's bytes.
const UNREAD: Duration = Duration::from_secs(10);

/// What becomes of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They arrive.
    Pass,
    /// The client's arrive, the server's are thrown away: requests take effect, and nobody hears of it.
    DropAnswers,
    /// They are held back in both directions, and arrive once they may pass.
    Stall,
    /// Every connection is reset, new ones as soon as they are made.
    Reset,
    /// They are lost in both directions, and nobody is told.
    Cut,
}

#[derive(Debug)]
struct Line {
    mode: Mode,
    /// Bytes of the server's that were thrown away since the mode was set.
    dropped: u64,
    connections: Vec<Connection>,
    closed: bool,
}

/// Both ends of a connection, to wake and to reset whoever reads them.
#[derive(Debug)]
struct Connection {
    id: u64,
    client: TcpStream,
    server: TcpStream,
    /// It lost bytes.
    torn: bool,
    /// It ends with a reset.
    broken: bool,
    /// Directions that are still moved.
    movers: u8,
}

impl Connection {
    /// Ends it with a reset, once the threads that read it have let go.
    fn reset(&mut self) {
        self.broken = true;
        for end in [&self.client, &self.server] {
            let _ = set_socket_linger(end, Some(Duration::ZERO));
            // Says nothing to the peer; it only wakes who reads.
            let _ = end.shutdown(Shutdown::Read);
        }
    }
}

#[derive(Debug)]
struct Shared {
    line: Mutex<Line>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Line> {
        // A panic in a thread leaves the line as it was.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The proxy. Dropping it resets every connection and stops listening.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port of loopback for connections to `upstream` (host and port). It passes everything at first.
    pub fn start(upstream: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port on loopback")?;
        let address = listener.local_addr()?;
        let line = Line { mode: Mode::Pass, dropped: 0, connections: Vec::new(), closed: false };
        let shared = Arc::new(Shared { line: Mutex::new(line), changed: Condvar::new() });
        let (state, upstream) = (Arc::clone(&shared), upstream.to_owned());
        let listening = std::thread::spawn(move || listen(&listener, &upstream, &state));
        Ok(Self { address, shared, listening: Some(listening) })
    }

    /// The URL that a worker is told instead of the control plane's.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// From now on. Counts what is thrown away anew; connections that lost bytes are reset unless bytes go on being lost.
    pub fn set(&self, mode: Mode) {
        let mut line = self.shared.lock();
        line.mode = mode;
        line.dropped = 0;
        let resets_all = mode == Mode::Reset;
        let resets_torn = matches!(mode, Mode::Pass | Mode::Stall);
        for connection in &mut line.connections {
            if resets_all || (resets_torn && connection.torn) {
                connection.reset();
            }
        }
        drop(line);
        self.shared.changed.notify_all();
    }

    /// How many bytes of the server's were thrown away since the mode was set.
    pub fn dropped(&self) -> u64 {
        self.shared.lock().dropped
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut line = self.shared.lock();
        line.closed = true;
        line.connections.iter_mut().for_each(Connection::reset);
        drop(line);
        self.shared.changed.notify_all();
        // The listener looks at the line once more.
        let _ = TcpStream::connect(self.address);
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

fn listen(listener: &TcpListener, upstream: &str, shared: &Arc<Shared>) {
    let mut movers: Vec<JoinHandle<()>> = Vec::new();
    for (id, client) in (0_u64..).zip(listener.incoming()) {
        let Ok(client) = client else { continue };
        let line = shared.lock();
        if line.closed {
            break;
        }
        let mode = line.mode;
        drop(line);
        if mode == Mode::Reset {
            let _ = set_socket_linger(&client, Some(Duration::ZERO));
            continue;
        }
        // A control plane that is down: the client sees its connection end.
        let Ok(server) = TcpStream::connect(upstream) else { continue };
        movers.extend(carry(id, &client, &server, shared).unwrap_or_default());
        movers.retain(|mover| !mover.is_finished());
    }
    for mover in movers {
        let _ = mover.join();
    }
}

/// Two threads, one for each direction.
fn carry(
    id: u64,
    client: &TcpStream,
    server: &TcpStream,
    shared: &Arc<Shared>,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    for end in [client, server] {
        end.set_nodelay(true)?;
        end.set_write_timeout(Some(UNREAD))?;
    }
    let (client_end, server_end) = (client.try_clone()?, server.try_clone()?);
    let (up_from, up_to) = (client.try_clone()?, server.try_clone()?);
    let known = Connection {
        id,
        client: client.try_clone()?,
        server: server.try_clone()?,
        torn: false,
        broken: false,
        movers: 2,
    };
    shared.lock().connections.push(known);
    let (up, down) = (Arc::clone(shared), Arc::clone(shared));
    Ok(vec![
        std::thread::spawn(move || move_bytes(id, &up_from, &up_to, false, &up)),
        std::thread::spawn(move || move_bytes(id, &server_end, &client_end, true, &down)),
    ])
}

fn move_bytes(id: u64, mut from: &TcpStream, mut to: &TcpStream, answers: bool, shared: &Shared) {
    let mut buffer = [0; 16 * 1024];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let mut line = shared.lock();
        while line.mode == Mode::Stall && !line.closed {
            line = shared.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        let Line { mode, dropped, connections, closed } = &mut *line;
        let lost = match mode {
            Mode::DropAnswers => answers,
            Mode::Cut => true,
            Mode::Pass | Mode::Stall | Mode::Reset => false,
        };
        let Some(connection) = connections.iter_mut().find(|connection| connection.id == id) else { break };
        if lost {
            connection.torn = true;
            *dropped += if answers { u64::try_from(length).unwrap_or(0) } else { 0 };
            continue;
        }
        // A hole in what the peer reads is nothing that a network makes.
        if *closed || *mode == Mode::Reset || (connection.torn && *mode == Mode::Pass) {
            connection.reset();
            break;
        }
        drop(line);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // One direction that ended ends the other: HTTP/2 has no half-open conversation. What is lost hides its end, too.
    let mut line = shared.lock();
    while matches!(line.mode, Mode::Cut | Mode::Stall | Mode::DropAnswers) && !line.closed {
        line = shared.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
    }
    let Some(connection) = line.connections.iter_mut().find(|connection| connection.id == id) else { return };
    connection.movers -= 1;
    let wakes = if connection.broken { Shutdown::Read } else { Shutdown::Both };
    let _ = (to.shutdown(wakes), from.shutdown(wakes));
    // With the last hold on its descriptors it is closed, or reset where that was asked for.
    line.connections.retain(|connection| connection.movers > 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually::eventually;

    /// A server that answers every line with the same line, and counts the lines that it got.
    fn echo() -> (String, Arc<Mutex<usize>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let lines = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&lines);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || {
                    let mut stream = stream;
                    let mut buffer = [0; 64];
                    while let Ok(length @ 1..) = stream.read(&mut buffer) {
                        *counted.lock().unwrap() += 1;
                        if stream.write_all(&buffer[..length]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        (address, lines)
    }

    fn hears(client: &mut TcpStream) -> std::io::Result<usize> {
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.read(&mut [0; 64])
    }

    #[test]
    fn an_answer_is_lost_after_its_request_arrived_and_the_connection_with_it() {
        let (server, lines) = echo();
        let proxy = Proxy::start(&server).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.write_all(b"one\n").unwrap();
        assert_eq!(hears(&mut client).unwrap(), 4);

        proxy.set(Mode::DropAnswers);
        client.write_all(b"two\n").unwrap();
        eventually("an answer to be lost", || if proxy.dropped() == 4 { Ok(()) } else { Err(String::new()) }).unwrap();
        assert_eq!(*lines.lock().unwrap(), 2, "the request arrived");
        proxy.set(Mode::Pass);
        assert!(matches!(hears(&mut client), Ok(0) | Err(_)), "never a hole in the conversation");
        let mut next = TcpStream::connect(proxy.address()).unwrap();
        next.write_all(b"three\n").unwrap();
        assert_eq!(hears(&mut next).unwrap(), 6);
    }

    #[test]
    fn what_is_stalled_arrives_and_what_is_cut_does_not() {
        let (server, lines) = echo();
        let proxy = Proxy::start(&server).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.write_all(b"one\n").unwrap();
        assert_eq!(hears(&mut client).unwrap(), 4);
        proxy.set(Mode::Stall);
        client.write_all(b"two\n").unwrap();
        proxy.set(Mode::Pass);
        assert_eq!(hears(&mut client).unwrap(), 4);

        proxy.set(Mode::Cut);
        client.write_all(b"three\n").unwrap();
        proxy.set(Mode::Reset);
        assert!(matches!(hears(&mut client), Ok(0) | Err(_)));
        assert!(*lines.lock().unwrap() >= 2);
        let mut refused = TcpStream::connect(proxy.address()).unwrap();
        assert!(matches!(hears(&mut refused), Ok(0) | Err(_)));
        drop(proxy);
    }
}
