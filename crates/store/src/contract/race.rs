//! Two callers at the same instant, on two threads.

/// Runs both on the test's runtime and waits for both.
pub(super) async fn both<A, B>(one: A, two: B) -> (A::Output, B::Output)
where
    A: Future<Output: Send> + Send + 'static,
    B: Future<Output: Send> + Send + 'static,
{
    let (one, two) = (tokio::spawn(one), tokio::spawn(two));
    (one.await.unwrap(), two.await.unwrap())
}
