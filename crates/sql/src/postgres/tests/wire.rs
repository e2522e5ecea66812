//! A wire to the server that counts what crosses it, and can be cut when a commit is on its way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Where the wire is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Before the server hears of the commit.
    BeforeTheServer,
    /// When the server has committed, and before anybody hears of it.
    BeforeTheAnswer,
}

/// A wire to a server, for connections that are not encrypted.
#[derive(Clone)]
pub(crate) struct Wire {
    address: String,
    crossed: Arc<Crossed>,
}

#[derive(Default)]
struct Crossed {
    round_trips: AtomicU64,
    commits: AtomicU64,
    cut: Mutex<Option<Cut>>,
}

impl Wire {
    /// A wire to the server of `url`, and the URL that leads over it.
    pub(crate) async fn to(url: &str) -> (Self, String) {
        let (user, rest) = url.split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = Self { address: listener.local_addr().unwrap().to_string(), crossed: Arc::default() };
        let url = format!("{user}@{}/{database}?sslmode=disable", wire.address);
        let (server, crossed) = (server.to_owned(), wire.crossed.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(&server).await {
                    tokio::spawn(carry(client, server, crossed.clone()));
                }
            }
        });
        (wire, url)
    }

    /// How often somebody waited for the server, on connections that had their first transaction.
    pub(crate) fn round_trips(&self) -> u64 {
        self.crossed.round_trips.load(Ordering::SeqCst)
    }

    /// How many commits were sent.
    pub(crate) fn commits(&self) -> u64 {
        self.crossed.commits.load(Ordering::SeqCst)
    }

    /// From now on every commit is cut there, or none.
    pub(crate) fn cuts(&self, cut: Option<Cut>) {
        *self.crossed.cut.lock().unwrap() = cut;
    }
}

/// Messages of one direction, cut out of the bytes as they come.
struct Messages {
    bytes: Vec<u8>,
    /// The first thing that a client says has no kind.
    first: bool,
}

impl Messages {
    fn more(&mut self, bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        self.bytes.extend_from_slice(bytes);
        let mut messages = Vec::new();
        loop {
            let head = usize::from(!self.first);
            let Some(length) = self.bytes.get(head..head + 4) else { return messages };
            let end = head + u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if self.bytes.len() < end {
                return messages;
            }
            let message: Vec<u8> = self.bytes.drain(..end).collect();
            let kind = if self.first { b'S' } else { message[0] };
            self.first = false;
            messages.push((kind, message));
        }
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, crossed: Arc<Crossed>) {
    let mut said = Messages { bytes: Vec::new(), first: true };
    let mut answered = Messages { bytes: Vec::new(), first: false };
    let (mut from_client, mut from_server) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    // Connections for hints carry no transaction, and are nobody's round trips.
    let (mut open, mut swallow, mut transacts) = (0_u64, false, false);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(read @ 1..) = read else { return };
                let messages = said.more(&from_client[..read]);
                // Each of these is answered until the server is ready for the next.
                let questions = messages.iter().filter(|(kind, _)| matches!(kind, b'Q' | b'S')).count() as u64;
                transacts |= messages.iter().any(|(kind, text)| *kind == b'Q' && text[5..].starts_with(b"BEGIN"));
                if open == 0 && questions > 0 && transacts {
                    crossed.round_trips.fetch_add(1, Ordering::SeqCst);
                }
                open += questions;
                let commits = messages.iter().filter(|(kind, text)| *kind == b'Q' && text.ends_with(b"COMMIT\0")).count();
                crossed.commits.fetch_add(commits as u64, Ordering::SeqCst);
                if commits > 0 {
                    match *crossed.cut.lock().unwrap() {
                        Some(Cut::BeforeTheServer) => return,
                        Some(Cut::BeforeTheAnswer) => swallow = true,
                        None => {}
                    }
                }
                if server.write_all(&from_client[..read]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(read @ 1..) = read else { return };
                let messages = answered.more(&from_server[..read]);
                // What is asked while rows are copied in is not answered by itself.
                open = open.saturating_sub(messages.iter().filter(|(kind, _)| *kind == b'Z').count() as u64);
                if swallow {
                    let ended = |text: &[u8]| text.starts_with(b"COMMIT\0") || text.starts_with(b"ROLLBACK\0");
                    if messages.iter().any(|(kind, text)| *kind == b'C' && ended(&text[5..])) {
                        return;
                    }
                } else if client.write_all(&from_server[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}
