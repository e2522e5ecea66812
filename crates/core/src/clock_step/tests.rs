//! A table of what two readings show, and what holds of any clock.

use proptest::prelude::*;

use super::*;
use crate::deadline::{kill_margin, lease_deadline};
use crate::expiry::expired_before;

const HOUR: i64 = 3_600_000;

fn reading(asked: i64, said: i64, answered: i64) -> Reading {
    Reading { asked: BootInstant::new(asked), said: LeaseInstant::new(said), answered: BootInstant::new(answered) }
}

/// What a second reading shows after a first at (1000, 1 000 000, 1010).
fn after_the_first(second: Reading) -> Option<Step> {
    match compare(Watched::from(reading(1_000, 1_000_000, 1_010)), second) {
        Seen::Steady(_) => None,
        Seen::Stepped(step) => Some(step),
    }
}

#[test]
fn what_a_second_reading_shows() {
    for (what, second, expected) in [
        ("it runs on", reading(6_000, 1_005_000, 6_010), None),
        ("a slow drift", reading(601_000, 1_606_000, 601_010), None),
        (
            "a replica that was suspended: its boot-time clock counts it",
            reading(3 * HOUR, 1_000_000 + 3 * HOUR, 3 * HOUR + 9),
            None,
        ),
        ("an answer that came late, or locks that were waited for", reading(6_000, 1_011_000, 12_000), None),
        ("an answer that was read late", reading(6_000, 1_005_000, 12_000), None),
        ("less than a step", reading(6_000, 1_006_040, 6_010), None),
        ("a step of 1.5 s", reading(6_000, 1_006_500, 6_000), Some(Step::Forward(Millis::new(1_559)))),
        ("a step of 3 h", reading(6_000, 1_005_000 + 3 * HOUR, 6_000), Some(Step::Forward(Millis::new(10_800_059)))),
        ("a step back of 3 h", reading(6_000, 1_005_000 - 3 * HOUR, 6_000), Some(Step::Back(Millis::new(10_799_941)))),
        ("a little back", reading(6_000, 1_004_300, 6_000), None),
    ] {
        assert_eq!(after_the_first(second), expected, "{what}");
    }
}

#[test]
fn small_jumps_that_come_quickly_are_seen_together() {
    let mut known = Watched::from(reading(0, 1_000_000, 0));
    let mut stepped = None;
    for jump in 1..=3 {
        let boot = jump * 5_000;
        match compare(known, reading(boot, 1_000_000 + boot + jump * 700, boot)) {
            Seen::Steady(next) => known = next,
            Seen::Stepped(step) => {
                stepped = Some((jump, step));
                break;
            }
        }
    }
    assert_eq!(stepped, Some((2, Step::Forward(Millis::new(1_500)))));
}

#[test]
fn a_step_that_another_replica_has_dealt_with_is_not_dealt_with_again() {
    let step = Step::Forward(Millis::new(10_800_040));
    for (moved, left) in [
        (0, Some(step)),
        (10_800_300, None),
        (10_799_500, None),
        // It saw the first of two.
        (10_790_040, Some(Step::Forward(Millis::from_secs(10)))),
        // What it moved by was more than there was: nothing goes back for that.
        (20_000_000, None),
    ] {
        assert_eq!(step.beyond(moved), left, "{moved}");
    }
    assert_eq!(Step::Back(Millis::from_secs(60)).beyond(-59_800), None);
    assert_eq!(Step::Back(Millis::from_secs(60)).beyond(0), Some(Step::Back(Millis::from_secs(60))));
}

#[test]
fn only_lateness_is_doubted() {
    let refused = |code| in_doubt(Refusal::new(code, "so")).code;
    assert_eq!(refused(RefusalCode::LeaseExpired), RefusalCode::Overloaded);
    assert_eq!(refused(RefusalCode::SessionExpired), RefusalCode::Overloaded);
    assert_eq!(refused(RefusalCode::SessionFenced), RefusalCode::SessionFenced);
    assert_eq!(refused(RefusalCode::LeaseFenced), RefusalCode::LeaseFenced);
}

/// A replica's life with a judging clock: readings a while apart, each asked and answered around the moment it was taken.
#[derive(Debug, Clone)]
struct Beat {
    /// Boot-time milliseconds since the last.
    after: i64,
    /// What the judging clock gained meanwhile on top, in thousandths of that.
    drift: i64,
    /// What it was set forward by meanwhile.
    jump: i64,
    /// How long before and after the reading the boot-time clock was looked at.
    around: (i64, i64),
}

fn beats() -> impl Strategy<Value = Vec<Beat>> {
    let jump = prop_oneof![4 => Just(0), 2 => 0..1_000_i64, 1 => 1_001..20_000_i64, 1 => 20_000..10_800_000_i64];
    let beat = (1..40_000_i64, -9..=9_i64, jump, (0..3_000_i64, 0..3_000_i64));
    prop::collection::vec(beat.prop_map(|(after, drift, jump, around)| Beat { after, drift, jump, around }), 1..40)
}

