//! Hints between replicas by LISTEN and NOTIFY, on a connection of their own.
//!
//! What is said within a moment is said at once, in a transaction of its own: a NOTIFY in the transactions that do the work
//! would make their commits wait for each other. While the connection is away hints are lost; when it is back, those who
//! listen are told that they missed something.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use leasehold_store::hint::{Hint, HintExchange};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio_postgres::AsyncMessage;

use super::connect::{self, Address};
use super::open::OpenError;

/// How long hints are gathered before they are said: well below what a person notices.
const GATHERED: Duration = Duration::from_millis(5);

/// How long after a connection broke the next one is tried.
const AGAIN: Duration = Duration::from_secs(1);

/// Bytes of hints in one notification: PostgreSQL takes less than 8,000.
const TOGETHER: usize = 7_900;

/// Hints that wait to be said; beyond, they become one that says *anything*.
const WAITING: usize = 4096;

/// Notifications that wait to be heard; beyond, they are lost.
const UNHEARD: usize = 1024;

/// The hints of one replica.
pub(super) struct Hints {
    said: Arc<Said>,
    heard: tokio::sync::Mutex<mpsc::Receiver<Vec<Hint>>>,
    task: AbortHandle,
}

#[derive(Default)]
struct Said {
    hints: Mutex<BTreeSet<Hint>>,
    news: Notify,
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.close();
    }
}

impl Hints {
    /// Begins to listen, on a connection that is kept up in the background.
    pub(super) fn of(address: Address, schema: String) -> Self {
        let said = Arc::new(Said::default());
        let (tell, heard) = mpsc::channel(UNHEARD);
        let keep_up = {
            let said = said.clone();
            async move {
                loop {
                    if let Err(error) = exchange(&address, &schema, &said, &tell).await {
                        tracing::debug!(%error, "hints of other replicas are not heard; they are waited for by time");
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        };
        Self { said, heard: tokio::sync::Mutex::new(heard), task: tokio::spawn(keep_up).abort_handle() }
    }

    /// Gives up the connection.
    pub(super) fn close(&self) {
        self.task.abort();
    }
}

#[async_trait]
impl HintExchange for Hints {
    fn say(&self, hint: Hint) {
        let mut hints = self.said.hints.lock().unwrap_or_else(PoisonError::into_inner);
        if hints.len() >= WAITING {
            hints.clear();
            hints.insert(Hint::Missed);
        }
        if matches!(hint, Hint::Waits(_)) {
            // Only the newest counts. Announcements sort first.
            while hints.first().is_some_and(|first| matches!(first, Hint::Waits(_))) {
                hints.pop_first();
            }
        }
        hints.insert(hint);
        drop(hints);
        self.said.news.notify_one();
    }

    async fn hear(&self) -> Vec<Hint> {
        match self.heard.lock().await.recv().await {
            Some(hints) => hints,
            // Closed: nothing will be heard any more.
            None => std::future::pending().await,
        }
    }
}

/// Says and hears on one connection until it breaks.
async fn exchange(
    address: &Address,
    schema: &str,
    said: &Said,
    tell: &mpsc::Sender<Vec<Hint>>,
) -> Result<(), OpenError> {
    let (client, mut connection) = connect::listening(address).await?;
    let messages = stream::poll_fn(move |context| connection.poll_message(context));
    let failed = |source| OpenError::asked("exchange hints", source);
    let channel = format!("leasehold {schema}");
    // A parameter cannot name a channel that is listened to. A hint need not outlive a crash: it waits for no disk and no
    // standby.
    let listen = format!("SET synchronous_commit TO off; LISTEN {}", connect::quoted(&channel));
    let own = async {
        client.batch_execute(&listen).await?;
        client.query_one("SELECT pg_backend_pid()", &[]).await?.try_get::<_, i32>(0)
    };
    let (mut messages, mut own) = (Box::pin(messages), Box::pin(own));
    let own = loop {
        tokio::select! {
            own = &mut own => break own.map_err(failed)?,
            message = messages.next() => message.transpose().map_err(failed)?.map(drop).ok_or_else(gone)?,
        };
    };
    let _ = tell.try_send(vec![Hint::Missed]);
    let mut saying = Box::pin(say(&client, &channel, said));
    loop {
        let message = tokio::select! {
            broken = &mut saying => return broken.map_err(failed),
            message = messages.next() => message.transpose().map_err(failed)?.ok_or_else(gone)?,
        };
        if let AsyncMessage::Notification(told) = message
            && told.process_id() != own
        {
            // What a newer replica says beyond this is not for us.
            let hints: Vec<Hint> = told.payload().lines().filter_map(|line| line.parse().ok()).collect();
            let _ = tell.try_send(hints);
        }
    }
}

fn gone() -> OpenError {
    OpenError::Url("the connection for hints has ended".to_owned())
}

/// Lines, as many together as one notification takes.
fn packed(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut packed: Vec<String> = Vec::new();
    for line in lines {
        match packed.last_mut() {
            Some(together) if together.len() + 1 + line.len() <= TOGETHER => {
                together.push('\n');
                together.push_str(&line);
            }
            _ => packed.push(line),
        }
    }
    packed
}

/// Says what is to be said, as it comes.
async fn say(client: &tokio_postgres::Client, channel: &str, said: &Said) -> Result<(), tokio_postgres::Error> {
    let notify = client.prepare("SELECT pg_notify($1, $2)").await?;
    loop {
        said.news.notified().await;
        tokio::time::sleep(GATHERED).await;
        let hints = std::mem::take(&mut *said.hints.lock().unwrap_or_else(PoisonError::into_inner));
        for together in packed(hints.iter().map(ToString::to_string)) {
            client.execute(&notify, &[&channel, &together]).await?;
        }
    }
}
