//! The ledger of a task's schedules: one line for every instant that was due, and the run that it has. The lines are kept for
//! a time; what keeps an instant from a second run is the first, by the unique index of runs by their instants.

use std::collections::BTreeSet;

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
use super::column::{Column as _, list, values};
use super::lock::Locks;
use super::rows::{self, Columns, ledger_columns};
use super::transaction::{Connection, Fault, Tx, Unlocked};
use crate::stored::ledger::spell;

/// Writes lines of a ledger, with their runs. An instant that has a run keeps its line and gets no second.
pub(super) async fn write(
    tx: &Tx,
    key: &TriggerKey,
    revision: &Revision,
    lines: &[Line],
    fired: &mut Fired,
) -> Result<(), Fault> {
    let instants: Vec<UtcMillis> = lines
        .iter()
        .filter_map(|line| match line {
            Line::At(nominal, _) => Some(*nominal),
            Line::Gap(_) => None,
        })
        .collect();
    let have = with_runs(tx, key, &instants).await?;
    for line in lines {
        let mut admitted = None;
        match *line {
            Line::At(nominal, _) if have.contains(&nominal) => continue,
            Line::At(nominal, happened) if happened.admits() => {
                let (run, attempt) = key.ids(nominal, tx.now.utc);
                let scheduled = Scheduled { trigger: key.name.clone(), at: nominal };
                let submission =
                    Submission { project: &key.project, task: Some(&key.task), scheduled: Some(&scheduled), revision };
                let change = admission::admit(submission, run, attempt, &Actor::System, tx.now);
                admit::insert(tx, &change, revision).await?;
                admitted = Some(run);
                fired.runs.push(run);
            }
            Line::At(..) => {}
            Line::Gap(gap) => {
                let sql = "DELETE FROM schedule_ledger WHERE project = $1 AND task = $2 AND name = $3 \
                           AND at BETWEEN $4 AND $5 AND happened = 'waits'";
                tx.execute(sql, values![key.project, key.task, key.name, gap.first, gap.last]).await?;
            }
        }
        insert_line(tx, key, line, admitted).await?;
    }
    Ok(())
}

/// Those of `instants` that have a run.
async fn with_runs(tx: &Tx, key: &TriggerKey, instants: &[UtcMillis]) -> Result<BTreeSet<UtcMillis>, Fault> {
    if instants.is_empty() {
        return Ok(BTreeSet::new());
    }
    let sql = "SELECT scheduled_at FROM run WHERE project = $1 AND task = $2 AND trigger_name = $3 \
               AND scheduled_at = ANY ($4) AND scheduled_at IS NOT NULL";
    let values = [key.project.bind(), key.task.bind(), key.name.bind(), list(instants)];
    Ok(tx.all(sql, values, rows::column).await?.into_iter().collect())
}

