//! Hints between replicas: what one says the others hear, and nobody is told for ever that nothing happened.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::limits::ANNOUNCED;
use leasehold_store::announcement::{Announcement, Waits};
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
    fixture.database.cut_off_who_listens().unwrap();
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), two.hear()).await.unwrap(), [Hint::Missed]);
}

fn announcement(number: u64) -> Hint {
    let waits = |worker| Waits {
        worker: format!("{worker:063}").parse().unwrap(),
        capabilities: Digest::of(Domain::Capabilities, b"some"),
        free: 256,
        room: 16,
    };
    let replica = "01900000-0000-7000-8000-000000000001".parse().unwrap();
    Hint::Waits(Announcement { replica, number, waiting: (0..ANNOUNCED).map(waits).collect() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_heard_whole_among_many_hints_and_what_others_notify_is_nothing() {
    let Some(fixture) = Fixture::new().await else { return };
    let (one, two) = (fixture.store.hints().unwrap(), fixture.replica().await);
    let two = two.hints().unwrap();
    assert_eq!(one.hear().await, [Hint::Missed]);
    assert_eq!(two.hear().await, [Hint::Missed]);
    let channel = "\"leasehold leasehold\"";
    for garbage in ["", "waits 1", "waits 9 x", "dispatch now\nwaits", "\u{1F980}\n\n", &"x".repeat(7_999)] {
        fixture.sql(&format!("NOTIFY {channel}, '{garbage}'"));
    }
    // Together more than one notification takes.
    let workers: Vec<Hint> = (0..200).map(|number| Hint::Worker(format!("w{number:062}").parse().unwrap())).collect();
    for hint in [announcement(1), announcement(2)].into_iter().chain(workers.clone()) {
        one.say(hint);
    }
    let all: BTreeSet<Hint> = workers.into_iter().chain([announcement(2)]).collect();
    let mut heard = BTreeSet::new();
    while !heard.is_superset(&all) {
        heard.extend(two.hear().await);
    }
    // An earlier one is told only if it was on its way already.
    heard.remove(&announcement(1));
    assert_eq!(heard, all);
}
