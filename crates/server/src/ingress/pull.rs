//! `POST …/pull`: the worker asks for work and directives; the answer waits until there is some.
//!
//! When the worker goes away the service's future is dropped with the request: what was claimed for it stays claimed under
//! its ask, and the next pull recovers it.

use axum::extract::State;
use leasehold_control::SessionRef;
use leasehold_control::pull::{AskAnswer as Found, NoneReason, Pull, Pulled};
use leasehold_core::placement::MismatchClass;
use leasehold_wire::v1::pull::{AskAnswer, AskVerdict, Idle, IdleReason, PullAnswer, PullRequest};

use super::Ingress;
use super::request::{Answer, Answered, AtSession, Caller, Said};

pub(super) async fn pull(
    State(ingress): State<Ingress>,
    Caller(worker): Caller,
    AtSession(session): AtSession,
    Said(said): Said<PullRequest>,
) -> Answered<PullAnswer> {
    let pull = Pull {
        session: SessionRef { id: session, generation: said.session_generation },
        asks: said.asks.iter().map(Into::into).collect(),
        wait: said.wait_ms,
    };
    let pulled = ingress.control.pull(&worker, pull).await?;
    Ok(Answer(answer(&pulled)))
}

fn answer(pulled: &Pulled) -> PullAnswer {
    let idle = pulled.asks.iter().find_map(|(_, found)| match found {
        Found::None(reason) => Some(idle(reason)),
        Found::Granted(_) | Found::Gone => None,
    });
    let asks = pulled.asks.iter().map(|(offer, found)| {
        let verdict = match found {
            Found::Granted(offer) => AskVerdict::Granted(Box::new((&**offer).into())),
            Found::None(_) => AskVerdict::None,
            Found::Gone => AskVerdict::Gone,
        };
        AskAnswer { offer_id: *offer, verdict }
    });
    PullAnswer {
        asks: asks.collect(),
        idle,
        directives: pulled.directives.iter().map(Into::into).collect(),
        held_ms: pulled.held,
    }
}

/// The reason that leads: of the classes, the one that kept most away.
fn idle(none: &NoneReason) -> Idle {
    let leading = none.counts.iter().max_by_key(|(_, count)| **count).map(|(class, _)| *class);
    let reason = match leading {
        Some(MismatchClass::Draining) => IdleReason::Draining,
        Some(MismatchClass::NoFreeSlot) => IdleReason::NoFreeSlot,
        Some(_) => IdleReason::NoMatch,
        None if none.truncated => IdleReason::Budget,
        None => IdleReason::NoPendingRuns,
    };
    Idle { reason, counts: none.counts.clone(), truncated: none.truncated }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_that_kept_most_runs_away_leads() {
        let idle = |counts: &[(MismatchClass, u32)], truncated| {
            super::idle(&NoneReason { counts: counts.iter().copied().collect(), truncated }).reason
        };
        assert_eq!(idle(&[], false), IdleReason::NoPendingRuns);
        assert_eq!(idle(&[], true), IdleReason::Budget);
        assert_eq!(idle(&[(MismatchClass::NoFreeSlot, 3), (MismatchClass::Arch, 1)], false), IdleReason::NoFreeSlot);
        assert_eq!(idle(&[(MismatchClass::NoFreeSlot, 1), (MismatchClass::Arch, 2)], true), IdleReason::NoMatch);
        assert_eq!(idle(&[(MismatchClass::Draining, 1)], false), IdleReason::Draining);
    }
}
