//! Pages and views: what people and programs read. Every page is bounded by its caller's limit.

use leasehold_core::event::Event;
use leasehold_core::id::{RunId, WorkerId};
use leasehold_core::run::RunState;
use leasehold_core::worker::WorkerState;
use leasehold_store::call::{EventsAfter, RunFilter};
use leasehold_store::view::{RunFacts, RunSummary, RunView, WorkerView};

use super::column::values;
use super::rows::{self, attempt_columns, run_columns, worker_columns};
use super::transaction::{Fault, Tx};
use super::{faults, lanes, load, logs, places};

/// One run with everything a page shows.
pub(super) fn run(tx: &Tx<'_>, id: RunId) -> Result<Option<RunView>, Fault> {
    let Some(run) = load::run(tx, id)? else { return Ok(None) };
    let sql = concat!("SELECT ", attempt_columns!(""), " FROM attempt WHERE run = ?1 ORDER BY number");
    let attempts = tx.all(sql, values![run.id], rows::attempt)?;
    let mut received = std::collections::BTreeMap::new();
    for attempt in &attempts {
        match logs::received(tx, attempt.id)? {
            0 => {}
            length => {
                received.insert(attempt.id, length);
            }
        }
    }
    let revision = load::revision(tx, run.revision)?;
    Ok(Some(RunView { run, attempts, revision, logs: received }))
}

/// A run that this transaction knows to be there.
pub(super) fn view(tx: &Tx<'_>, id: RunId) -> Result<RunView, Fault> {
    run(tx, id)?.ok_or_else(|| Fault::Damaged(format!("there is no run {id}")))
}

/// At most two runs whose id begins with `prefix`.
pub(super) fn runs_by_prefix(tx: &Tx<'_>, prefix: &str) -> Result<Vec<RunId>, Fault> {
    let Some((lowest, highest)) = bounds(prefix) else { return Ok(Vec::new()) };
    let sql = "SELECT id FROM run WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT 2";
    tx.all(sql, values![lowest, highest], rows::column)
}

/// The sixteen bytes that the first and the last id with this prefix have; none if no id's text begins so.
fn bounds(prefix: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut digits = Vec::new();
    for (place, c) in prefix.chars().enumerate() {
        match (place, c) {
            (8 | 13 | 18 | 23, '-') => {}
            (8 | 13 | 18 | 23 | 36.., _) => return None,
            (_, '0'..='9' | 'a'..='f') => digits.push(u8::try_from(c.to_digit(16)?).ok()?),
            _ => return None,
        }
    }
    let filled = |fill: u8| {
        let mut digits = digits.clone();
        digits.resize(32, fill);
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    };
    Some((filled(0), filled(15)))
}

macro_rules! runs_where {
    ($filter:literal) => {
        concat!(
            "SELECT ",
            run_columns!(""),
            ", name, (SELECT attempt.worker FROM attempt WHERE attempt.run = run.id AND attempt.number = run.latest) FROM run WHERE ",
            $filter,
            " AND id < ?1 AND created_at >= ?2 AND (?3 IS NULL OR project = ?3) AND (?4 IS NULL OR task = ?4) \
             AND (?5 IS NULL OR state = ?5) ORDER BY id DESC LIMIT ?6"
        )
    };
}

/// A page of runs, newest first.
pub(super) fn runs(tx: &Tx<'_>, filter: &RunFilter, limit: usize) -> Result<Vec<RunSummary>, Fault> {
    // One ordered walk of an index per state, merged: a rare state is found without reading the others.
    let states: Vec<Option<RunState>> = match filter.states.as_slice() {
        [] => vec![None],
        states => states.iter().copied().map(Some).collect(),
    };
    let mut page = Vec::new();
    for state in states {
        page.extend(runs_in(tx, filter, state, limit)?);
    }
    page.sort_by_key(|summary| std::cmp::Reverse(summary.run.id));
    page.dedup_by_key(|summary| summary.run.id);
    page.truncate(limit);
    Ok(page)
}