async fn insert_line(tx: &Tx, key: &TriggerKey, line: &Line, run: Option<RunId>) -> Result<(), Fault> {
    let spelled = spell(line);
    tx.execute_one(
        "line of a ledger",
        "INSERT INTO schedule_ledger (project, task, at, name, is_gap, happened, run, by_run, by_instant, last_at, \
         instants, why, written_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
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
    .await
}

/// Takes what is kept no longer from a page of ledgers. Nobody is waited for: a line that another replica takes is gone.
pub(super) async fn prune(db: Unlocked, from: Option<&TriggerKey>, limit: usize) -> Result<Pruned, Fault> {
    let ledgers = ledgers(&db, from, limit.saturating_add(1)).await?;
    let now = db.peek_clock().await?.utc;
    let mut pruned = Pruned { lines: 0, rest: ledgers.get(limit).map(|(key, _)| key.clone()) };
    // Of those that are young as a whole no line needs counting.
    let old = |(_, oldest): &&(TriggerKey, UtcMillis)| kept_from(Some(*oldest), now) == Some(*oldest);
    let old: Vec<_> = ledgers.iter().take(limit).filter(old).map(|(key, _)| key).collect();
    if old.is_empty() {
        return Ok(pruned);
    }
    let tx = &db.lock(Locks::none()).await?;
    for key in old {
        pruned.lines += prune_one(tx, key, limit - pruned.lines).await?;
        if pruned.lines == limit {
            pruned.rest = Some(key.clone());
            break;
        }
    }
    Ok(pruned)
}

/// The first ledgers from a place on, each with its oldest line. The recursion makes one look at the index for each.
async fn ledgers(
    db: &Connection,
    from: Option<&TriggerKey>,
    limit: usize,
) -> Result<Vec<(TriggerKey, UtcMillis)>, Fault> {
    let sql = "WITH RECURSIVE ledger AS ( \
                   (SELECT project, task, name, at FROM schedule_ledger WHERE (project, task, name) >= ($1, $2, $3) \
                    ORDER BY project, task, name, at LIMIT 1) \
                   UNION ALL \
                   SELECT n.* FROM ledger l CROSS JOIN LATERAL \
                   (SELECT s.project, s.task, s.name, s.at FROM schedule_ledger s \
                    WHERE (s.project, s.task, s.name) > (l.project, l.task, l.name) \
                    ORDER BY s.project, s.task, s.name, s.at LIMIT 1) n \
               ) SELECT project, task, name, at FROM ledger LIMIT $4";
    let text = |key: &TriggerKey| (key.project.to_string(), key.task.to_string(), key.name.to_string());
    let (project, task, name) = from.map_or_else(Default::default, text);
    let read = |row: &mut Columns<'_>| Ok((rows::trigger_key(row)?, row.next()?));
    db.all(sql, values![project, task, name, limit], read).await
}

/// Takes at most `limit` lines of one ledger; answers how many.
async fn prune_one(tx: &Tx, key: &TriggerKey, limit: usize) -> Result<usize, Fault> {
    let TriggerKey { project, task, name } = key;
    let sql = "SELECT at FROM schedule_ledger WHERE project = $1 AND task = $2 AND name = $3 \
               ORDER BY at DESC LIMIT 1 OFFSET $4";
    let newest = tx.first(sql, values![*project, *task, *name, LEDGER_LINES - 1], rows::column).await?;
    let Some(kept_from) = kept_from(newest, tx.now.utc) else { return Ok(0) };
    let sql = "DELETE FROM schedule_ledger WHERE (project, task, at, name, is_gap) IN ( \
                   SELECT project, task, at, name, is_gap FROM schedule_ledger WHERE project = $1 AND task = $2 \
                   AND name = $3 AND at < $4 AND (last_at IS NULL OR last_at < $4) AND happened <> 'waits' \
                   ORDER BY at LIMIT $5 FOR UPDATE SKIP LOCKED)";
    let lines = tx.execute(sql, values![*project, *task, *name, kept_from, limit]).await?;
    usize::try_from(lines).map_err(|_| Fault::Damaged("more lines went than there can be".to_owned()))
}

/// A page of a task's schedule ledger, the newest nominal time first.
pub(super) async fn page(tx: &Tx, page: &LedgerPage, limit: usize) -> Result<Vec<LedgerEntry>, Fault> {
    let (at, name, is_gap) = page.before.as_ref().map_or_else(
        || (UtcMillis::new(i64::MAX), String::new(), false),
        |before| (before.at, before.trigger.to_string(), before.is_gap),
    );
    let sql = concat!(
        "SELECT ",
        ledger_columns!(),
        " FROM schedule_ledger WHERE project = $1 AND task = $2 AND (at, name, is_gap) < ($3, $4, $5) \
         AND ($6::text IS NULL OR name = $6) ORDER BY at DESC, name DESC, is_gap DESC LIMIT $7"
    );
    tx.all(sql, values![page.project, page.task, at, name, is_gap, page.trigger, limit], rows::ledger_entry).await
}
