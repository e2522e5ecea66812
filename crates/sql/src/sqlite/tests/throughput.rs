//! What the hot path costs: admissions, claims and ends per second, one caller after another and many at once.
//!
//! A measurement, not a promise: `cargo xtask bench-store` runs it.

use leasehold_core::canonical::Value;
use leasehold_store::port::Store as _;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Fixture, exited, revision, running, step};

/// Carries `runs` through their whole life with this many callers at once; prints how fast each part went.
async fn carry(callers: usize, runs: usize) {
    let fixture = Arc::new(Fixture::new());
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for caller in 0..callers {
        let fixture = Arc::clone(&fixture);
        tasks.spawn(async move {
            let session = fixture.agent(&format!("worker-{caller}")).await;
            let env: Vec<_> = (0..20).map(|n| (format!("VARIABLE_{n}"), Value::Text(format!("value {n}")))).collect();
            let environment = Value::Map(env.into_iter().collect());
            let mut spent = [0_u128; 5];
            for _ in 0..runs / callers {
                let mut at = Instant::now();
                let mut lap = |part: &mut u128| {
                    *part += at.elapsed().as_micros();
                    at = Instant::now();
                };
                let run = fixture.admit(revision(&[("env", environment.clone())])).await;
                lap(&mut spent[0]);
                let grant = fixture.claim(&session, run).await;
                lap(&mut spent[1]);
                let held = step(&session, &grant);
                fixture.store.acknowledge_starting(held.clone()).await.unwrap().into_result().unwrap();
                lap(&mut spent[2]);
                let call = leasehold_store::call::AcknowledgeRunning { step: held.clone(), call: running(&grant) };
                fixture.store.acknowledge_running(call).await.unwrap().into_result().unwrap();
                lap(&mut spent[3]);
                fixture.store.end(exited(&held, &grant, 0, b"")).await.unwrap().into_result().unwrap();
                lap(&mut spent[4]);
            }
            spent
        });
    }
    let mut spent = [0_u128; 5];
    while let Some(part) = tasks.join_next().await {
        spent.iter_mut().zip(part.unwrap()).for_each(|(sum, part)| *sum += part);
    }
    let whole = began.elapsed();
    let done = runs / callers * callers;
    println!("{callers} callers: {done} runs in {whole:?}: {} runs/s", done as u128 * 1000 / whole.as_millis().max(1));
    for (what, spent) in ["admit", "claim", "starting", "running", "end"].iter().zip(spent) {
        println!("  {what}: {} µs on average", spent / done as u128);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: `cargo xtask bench-store`"]
async fn throughput_of_one_caller_and_of_many() {
    carry(1, 500).await;
    carry(64, 6400).await;
}
