//! Logs: bytes in order, once each, and after the end up to what the end pinned.

use leasehold_core::attempt::{EvidenceKind, LogPin};
use leasehold_core::end::Ending;
use leasehold_core::frame::{Cut, CutReason};
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalCode};

use super::Harness;
use super::fixture::{Expect, Taken, World, assert_code, exited, log_pin, plain, seconds};
use crate::call::AppendLog;
use crate::outcome::Stored;

async fn append(world: &World<'_>, taken: &Taken, offset: u64, bytes: &[u8]) -> Stored<u64, Refusal> {
    world.store.append_log(AppendLog { step: taken.step.clone(), offset, bytes: bytes.to_vec() }).await
}

async fn whole(world: &World<'_>, taken: &Taken) -> Vec<u8> {
    world.store.read_log(taken.attempt, 0, usize::MAX).await.unwrap().unwrap().bytes
}

/// A log grows in order; a resend is a no-op, also one that overlaps the end.
pub async fn a_log_grows_in_order_and_a_resend_changes_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.starting(&session, plain()).await;
    assert_eq!(append(&world, &taken, 0, b"one ").await.applied(), 4);
    assert_eq!(append(&world, &taken, 4, b"two ").await.applied(), 8);
    for (offset, resend) in [(0, &b"one "[..]), (4, b"two "), (0, b"one two "), (2, b"e two"), (8, b""), (3, b"")] {
        assert_eq!(world.unchanged(append(&world, &taken, offset, resend)).await.replayed(), 8);
    }
    assert_eq!(append(&world, &taken, 6, b"o three").await.applied(), 13);
    assert_eq!(whole(&world, &taken).await, b"one two three");
    assert_eq!(world.view(taken.run).await.logs.get(&taken.attempt), Some(&13));
}

/// A gap, other bytes in the same place and a piece that is too large are refused.
pub async fn a_gap_and_other_bytes_are_refused(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    append(&world, &taken, 0, b"one ").await.applied();
    append(&world, &taken, 4, b"two").await.applied();
    let large = vec![b'x'; limits::LOG_CHUNK + 1];
    for (offset, bytes, code) in [
        (8, &b"three"[..], RefusalCode::InvalidRequest),
        (u64::MAX, b"three", RefusalCode::InvalidRequest),
        (0, b"One", RefusalCode::ConflictReplay),
        (2, b"e tWo", RefusalCode::ConflictReplay),
        (4, b"twe three", RefusalCode::ConflictReplay),
        (7, &large, RefusalCode::LimitExceeded),
    ] {
        assert_code(&world.unchanged(append(&world, &taken, offset, bytes)).await.refused(), code);
    }
    assert_eq!(append(&world, &taken, 7, &large[1..]).await.applied(), 7 + 262_144);
}

/// After the end, what is missing up to the pinned length may follow, and nothing more.
pub async fn after_the_end_a_log_grows_to_its_pin(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    append(&world, &taken, 0, b"one ").await.applied();
    let mut call = taken.end_call(exited(0));
    let cut = Some(Cut { reason: CutReason::DiskFull, stdout: 9, stderr: u64::from(u32::MAX) });
    let pin = LogPin { cut, ..log_pin(b"one two") };
    call.log = Some(pin);
    world.store.end(call).await.applied();
    assert_eq!(world.view(taken.run).await.attempts[0].log, Some(pin));
    let taken = taken.held_by(&world.session(&machine, "boot-a").await);
    assert_code(&world.unchanged(append(&world, &taken, 4, b"two three")).await.refused(), RefusalCode::ConflictReplay);
    assert_eq!(append(&world, &taken, 4, b"two").await.applied(), 7);
    assert_eq!(world.unchanged(append(&world, &taken, 4, b"two")).await.replayed(), 7);
    let page = world.store.read_log(taken.attempt, 0, 100).await.unwrap().unwrap();
    assert_eq!((page.bytes, page.received, page.pinned), (b"one two".to_vec(), 7, Some(7)));
}

/// A lost attempt's log rests until its late end pins it.
pub async fn a_lost_attempts_log_waits_for_its_end(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    world.expire(&taken).await;
    let taken = taken.held_by(&world.session(&machine, "boot-a").await);
    assert_code(&world.unchanged(append(&world, &taken, 0, b"one")).await.refused(), RefusalCode::LeaseExpired);
    let mut call = taken.end_call(exited(0));
    call.log = Some(log_pin(b"one"));
    world.store.end(call).await.applied();
    assert_eq!(append(&world, &taken, 0, b"one").await.applied(), 3);
}

/// What was found of a dead launcher's log is pinned with its end; should the launcher's own word come after all, that
/// counts.
pub async fn a_dead_launchers_log_grows_to_what_it_left(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    let mut call = taken.end_call(Ending::Lost { evidence: EvidenceKind::LauncherKilledAllGone });
    let left = LogPin { finished: false, ..log_pin(b"one") };
    call.log = Some(left);
    world.store.end(call).await.applied();
    assert_eq!(append(&world, &taken, 0, b"one").await.applied(), 3);
    assert_code(&world.unchanged(append(&world, &taken, 3, b" two")).await.refused(), RefusalCode::ConflictReplay);
    assert_eq!(world.view(taken.run).await.attempts[0].log, Some(left));
    let mut call = taken.end_call(exited(0));
    call.log = Some(log_pin(b"one two"));
    world.store.end(call).await.applied();
    assert_eq!(append(&world, &taken, 3, b" two").await.applied(), 7);
    assert_eq!(world.view(taken.run).await.attempts[0].log, Some(log_pin(b"one two")));
}

/// What has not started has no log; a lease that ran out takes none.
pub async fn a_log_needs_a_started_lease(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let claimed = world.claimed(&session, plain()).await;
    assert_code(&world.unchanged(append(&world, &claimed, 0, b"x")).await.refused(), RefusalCode::LeaseFenced);
    let running = world.running(&session, plain()).await;
    world.pass(seconds(600));
    let running = running.held_by(&world.session(&machine, "boot-a").await);
    assert_code(&world.unchanged(append(&world, &running, 0, b"x")).await.refused(), RefusalCode::LeaseExpired);
}

/// A log is read in pages from any offset; an attempt without one is empty, an unknown attempt has none.
pub async fn a_log_is_read_in_pages(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    let read = async |offset, limit| world.store.read_log(taken.attempt, offset, limit).await.unwrap().unwrap();
    assert_eq!((read(0, 10).await.bytes, read(0, 10).await.received), (vec![], 0));
    for (offset, piece) in [(0, b"abc"), (3, b"def"), (6, b"ghi")] {
        append(&world, &taken, offset, piece).await.applied();
    }
    for (offset, limit, bytes) in
        [(0, 100, &b"abcdefghi"[..]), (0, 4, b"abcd"), (4, 4, b"efgh"), (8, 4, b"i"), (9, 4, b""), (50, 4, b"")]
    {
        let page = read(offset, limit).await;
        assert_eq!((&page.bytes[..], page.received, page.pinned), (bytes, 9, None), "{offset} {limit}");
    }
    assert_eq!(world.store.read_log(world.attempt_id(), 0, 10).await.unwrap(), None);
}
