//! What stands in the way of a run that is due: a run of the same task that is on its way, or of which something may live.
//!
//! A run that waits for a worker stands in the way too: the next instants would queue up behind it for as long as no worker
//! can take it. A lost run does while it occupies ([`crate::occupancy`]): with `mutex` until it is resolved. (Control design,
//! *Triggers* and *Devices*.)

use crate::attempt::Attempt;
use crate::occupancy::occupies;
use crate::run::{Policy, Run, RunState};

/// Whether `run`, which has these attempts, stands in the way of another run of its task.
pub fn stands_in_the_way<'a>(run: &Run, attempts: impl IntoIterator<Item = &'a Attempt>, policy: &Policy) -> bool {
    let on_its_way =
        matches!(run.state, RunState::Pending | RunState::Dispatching | RunState::Running | RunState::RetryWait);
    on_its_way || attempts.into_iter().any(|attempt| occupies(run, attempt, policy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Actor;
    use crate::admission::{Submission, admit};
    use crate::attempt::AttemptState;
    use crate::id::{AttemptId, ProjectName, RunId};
    use crate::revision::Revision;
    use crate::time::{Entropy, LeaseInstant, Now, UtcMillis};

    struct Ones;

    impl Entropy for Ones {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(1);
        }
    }

    #[test]
    fn a_run_stands_in_the_way_until_nothing_of_it_can_live() {
        let revision = Revision::of_argv(["true"]).unwrap();
        let now = Now { lease: LeaseInstant::new(0), utc: UtcMillis::new(0) };
        let submission =
            Submission { project: &ProjectName::default(), task: None, scheduled: None, revision: &revision };
        let ids = (RunId::new(now.utc, &Ones), AttemptId::new(now.utc, &Ones));
        let change = admit(submission, ids.0, ids.1, &Actor::System, now);
        let (run, attempt) = (change.run.unwrap(), change.attempt.unwrap());
        let in_the_way = |state, attempt_state, may_live, mutex| {
            let run = Run { state, ..run.clone() };
            let attempt = Attempt { state: attempt_state, may_live, ..attempt.clone() };
            stands_in_the_way(&run, [&attempt], &Policy { mutex, ..revision.policy() })
        };
        for state in [RunState::Pending, RunState::Dispatching, RunState::Running, RunState::RetryWait] {
            assert!(in_the_way(state, AttemptState::Pending, false, false), "{state}");
        }
        assert!(!in_the_way(RunState::Lost, AttemptState::Lost, false, false));
        assert!(in_the_way(RunState::Lost, AttemptState::Lost, false, true), "mutex: until it is resolved");
        assert!(!in_the_way(RunState::Failed, AttemptState::Lost, false, true), "and no longer");
        for state in [RunState::Lost, RunState::Failed, RunState::Cancelled] {
            assert!(in_the_way(state, AttemptState::Lost, true, false), "something may live: {state}");
        }
    }
}
