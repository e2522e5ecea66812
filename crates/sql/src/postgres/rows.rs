//! Rows and records: how each record of the domain is read from its row, and the values that write it.
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
use tokio_postgres::Row;

use super::column::{Cell, Column};
use super::transaction::Fault;
use crate::stored::ledger::{self, Spelled};

/// The columns of one row, read from left to right.
pub(super) struct Columns<'r> {
    row: &'r Row,
    at: usize,
}

impl<'r> Columns<'r> {
    /// The columns of `row`, from the first.
    pub(super) fn of(row: &'r Row) -> Self {
        Self { row, at: 0 }
    }

    /// The next column.
    pub(super) fn next<T: Column>(&mut self) -> Result<T, Fault> {
        let at = self.at;
        self.at += 1;
        // Only the name of the column is told: what stands in it may be a secret.
        let cell: Cell<'_> = self.row.try_get(at)?;
        T::read(cell).map_err(|problem| {
            let name = self.row.columns().get(at).map_or("?", |column| column.name());
            Fault::Damaged(format!("column {name}: {problem}"))
        })
    }
}

/// The one column of a row that has no other.
pub(super) fn column<T: Column>(columns: &mut Columns<'_>) -> Result<T, Fault> {
    columns.next()
}

/// The run of an idempotency key, and what was asked with it.
pub(super) fn keyed_run(columns: &mut Columns<'_>) -> Result<KeyedRun, Fault> {
    Ok(KeyedRun { run: columns.next()?, asked: columns.next()? })
}

macro_rules! run_columns {
    () => {
        "r.id, r.project, r.task, r.trigger_name, r.scheduled_at, r.revision, r.placement, r.priority, r.state, r.version, r.latest, r.fence, r.intent_reason, r.intent_by, \
         r.intent_why, r.intent_at, r.failures, r.machinery_failures, r.due_lease, r.created_at, r.started_at, r.closing_outcome, \
         r.closing_unobserved, r.closed_at, r.after_runs"
    };
}
pub(super) use run_columns;

/// What started a run by itself: a time of a trigger, or a call.
fn started_by(columns: &mut Columns<'_>) -> Result<(Option<Scheduled>, Option<TriggerName>), Fault> {
    Ok(match (columns.next()?, columns.next()?) {
        (Some(trigger), Some(at)) => (Some(Scheduled { trigger, at }), None),
        (webhook, _) => (None, webhook),
    })
}

pub(super) fn run(columns: &mut Columns<'_>) -> Result<Run, Fault> {
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
pub(super) use task_columns;

pub(super) fn task(columns: &mut Columns<'_>) -> Result<Task, Fault> {
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

fn pause(columns: &mut Columns<'_>) -> Result<Option<Pause>, Fault> {
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
pub(super) use trigger_columns;

pub(super) fn trigger(columns: &mut Columns<'_>) -> Result<KeptTrigger, Fault> {
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

pub(super) fn trigger_key(columns: &mut Columns<'_>) -> Result<TriggerKey, Fault> {
    Ok(TriggerKey { project: columns.next()?, task: columns.next()?, name: columns.next()? })
}

pub(super) fn trigger_view(columns: &mut Columns<'_>) -> Result<TriggerView, Fault> {
    let kept = trigger(columns)?;
    let task_pause = pause(columns)?;
    let revision: Revision = columns.next()?;
    let trigger = revision.triggers().iter().find(|trigger| trigger.name == kept.key.name).cloned();
    let trigger = trigger.ok_or_else(|| {
        let TriggerKey { project, task, name } = &kept.key;
        Fault::Damaged(format!("the revision of task {project}/{task} has no trigger {name}"))
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
pub(super) use ledger_columns;

pub(super) fn ledger_entry(columns: &mut Columns<'_>) -> Result<LedgerEntry, Fault> {
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
    Ok(LedgerEntry { trigger, line: ledger::read(&spelled).map_err(Fault::Damaged)?, run, written_at })
}

pub(super) fn task_revision(columns: &mut Columns<'_>) -> Result<TaskRevision, Fault> {
    Ok(TaskRevision { number: columns.next()?, revision: columns.next()?, at: columns.next()?, by: columns.next()? })
}

macro_rules! project_columns {
    () => {
        "name, concurrency, created_at, deleted_at, made_key, made_limit"
    };
}
pub(super) use project_columns;

pub(super) fn project(columns: &mut Columns<'_>) -> Result<Project, Fault> {
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
    () => {
        "a.id, a.run, a.number, a.state, a.version, a.lease_generation, a.worker, a.boot, a.start_by_lease, a.deadline_lease, a.handle_boot, \
         a.handle_pid, a.handle_start_time, a.callback_sequence, a.callback_token, a.claimed_at, a.starting_at, a.running_at, \
         a.ended_at, a.outcome, a.resolution, a.word_verb, a.word_by, a.word_why, a.word_at, a.evidence, a.may_live, a.left_count, a.left_pids, \
         a.log_length, a.log_digest, a.log_finished, a.log_cut, a.log_cut_stdout, a.log_cut_stderr, a.usage_user_millis, \
         a.usage_system_millis, a.usage_max_rss_kib, a.usage_oom_killed, a.usage_memory_kept, a.usage_cpu_kept, \
         a.usage_pids_kept"
    };
}
pub(super) use attempt_columns;

pub(super) fn attempt(columns: &mut Columns<'_>) -> Result<Attempt, Fault> {
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

fn usage(columns: &mut Columns<'_>) -> Result<Option<Usage>, Fault> {
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
    () => {
        "l.attempt, l.run, l.offer, l.token, l.generation, l.version, l.worker, l.session, l.session_generation, l.fence, l.length_millis, \
         l.expires_lease, l.state, l.score, l.claimed_at, l.devices"
    };
}
pub(super) use lease_columns;

pub(super) fn lease(columns: &mut Columns<'_>) -> Result<Lease, Fault> {
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
pub(super) use session_columns;

pub(super) fn session(columns: &mut Columns<'_>) -> Result<Session, Fault> {
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
    () => {
        "w.id, w.enrollment, w.state, w.labels, w.current_session, w.generation, w.rival_session, w.rival_heard, w.rival_audited, \
         w.drain_by, w.drain_why, w.drain_at, w.takeover_by, w.takeover_why, w.takeover_expires_at, w.enrolled_at, w.certificate_expires_at"
    };
}
pub(super) use worker_columns;

pub(super) fn worker(columns: &mut Columns<'_>) -> Result<Worker, Fault> {
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
