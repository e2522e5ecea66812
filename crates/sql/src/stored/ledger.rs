//! How a line of a schedule ledger stands in its columns.

use leasehold_core::id::RunId;
use leasehold_core::schedule::{Gap, GapReason, Happened, InTheWay, Line};
use leasehold_core::time::UtcMillis;

/// The columns of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spelled {
    pub(crate) at: UtcMillis,
    pub(crate) is_gap: bool,
    pub(crate) happened: String,
    pub(crate) by_run: Option<RunId>,
    pub(crate) by_instant: Option<UtcMillis>,
    pub(crate) last_at: Option<UtcMillis>,
    pub(crate) instants: Option<u64>,
    pub(crate) why: Option<GapReason>,
}

/// The columns of `line`.
pub(crate) fn spell(line: &Line) -> Spelled {
    let at = |at, happened: &str| Spelled {
        at,
        is_gap: false,
        happened: happened.to_owned(),
        by_run: None,
        by_instant: None,
        last_at: None,
        instants: None,
        why: None,
    };
    match *line {
        Line::At(nominal, Happened::Fired) => at(nominal, "fired"),
        Line::At(nominal, Happened::CaughtUp) => at(nominal, "caught_up"),
        Line::At(nominal, Happened::Backfilled) => at(nominal, "backfilled"),
        Line::At(nominal, Happened::Waits) => at(nominal, "waits"),
        Line::At(nominal, Happened::Skipped(InTheWay::Run(run))) => {
            Spelled { by_run: Some(run), ..at(nominal, "skipped") }
        }
        Line::At(nominal, Happened::Skipped(InTheWay::Instant(instant))) => {
            Spelled { by_instant: Some(instant), ..at(nominal, "skipped") }
        }
        Line::Gap(Gap { first, last, instants, why }) => Spelled {
            is_gap: true,
            last_at: Some(last),
            instants: Some(instants),
            why: Some(why),
            ..at(first, "missed")
        },
    }
}

/// The line of these columns.
pub(crate) fn read(spelled: &Spelled) -> Result<Line, String> {
    let Spelled { at, by_run, by_instant, last_at, instants, why, .. } = *spelled;
    let happened = match (spelled.happened.as_str(), by_run, by_instant) {
        ("fired", ..) => Happened::Fired,
        ("caught_up", ..) => Happened::CaughtUp,
        ("backfilled", ..) => Happened::Backfilled,
        ("waits", ..) => Happened::Waits,
        ("skipped", Some(run), None) => Happened::Skipped(InTheWay::Run(run)),
        ("skipped", None, Some(instant)) => Happened::Skipped(InTheWay::Instant(instant)),
        ("missed", ..) => {
            return match (last_at, instants, why) {
                (Some(last), Some(instants), Some(why)) => Ok(Line::Gap(Gap { first: at, last, instants, why })),
                _ => Err("a gap without its end, its number or its reason".to_owned()),
            };
        }
        (other, ..) => return Err(format!("`{other}` happens to no instant")),
    };
    Ok(Line::At(at, happened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back_as_it_was() {
        let run: RunId = "01900000-0000-7000-8000-000000000000".parse().unwrap();
        let (at, other) = (UtcMillis::new(60_000), UtcMillis::new(120_000));
        let happened = [
            Happened::Fired,
            Happened::CaughtUp,
            Happened::Backfilled,
            Happened::Waits,
            Happened::Skipped(InTheWay::Run(run)),
            Happened::Skipped(InTheWay::Instant(other)),
        ];
        let gap = Line::Gap(Gap { first: at, last: other, instants: 2, why: GapReason::Down });
        for line in happened.map(|happened| Line::At(at, happened)).into_iter().chain([gap]) {
            assert_eq!(read(&spell(&line)), Ok(line));
        }
        let damaged = Spelled { happened: "skipped".to_owned(), ..spell(&Line::At(at, Happened::Fired)) };
        assert!(read(&damaged).is_err(), "skipped for nothing");
    }
}
