//! Rows and records: how each record of the domain is read from its row.
//!
//! Columns are read in the order of the `…_columns!` lists, which are the only place that spells them.

use leasehold_core::attempt::{Attempt, Callback, Handle, Left, LimitsKept, LogPin, Usage};
use leasehold_core::frame::Cut;
use leasehold_core::id::TriggerName;
use leasehold_core::lease::Lease;
use leasehold_core::project::{Made, Project};
use leasehold_core::resolve::Word;
use leasehold_core::revision::Revision;
use leasehold_core::run::{Closing, Run, StopIntent};
use leasehold_core::schedule::{Backlog, Progress};
use leasehold_core::session::Session;
use leasehold_core::task::Task;
use leasehold_core::trigger::webhook::TokenMade;
use leasehold_core::trigger::{KeptTrigger, Pause, Scheduled, TriggerKey};
use leasehold_core::worker::{Drain, Rival, Takeover, Worker};
use leasehold_store::view::{KeyedRun, LedgerEntry, TaskRevision, TriggerView};

use super::column::{Cell, Column};
use super::ledger::{self, Spelled};

/// A row, as a driver hands it out.
pub(crate) trait Row {
    /// Why a call of the port fails.
    type Fault;

    /// What the column at a place holds.
    fn cell(&self, at: usize) -> Result<Cell<'_>, Self::Fault>;

    /// The name of the column at a place.
    fn name(&self, at: usize) -> Option<&str>;
}

/// A stored row contradicts its own rules.
#[derive(Debug)]
pub(crate) struct Damaged(pub(crate) String);

/// The columns of one row, read from left to right.
pub(crate) struct Columns<'r, F> {
    row: &'r dyn Row<Fault = F>,
    at: usize,
}

impl<'r, F: From<Damaged>> Columns<'r, F> {
    /// The columns of `row`, from the first.
    pub(crate) fn of(row: &'r dyn Row<Fault = F>) -> Self {
        Self { row, at: 0 }
    }

    /// The next column.
    pub(crate) fn next<T: Column>(&mut self) -> Result<T, F> {
        let at = self.at;
        self.at += 1;
        T::read(self.row.cell(at)?).map_err(|problem| {
            // Only the name of the column is told: what stands in it may be a secret.
            let name = self.row.name(at).unwrap_or("?");
            Damaged(format!("column {name}: {problem}")).into()
        })
    }
}

/// Names of columns, each behind that of its table, where a statement reads several.
macro_rules! columns_of {
    ($of:literal; $first:ident $(, $name:ident)*) => {
        concat!($of, stringify!($first) $(, ", ", $of, stringify!($name))*)
    };
}
pub(crate) use columns_of;

/// The one column of a row that has no other.
pub(crate) fn column<T: Column, F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<T, F> {
    columns.next()
}

/// The run of an idempotency key, and what was asked with it.
pub(crate) fn keyed_run<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<KeyedRun, F> {
    Ok(KeyedRun { run: columns.next()?, asked: columns.next()? })
}

macro_rules! run_columns {
    ($of:literal) => {
        $crate::stored::rows::columns_of!($of;
            id, project, task, trigger_name, scheduled_at, revision, placement, priority, state, version, latest,
            fence, intent_reason, intent_by, intent_why, intent_at, failures, machinery_failures, due_lease,
            created_at, started_at, closing_outcome, closing_unobserved, closed_at, after_runs
        )
    };
}
pub(crate) use run_columns;

/// What started a run by itself: a time of a trigger, or a call.
fn started_by<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<(Option<Scheduled>, Option<TriggerName>), F> {
    Ok(match (columns.next()?, columns.next()?) {
        (Some(trigger), Some(at)) => (Some(Scheduled { trigger, at }), None),
        (webhook, _) => (None, webhook),
    })
}

