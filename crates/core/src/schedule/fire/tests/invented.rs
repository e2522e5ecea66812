//! Zones that nobody has: changes within minutes of each other and by half a day, against a walk over every minute.

use proptest::prelude::*;

use super::*;

/// A zone of invented spans, in minutes from zero.
#[derive(Debug, Clone)]
struct Invented(Vec<Span>);

impl Offsets for Invented {
    fn span(&self, second: i64) -> Span {
        *self.0.iter().find(|span| (span.from..span.to).contains(&second)).unwrap()
    }
}

fn invented() -> impl Strategy<Value = Invented> {
    let changes = proptest::collection::vec((1_i64..300, -48_i64..57), 1..12);
    (changes, -48_i64..57).prop_map(|(changes, first)| {
        let mut spans = vec![Span { from: -Utc::END, to: 3 * DAY, offset: first * 900 }];
        for (length, offset) in changes {
            let from = spans.last().unwrap().to;
            spans.push(Span { from, to: from + length * 600, offset: offset * 900 });
        }
        spans.last_mut().unwrap().to = Utc::END;
        Invented(spans)
    })
}

/// An expression, whether it follows real time, and the minutes of a day that match.
type Known = (&'static str, bool, fn(i64) -> bool);

const KNOWN: [Known; 6] = [
    ("30 2 * * *", false, |minute| minute == 150),
    ("0 0 * * *", false, |minute| minute == 0),
    ("0,20,40 1-23/2 * * *", false, |minute| minute % 20 == 0 && minute / 60 % 2 == 1),
    ("10 * * * *", true, |minute| minute % 60 == 10),
    ("*/15 1-3 * * *", true, |minute| minute % 15 == 0 && (1..=3).contains(&(minute / 60))),
    ("* * * * *", true, |_| true),
];

proptest! {
    #[test]
    fn invented_clocks_are_read_as_a_walk_reads_them(zone in invented(), known in proptest::sample::select(&KNOWN[..])) {
        let (text, follows_real_time, matches) = known;
        let (from, to) = (DAY, 10 * DAY);
        let mut expected = Vec::new();
        let mut furthest = i64::MIN;
        for second in (0..to).step_by(60) {
            let shown = (second + zone.span(second).offset).div_euclid(60);
            let matches = |local: i64| matches(local.rem_euclid(1440));
            let fires = if follows_real_time {
                matches(shown)
            } else {
                // Where the walk begins there was nothing to jump over.
                let unseen = if furthest == i64::MIN { shown } else { furthest + 1 };
                (unseen..=shown).any(matches)
            };
            furthest = furthest.max(shown);
            if fires && second >= from {
                expected.push(second * 1000);
            }
        }
        let timetable = Timetable::new(text.parse::<Expression>().unwrap().times(&spread("report")), &zone);
        // Asked from anywhere: from between two fire times and from within an hour that comes twice, too.
        for second in (from..to).step_by(1020) {
            let asked = UtcMillis::new(second * 1000);
            let at = expected.partition_point(|fire| *fire <= second * 1000);
            let before = expected.partition_point(|fire| *fire < second * 1000);
            let next = timetable.next_fire(asked).map(UtcMillis::get).filter(|next| *next < to * 1000);
            prop_assert_eq!(next, expected.get(at).copied(), "{} after {}", text, second);
            let last = timetable.last_fire(asked).map(UtcMillis::get).filter(|last| *last >= from * 1000);
            prop_assert_eq!(last, before.checked_sub(1).map(|last| expected[last]), "{} before {}", text, second);
            let counted = timetable.fires(asked, UtcMillis::new(to * 1000 - 1));
            prop_assert_eq!(counted, u64::try_from(expected.len() - before).unwrap(), "{} from {}", text, second);
            let counted = timetable.fires(UtcMillis::new(from * 1000), asked);
            prop_assert_eq!(counted, u64::try_from(at).unwrap(), "{} to {}", text, second);
        }
    }
}