fn runs_in(tx: &Tx<'_>, filter: &RunFilter, state: Option<RunState>, limit: usize) -> Result<Vec<RunSummary>, Fault> {
    let sql = match (state, &filter.task, &filter.project) {
        (Some(_), _, _) => runs_where!("state = ?5"),
        (None, Some(_), Some(_)) => runs_where!("project = ?3 AND task = ?4"),
        (None, _, Some(_)) => runs_where!("project = ?3"),
        (None, _, None) => runs_where!("TRUE"),
    };
    // No id is above sixteen bytes of ones.
    let before = filter.before.map_or_else(|| vec![u8::MAX; 16], |before| before.as_bytes().to_vec());
    let since = filter.since.map_or(i64::MIN, leasehold_core::time::UtcMillis::get);
    tx.all(sql, values![before, since, filter.project, filter.task, state, limit], |columns| {
        let run = rows::run(columns)?;
        Ok(RunSummary { run, name: columns.next()?, worker: columns.next()? })
    })
}

/// A page of a run's events, oldest first.
pub(super) fn events(tx: &Tx<'_>, page: EventsAfter, limit: usize) -> Result<Vec<Event>, Fault> {
    let after = page.after.map_or(0, leasehold_core::counter::EventSequence::to_stored);
    tx.all(
        "SELECT sequence, at, kind, run, attempt, actor, facts FROM event WHERE run = ?1 AND sequence > ?2 \
         ORDER BY sequence LIMIT ?3",
        values![page.run, after, limit],
        |columns| {
            Ok(Event {
                sequence: columns.next()?,
                at: columns.next()?,
                kind: columns.next()?,
                run: columns.next()?,
                attempt: columns.next()?,
                actor: columns.next()?,
                facts: columns.next()?,
            })
        },
    )
}

/// What an explanation of a run needs.
pub(super) fn run_facts(
    tx: &Tx<'_>,
    id: RunId,
    after: Option<&WorkerId>,
    limit: usize,
) -> Result<Option<RunFacts>, Fault> {
    let Some(view) = run(tx, id)? else { return Ok(None) };
    let limits = match view.run.state {
        RunState::Pending => places::facts(tx, &view.run, &view.revision.policy())?,
        _ => Vec::new(),
    };
    let (refused, workers) = (lanes::refused(tx, id)?, workers(tx, after, limit)?);
    Ok(Some(RunFacts { view, refused, limits, workers, now: tx.now }))
}

/// One worker.
pub(super) fn worker(tx: &Tx<'_>, id: &WorkerId) -> Result<Option<WorkerView>, Fault> {
    let worker = load::worker(tx, id)?.filter(|worker| worker.state != WorkerState::Deleted);
    worker.map(|worker| worker_view(tx, worker)).transpose()
}

/// A page of workers, in id order.
pub(super) fn workers(tx: &Tx<'_>, after: Option<&WorkerId>, limit: usize) -> Result<Vec<WorkerView>, Fault> {
    let after = after.map_or_else(String::new, ToString::to_string);
    let sql = concat!(
        "SELECT ",
        worker_columns!(""),
        " FROM worker WHERE id > ?1 AND state <> 'deleted' ORDER BY id LIMIT ?2"
    );
    let page = tx.all(sql, values![after, limit], rows::worker)?;
    page.into_iter().map(|worker| worker_view(tx, worker)).collect()
}

/// A worker with everything a page shows.
pub(super) fn worker_view(tx: &Tx<'_>, worker: leasehold_core::worker::Worker) -> Result<WorkerView, Fault> {
    let session = load::current_session(tx, &worker)?;
    let active = tx.all(
        "SELECT attempt FROM lease WHERE worker = ?1 AND state = 'active' ORDER BY attempt",
        values![worker.id],
        rows::column,
    )?;
    let faults = faults::of(tx, &worker.id)?;
    let device_holders =
        session.as_ref().map(|session| places::device_holders(tx, session)).transpose()?.unwrap_or_default();
    Ok(WorkerView { worker, session, active, device_holders, faults, now: tx.now })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_range_of_ids() {
        let id = "01900000-0000-7000-8000-00000000abcd";
        let bytes = id.parse::<RunId>().unwrap().as_bytes().to_vec();
        for length in 0..=id.len() {
            let (lowest, highest) = bounds(&id[..length]).unwrap();
            assert!(lowest <= bytes && bytes <= highest, "{}", &id[..length]);
        }
        assert_eq!(bounds(id), Some((bytes.clone(), bytes)));
        for never in ["0190000-", "01900000_", "019000000", "A", "g", " ", &format!("{id}0")] {
            assert_eq!(bounds(never), None, "{never}");
        }
    }
}
