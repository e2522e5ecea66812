//! Devices: picked by the claim, kept by the lease, and nobody else's for as long as something is, or may be, using them.

use std::collections::BTreeSet;

use leasehold_core::attempt::EvidenceKind;
use leasehold_core::canonical::Value;
use leasehold_core::capability::{Capabilities, Claimed, Gpu};
use leasehold_core::claim::{Ask, NotClaimed, ReleaseReason};
use leasehold_core::end::Ending;
use leasehold_core::event::EventKind;
use leasehold_core::id::RunId;
use leasehold_core::resolve::Verb;
use leasehold_core::revision::Revision;
use leasehold_core::session::SessionFence;

use super::Harness;
use super::fixture::{Expect, Machine, Taken, World, capabilities, exited, plain, revision_with, seconds};
use super::race::both;
use crate::call::{EventsAfter, Release};
use crate::outcome::Outcome;
use crate::port::ClaimRefused;
use crate::view::AskState;

/// `true`, with so many devices for itself; with or without `mutex`.
fn wants(count: i64, mutex: bool) -> Revision {
    let gpu = Value::map([("count", Value::Int(count)), ("vendor", Value::text("nvidia"))]);
    let placement = Value::map([("require", Value::map([("gpu", gpu)]))]);
    revision_with([("placement", placement), ("limits", Value::map([("mutex", Value::Bool(mutex))]))])
}

fn with_devices(names: &[&str]) -> Capabilities {
    let gpu = |name: &&str| Gpu {
        id: name.parse().unwrap(),
        vendor: "nvidia".to_owned(),
        model: "T4".to_owned(),
        memory_mib: 15_360,
    };
    let claimed = Claimed { gpus: names.iter().map(gpu).collect(), ..(*capabilities()).clone() };
    Capabilities::new(claimed).unwrap()
}

impl World<'_> {
    /// A new session of the machine, which has these devices.
    async fn session_with(&self, machine: &Machine, boot_id: &str, devices: &[&str]) -> SessionFence {
        let mut call = self.registration(machine, self.session_id(), self.ticket(machine).await, boot_id);
        call.registration.capabilities = with_devices(devices);
        let session = call.registration.session;
        let projection = self.store.register_session(call).await.applied();
        SessionFence { worker: machine.id.clone(), session, generation: projection.generation }
    }

    /// The worker's devices that are in use, as each of its views says.
    async fn busy(&self, session: &SessionFence) -> Vec<String> {
        let viewed: BTreeSet<_> = self.worker(&session.worker).await.device_holders.into_keys().collect();
        if let Outcome::Replayed(pull) = self.store.recover_asks(session.clone(), vec![self.ask()]).await.unwrap() {
            assert_eq!(pull.busy_devices, viewed);
        }
        viewed.iter().map(ToString::to_string).collect()
    }

    async fn none_free(&self, session: &SessionFence, run: RunId) {
        let refused = self.unchanged(self.try_take(session, run)).await.unwrap_err();
        assert_eq!(refused, ClaimRefused::NotClaimed(NotClaimed::NoFreeDevice));
    }
}

fn devices(taken: &Taken) -> String {
    taken.grant.lease.devices.to_string()
}

/// Two attempts never share a device; who finds too few waits, whoever wants none does not, and what ends or is given back
/// frees its own.
pub async fn no_device_is_given_to_two(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("rig").await;
    let session = world.session_with(&machine, "boot-a", &["0", "1", "2"]).await;
    let first = world.running(&session, wants(2, false)).await;
    assert_eq!(devices(&first), "0,1");
    let second = world.claimed(&session, wants(1, false)).await;
    assert_eq!(
        (devices(&second).as_str(), world.busy(&session).await),
        ("2", vec!["0".into(), "1".into(), "2".into()])
    );
    let waiting = world.run(wants(1, false)).await;
    world.none_free(&session, waiting).await;
    let free = world.claimed(&session, plain()).await;
    assert_eq!(devices(&free), "", "it asked for none");
    let story = world.store.events(EventsAfter { run: first.run, after: None }, 10).await.unwrap();
    let claimed = story.iter().find(|event| event.kind == EventKind::AttemptClaimed).unwrap();
    assert_eq!(claimed.facts.get("devices").map(String::as_str), Some("0,1"));

    let given_back = Release { step: second.step.clone(), reason: ReleaseReason::DiskLow };
    world.store.release(given_back).await.applied();
    assert_eq!(devices(&world.take(&session, waiting).await), "2");
    world.end(&first, exited(0)).await.applied();
    assert_eq!(world.busy(&session).await, ["2"]);
    let holders = world.worker(&session.worker).await.device_holders;
    assert_eq!(holders, [("2".parse().unwrap(), waiting)].into(), "and whose it is");
    world.none_free(&session, world.run(wants(3, false)).await).await;
    assert_eq!(devices(&world.claimed(&session, wants(2, false)).await), "0,1");
}

