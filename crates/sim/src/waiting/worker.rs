//! One worker that waits, with no agent behind it: a session over the real client, which beats, pulls by long poll, and
//! says of what it is given that it ran and ended. It writes nothing down and starts no process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use leasehold_core::attempt::{Callback, ExitStatus, Handle, LogPin, RunningCall};
use leasehold_core::capability::{Capabilities, Claimed};
use leasehold_core::counter::{CallbackSequence, SessionVersion};
use leasehold_core::crypto::{CompletionToken, Digest, Domain, LeaseToken, Ticket};
use leasehold_core::end::Ending;
use leasehold_core::id::{BootId, OfferId, RunId, SessionId};
use leasehold_core::limits::PULL_WAIT;
use leasehold_core::offer::Offer;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::session::Said;
use leasehold_core::time::{Clock as _, Entropy as _, Millis};
use leasehold_worker::client::{Client, spell};
use leasehold_worker::engine::RegistrationFacts;
use leasehold_worker::engine::port::{Answer, Ask, AskAnswer, Call, End, HeldLease, Outcome, SessionNumbers};
use leasehold_worker::identity::Identity;
use leasehold_worker::machine::{MachineClock, MachineEntropy};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// How long a call may take that has no bound of its own, as an agent's.
const TIMEOUT: Millis = Millis::from_secs(10);

/// How often a call is sent that is put off.
const TRIES: usize = 10;

/// What a waiting worker tells of a run.
#[derive(Debug)]
pub(super) enum Told {
    /// Its offer was here, at this instant.
    Offered(RunId, Instant),
    /// Its end was acknowledged.
    Ended(RunId),
}

/// Where workers tell; one that cannot go on says why.
pub(super) type Teller = UnboundedSender<Result<Told>>;

/// A worker with a live session.
pub(super) struct Worker {
    client: Client,
    boot: BootId,
    session: SessionNumbers,
    interval: Millis,
}

impl Worker {
    /// Registers a session, and says in a first beat that it has one free slot.
    pub(super) async fn register(identity: &Identity, ticket: &Ticket) -> Result<(Arc<Self>, SessionVersion)> {
        let client = Client::new(identity)?;
        let session = SessionId::new(MachineClock.utc(), &MachineEntropy);
        let boot: BootId = format!("boot-of-{}", identity.worker).parse()?;
        let capabilities = capabilities()?;
        let body = spell(&RegistrationFacts {
            session,
            ticket,
            capabilities: &capabilities,
            max_runs: 1,
            boot: &boot,
            software: "waiting",
        });
        let answer = call(&client, Call::Register { session, body }, TIMEOUT).await?;
        let Answer::Registered { session: registered, .. } = answer else { bail!("a registration answers {answer:?}") };
        let session = SessionNumbers { session, generation: registered.generation };
        let worker = Arc::new(Self { client, boot, session, interval: registered.interval });
        let version = worker.beat(registered.version).await?;
        Ok((worker, version))
    }

    /// Beats from now on, and waits for work; tells what becomes of it. Returns when nobody listens any more, or at the first
    /// answer that it did not expect.
    pub(super) async fn live(self: Arc<Self>, version: SessionVersion, tell: Teller, beats: Arc<AtomicU64>) {
        let ended = tokio::select! {
            ended = self.keep_beating(version, &beats) => ended,
            ended = self.keep_pulling(&tell) => ended,
            () = tell.closed() => return,
        };
        if let Err(error) = ended {
            // Nobody listens to a worker whose measurement is over.
            let _ = tell.send(Err(error));
        }
    }

    async fn beat(&self, version: SessionVersion) -> Result<SessionVersion> {
        let said = Said { slots: 1, obeys_drain: false };
        let beat = Call::Heartbeat { session: self.session, version, said, faults: None, renewals: Vec::new() };
        match call(&self.client, beat, TIMEOUT).await? {
            Answer::Beaten { session, .. } => Ok(session.version),
            other => bail!("a heartbeat answers {other:?}"),
        }
    }