pub(crate) fn run<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<Run, F> {
    let (id, project, task) = (columns.next()?, columns.next()?, columns.next()?);
    let (scheduled, webhook) = started_by(columns)?;
    Ok(Run {
        id,
        project,
        task,
        scheduled,
        webhook,
        revision: columns.next()?,
        placement: columns.next()?,
        priority: columns.next()?,
        state: columns.next()?,
        version: columns.next()?,
        latest: columns.next()?,
        fence: columns.next()?,
        intent: {
            let reason = columns.next::<Option<_>>()?;
            let (by, why, at) = (columns.next::<Option<_>>()?, columns.next()?, columns.next::<Option<_>>()?);
            match (reason, by, at) {
                (Some(reason), Some(by), Some(at)) => Some(StopIntent { reason, by, why, at }),
                _ => None,
            }
        },
        failures: columns.next()?,
        machinery_failures: columns.next()?,
        due: columns.next()?,
        created_at: columns.next()?,
        started_at: columns.next()?,
        closing: match (columns.next()?, columns.next()?, columns.next()?) {
            (Some(outcome), Some(unobserved), Some(at)) => Some(Closing { outcome, unobserved, at }),
            _ => None,
        },
        after: columns.next()?,
    })
}

/// The columns of a task.
macro_rules! task_columns {
    () => {
        "project, name, revision, number, created_at, changed_at, deleted_at, pause_by, pause_why, pause_at"
    };
}
pub(crate) use task_columns;

pub(crate) fn task<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<Task, F> {
    Ok(Task {
        project: columns.next()?,
        name: columns.next()?,
        revision: columns.next()?,
        number: columns.next()?,
        created_at: columns.next()?,
        changed_at: columns.next()?,
        deleted_at: columns.next()?,
        pause: pause(columns)?,
    })
}

fn pause<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<Option<Pause>, F> {
    Ok(match (columns.next()?, columns.next()?, columns.next()?) {
        (Some(by), why, Some(at)) => Some(Pause { by, why, at }),
        _ => None,
    })
}

/// The columns of a trigger of the table `t`.
macro_rules! trigger_columns {
    () => {
        "t.project, t.task, t.name, t.kind, t.next_at, t.backlog_next, t.backlog_last, t.waiting_at, t.paused, t.look_at, \
         t.pause_by, t.pause_why, t.pause_at"
    };
}
pub(crate) use trigger_columns;

pub(crate) fn trigger<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<KeptTrigger, F> {
    Ok(KeptTrigger {
        key: trigger_key(columns)?,
        kind: columns.next()?,
        progress: Progress {
            next: columns.next()?,
            backlog: match (columns.next()?, columns.next()?) {
                (Some(next), Some(last)) => Some(Backlog { next, last }),
                _ => None,
            },
            waiting: columns.next()?,
            paused: columns.next()?,
        },
        look_at: columns.next()?,
        pause: pause(columns)?,
    })
}

pub(crate) fn trigger_key<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<TriggerKey, F> {
    Ok(TriggerKey { project: columns.next()?, task: columns.next()?, name: columns.next()? })
}

pub(crate) fn trigger_view<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<TriggerView, F> {
    let kept = trigger(columns)?;
    let task_pause = pause(columns)?;
    let revision: Revision = columns.next()?;
    let trigger = revision.triggers().iter().find(|trigger| trigger.name == kept.key.name).cloned();
    let trigger = trigger.ok_or_else(|| {
        let TriggerKey { project, task, name } = &kept.key;
        Damaged(format!("the revision of task {project}/{task} has no trigger {name}"))
    })?;
    let token = match (columns.next()?, columns.next()?) {
        (Some(by), Some(at)) => Some(TokenMade { by, at }),
        _ => None,
    };
    Ok(TriggerView { kept, trigger, task_pause, token })
}

macro_rules! ledger_columns {
    () => {
        "name, run, written_at, at, is_gap, happened, by_run, by_instant, last_at, instants, why"
    };
}
pub(crate) use ledger_columns;

