//! What the kernel does not let go of, in plain words: why a stop is not over, or what an ended attempt has left.

use crate::attempt::{Attempt, Left};

/// A sentence for each attempt of which something is left that could not be killed.
pub fn in_words(attempts: &[Attempt]) -> Vec<String> {
    attempts.iter().filter_map(|attempt| Some(sentence(attempt, attempt.left.as_ref()?))).collect()
}

fn sentence(attempt: &Attempt, left: &Left) -> String {
    let (number, left) = (attempt.number, processes(left));
    let on = attempt.worker.as_ref().map(|worker| format!(" on worker {worker}")).unwrap_or_default();
    if attempt.state.is_live() {
        format!(
            "attempt {number}{on} is being stopped, and the kernel does not let go of {left}: it ends when they are gone, \
             and keeps no slot but its own until then"
        )
    } else {
        format!("the kernel did not let go of {left} of attempt {number}{on}: it keeps its places until they are gone")
    }
}

/// How many, and the ids of the first of them.
pub fn processes(left: &Left) -> String {
    let pids: Vec<_> = left.pids.iter().map(ToString::to_string).collect();
    let count = if left.count == 1 { "1 process".to_owned() } else { format!("{} processes", left.count) };
    if pids.is_empty() { count } else { format!("{count} ({})", pids.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::AttemptState;
    use crate::counter::AttemptNumber;

    #[test]
    fn what_is_left_is_said_of_a_stop_that_is_not_over_and_of_an_end() {
        let id = "01900000-0000-7000-8000-000000000001";
        let nothing = Attempt::pending(id.parse().unwrap(), id.parse().unwrap(), AttemptNumber::FIRST);
        let left = Some(Left { count: 2, pids: vec![7, 8] });
        let worker = "nas".parse().ok();
        let running = Attempt { state: AttemptState::Running, left, worker, ..nothing.clone() };
        let ended = Attempt {
            state: AttemptState::Cancelled,
            left: Some(Left { count: 1, pids: Vec::new() }),
            ..nothing.clone()
        };
        let told = in_words(&[nothing, running, ended]);
        assert_eq!(told.len(), 2);
        assert!(
            told[0].starts_with("attempt 1 on worker nas is being stopped") && told[0].contains("2 processes (7, 8)")
        );
        assert!(told[1].starts_with("the kernel did not let go of 1 process of attempt 1:"), "{told:?}");
    }
}
