//! Logs: taken in by offset, read from anywhere, followed as they arrive.
//!
//! All bytes are framed (see [`leasehold_core::frame`]); pieces may end inside a frame. A follower sees what the store has:
//! hints make it prompt, a scan makes it certain. (Control design, *Logs, artifacts, secrets*.)

use leasehold_core::attempt::Attempt;
use leasehold_core::id::{AttemptId, RunId};
use leasehold_core::lease::LeaseFence;
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::BootInstant;
use leasehold_store::call::{AppendLog, AttemptStep};
use leasehold_store::view::LogPage;

use crate::error::{Denied, OperatorResult, ServiceError, WorkerResult, settle};
use crate::hints::{Subscription, Topic};
use crate::plane::ControlPlane;
use crate::principal::{SessionRef, WorkerPrincipal};
use crate::room;

/// How much a follower hands out at once.
const PIECE: usize = limits::LOG_CHUNK / 4;

/// A piece of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPiece {
    /// Where it begins, in framed bytes.
    pub offset: u64,
    /// Framed bytes.
    pub bytes: Vec<u8>,
}

/// Hands out an attempt's log as it arrives, until its end.
#[derive(Debug)]
pub struct LogFollower {
    plane: ControlPlane,
    run: RunId,
    attempt: AttemptId,
    offset: u64,
    /// Since when the attempt has ended and nothing more of its log has come.
    silent_since: Option<BootInstant>,
    log: Subscription,
    state: Subscription,
}

impl ControlPlane {
    /// Takes in a piece of a log; answers the durable length.
    pub async fn append_log(
        &self,
        worker: &WorkerPrincipal,
        session: SessionRef,
        lease: LeaseFence,
        offset: u64,
        bytes: Vec<u8>,
    ) -> WorkerResult<u64> {
        if bytes.len() > limits::LOG_CHUNK {
            return Err(crate::sessions::over("log bytes", bytes.len(), limits::LOG_CHUNK));
        }
        if !self.room().takes_logs() {
            let why = "the control plane's disk is low: log bytes stay on the worker until there is room again";
            return Err(ServiceError::Refused(Refusal::new(RefusalCode::Overloaded, why).retry_after(room::AGAIN)));
        }
        let attempt = lease.attempt;
        let step = AttemptStep { session: worker.fence(session), lease };
        let length = settle(self.store().append_log(AppendLog { step, offset, bytes }).await)?;
        self.hints().changed(&Topic::Log(attempt));
        Ok(length)
    }

    /// Framed bytes of an attempt's log from `offset` on; at most [`limits::LOG_CHUNK`] whatever `limit` says.
    pub async fn read_log(&self, attempt: AttemptId, offset: u64, limit: usize) -> OperatorResult<LogPage> {
        let page = self.store().read_log(attempt, offset, limit.clamp(1, limits::LOG_CHUNK)).await?;
        page.ok_or_else(|| ServiceError::Refused(Denied::not_found("attempt", &attempt)))
    }

    /// Follows the log of a run's attempt from `offset` on.
    pub async fn follow_log(&self, run: RunId, attempt: AttemptId, offset: u64) -> OperatorResult<LogFollower> {
        // Subscribed before the first look: what arrives in between wakes.
        let follower = LogFollower {
            plane: self.clone(),
            run,
            attempt,
            offset,
            silent_since: None,
            log: self.hints().subscribe(Topic::Log(attempt)),
            state: self.hints().subscribe(Topic::Attempt(attempt)),
        };
        follower.look().await?;
        Ok(follower)
    }

    /// Whether the holder of a terminal attempt may still ship the rest of its log.
    async fn may_ship(&self, attempt: &Attempt) -> OperatorResult<bool> {
        let Some(worker) = &attempt.worker else { return Ok(false) };
        let view = self.store().worker(worker).await?;
        Ok(view.is_some_and(|view| view.session.as_ref().is_some_and(|session| session.is_live(view.now.lease))))
    }
}

impl LogFollower {
    /// The next piece; none after the last: the attempt has ended and either its log is here as long as the end pinned
    /// it, or the rest will not come now: whoever could ship it is out of contact or has not for
    /// [`limits::LOG_FOLLOW_PATIENCE`], or the disk is too low for it. May be dropped and called again.
    pub async fn next(&mut self) -> OperatorResult<Option<LogPiece>> {
        loop {
            // The state is read before the log, so that an end seen here cannot hide bytes that arrived before it.
            let attempt = self.look().await?;
            let page = self.plane.read_log(self.attempt, self.offset, PIECE).await?;
            if !page.bytes.is_empty() {
                let offset = self.offset;
                self.offset = offset.saturating_add(page.bytes.len() as u64);
                self.silent_since = None;
                return Ok(Some(LogPiece { offset, bytes: page.bytes }));
            }
            if self.is_over(&attempt, &page).await? {
                return Ok(None);
            }
            tokio::select! {
                () = self.log.hinted() => {}
                () = self.state.hinted() => {}
                () = tokio::time::sleep(self.plane.settings().follow_scan.to_std()) => {}
                () = self.plane.drained() => return Err(ServiceError::shutting_down()),
            }
        }
    }

    /// Where the next piece begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    async fn look(&self) -> OperatorResult<Attempt> {
        let view = self.plane.run_view(self.run).await?;
        let attempt = view.attempts.into_iter().find(|attempt| attempt.id == self.attempt);
        attempt.ok_or_else(|| ServiceError::Refused(Denied::not_found("attempt", &self.attempt)))
    }

    async fn is_over(&mut self, attempt: &Attempt, page: &LogPage) -> OperatorResult<bool> {
        if !attempt.state.is_terminal() {
            return Ok(false);
        }
        match page.pinned {
            Some(pinned) if page.received >= pinned => Ok(true),
            // Nobody takes in what is still at the worker, for as long as the disk is low.
            Some(_) if !self.plane.room().takes_logs() => Ok(true),
            // Its worker is live and does not bring it: what it had may be gone.
            Some(_) if self.is_out_of_patience() => Ok(true),
            Some(_) => Ok(!self.plane.may_ship(attempt).await?),
            // Lost without a receipt, or never started: nobody knows of more.
            None => Ok(true),
        }
    }

    fn is_out_of_patience(&mut self) -> bool {
        let now = self.plane.clock().boot();
        let since = *self.silent_since.get_or_insert(now);
        now.since(since) >= limits::LOG_FOLLOW_PATIENCE
    }
}

#[cfg(test)]
mod tests;
