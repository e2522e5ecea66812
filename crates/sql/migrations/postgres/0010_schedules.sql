-- Schedules: how far each trigger of a task has come. What it waits for stands in the revision that its task has.
CREATE TABLE task_trigger (
    project text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind IN ('cron', 'webhook')),
    -- Nominal times: the first that is not settled, what is owed of a gap, and the one that waits for its turn.
    next_at bigint,
    backlog_next bigint,
    backlog_last bigint,
    waiting_at bigint,
    paused boolean NOT NULL,
    -- Whether something waits for its turn, and the trigger is not paused.
    owes boolean NOT NULL CHECK (owes = (NOT paused AND (waiting_at IS NOT NULL OR backlog_next IS NOT NULL))),
    -- When it is looked at.
    look_at bigint,
    -- A person's pause of it.
    pause_by text,
    pause_why text,
    pause_at bigint,
    PRIMARY KEY (project, task, name),
    FOREIGN KEY (project, task) REFERENCES task (project, name),
    CHECK ((backlog_next IS NULL) = (backlog_last IS NULL)),
    CHECK ((pause_by IS NULL) = (pause_at IS NULL))
);

CREATE INDEX task_trigger_look ON task_trigger (look_at, project, task, name) WHERE look_at IS NOT NULL;
CREATE INDEX task_trigger_owing ON task_trigger (project, task, name) WHERE owes;

-- One line for every instant that was due, and one for a gap. Whoever has a run keeps it: one run for one nominal time.
CREATE TABLE schedule_ledger (
    project text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    -- The nominal time; of a gap, its first instant.
    at bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    is_gap boolean NOT NULL,
    happened text NOT NULL CHECK (happened IN ('fired', 'caught_up', 'backfilled', 'waits', 'skipped', 'missed')),
    run uuid,
    by_run uuid,
    by_instant bigint,
    last_at bigint,
    instants bigint,
    why text,
    written_at bigint NOT NULL,
    PRIMARY KEY (project, task, at, name, is_gap),
    CHECK ((run IS NOT NULL) = (happened IN ('fired', 'caught_up', 'backfilled'))),
    CHECK (is_gap = (happened = 'missed')),
    CHECK (NOT is_gap OR (last_at IS NOT NULL AND instants IS NOT NULL AND why IS NOT NULL))
);

CREATE TRIGGER schedule_ledger_fired BEFORE UPDATE ON schedule_ledger FOR EACH ROW WHEN (OLD.run IS NOT NULL)
EXECUTE FUNCTION never_changes('an instant that has a run keeps it');

-- The instant that a run was admitted for.
ALTER TABLE run ADD COLUMN trigger_name text, ADD COLUMN scheduled_at bigint;

-- What stands in the way of the next run of a task by where it stands.
CREATE INDEX run_in_the_way ON run (project, task, id)
    WHERE task IS NOT NULL
    AND (state IN ('pending', 'dispatching', 'running', 'retry_wait') OR (state = 'lost' AND mutex));

-- A person's word that none of a task's triggers starts anything.
ALTER TABLE task ADD COLUMN pause_by text, ADD COLUMN pause_why text, ADD COLUMN pause_at bigint;

-- Takes those of these tasks that nobody else has, with their triggers: nobody says anything of them meanwhile, and no other
-- replica fires them. Waits for nobody. The tasks are given as two lists, one entry each.
CREATE FUNCTION lock_free_tasks(projects text[], tasks text[])
RETURNS TABLE (of_project text, of_task text) LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    free text[] := ARRAY(
        SELECT name FROM (SELECT DISTINCT unnest(projects) AS name) named
        WHERE pg_try_advisory_xact_lock_shared(lock_key('project ' || name))
    );
BEGIN
    RETURN QUERY SELECT t.project, t.name FROM task t
    WHERE t.project = ANY (free)
        AND (t.project, t.name) IN (SELECT a.project, a.task FROM unnest(projects, tasks) AS a (project, task))
    ORDER BY t.project, t.name FOR NO KEY UPDATE SKIP LOCKED;
END
$$;
