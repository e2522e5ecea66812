//! A wire to the server that breaks: before a transaction begins, or when it is committed and before anybody hears of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use leasehold_store::method;
use leasehold_store::observe::Access;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Where a connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// When a transaction begins: the server never hears of it.
    BeforeTheTransaction,
    /// When a commit is done: nobody hears of it.
    BeforeTheAnswer,
}

/// When a connection breaks.
#[derive(Debug, Clone)]
pub(crate) enum When {
    /// At every third transaction.
    EveryThird,
    /// At the first transaction of every third call of each changing method: a caller that repeats it is answered.
    Called(Arc<Calls>),
}

/// What is being called, by the word of the caller.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<Called>);

#[derive(Debug, Default)]
struct Called {
    times: BTreeMap<&'static str, u32>,
    /// Whose next transaction is to break.
    next: Option<&'static str>,
    broke: BTreeSet<&'static str>,
}

impl Calls {
    /// A method is about to be called.
    pub(crate) fn called(&self, method: &'static str) {
        let mut calls = self.0.lock().unwrap();
        let times = calls.times.entry(method).or_default();
        *times += 1;
        let third = *times % 3 == 1;
        calls.next = (third && method::access_of(method) == Access::Write).then_some(method);
    }

    /// The methods in whose transactions it broke.
    pub(crate) fn broke(&self) -> BTreeSet<&'static str> {
        self.0.lock().unwrap().broke.clone()
    }

    fn breaks(&self) -> bool {
        let mut calls = self.0.lock().unwrap();
        let next = calls.next.take();
        calls.broke.extend(next);
        next.is_some()
    }
}

/// A wire that breaks at some of the transactions that it carries.
pub(crate) struct Lossy {
    pub(crate) address: String,
    /// How often it broke.
    broken: Arc<AtomicU32>,
}

impl Lossy {
    pub(crate) async fn to(server: &str, breaks: Breaks, when: When) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (broken, passed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (server, count) = (server.to_owned(), broken.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let wire = Wire { breaks, when: when.clone(), passed: passed.clone(), broken: count.clone() };
                if let Ok(server) = TcpStream::connect(&server).await {
                    tokio::spawn(wire.carry(client, server));
                }
            }
        });
        Self { address, broken }
    }

    pub(crate) fn broke(&self) -> u32 {
        self.broken.load(Ordering::SeqCst)
    }
}

struct Wire {
    breaks: Breaks,
    when: When,
    passed: Arc<AtomicU32>,
    broken: Arc<AtomicU32>,
}

impl Wire {
    async fn carry(self, client: TcpStream, server: TcpStream) {
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (swallow, swallowed) = watch::channel(false);
        // Whichever ends first ends the connection: both halves are dropped.
        tokio::select! {
            () = self.ask(from_client, to_server, swallow) => {}
            () = answer(from_server, to_client, swallowed) => {}
        }
    }

    /// Carries what the client says, message by message.
    async fn ask(&self, mut client: OwnedReadHalf, mut server: OwnedWriteHalf, swallow: watch::Sender<bool>) {
        let mut first = true;
        loop {
            let mut message = vec![0; if first { 4 } else { 5 }];
            if client.read_exact(&mut message).await.is_err() {
                return;
            }
            let length = message[message.len() - 4..].try_into().map(u32::from_be_bytes).unwrap();
            let head = message.len();
            message.resize(head + length as usize - 4, 0);
            if client.read_exact(&mut message[head..]).await.is_err() {
                return;
            }
            let (begin, commit) = (&b"BEGIN ISOLATION LEVEL READ COMMITTED\0"[..], &b"; COMMIT\0"[..]);
            let word = if self.breaks == Breaks::BeforeTheTransaction { begin } else { commit };
            let there = !first && message[0] == b'Q' && message.ends_with(word);
            first = false;
            let breaks = there
                && match &self.when {
                    When::EveryThird => (self.passed.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(3),
                    When::Called(calls) => calls.breaks(),
                };
            if breaks {
                self.broken.fetch_add(1, Ordering::SeqCst);
                match self.breaks {
                    Breaks::BeforeTheTransaction => return,
                    Breaks::BeforeTheAnswer => drop(swallow.send(true)),
                }
            }
            if server.write_all(&message).await.is_err() {
                return;
            }
        }
    }
}

/// Carries what the server says, until it is to be swallowed: then the first of it ends the connection.
async fn answer(mut server: OwnedReadHalf, mut client: OwnedWriteHalf, swallowed: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = server.read(&mut bytes).await {
        if *swallowed.borrow() {
            // The commit is several answers long: the last one says that the server waits for the next question.
            if bytes[..read].ends_with(b"I") {
                return;
            }
        } else if client.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
