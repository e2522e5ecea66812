//! Calls that several callers make at once, timed.

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::test_server::Laps;

/// Works through what each caller has, all callers at once, each one call after the other.
pub(super) async fn timed<I, O, F>(
    work: Vec<Vec<I>>,
    call: impl Fn(I) -> F + Clone + Send + 'static,
) -> (Vec<Vec<O>>, Laps)
where
    I: Send + 'static,
    O: Send + 'static,
    F: Future<Output = O> + Send,
{
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for (caller, work) in work.into_iter().enumerate() {
        let call = call.clone();
        callers.spawn(async move {
            let (mut answers, mut each) = (Vec::with_capacity(work.len()), Vec::with_capacity(work.len()));
            for one in work {
                let begun = Instant::now();
                answers.push(call(one).await);
                each.push(begun.elapsed());
            }
            (caller, answers, each)
        });
    }
    let mut done = callers.join_all().await;
    let whole = begun.elapsed();
    done.sort_by_key(|(caller, ..)| *caller);
    let (answers, each): (Vec<_>, Vec<_>) = done.into_iter().map(|(_, answers, each)| (answers, each)).unzip();
    (answers, Laps::new(each.concat(), whole))
}