    async fn keep_beating(&self, mut version: SessionVersion, beats: &AtomicU64) -> Result<()> {
        loop {
            tokio::time::sleep(spread(self.interval)).await;
            version = self.beat(version).await?;
            beats.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn keep_pulling(&self, tell: &Teller) -> Result<()> {
        let mut ask = ask();
        loop {
            let pull = Call::Pull { session: self.session, asks: vec![ask.clone()], wait: PULL_WAIT };
            let answer = call(&self.client, pull, PULL_WAIT.plus(TIMEOUT)).await?;
            let at = Instant::now();
            let Answer::Pulled { asks, .. } = answer else { bail!("a pull answers {answer:?}") };
            match asks.into_iter().next().context("one ask has one answer")?.1 {
                AskAnswer::Granted(offer) => {
                    let _ = tell.send(Ok(Told::Offered(offer.run, at)));
                    self.carry_out(&offer, &ask).await?;
                    let _ = tell.send(Ok(Told::Ended(offer.run)));
                }
                AskAnswer::None => continue,
                other @ (AskAnswer::Gone | AskAnswer::Drifted { .. }) => bail!("an ask is answered {other:?}"),
            }
            ask = self::ask();
        }
    }

    /// Says that it starts, that it ran, and that it exited with 0 and without a word.
    async fn carry_out(&self, offer: &Offer, ask: &Ask) -> Result<()> {
        let lease = HeldLease {
            attempt: offer.attempt,
            offer: offer.offer,
            generation: offer.lease_generation,
            token: ask.token.clone(),
        };
        call(&self.client, Call::Starting { session: self.session, lease: lease.clone() }, TIMEOUT).await?;
        let token = CompletionToken::new(&MachineEntropy);
        let callback = Callback { sequence: CallbackSequence::FIRST, token: token.digest() };
        let now = MachineClock.utc();
        let handle = Handle { boot: self.boot.clone(), pid: 7, start_time: 7 };
        let end = End {
            ending: Ending::Exited { status: ExitStatus::Code(0), at: now },
            callback: Some((callback, token)),
            running: Some(RunningCall { handle, callback, started_at: now }),
            log: Some(LogPin { length: 0, digest: Digest::of(Domain::Log, b""), cut: None, finished: true }),
            usage: None,
            left: None,
        };
        call(&self.client, Call::End { session: self.session, lease, end: Box::new(end) }, TIMEOUT).await?;
        Ok(())
    }
}

/// A call that is answered, repeated where it was put off, as an agent would; any other refusal, and silence, are errors here.
async fn call(client: &Client, call: Call, timeout: Millis) -> Result<Answer> {
    let name = call.name();
    for _ in 0..TRIES {
        match client.call(&call, Bytes::new(), timeout).await.0 {
            Outcome::Answered(answer) => return Ok(answer),
            Outcome::Refused(Refusal {
                code: RefusalCode::Overloaded | RefusalCode::RateLimited, retry_after, ..
            }) => {
                // What is measured now is measured of a control plane that has too much to do.
                eprintln!("{name} was put off");
                tokio::time::sleep(retry_after.unwrap_or(TIMEOUT).to_std()).await;
            }
            other => bail!("{name}: {other:?}"),
        }
    }
    bail!("{name} was put off {TRIES} times")
}

fn ask() -> Ask {
    Ask { offer: OfferId::new(MachineClock.utc(), &MachineEntropy), token: LeaseToken::new(&MachineEntropy) }
}

/// An interval, longer or shorter by up to a tenth, as agents spread their beats.
fn spread(interval: Millis) -> Duration {
    let mut chance = [0];
    MachineEntropy.fill(&mut chance);
    interval.to_std() * (900 + u32::from(chance[0]) * 200 / 255) / 1000
}

fn capabilities() -> Result<Capabilities> {
    let claimed = Claimed {
        arch: std::env::consts::ARCH.to_owned(),
        os: std::env::consts::OS.to_owned(),
        executors: BTreeSet::from(["process".to_owned()]),
        memory_mib: 1024,
        disk_mib: 1024,
        ..Claimed::default()
    };
    Capabilities::new(claimed).map_err(|errors| anyhow::anyhow!("{errors:?}"))
}
