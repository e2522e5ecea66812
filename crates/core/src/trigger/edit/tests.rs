//! What stays, comes and goes, one by one.

use super::*;
use crate::canonical::Value;
use crate::schedule::{Happened, Line};
use crate::time::Millis;

const NOW: UtcMillis = UtcMillis::new(1_800_000_000_000);

/// A revision with these triggers: name, expression (none: a webhook), overlap.
fn revision(triggers: &[(&str, Option<&str>, &str)]) -> Revision {
    let triggers = triggers.iter().map(|(name, cron, overlap)| {
        let source = cron.map_or(("webhook", Value::Bool(true)), |cron| ("cron", Value::text(cron)));
        Value::map([("name", Value::text(*name)), ("overlap", Value::text(*overlap)), source])
    });
    let command = Value::map([("argv", Value::texts(["true"]))]);
    Revision::from_value(&Value::map([("command", command), ("trigger", Value::List(triggers.collect()))])).unwrap()
}

fn edit(kept: Vec<KeptTrigger>, old: Option<&Revision>, new: &Revision, now: UtcMillis) -> Edited {
    edited(&ProjectName::default(), &"report".parse().unwrap(), kept, old, new, false, now).unwrap()
}

fn kept(revision: &Revision) -> Vec<KeptTrigger> {
    edit(Vec::new(), None, revision, NOW).begun
}

#[test]
fn a_first_revision_begins_all_of_them() {
    let begun = kept(&revision(&[("nightly", Some("@daily"), "skip"), ("push", None, "skip")]));
    assert_eq!(begun.iter().map(|one| one.kind).collect::<Vec<_>>(), [Kind::Cron, Kind::Webhook]);
    assert!(begun[0].look_at > Some(NOW) && begun[0].look_at == begun[0].progress.next);
    assert_eq!((begun[1].look_at, begun[1].progress.next), (None, None));
}

#[test]
fn what_is_said_just_so_is_not_touched() {
    let same = revision(&[("nightly", Some("@daily"), "skip"), ("push", None, "skip")]);
    let edited = edit(kept(&same), Some(&same), &same, NOW.plus(Millis::from_secs(90_000)));
    assert!(edited.moved.is_empty() && edited.gone.is_empty() && edited.begun.is_empty());
}

#[test]
fn an_edit_settles_by_the_old_times_and_goes_on_with_the_new_ones() {
    let old = revision(&[("cron", Some("@hourly"), "skip")]);
    let now = NOW.plus(Millis::from_secs(3600));
    let (trigger, timed, wish) =
        edit(kept(&old), Some(&old), &revision(&[("cron", Some("30 * * * *"), "skip")]), now).moved.remove(0);
    assert!(matches!(wish, Wish::Edit { moved: true, .. }));
    let moved = timed.carry_out(&wish, &trigger, &[], now);
    let due = UtcMillis::new(1_800_003_600_000);
    assert_eq!(moved.lines, [Line::At(due, Happened::Fired)]);
    assert_eq!(moved.kept.progress.next, Some(UtcMillis::new(1_800_005_400_000)));
    assert_eq!(moved.kept.look_at, moved.kept.progress.next);
    let (_, _, wish) =
        edit(kept(&old), Some(&old), &revision(&[("cron", Some("@hourly"), "allow-all")]), now).moved.remove(0);
    assert!(matches!(wish, Wish::Edit { moved: false, .. }), "the times are the same");
}

#[test]
fn what_is_not_named_any_more_leaves_and_another_kind_takes_its_place() {
    let old = revision(&[("a", Some("@hourly"), "skip"), ("b", None, "skip"), ("c", None, "skip")]);
    let new = revision(&[("a", None, "skip"), ("c", Some("@daily"), "skip")]);
    let edited = edit(kept(&old), Some(&old), &new, NOW);
    assert!(matches!(&edited.moved[..], [(kept, _, Wish::Leave)] if kept.key.name.as_str() == "a"));
    assert_eq!(edited.gone.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    let begun: Vec<_> = edited.begun.iter().map(|one| (one.key.name.as_str(), one.kind)).collect();
    assert_eq!(begun, [("a", Kind::Webhook), ("c", Kind::Cron)]);
}

#[test]
fn a_zone_that_is_none_is_refused() {
    let cron = Value::map([("cron", Value::text("@daily")), ("time_zone", Value::text("Europe/Berlim"))]);
    let command = Value::map([("argv", Value::texts(["true"]))]);
    let new = Value::map([("command", command), ("trigger", Value::List(vec![cron]))]);
    let new = Revision::from_value(&new).unwrap();
    let refused = edited(&ProjectName::default(), &"report".parse().unwrap(), vec![], None, &new, false, NOW);
    assert!(refused.unwrap_err().to_string().contains("did you mean `Europe/Berlin`"));
}
