//! The ledger of a task's schedules: one line for every instant that was due, and the run that it has. The lines are kept for
//! a time; what keeps an instant from a second run is the first, by the unique index of runs by their instants.

use leasehold_core::actor::Actor;
use leasehold_core::admission::{self, Submission};
use leasehold_core::id::RunId;
use leasehold_core::limits::LEDGER_LINES;
use leasehold_core::revision::Revision;
use leasehold_core::schedule::{Line, kept_from};
use leasehold_core::time::UtcMillis;
use leasehold_core::trigger::{Scheduled, TriggerKey};
use leasehold_store::call::LedgerPage;
use leasehold_store::view::{Fired, LedgerEntry, Pruned};

use super::admit;
use super::column::values;
use super::rows::{self, Columns, ledger_columns};
use super::transaction::{Fault, Tx};
use crate::stored::ledger::spell;

/// Writes lines of a ledger, with their runs. An instant that has a run keeps its line and gets no second.
pub(super) fn write(
    tx: &Tx<'_>,
    key: &TriggerKey,
    revision: &Revision,
    lines: &[Line],
    fired: &mut Fired,
) -> Result<(), Fault> {
    for line in lines {
        let mut admitted = None;
        match *line {
            Line::At(nominal, happened) => {
                if has_run(tx, key, nominal)? {
                    continue;
                }
                if happened.admits() {
                    let (run, attempt) = key.ids(nominal, tx.now.utc);
                    let scheduled = Scheduled { trigger: key.name.clone(), at: nominal };
                    let submission = Submission {
                        project: &key.project,
                        task: Some(&key.task),
                        scheduled: Some(&scheduled),
                        revision,
                    };
                    admit::insert(tx, &admission::admit(submission, run, attempt, &Actor::System, tx.now), revision)?;
                    admitted = Some(run);
                    fired.runs.push(run);
                }
            }
            Line::Gap(gap) => {
                let sql = "DELETE FROM schedule_ledger WHERE project = ?1 AND task = ?2 AND name = ?3 \
                           AND at BETWEEN ?4 AND ?5 AND happened = 'waits'";
                tx.execute(sql, values![key.project, key.task, key.name, gap.first, gap.last])?;
            }
        }
        insert_line(tx, key, line, admitted)?;
    }
    Ok(())
}

fn has_run(tx: &Tx<'_>, key: &TriggerKey, nominal: UtcMillis) -> Result<bool, Fault> {
    let sql = "SELECT EXISTS (SELECT 1 FROM run INDEXED BY run_scheduled WHERE project = ?1 AND task = ?2 \
               AND trigger_name = ?3 AND scheduled_at = ?4)";
    tx.only(sql, values![key.project, key.task, key.name, nominal], rows::column)
}

fn insert_line(tx: &Tx<'_>, key: &TriggerKey, line: &Line, run: Option<RunId>) -> Result<(), Fault> {
    let spelled = spell(line);
    tx.execute_one(
        "line of a ledger",
        "INSERT INTO schedule_ledger (project, task, at, name, is_gap, happened, run, by_run, by_instant, last_at, \
         instants, why, written_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
         ON CONFLICT (project, task, at, name, is_gap) DO UPDATE SET happened = excluded.happened, run = excluded.run, \
         by_run = excluded.by_run, by_instant = excluded.by_instant, last_at = excluded.last_at, \
         instants = excluded.instants, why = excluded.why, written_at = excluded.written_at",
        values![
            key.project,
            key.task,
            spelled.at,
            key.name,
            spelled.is_gap,
            spelled.happened,
            run,
            spelled.by_run,
            spelled.by_instant,
            spelled.last_at,
            spelled.instants,
            spelled.why,
            tx.now.utc,
        ],
    )
}

/// The first ledger from a place on, and its oldest line.
macro_rules! ledger_from {
    ($than:literal) => {
        concat!(
            "SELECT project, task, name, at FROM schedule_ledger INDEXED BY schedule_ledger_of WHERE (project, task, name) ",
            $than,
            " (?1, ?2, ?3) ORDER BY project, task, name, at LIMIT 1"
        )
    };
}

