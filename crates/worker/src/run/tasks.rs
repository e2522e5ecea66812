//! What the driver has under way beside the engine. Whatever the engine waits for is answered, also by a task that
//! breaks.
//!
//! An answer that never comes would leave the engine waiting for ever, with the lease renewed all the while. So whoever
//! begins a task says beforehand what is true if it panics: that its outcome is not known. (Where a panic ends the
//! process, as in the small binary, the next start finds it out.) Never here: a decision.

use std::collections::{HashMap, VecDeque};
use std::future::Future;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use crate::engine::port::Input;

/// Said in place of an outcome.
pub(super) const BROKE: &str = "the agent's task for it broke; its log says where";

/// Tasks, what the engine is told when they end, and what it is told instead where they break.
#[derive(Default)]
pub(super) struct Tasks {
    set: JoinSet<Option<Input>>,
    owed: HashMap<Id, Vec<Input>>,
    said: VecDeque<Input>,
}

impl Tasks {
    /// Begins a task; `owed` is what the engine hears if it panics. One that is aborted says nothing.
    pub(super) fn spawn(
        &mut self,
        owed: Vec<Input>,
        work: impl Future<Output = Option<Input>> + Send + 'static,
    ) -> AbortHandle {
        let task = self.set.spawn(work);
        self.owe(&task, owed);
        task
    }

    /// Begins what blocks, on a thread of its own; `owed` is what the engine hears if it panics.
    pub(super) fn blocking(&mut self, owed: Input, work: impl FnOnce() -> Input + Send + 'static) {
        let task = self.set.spawn_blocking(move || Some(work()));
        self.owe(&task, vec![owed]);
    }

    fn owe(&mut self, task: &AbortHandle, owed: Vec<Input>) {
        if !owed.is_empty() {
            self.owed.insert(task.id(), owed);
        }
    }

    /// The next thing that a task has to say. Nothing is lost where this is not waited for to its end.
    pub(super) async fn next(&mut self) -> Input {
        loop {
            if let Some(input) = self.said.pop_front() {
                return input;
            }
            match self.set.join_next_with_id().await {
                Some(ended) => self.ended(ended),
                None => std::future::pending().await,
            }
        }
    }

    fn ended(&mut self, ended: Result<(Id, Option<Input>), JoinError>) {
        match ended {
            Ok((id, word)) => {
                self.owed.remove(&id);
                self.said.extend(word);
            }
            Err(error) => {
                let owed = self.owed.remove(&error.id());
                if error.is_panic() {
                    tracing::error!("a defect of this program, please report it: {error}");
                    self.said.extend(owed.into_iter().flatten());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::id::OfferId;

    use super::*;
    use crate::engine::port::{LaunchAnswer, OpId};

    fn launched(op: u64, why: &str) -> Input {
        Input::Launched { op: OpId(op), answer: LaunchAnswer::Unknown(why.to_owned()) }
    }

    fn text(input: &Input) -> String {
        format!("{input:?}")
    }

    #[tokio::test]
    async fn what_blocks_is_answered_also_where_it_panics() {
        let mut tasks = Tasks::default();
        tasks.blocking(launched(1, BROKE), || panic!("a launch that breaks"));
        assert_eq!(text(&tasks.next().await), text(&launched(1, BROKE)));
        tasks.blocking(launched(2, BROKE), || launched(2, "its own word"));
        assert_eq!(text(&tasks.next().await), text(&launched(2, "its own word")), "and it goes on");
        assert!(tasks.owed.is_empty());
    }

    #[tokio::test]
    async fn a_call_and_a_conversation_that_panic_are_answered_in_their_order() {
        let offer: OfferId = "01900000-0000-7000-8000-000000000000".parse().unwrap();
        let owed = || vec![Input::Attached { op: OpId(1), attached: false }, Input::HungUp { offer }];
        let mut tasks = Tasks::default();
        tasks.spawn(owed(), async { panic!("a conversation that breaks") });
        let heard = [tasks.next().await, tasks.next().await];
        assert_eq!(heard.each_ref().map(text), [text(&owed()[0]), text(&owed()[1])]);
    }

    #[tokio::test]
    async fn what_was_given_up_says_nothing() {
        let mut tasks = Tasks::default();
        let call = tasks.spawn(vec![launched(1, BROKE)], std::future::pending());
        call.abort();
        tasks.spawn(Vec::new(), async { Some(launched(2, "later")) });
        assert_eq!(text(&tasks.next().await), text(&launched(2, "later")));
        while let Some(ended) = tasks.set.join_next_with_id().await {
            tasks.ended(ended);
        }
        assert!(tasks.said.is_empty() && tasks.owed.is_empty());
    }
}
