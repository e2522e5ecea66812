//! The ledger of a task's schedules: one line for every instant that was due, and the run that it has.

use std::collections::BTreeSet;

use leasehold_core::actor::Actor;
use leasehold_core::admission::{self, Submission};
use leasehold_core::id::RunId;
use leasehold_core::revision::Revision;
use leasehold_core::schedule::Line;
use leasehold_core::time::UtcMillis;
use leasehold_core::trigger::{Scheduled, TriggerKey};
use leasehold_store::call::LedgerPage;
use leasehold_store::view::{Fired, LedgerEntry};

use super::admit;
use super::column::{Column as _, list, values};
use super::rows::{self, ledger_columns};
use super::transaction::{Fault, Tx};
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
    let sql = "SELECT at FROM schedule_ledger WHERE project = $1 AND task = $2 AND at = ANY ($3) AND name = $4 \
               AND NOT is_gap AND run IS NOT NULL";
    let values = [key.project.bind(), key.task.bind(), list(instants), key.name.bind()];
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
