//! The network between the agent and the control plane: what is lost, late, said twice or not known.

use std::collections::BTreeSet;

use leasehold_core::id::OfferId;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::Millis;

use super::disk::Directory;
use super::{Event, World};
use crate::engine::port::{Answer, AskAnswer, Call, Input, OpId, Outcome};

/// Answers that are lost on purpose.
#[derive(Debug)]
pub(crate) struct Losing {
    /// What comes instead of the answer.
    instead: Instead,
    /// Of which calls.
    pub(crate) call: &'static str,
    /// How many more.
    pub(crate) left: usize,
    /// Offers whose first answer was lost: the next one arrives.
    granted: BTreeSet<OfferId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instead {
    /// Nothing; every other time the agent dies as well.
    Nothing,
    /// The control plane says that it does not know itself.
    Overloaded,
}

fn overloaded() -> Refusal {
    Refusal::new(RefusalCode::Overloaded, "whether it was done is not known: send the same call again")
}

impl Losing {
    pub(crate) fn answers_of(call: &'static str, count: usize) -> Self {
        Self { instead: Instead::Nothing, call, left: count, granted: BTreeSet::new() }
    }

    /// The control plane itself loses the answers of its store.
    pub(crate) fn commits_of(call: &'static str, count: usize) -> Self {
        Self { instead: Instead::Overloaded, ..Self::answers_of(call, count) }
    }

    /// Whether this answer is lost. A pull that grants nothing new arrives.
    fn loses(&mut self, call: &Call, answer: &Answer) -> bool {
        if self.left == 0 || call.name() != self.call {
            return false;
        }
        let fresh = match answer {
            Answer::Pulled { asks, .. } => {
                let granted = asks.iter().filter(|(_, answer)| matches!(answer, AskAnswer::Granted(_)));
                granted.filter(|(offer, _)| self.granted.insert(*offer)).count()
            }
            _ => 1,
        };
        self.left = self.left.saturating_sub(fresh);
        fresh > 0
    }
}

impl World {
    pub(super) fn send(&mut self, op: OpId, call: Call, timeout: Millis) {
        *self.calls.entry(call.name()).or_default() += 1;
        if self.bad_logs && matches!(call, Call::Log { .. }) {
            return self.log_endpoint(op, call, timeout);
        }
        let life = self.life;
        if self.now < self.cut_until {
            return self.answer(
                5,
                Input::Answer {
                    op,
                    outcome: Outcome::NotDone("connection refused".to_owned()),
                    directives: Vec::new(),
                },
            );
        }
        let (there, lost) = (self.dice.below(40), self.dice.percent(self.weather.lost_requests));
        let answer = !lost && !self.dice.percent(self.weather.lost_answers);
        if self.dice.percent(self.weather.doubled) {
            // The same bytes again, much later; nobody waits for that answer.
            let late = there + self.dice.below(30_000);
            self.at(late, Event::Request { life, op, call: Box::new(call.clone()), answer: false });
        }
        if !answer {
            let outcome = Outcome::Unknown("no answer".to_owned());
            let after = there + self.dice.below(timeout.get().max(1)) + 50;
            self.answer(after, Input::Answer { op, outcome, directives: Vec::new() });
        }
        if !lost {
            self.at(there, Event::Request { life, op, call: Box::new(call), answer });
        }
    }

    /// An endpoint that answers 500, 413, loses its answers, swallows requests and stalls, in turn; one in five arrives.
    fn log_endpoint(&mut self, op: OpId, call: Call, timeout: Millis) {
        let life = self.life;
        let stalled = |why: &str| Outcome::Unknown(why.to_owned());
        let (after, outcome) = match self.calls["logs"] % 5 {
            0 => (5, stalled("status 500 without a problem of this protocol")),
            1 => (5, Outcome::Refused(Refusal::new(RefusalCode::LimitExceeded, "too large for the way"))),
            2 => {
                self.at(1, Event::Request { life, op, call: Box::new(call), answer: false });
                (20, stalled("the connection was reset"))
            }
            3 => (timeout.get(), stalled("no answer in time")),
            _ => return self.at(5, Event::Request { life, op, call: Box::new(call), answer: true }),
        };
        self.answer(after, Input::Answer { op, outcome, directives: Vec::new() });
    }

    pub(super) fn request(&mut self, life: u64, op: OpId, call: &Call, answer: bool) {
        // A long poll waits for work; without any it is answered after a while, as the protocol's is.
        let directories = &self.disk.directories;
        let written = |attempt| directories.get(&attempt).map_or(0, |directory: &Directory| directory.log);
        let open = self.weather.open_commits > 0 && self.dice.percent(self.weather.open_commits);
        let result = if open && self.dice.percent(50) {
            Err(overloaded())
        } else {
            let result = self.control.call(call, &written);
            // A refusal changes nothing, and is known without a commit.
            if open { result.and_then(|_| Err(overloaded())) } else { result }
        };
        if !answer {
            return;
        }
        if let (Some(losing), Ok(given)) = (&mut self.losing, &result)
            && losing.loses(call, given)
        {
            let outcome = match losing.instead {
                Instead::Nothing if losing.left % 2 == 0 => return self.crash(),
                Instead::Nothing => Outcome::Unknown("no answer".to_owned()),
                Instead::Overloaded => Outcome::Refused(overloaded()),
            };
            return self.answer(50, Input::Answer { op, outcome, directives: Vec::new() });
        }
        let idle = match (&result, call) {
            (Ok(Answer::Pulled { asks, .. }), Call::Pull { wait, .. }) => {
                let granted = asks.iter().any(|(_, answer)| !matches!(answer, AskAnswer::None));
                !granted && *wait > Millis::ZERO
            }
            _ => false,
        };
        let outcome = match result {
            Ok(answer) => Outcome::Answered(answer),
            Err(refusal) => Outcome::Refused(refusal),
        };
        let directives = self.control.directives();
        let back = self.dice.below(40) + if idle { 1_500 } else { 0 };
        self.at(back, Event::Input { life, input: Box::new(Input::Answer { op, outcome, directives }) });
    }
}
