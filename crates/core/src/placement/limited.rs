//! A full limit in words: whose places they are, who holds them, since when, and what would free one.

use std::fmt;

use crate::occupancy::{Hold, Holder, LimitFact};
use crate::time::{Millis, UtcMillis};

/// What a waiting run waits for.
pub(super) fn waiting(limit: &LimitFact, now: UtcMillis) -> String {
    let places = match limit.places.limit {
        1 => "the one place".to_owned(),
        many => format!("one of the {many} places"),
    };
    let others = match limit.places.occupied.saturating_sub(1) {
        0 => String::new(),
        1 => ", and by 1 other".to_owned(),
        more => format!(", and by {more} others"),
    };
    let held = limit.holders.first();
    let held = held.map(|first| format!(", held by run {}{}{others}", first.run, Held(first, now))).unwrap_or_default();
    format!("waiting for {places} of {} {}{held}", limit.of, limit.name)
}

/// How many of its places are held.
pub(super) fn held(limit: &LimitFact) -> String {
    let places = if limit.places.limit == 1 { "place" } else { "places" };
    let (of, name, places_held) = (limit.of, &limit.name, limit.places);
    format!("{} of {} {places} of {of} {name} held", places_held.occupied, places_held.limit)
}

/// How and since when a run holds a place, behind its id.
struct Held<'a>(&'a Holder, UtcMillis);

impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(holder, now) = self;
        let seconds = now.since(holder.since).get() / 1000;
        let on = holder.worker.as_ref().map(|worker| format!(" on worker {worker}")).unwrap_or_default();
        write!(f, "{on} for {}", Millis::from_secs(seconds))?;
        match holder.hold {
            Hold::Live => Ok(()),
            Hold::InQuestion => {
                write!(f, ": it is lost, and with `mutex` it keeps its place until its question is closed")
            }
            Hold::MayLive => write!(f, ": something that its attempt {} started may still live", holder.attempt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::AttemptNumber;
    use crate::occupancy::{LimitOf, Places};

    const SINCE: UtcMillis = UtcMillis::new(1_800_000_000_000);

    fn limit(limit: u32, occupied: u32, hold: Hold) -> LimitFact {
        let holder = Holder {
            run: "01900000-0000-7000-8000-000000000001".parse().unwrap(),
            name: "report".to_owned(),
            attempt: AttemptNumber::FIRST,
            hold,
            worker: Some("nas".parse().unwrap()),
            since: SINCE,
        };
        let name = "report".to_owned();
        LimitFact { of: LimitOf::Task, name, places: Places { limit, occupied }, holders: vec![holder] }
    }

    #[test]
    fn who_holds_the_place_is_named_with_how_long_and_why() {
        let now = SINCE.plus(Millis::new(90_250));
        let run = "run 01900000-0000-7000-8000-000000000001 on worker nas for 1m30s";
        for (limit, words) in [
            (limit(1, 1, Hold::Live), format!("waiting for the one place of task report, held by {run}")),
            (
                limit(3, 5, Hold::Live),
                format!("waiting for one of the 3 places of task report, held by {run}, and by 4 others"),
            ),
            (
                limit(1, 1, Hold::InQuestion),
                format!(
                    "waiting for the one place of task report, held by {run}: it is lost, and with `mutex` it keeps its \
                     place until its question is closed"
                ),
            ),
            (
                limit(2, 2, Hold::MayLive),
                format!(
                    "waiting for one of the 2 places of task report, held by {run}: something that its attempt 1 started \
                     may still live, and by 1 other"
                ),
            ),
        ] {
            assert_eq!(waiting(&limit, now), words);
        }
        assert_eq!(held(&limit(1, 1, Hold::Live)), "1 of 1 place of task report held");
        assert_eq!(held(&limit(3, 5, Hold::Live)), "5 of 3 places of task report held");
    }
}
