//! Runs that want devices for themselves: who gets which, and that who waits for one holds nobody else up.

use std::pin::pin;

use futures_util::poll;
use leasehold_core::canonical::Value;
use leasehold_core::claim::ReleaseReason;
use leasehold_core::limits;
use leasehold_core::placement::{MismatchClass, Outlook, Score};
use leasehold_core::revision::Revision;
use leasehold_core::time::Millis;

use super::{Landed, Proposal};
use crate::fixture::{Taken, World, granted, plain, revision};
use crate::pull::AskAnswer;

const LONG: Millis = Millis::from_secs(30);

/// `true`, with so many GPUs.
fn wants(count: i64) -> Revision {
    urgent(count, 0)
}

fn urgent(count: i64, priority: i64) -> Revision {
    let gpu = Value::map([("gpu", Value::map([("count", Value::Int(count))]))]);
    revision([("placement", Value::map([("require", gpu)])), ("priority", Value::Int(priority))])
}

#[tokio::test(start_paused = true)]
async fn what_one_cycle_hands_out_is_disjoint() {
    let world = World::new().await;
    let agent = world.agent_with_gpus("rig", 8, 4).await;
    let mut runs = Vec::new();
    for count in [2, 2, 4, 1] {
        runs.push(world.submit(wants(count)).await);
    }
    let asks = world.asks(8);
    let mut pull = pin!(agent.pull(asks.clone(), LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    assert_eq!(world.dispatch().await, 2, "what cannot be given is not tried");
    let offers = granted(&pull.await.unwrap());
    let got: Vec<_> = offers.iter().map(|offer| (offer.run, offer.devices.to_string())).collect();
    let mut devices: Vec<_> = got.iter().map(|(_, devices)| devices.as_str()).collect();
    devices.sort_unstable();
    assert_eq!((devices, got.len()), (vec!["0,1", "2,3"], 2));
    assert!(got.iter().all(|(run, _)| runs[..2].contains(run)));
    let explained = world.plane.explain(runs[2]).await.unwrap().explanation.unwrap();
    assert_eq!((explained.outlook, explained.leading), (Outlook::Busy, Some(MismatchClass::Gpu)));
    assert_eq!(explained.nearest, "waiting for rig: 0 free of 4 that fit");
    let never = world.submit(wants(5)).await;
    let explained = world.plane.explain(never).await.unwrap().explanation.unwrap();
    assert_eq!((explained.outlook, explained.leading), (Outlook::Never, Some(MismatchClass::Gpu)));

    // What ends frees its own, and the waiting pull hears of it.
    let running = world.start();
    let next = tokio::spawn(agent.pull(world.asks(1), LONG));
    while world.plane.open_pulls().with_room().is_empty() {
        tokio::task::yield_now().await;
    }
    let first = Taken::of(asks.iter().find(|ask| ask.offer == offers[0].offer).unwrap(), offers[0].clone());
    agent.starting(&first).await;
    let began = tokio::time::Instant::now();
    agent.exited(&first, 0, b"").await;
    let offer = granted(&next.await.unwrap().unwrap()).remove(0);
    assert_eq!((offer.run, offer.devices.len()), (runs[3], 1), "four are not free");
    assert!(first.offer.devices.iter().any(|id| offer.devices.iter().any(|other| other == id)));
    assert!(began.elapsed() < world.plane.settings().dispatch_scan.to_std(), "at once");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_devices_holds_nobody_else_up() {
    let world = World::new().await;
    let agent = world.agent_with_gpus("rig", 4, 1).await;
    world.submit(wants(1)).await;
    assert_eq!(agent.take().await.offer.devices.to_string(), "0");
    let waiting = world.submit(urgent(1, 90)).await;
    let free = world.submit(plain()).await;
    assert_eq!(agent.take().await.offer.run, free);
    let mut pull = pin!(agent.pull(world.asks(1), Millis::from_secs(1)));
    assert!(poll!(pull.as_mut()).is_pending());
    assert_eq!(world.dispatch().await, 1, "nothing is tried in vain");
    let AskAnswer::None(reason) = pull.await.unwrap().asks.remove(0).1 else { panic!("it got something") };
    assert_eq!(reason.counts.into_iter().collect::<Vec<_>>(), [(MismatchClass::Gpu, 1)]);
    let roomy = world.agent_with_gpus("spare", 1, 2).await;
    assert_eq!(roomy.take().await.offer.run, waiting, "another worker has some");
}

/// The dispatcher may be behind: a device that went meanwhile is found by the claim, and read anew.
#[tokio::test(start_paused = true)]
async fn a_device_that_went_meanwhile_costs_one_claim() {
    let world = World::new().await;
    let agent = world.agent_with_gpus("rig", 4, 1).await;
    let held = world.submit(wants(1)).await;
    let mut pull = pin!(agent.pull(world.asks(2), LONG));
    assert!(poll!(pull.as_mut()).is_pending());
    let reserve = || world.plane.open_pulls().with_room()[0].reserve().unwrap();
    let (first, second) = (reserve(), reserve());
    let late = world.submit(wants(1)).await;
    let propose = |reserved, run| Proposal { reserved, run, score: Score::new(0) };
    assert_eq!(world.plane.claim_one(propose(first, held)).await.unwrap(), Landed::Granted);
    assert_eq!(world.plane.claim_one(propose(second, late)).await.unwrap(), Landed::Moved);
    world.dispatch().await;
    assert_eq!(granted(&pull.await.unwrap()).len(), 1);
}

/// What the worker gives back is its device, too; a lost claim frees its own when its window ends.
#[tokio::test(start_paused = true)]
async fn an_unstarted_claim_gives_its_devices_back() {
    let world = World::new().await;
    let agent = world.agent_with_gpus("rig", 4, 1).await;
    world.submit(wants(1)).await;
    let taken = agent.take().await;
    let reason = ReleaseReason::PolicyRefused;
    world.plane.release(&agent.principal, agent.session, taken.lease.clone(), reason).await.unwrap();
    let next = world.submit(wants(1)).await;
    assert_eq!(agent.take().await.offer.run, next);
    world.clock.advance(limits::CLAIM_WINDOW.plus(Millis::from_secs(2)));
    world.plane.recovery_round().await.unwrap();
    let busy = world.plane.worker(agent.principal.worker()).await.unwrap().device_holders;
    assert!(busy.is_empty(), "{busy:?}");
}