pub(crate) fn ledger_entry<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<LedgerEntry, F> {
    let (trigger, run, written_at) = (columns.next()?, columns.next()?, columns.next()?);
    let spelled = Spelled {
        at: columns.next()?,
        is_gap: columns.next()?,
        happened: columns.next()?,
        by_run: columns.next()?,
        by_instant: columns.next()?,
        last_at: columns.next()?,
        instants: columns.next()?,
        why: columns.next()?,
    };
    Ok(LedgerEntry { trigger, line: ledger::read(&spelled).map_err(Damaged)?, run, written_at })
}

pub(crate) fn task_revision<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<TaskRevision, F> {
    Ok(TaskRevision { number: columns.next()?, revision: columns.next()?, at: columns.next()?, by: columns.next()? })
}

macro_rules! project_columns {
    () => {
        "name, concurrency, created_at, deleted_at, made_key, made_limit"
    };
}
pub(crate) use project_columns;

pub(crate) fn project<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<Project, F> {
    Ok(Project {
        name: columns.next()?,
        concurrency: columns.next()?,
        created_at: columns.next()?,
        deleted_at: columns.next()?,
        made: match (columns.next()?, columns.next()?) {
            (Some(key), concurrency) => Some(Made { key, concurrency }),
            (None, _) => None,
        },
    })
}

macro_rules! attempt_columns {
    ($of:literal) => {
        $crate::stored::rows::columns_of!($of;
            id, run, number, state, version, lease_generation, worker, boot, start_by_lease, deadline_lease,
            handle_boot, handle_pid, handle_start_time, callback_sequence, callback_token, claimed_at, starting_at,
            running_at, ended_at, outcome, resolution, word_verb, word_by, word_why, word_at, evidence, may_live,
            left_count, left_pids, log_length, log_digest, log_finished, log_cut, log_cut_stdout, log_cut_stderr,
            usage_user_millis, usage_system_millis, usage_max_rss_kib, usage_oom_killed, usage_memory_kept,
            usage_cpu_kept, usage_pids_kept
        )
    };
}
pub(crate) use attempt_columns;

pub(crate) fn attempt<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<Attempt, F> {
    Ok(Attempt {
        id: columns.next()?,
        run: columns.next()?,
        number: columns.next()?,
        state: columns.next()?,
        version: columns.next()?,
        lease_generation: columns.next()?,
        worker: columns.next()?,
        boot: columns.next()?,
        start_by: columns.next()?,
        deadline: columns.next()?,
        handle: match (columns.next()?, columns.next()?, columns.next()?) {
            (Some(boot), Some(pid), Some(start_time)) => Some(Handle { boot, pid, start_time }),
            _ => None,
        },
        callback: match (columns.next()?, columns.next()?) {
            (Some(sequence), Some(token)) => Some(Callback { sequence, token }),
            _ => None,
        },
        claimed_at: columns.next()?,
        starting_at: columns.next()?,
        running_at: columns.next()?,
        ended_at: columns.next()?,
        outcome: columns.next()?,
        resolution: columns.next()?,
        word: {
            let (verb, by) = (columns.next::<Option<_>>()?, columns.next::<Option<_>>()?);
            match (verb, by, columns.next()?, columns.next::<Option<_>>()?) {
                (Some(verb), Some(by), why, Some(at)) => Some(Word { verb, by, why, at }),
                _ => None,
            }
        },
        evidence: columns.next()?,
        may_live: columns.next()?,
        left: match (columns.next()?, columns.next()?) {
            (Some(count), Some(pids)) => Some(Left { count, pids }),
            _ => None,
        },
        log: {
            let pin = (columns.next()?, columns.next()?, columns.next()?);
            let cut = match (columns.next()?, columns.next()?, columns.next()?) {
                (Some(reason), Some(stdout), Some(stderr)) => Some(Cut { reason, stdout, stderr }),
                _ => None,
            };
            match pin {
                (Some(length), Some(digest), Some(finished)) => Some(LogPin { length, digest, cut, finished }),
                _ => None,
            }
        },
        usage: usage(columns)?,
    })
}