proptest! {
    /// Whatever the clock does, between two steps that were seen it gains no more than a step and the drift allowed.
    #[test]
    fn nothing_larger_than_a_step_goes_unseen(beats in beats()) {
        let (mut boot, mut said) = (100_000_i64, 1_000_000_i64);
        let mut known = Watched::from(reading(boot, said, boot));
        let (mut boot_then, mut said_then) = (boot, said);
        for Beat { after, drift, jump, .. } in beats {
            boot += after;
            said += after + after * drift / 1000 + jump;
            match compare(known, reading(boot, said, boot)) {
                Seen::Steady(next) => {
                    known = next;
                    let gained = (said - said_then) - (boot - boot_then);
                    let allowed = 1_000 + (boot - boot_then) / 100 + 1;
                    prop_assert!(gained <= allowed, "gained {gained} unseen, allowed {allowed}");
                }
                Seen::Stepped(_) => {
                    known = Watched::from(reading(boot, said, boot));
                    (boot_then, said_then) = (boot, said);
                }
            }
        }
    }

    /// Drift, late answers and waits are never taken for a step.
    #[test]
    fn a_clock_that_only_drifts_never_steps(beats in beats()) {
        let (mut boot, mut said) = (100_000_i64, 1_000_000_i64);
        let mut known = Watched::from(reading(boot, said, boot));
        for Beat { after, drift, around: (before, behind), .. } in beats {
            boot += after;
            said += after + after * drift / 1000;
            match compare(known, reading(boot - before, said, boot + behind)) {
                Seen::Steady(next) => known = next,
                Seen::Stepped(step) => prop_assert!(false, "{step:?}"),
            }
        }
    }

    /// Never twice: when a lease that was granted before a step may be declared lost, its job is over; and it may be declared
    /// one length after the step at the latest.
    #[test]
    fn a_lease_is_lost_when_its_job_is_over_and_one_lease_later_at_most(
        length in 25_000_u64..600_000,
        renewed_before in 0_i64..25_000,
        unread in 0_i64..5_000,
        jump in 1_100_i64..20_000_000,
        around in (0_i64..50, 0_i64..50),
        seen_after in 0_i64..5_000,
    ) {
        let length = Millis::new(length);
        // All in true time, which is the boot-time clock of replica and worker alike; the judging clock is ahead by an hour.
        let (step_at, ahead) = (1_000_000_i64, HOUR);
        let renewed = step_at - renewed_before;
        let end = LeaseInstant::new(renewed + ahead).plus(length);
        let last = step_at - unread;
        let known = Watched::from(reading(last - around.0, last + ahead, last + around.1));
        let seen_at = step_at + seen_after;
        let seen = LeaseInstant::new(seen_at + ahead + jump);
        let shown = compare(known, reading(seen_at - around.0, seen.get(), seen_at + around.1));
        // What the bounds leave open may be as small as no step.
        let Seen::Stepped(step) = shown else { prop_assert!(jump < 1_600, "{shown:?}"); return Ok(()) };
        let moved = step.lease_end(end, length, seen);

        let declared = (0..60_000).map(|by| LeaseInstant::new(moved.get() + by)).find(|now| moved <= expired_before(*now)).unwrap();
        let declared = declared.get() - ahead - jump;
        let killed = lease_deadline(BootInstant::new(renewed), Millis::ZERO, length).minus(kill_margin(length));
        prop_assert!(killed.get() < declared, "killed at {killed:?}, declared at {declared}");
        let latest = seen_at + i64::try_from(length.plus(limits::LOST_GRACE).get()).unwrap();
        prop_assert!(declared <= latest, "declared at {declared}, not by {latest}");
        // Whoever moves it once more, or moves what was granted since, adds no more than that.
        let again = step.lease_end(moved, length, seen);
        prop_assert!(again >= moved && again <= moved.max(seen.plus(length)));
        prop_assert_eq!(step.lease_end(seen.plus(length), length, seen), seen.plus(length));
        // What spoke before did not speak after.
        prop_assert!(step.spoken(LeaseInstant::new(renewed + ahead), seen) <= seen);
    }

    /// After a step back nobody keeps a lease longer than a renewal would last.
    #[test]
    fn a_step_back_leaves_no_lease_longer_than_its_length(end in 0_i64..100_000_000, length in 0_u64..600_000, seen in 0_i64..100_000_000) {
        let (end, seen, length) = (LeaseInstant::new(end), LeaseInstant::new(seen), Millis::new(length));
        let moved = Step::Back(Millis::from_secs(60)).lease_end(end, length, seen);
        prop_assert!(moved <= end && moved <= seen.plus(length));
        prop_assert!(moved == end || moved == seen.plus(length));
    }
}
