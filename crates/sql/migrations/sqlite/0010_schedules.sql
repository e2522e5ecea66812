-- Schedules: how far each trigger of a task has come. What it waits for stands in the revision that its task has.
CREATE TABLE task_trigger (
    project TEXT NOT NULL,
    task TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('cron', 'webhook')),
    -- Nominal times: the first that is not settled, what is owed of a gap, and the one that waits for its turn.
    next_at INTEGER,
    backlog_next INTEGER,
    backlog_last INTEGER,
    waiting_at INTEGER,
    paused INTEGER NOT NULL CHECK (paused IN (0, 1)),
    -- Whether something waits for its turn, and the trigger is not paused.
    owes INTEGER NOT NULL CHECK (owes = (paused = 0 AND (waiting_at IS NOT NULL OR backlog_next IS NOT NULL))),
    -- When it is looked at.
    look_at INTEGER,
    -- A person's pause of it.
    pause_by TEXT,
    pause_why TEXT,
    pause_at INTEGER,
    PRIMARY KEY (project, task, name),
    FOREIGN KEY (project, task) REFERENCES task (project, name),
    CHECK ((backlog_next IS NULL) = (backlog_last IS NULL)),
    CHECK ((pause_by IS NULL) = (pause_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX task_trigger_look ON task_trigger (look_at, project, task, name) WHERE look_at IS NOT NULL;
CREATE INDEX task_trigger_owing ON task_trigger (project, task, name) WHERE owes = 1;

-- One line for every instant that was due, and one for a gap. Whoever has a run keeps it: one run for one nominal time.
CREATE TABLE schedule_ledger (
    project TEXT NOT NULL,
    task TEXT NOT NULL,
    -- The nominal time; of a gap, its first instant.
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    is_gap INTEGER NOT NULL CHECK (is_gap IN (0, 1)),
    happened TEXT NOT NULL CHECK (happened IN ('fired', 'caught_up', 'backfilled', 'waits', 'skipped', 'missed')),
    run BLOB CHECK (run IS NULL OR length(run) = 16),
    by_run BLOB CHECK (by_run IS NULL OR length(by_run) = 16),
    by_instant INTEGER,
    last_at INTEGER,
    instants INTEGER,
    why TEXT,
    written_at INTEGER NOT NULL,
    PRIMARY KEY (project, task, at, name, is_gap),
    CHECK ((run IS NOT NULL) = (happened IN ('fired', 'caught_up', 'backfilled'))),
    CHECK ((is_gap = 1) = (happened = 'missed')),
    CHECK (is_gap = 0 OR (last_at IS NOT NULL AND instants IS NOT NULL AND why IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER schedule_ledger_fired BEFORE UPDATE ON schedule_ledger
WHEN OLD.run IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'an instant that has a run keeps it'); END;

-- The instant that a run was admitted for.
ALTER TABLE run ADD COLUMN trigger_name TEXT;
ALTER TABLE run ADD COLUMN scheduled_at INTEGER;

-- What stands in the way of the next run of a task by where it stands.
CREATE INDEX run_in_the_way ON run (project, task, id)
    WHERE task IS NOT NULL
    AND (state IN ('pending', 'dispatching', 'running', 'retry_wait') OR (state = 'lost' AND mutex = 1));

-- A person's word that none of a task's triggers starts anything.
ALTER TABLE task ADD COLUMN pause_by TEXT;
ALTER TABLE task ADD COLUMN pause_why TEXT;
ALTER TABLE task ADD COLUMN pause_at INTEGER;