/// Takes what is kept no longer from a page of ledgers.
pub(super) fn prune(tx: &Tx<'_>, from: Option<&TriggerKey>, limit: usize) -> Result<Pruned, Fault> {
    let read = |row: &mut Columns<'_>| Ok((rows::trigger_key(row)?, row.next()?));
    let mut pruned = Pruned::default();
    let mut next: Option<(TriggerKey, UtcMillis)> = match from {
        Some(key) => tx.first(ledger_from!(">="), values![key.project, key.task, key.name], read)?,
        None => tx.first(ledger_from!(">"), values![String::new(), String::new(), String::new()], read)?,
    };
    for _ in 0..limit {
        let Some((key, oldest)) = next else { break };
        pruned.lines += prune_one(tx, &key, oldest, limit - pruned.lines)?;
        if pruned.lines == limit {
            pruned.rest = Some(key);
            return Ok(pruned);
        }
        next = tx.first(ledger_from!(">"), values![key.project, key.task, key.name], read)?;
    }
    pruned.rest = next.map(|(key, _)| key);
    Ok(pruned)
}

/// Takes at most `limit` lines of one ledger; answers how many.
fn prune_one(tx: &Tx<'_>, key: &TriggerKey, oldest: UtcMillis, limit: usize) -> Result<usize, Fault> {
    let TriggerKey { project, task, name } = key;
    if kept_from(Some(oldest), tx.now.utc) < Some(oldest) {
        // All of it is young: its lines need no counting.
        return Ok(0);
    }
    let sql = "SELECT at FROM schedule_ledger INDEXED BY schedule_ledger_of WHERE project = ?1 AND task = ?2 AND name = ?3 \
               ORDER BY at DESC LIMIT 1 OFFSET ?4";
    let newest = tx.first(sql, values![*project, *task, *name, LEDGER_LINES - 1], rows::column)?;
    let Some(kept_from) = kept_from(newest, tx.now.utc) else { return Ok(0) };
    let sql = "SELECT at, is_gap FROM schedule_ledger INDEXED BY schedule_ledger_of WHERE project = ?1 AND task = ?2 \
               AND name = ?3 AND at < ?4 AND (last_at IS NULL OR last_at < ?4) AND happened <> 'waits' \
               ORDER BY at LIMIT ?5";
    let read = |row: &mut Columns<'_>| Ok((row.next()?, row.next()?));
    let lines: Vec<(UtcMillis, bool)> = tx.all(sql, values![*project, *task, *name, kept_from, limit], read)?;
    for (at, is_gap) in &lines {
        let sql =
            "DELETE FROM schedule_ledger WHERE project = ?1 AND task = ?2 AND at = ?3 AND name = ?4 AND is_gap = ?5";
        tx.execute_one("line of a ledger", sql, values![*project, *task, *at, *name, *is_gap])?;
    }
    Ok(lines.len())
}

/// A page of a task's schedule ledger, the newest nominal time first.
pub(super) fn page(tx: &Tx<'_>, page: &LedgerPage, limit: usize) -> Result<Vec<LedgerEntry>, Fault> {
    let (at, name, is_gap) = page.before.as_ref().map_or_else(
        || (UtcMillis::new(i64::MAX), String::new(), false),
        |before| (before.at, before.trigger.to_string(), before.is_gap),
    );
    let sql = concat!(
        "SELECT ",
        ledger_columns!(),
        " FROM schedule_ledger WHERE project = ?1 AND task = ?2 AND (at, name, is_gap) < (?3, ?4, ?5) \
         AND (?6 IS NULL OR name = ?6) ORDER BY at DESC, name DESC, is_gap DESC LIMIT ?7"
    );
    tx.all(sql, values![page.project, page.task, at, name, is_gap, page.trigger, limit], rows::ledger_entry)
}
