//! A call of the port on its way to a thread of the store, and its answer on the way back.
//!
//! A call that waits too long waits in its caller: a queue is bounded. A panic in one call is that call's answer and
//! nobody else's. An answer that never comes is *unknown*.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_store::outcome::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::transaction::{Fault, Tx};

/// A call, whatever it answers.
pub(super) trait Job: Send {
    /// Carries the call out in `tx` and keeps its answer; may be asked once more after a lost unique race. `Err` undoes
    /// whatever it wrote.
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), Undo>;

    /// Answers the caller, when it is known what became of the transaction.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// What is to be done with a call whose part of the transaction must be undone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undo {
    /// Its error is the answer.
    Failed,
    /// Another took a unique value first: decide once more.
    Raced,
}

struct Call<T, F> {
    name: &'static str,
    body: F,
    answer: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
    _place: OwnedSemaphorePermit,
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: Fn(&Tx<'_>) -> Result<T, Fault> + Send,
{
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), Undo> {
        // The body only reads its arguments, and what it wrote is undone: nothing half-changed outlives the panic.
        let (answer, undo) = match catch_unwind(AssertUnwindSafe(|| (self.body)(tx))) {
            Ok(Ok(answer)) => (Ok(answer), None),
            Ok(Err(fault)) => {
                let undo = if fault.is_unique_race() { Undo::Raced } else { Undo::Failed };
                (Err(fault.into()), Some(undo))
            }
            Err(_) => {
                tracing::error!(call = self.name, "a call of the store panicked; it was undone");
                (Err(StoreError::NotDone { reason: format!("a defect in {}", self.name) }), Some(Undo::Failed))
            }
        };
        if let Err(StoreError::Damaged { reason }) = &answer {
            tracing::error!(call = self.name, reason, "a stored row is damaged");
        }
        self.answer = Some(answer);
        undo.map_or(Ok(()), Err)
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let undecided = || Err(StoreError::NotDone { reason: "the store did not come to it".to_owned() });
        let answer = match (self.answer, committed) {
            // What failed by itself failed for its own reason.
            (Some(Err(error)), _) | (_, Err(error)) => Err(error),
            (Some(Ok(answer)), Ok(())) => Ok(answer),
            (None, Ok(())) => undecided(),
        };
        // A caller that went away has lost its answer, as over a network.
        drop(self.reply.send(answer));
    }
}

/// The callers' end of a bounded queue of calls.
pub(super) struct Queue {
    sender: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    places: Arc<Semaphore>,
    #[cfg(test)]
    sent: std::sync::atomic::AtomicUsize,
}

impl Queue {
    /// A queue with this many places, and the end that its threads read.
    pub(super) fn bounded(places: usize) -> (Self, mpsc::Receiver<Box<dyn Job>>) {
        let (sender, receiver) = mpsc::channel();
        let queue = Self {
            sender: Mutex::new(Some(sender)),
            places: Arc::new(Semaphore::new(places)),
            #[cfg(test)]
            sent: std::sync::atomic::AtomicUsize::new(0),
        };
        (queue, receiver)
    }

    /// Sends a call and waits for its answer.
    pub(super) async fn call<T, F>(&self, name: &'static str, body: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let closed = || StoreError::NotDone { reason: "the store is closed".to_owned() };
        let place = self.places.clone().acquire_owned().await.map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        self.send(Box::new(Call { name, body, answer: None, reply, _place: place })).map_err(|_| closed())?;
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::Unknown { reason: format!("the store ended before it answered {name}") }),
        }
    }

    /// Sends a job; gives it back when nobody will read it.
    pub(super) fn send(&self, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        // Nothing can panic while the lock is held.
        match &*self.sender.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(sender) => {
                sender.send(job).map_err(|mpsc::SendError(job)| job)?;
                #[cfg(test)]
                self.sent.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                Ok(())
            }
            None => Err(job),
        }
    }

    /// How many jobs its threads were given so far: under the lock of the sender, so that what is counted is in the queue.
    #[cfg(test)]
    pub(super) fn sent(&self) -> usize {
        let _sending = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        self.sent.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Takes no more calls; what was sent is still carried out.
    pub(super) fn close(&self) {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
