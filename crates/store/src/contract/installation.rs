//! The installation and its tokens; and that what was stored is there after the store was closed.

use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::role::Role;
use leasehold_core::time::{Clock, UtcMillis};

use super::Harness;
use super::fixture::{Expect, World, plain, seconds};
use crate::call::{EventsAfter, Installation, NewApiToken};
use crate::port::Unmet;

fn installation(world: &World<'_>, domain: &str) -> Installation {
    Installation {
        trust_domain: domain.parse().unwrap(),
        ca_certificate: b"certificate".to_vec(),
        ca_key: b"sealed key".to_vec(),
        ticket_key: b"sealed ticket key".to_vec(),
        created_at: world.clock().utc(),
    }
}

fn token(world: &World<'_>, secret: &str, expires_at: Option<UtcMillis>) -> NewApiToken {
    NewApiToken {
        id: world.token_id(),
        name: "first".to_owned(),
        role: Role::Admin,
        digest: Digest::of(Domain::ApiToken, secret.as_bytes()),
        created_at: world.clock().utc(),
        expires_at,
    }
}

/// There is one installation, whoever asks again; the same call again is a replay.
pub async fn an_installation_is_made_once(harness: &dyn Harness) {
    let world = World::new(harness);
    assert_eq!(world.store.installation().await.unwrap(), None);
    let (home, first) = (installation(&world, "home.example"), token(&world, "one", None));
    world.store.create_installation(home.clone(), first.clone()).await.applied();
    world.unchanged(world.store.create_installation(home.clone(), first.clone())).await.replayed();
    let other = installation(&world, "other.example");
    assert_eq!(world.unchanged(world.store.create_installation(other, first)).await.refused(), Unmet::AlreadyInstalled);
    let second = token(&world, "two", None);
    assert_eq!(
        world.unchanged(world.store.create_installation(home.clone(), second)).await.refused(),
        Unmet::AlreadyInstalled
    );
    assert_eq!(world.store.installation().await.unwrap(), Some(home));
    let audit = world.audit().await;
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].action.as_str(), audit[0].actor.as_str()), ("create_installation", "system"));
}

/// A token is found by its digest, as long as it lives.
pub async fn a_token_is_found_until_it_expires(harness: &dyn Harness) {
    let world = World::new(harness);
    let end = world.clock().utc().plus(seconds(60));
    let first = token(&world, "one", Some(end));
    world.store.create_installation(installation(&world, "home.example"), first.clone()).await.applied();
    let found = world.store.find_api_token(first.digest).await.unwrap().unwrap();
    assert_eq!((found.id, found.name, found.role, found.expires_at), (first.id, first.name, first.role, Some(end)));
    let unknown = Digest::of(Domain::ApiToken, b"two");
    assert_eq!(world.store.find_api_token(unknown).await.unwrap(), None);
    world.pass(seconds(60));
    assert_eq!(world.store.find_api_token(first.digest).await.unwrap(), None);
}

/// Closing the store loses nothing, and the time in between does not count for a lease.
pub async fn what_was_stored_is_there_when_it_is_opened_again(harness: &dyn Harness) {
    let world = World::new(harness);
    let home = installation(&world, "home.example");
    world.store.create_installation(home.clone(), token(&world, "one", None)).await.applied();
    let (machine, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    let (run, worker) = (world.view(taken.run).await, world.worker(&machine.id).await);
    let (story, audit) = (world.story(taken.run).await, world.audit().await);
    let Some(store) = harness.reopened().await else { return };
    assert_eq!(store.installation().await.unwrap(), Some(home));
    assert_eq!(store.run(taken.run).await.unwrap(), Some(run));
    let again = store.worker(&machine.id).await.unwrap().unwrap();
    assert_eq!((&again.worker, &again.session, &again.active), (&worker.worker, &worker.session, &worker.active));
    assert_eq!(store.audit(crate::call::AuditPage::Oldest { after: None }, 1000).await.unwrap(), audit);
    assert_eq!(
        again.session.unwrap().projection(again.now.lease),
        worker.session.unwrap().projection(worker.now.lease)
    );
    let events = store.events(EventsAfter { run: taken.run, after: None }, 1000).await.unwrap();
    assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), story);
}
