//! Rounds: work that every replica does again and again until it drains.
//!
//! A round says how long it is until the next; a hint only makes that earlier. A round that has begun is finished.
//! (Design: hints wake, scans guarantee.)

use std::time::Duration;

use leasehold_core::time::Millis;
use leasehold_store::outcome::StoreError;

use crate::plane::ControlPlane;

/// How soon a round may follow another, whatever that said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// How long hints are gathered before they are followed, where they may be many.
    pub(crate) gathered: Option<Millis>,
    /// After a round that the store did not answer.
    pub(crate) retry: Millis,
}

impl ControlPlane {
    /// Runs rounds until the control plane drains, each once what the one before answered has passed or `hinted` is ready.
    /// Of one that the store did not answer, `failed` tells people.
    pub(crate) async fn rounds<R, H>(
        &self,
        pace: Pace,
        mut round: impl FnMut() -> R,
        mut hinted: impl FnMut() -> H,
        failed: impl Fn(&StoreError),
    ) where
        R: Future<Output = Result<Duration, StoreError>>,
        H: Future<Output = ()>,
    {
        while !self.is_draining() {
            let wait = round().await.unwrap_or_else(|error| {
                failed(&error);
                pace.retry.to_std()
            });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.drained() => break,
                () = async {
                    hinted().await;
                    if let Some(span) = pace.gathered {
                        tokio::time::sleep(span.to_std()).await;
                    }
                } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};

    use tokio::sync::Notify;
    use tokio::time::{Instant, sleep, sleep_until, timeout};

    use super::*;
    use crate::fixture::World;

    const PACE: Pace = Pace { gathered: None, retry: Millis::new(700) };
    /// Longer than any test looks.
    const LONG: Duration = Duration::from_hours(1);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn unanswered() -> Result<Duration, StoreError> {
        Err(StoreError::NotDone { reason: "the store is away".to_owned() })
    }

    /// The moments at which rounds begin that give these answers, with hints at those moments, and how many were told of.
    async fn begun<const N: usize>(
        pace: Pace,
        answers: [Result<Duration, StoreError>; N],
        hints: &[u64],
    ) -> (Vec<u128>, usize) {
        let world = World::new().await;
        let (from, hint, told) = (Instant::now(), Notify::new(), Cell::new(0));
        let (mut begun, mut answers) = (Vec::new(), answers.into_iter());
        let round = || {
            begun.push(from.elapsed().as_millis());
            ready(answers.next().unwrap_or(Ok(LONG)))
        };
        let rounds = world.plane.rounds(pace, round, || hint.notified(), |_| told.set(told.get() + 1));
        let hints = async {
            for at in hints {
                sleep_until(from + millis(*at)).await;
                hint.notify_one();
            }
            pending::<()>().await;
        };
        let over = timeout(LONG / 2, async { tokio::join!(rounds, hints) }).await;
        assert!(over.is_err(), "nothing drains");
        (begun, told.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_says_when_the_next_begins() {
        assert_eq!(begun(PACE, [Ok(millis(10)), Ok(millis(30)), Ok(millis(20))], &[]).await, (vec![0, 10, 40, 60], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_store_did_not_answer_is_told_and_repeated() {
        assert_eq!(begun(PACE, [unanswered(), unanswered(), Ok(millis(10))], &[]).await, (vec![0, 700, 1400, 1410], 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_makes_the_next_round_earlier() {
        assert_eq!(begun(PACE, [Ok(millis(1000))], &[200, 300]).await, (vec![0, 200, 300], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn hints_that_come_together_are_one_and_never_make_a_round_later() {
        let pace = Pace { gathered: Some(Millis::new(50)), ..PACE };
        assert_eq!(begun(pace, [], &[200, 220, 240]).await, (vec![0, 250, 300], 0), "one may have come too late");
        assert_eq!(begun(pace, [Ok(millis(210))], &[200]).await, (vec![0, 210], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_drains_finishes_the_round_and_waits_for_no_other() {
        for (takes, over) in [(0, 1), (10, 10)] {
            let world = World::new().await;
            let running = world.start();
            let from = Instant::now();
            let mut rounds = 0;
            let round = || {
                rounds += 1;
                async move {
                    sleep(Duration::from_secs(takes)).await;
                    Ok(LONG)
                }
            };
            let stop = async {
                sleep(Duration::from_secs(1)).await;
                running.stop().await;
            };
            tokio::join!(world.plane.rounds(PACE, round, pending, |_| {}), stop);
            assert_eq!((rounds, from.elapsed()), (1, Duration::from_secs(over)));
        }
    }
}