fn usage<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<Option<Usage>, F> {
    let used = (columns.next()?, columns.next()?, columns.next()?, columns.next()?);
    let limits = LimitsKept { memory: columns.next()?, cpu: columns.next()?, pids: columns.next()? };
    Ok(match used {
        (Some(user), Some(system), Some(max_rss_kib), Some(oom_killed)) => {
            Some(Usage { user, system, max_rss_kib, oom_killed, limits })
        }
        _ => None,
    })
}

macro_rules! lease_columns {
    ($of:literal) => {
        $crate::stored::rows::columns_of!($of;
            attempt, run, offer, token, generation, version, worker, session, session_generation, fence,
            length_millis, expires_lease, state, score, claimed_at, devices
        )
    };
}
pub(crate) use lease_columns;

pub(crate) fn lease<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<Lease, F> {
    Ok(Lease {
        attempt: columns.next()?,
        run: columns.next()?,
        offer: columns.next()?,
        token: columns.next()?,
        generation: columns.next()?,
        version: columns.next()?,
        worker: columns.next()?,
        session: columns.next()?,
        session_generation: columns.next()?,
        fence: columns.next()?,
        length: columns.next()?,
        expires: columns.next()?,
        state: columns.next()?,
        score: columns.next()?,
        claimed_at: columns.next()?,
        devices: columns.next()?,
    })
}

/// A session's columns; its capabilities come from their own table, under the alias `c`.
macro_rules! session_columns {
    () => {
        "s.worker, s.id, s.generation, s.version, s.state, s.boot, s.registration, c.canonical, s.max_runs, s.slots, \
         s.obeys_drain, s.lease_millis, s.interval_millis, s.expires_lease, s.spoke_lease, s.software, s.protocol, s.registered_at"
    };
}
pub(crate) use session_columns;

pub(crate) fn session<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<Session, F> {
    Ok(Session {
        worker: columns.next()?,
        id: columns.next()?,
        generation: columns.next()?,
        version: columns.next()?,
        state: columns.next()?,
        boot: columns.next()?,
        registration: columns.next()?,
        capabilities: columns.next()?,
        max_runs: columns.next()?,
        slots: columns.next()?,
        obeys_drain: columns.next()?,
        lease: columns.next()?,
        interval: columns.next()?,
        expires: columns.next()?,
        spoke_at: columns.next()?,
        software: columns.next()?,
        protocol: columns.next()?,
        registered_at: columns.next()?,
    })
}

macro_rules! worker_columns {
    ($of:literal) => {
        $crate::stored::rows::columns_of!($of;
            id, enrollment, state, labels, current_session, generation, rival_session, rival_heard, rival_audited,
            drain_by, drain_why, drain_at, takeover_by, takeover_why, takeover_expires_at, enrolled_at,
            certificate_expires_at
        )
    };
}
pub(crate) use worker_columns;

pub(crate) fn worker<F: From<Damaged>>(columns: &mut Columns<'_, F>) -> Result<Worker, F> {
    Ok(Worker {
        id: columns.next()?,
        enrollment: columns.next()?,
        state: columns.next()?,
        labels: columns.next()?,
        current: columns.next()?,
        generation: columns.next()?,
        rival: match (columns.next()?, columns.next()?, columns.next()?) {
            (Some(session), Some(heard), Some(audited)) => Some(Rival { session, heard, audited }),
            _ => None,
        },
        drain: match (columns.next()?, columns.next()?, columns.next()?) {
            (Some(by), why, Some(at)) => Some(Drain { by, why, at }),
            _ => None,
        },
        takeover: match (columns.next()?, columns.next()?, columns.next()?) {
            (Some(by), why, Some(expires_at)) => Some(Takeover { by, why, expires_at }),
            _ => None,
        },
        enrolled_at: columns.next()?,
        certificate_expires_at: columns.next()?,
    })
}
