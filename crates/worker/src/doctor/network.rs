//! What is wrong between this machine and its control plane: each address by the step that failed, and the clocks.

use std::net::SocketAddr;

use leasehold_core::refusal::RefusalCode;
use leasehold_core::time::{Millis, UtcMillis};

use super::Finding;
use crate::client::connection::reach::{Failed, Step};
use crate::engine::port::Outcome;

/// More than this is worth a word: certificates and times in logs are judged by it.
const SKEW_WARNING: Millis = Millis::from_secs(5);
/// More than this and certificates may be refused.
const SKEW_PROBLEM: Millis = Millis::from_secs(300);

/// One address of the control plane; none: its name could not be resolved.
pub fn address(server: &str, address: Option<SocketAddr>, failed: Option<&Failed>) -> Finding {
    let what = "control plane";
    let place = address.map_or_else(|| server.to_owned(), |address| format!("{server} at {address}"));
    let Some(failed) = failed else { return Finding::ok(what, format!("{place} answers")) };
    let advice = match failed.step {
        Step::Dns => "check the name and this machine's resolver; `server` in worker.toml may name an address",
        Step::Tcp => {
            "check that the control plane runs and listens there (--worker-listen), and that no firewall is between"
        }
        Step::Tls => {
            "check that nothing between ends TLS (a proxy must pass it through), and the clocks of both machines"
        }
        Step::San => "somebody else answers there: check `server`, or enroll this machine with that control plane anew",
        Step::Http => "check the log of the control plane",
    };
    Finding::problem(what, format!("{place}: {} failed: {}", failed.step, failed.why), advice)
}

/// What the control plane says to this worker's certificate. `outcome` is that of a call of a session that never was: who
/// is let in is told that it is fenced, and nothing is changed.
pub fn admission(outcome: &Outcome) -> Finding {
    let what = "admission";
    match outcome {
        Outcome::Refused(refusal) => match refusal.code {
            RefusalCode::SessionFenced | RefusalCode::SessionExpired => {
                Finding::ok(what, "the control plane lets this worker in")
            }
            RefusalCode::Revoked | RefusalCode::Unauthenticated => {
                let advice =
                    "enroll this machine again: `leasehold worker enroll --name NAME`, then the line it prints";
                Finding::problem(what, refusal.message.clone(), advice)
            }
            RefusalCode::UnsupportedProtocol => {
                Finding::problem(what, refusal.message.clone(), "install the worker of the control plane's version")
            }
            _ => {
                Finding::warning(what, refusal.message.clone(), "try again; the log of the control plane may say more")
            }
        },
        Outcome::Answered(_) => Finding::ok(what, "the control plane lets this worker in"),
        Outcome::NotDone(why) | Outcome::Unknown(why) => {
            Finding::problem(what, why.clone(), "see the lines above; the log of the control plane may say more")
        }
    }
}

/// This clock beside the control plane's, which told its own to the second.
pub fn clock(here: UtcMillis, there: UtcMillis) -> Finding {
    let what = "clock";
    let skew = here.since(there).max(there.since(here));
    let side = if here >= there { "ahead of" } else { "behind" };
    let seen = format!("{} {side} the control plane's", Millis::from_secs(skew.get() / 1000));
    let advice = "let both keep time (timedatectl set-ntp true); leases do not depend on it, certificates and logs do";
    if skew > SKEW_PROBLEM {
        Finding::problem(what, seen, advice)
    } else if skew > SKEW_WARNING {
        Finding::warning(what, seen, advice)
    } else {
        Finding::ok(what, "as the control plane's, to a few seconds")
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::refusal::Refusal;

    use super::*;
    use crate::doctor::Verdict::{Ok as Fine, Problem, Warning};

    #[test]
    fn each_step_that_fails_has_its_own_advice() {
        let at = Some("192.0.2.1:7443".parse().unwrap());
        assert_eq!(address("control:7443", at, None).verdict, Fine);
        let mut advice = std::collections::BTreeSet::new();
        for step in [Step::Dns, Step::Tcp, Step::Tls, Step::San, Step::Http] {
            let found = address("control:7443", at, Some(&Failed { step, why: "so".to_owned() }));
            assert_eq!(found.verdict, Problem);
            assert!(found.seen.contains(&step.to_string()) && found.seen.contains("so"), "{found:?}");
            advice.insert(found.advice);
        }
        assert_eq!(advice.len(), 5);
    }

    #[test]
    fn whoever_is_fenced_is_let_in_and_whoever_is_revoked_is_not() {
        let refused = |code| admission(&Outcome::Refused(Refusal::new(code, "so"))).verdict;
        assert_eq!(refused(RefusalCode::SessionFenced), Fine);
        assert_eq!(refused(RefusalCode::Revoked), Problem);
        assert_eq!(refused(RefusalCode::Unauthenticated), Problem);
        assert_eq!(refused(RefusalCode::Overloaded), Warning);
        assert_eq!(admission(&Outcome::Unknown("so".to_owned())).verdict, Problem);
    }

    #[test]
    fn a_clock_is_judged_in_both_directions() {
        let judged = |here| clock(UtcMillis::new(here), UtcMillis::new(1_000_000)).verdict;
        assert_eq!([1_000_000, 996_000, 1_006_000, 994_000].map(judged), [Fine, Fine, Warning, Warning]);
        assert_eq!([1_301_000, 0].map(judged), [Problem, Problem]);
    }
}
