//! Hints between replicas: what one says the others hear, and nobody is told for ever that nothing happened.

use std::time::Duration;

use leasehold_store::hint::Hint;
use leasehold_store::port::Store as _;

use super::Fixture;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_replica_says_the_others_hear_and_a_broken_connection_is_told() {
    let Some(fixture) = Fixture::new().await else { return };
    let (one, two) = (fixture.store.hints().unwrap(), fixture.replica().await);
    let two = two.hints().unwrap();
    // Whoever begins to listen may have missed something.
    assert_eq!(one.hear().await, [Hint::Missed]);
    assert_eq!(two.hear().await, [Hint::Missed]);
    let worker = Hint::Worker("nas".parse().unwrap());
    for hint in [Hint::Dispatch, worker.clone(), Hint::Dispatch] {
        one.say(hint);
    }
    let mut heard = Vec::new();
    while heard.len() < 2 {
        heard.extend(two.hear().await);
    }
    assert_eq!(heard, [Hint::Dispatch, worker], "once each");
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_notify%' \
               AND datname = current_database() AND pid <> pg_backend_pid()";
    fixture.sql(end);
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), two.hear()).await.unwrap(), [Hint::Missed]);
}