/// A worker without devices, or with too few, is given no run that wants them.
pub async fn who_has_no_devices_gets_no_run_that_wants_them(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, plain_session) = world.agent("nas").await;
    world.none_free(&plain_session, world.run(wants(1, false)).await).await;
    assert!(world.busy(&plain_session).await.is_empty());
}

/// The lease keeps its devices whoever holds it: a repeated ask and a later session find the same ones. A session that does
/// not know them cannot have the offer.
pub async fn an_offer_keeps_its_devices(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("rig").await;
    let session = world.session_with(&machine, "boot-a", &["0", "1"]).await;
    let other = world.claimed(&session, wants(1, false)).await;
    let held = world.claimed(&session, wants(1, false)).await;
    assert_eq!((devices(&other).as_str(), devices(&held).as_str()), ("0", "1"));
    let ask = Ask { offer: held.step.lease.offer, token: held.step.lease.token };
    let session = world.session_with(&machine, "boot-a", &["0", "1", "2"]).await;
    let pull = world.store.recover_asks(session.clone(), vec![ask.clone()]).await.applied();
    let AskState::Granted(again) = &pull.asks[0] else { panic!("{pull:?}") };
    assert_eq!(again.lease.devices, held.grant.lease.devices);
    assert_eq!(world.busy(&session).await, ["0", "1"]);

    let session = world.session_with(&machine, "boot-a", &["0", "2"]).await;
    let pull = world.unchanged(world.store.recover_asks(session.clone(), vec![ask])).await.replayed();
    assert_eq!(pull.asks, [AskState::Gone]);
    assert_eq!(devices(&world.claimed(&session, wants(1, false)).await), "2", "what is held is held by name");
}

/// A lost attempt frees its devices, unless its task says `mutex` or something of it may live: then they stay reserved until
/// its question is closed, or that is refuted.
pub async fn a_lost_attempt_keeps_its_devices_while_something_may_use_them(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("rig").await;
    let mut session = world.session_with(&machine, "boot-a", &["0"]).await;
    for (mutex, keeps) in [(false, false), (true, true)] {
        let taken = world.running(&session, wants(1, mutex)).await;
        world.expire(&taken).await;
        session = world.session_with(&machine, "boot-a", &["0"]).await;
        if keeps {
            assert_eq!(world.busy(&session).await, ["0"]);
            world.none_free(&session, world.run(wants(1, false)).await).await;
            world.store.resolve_run(world.resolve_call(taken.run, Verb::MarkFailed)).await.applied();
        }
        assert_eq!(world.busy(&session).await, [""; 0]);
    }

    let taken = world.running(&session, wants(1, false)).await;
    world.end(&taken, Ending::Lost { evidence: EvidenceKind::LauncherKilledMayLive }).await.applied();
    assert_eq!(world.busy(&session).await, ["0"]);
    // Whatever is said of the run, and even by its own next attempt.
    world.store.resolve_run(world.resolve_call(taken.run, Verb::Retry)).await.applied();
    world.store.begin_retries(vec![world.attempt_id()]).await.unwrap();
    world.none_free(&session, taken.run).await;
    world.pass(seconds(46));
    let session = world.session_with(&machine, "boot-b", &["0"]).await;
    let gone = taken.held_by(&session);
    world.end(&gone, Ending::Lost { evidence: EvidenceKind::MachineRebooted }).await.applied();
    assert_eq!(devices(&world.take(&session, taken.run).await), "0");
}

/// Two callers at a worker's last device: one has it.
pub async fn the_last_device_is_taken_once(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..8 {
        let machine = world.machine(&format!("rig-{round}")).await;
        let session = world.session_with(&machine, "boot-a", &["0"]).await;
        let mut claims = Vec::new();
        for _ in 0..2 {
            let run = world.run(wants(1, false)).await;
            let (store, call) = (world.store.clone(), world.claim_call(&session, &world.ask(), run));
            claims.push(async move { store.claim(call).await.unwrap() });
        }
        let (second, first) = (claims.pop().unwrap(), claims.pop().unwrap());
        let (one, two) = both(first, second).await;
        let lost = if one.is_applied() { two } else { one };
        assert_eq!(lost, Outcome::Refused(ClaimRefused::NotClaimed(NotClaimed::NoFreeDevice)), "round {round}");
    }
}
