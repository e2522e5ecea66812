//! What a worker is told to do beside the answers to its calls: repeated in every heartbeat and pull until it is done.
//!
//! A directive carries no authority of its own. What it says is stored before it is sent, and the store refuses what would
//! go against it whether the worker has heard it or not. (Protocol, *heartbeat* and *pull*.)

use crate::cancel::StopDirective;
use crate::session::{Session, SessionState};
use crate::worker::Worker;

/// Something a worker is to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Directive {
    /// Stop an attempt.
    Stop(StopDirective),
    /// Take nothing new and keep what runs: a person drains the worker.
    Drain,
    /// Take work again: the drain is over.
    Resume,
}

/// What a person's drain makes of the answer to a session that does not obey it yet, or still obeys one that is over.
pub fn of_drain(worker: &Worker, session: &Session) -> Option<Directive> {
    match (worker.drain.is_some(), session.obeys_drain) {
        (true, false) if session.state == SessionState::Active => Some(Directive::Drain),
        (false, true) => Some(Directive::Resume),
        _ => None,
    }
}
