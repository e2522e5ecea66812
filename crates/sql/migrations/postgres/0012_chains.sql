-- Chains: which task runs after which. Of a deleted task there is none.
CREATE TABLE task_edge (
    project text COLLATE "C" NOT NULL,
    predecessor text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    PRIMARY KEY (project, predecessor, task),
    FOREIGN KEY (project, predecessor) REFERENCES task (project, name),
    FOREIGN KEY (project, task) REFERENCES task (project, name)
);

CREATE INDEX task_edge_follower ON task_edge (project, task);

-- The successes that a follower has not taken. One that it has not seen is looked at next; the others wait with it.
CREATE TABLE arrival (
    project text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    run uuid NOT NULL REFERENCES run (id),
    predecessor text COLLATE "C" NOT NULL,
    seen boolean NOT NULL,
    PRIMARY KEY (project, task, at, run)
);

CREATE INDEX arrival_new ON arrival (at, run, project, task) WHERE NOT seen;

-- The runs that succeeded before this one, as its job reads them.
ALTER TABLE run ADD COLUMN after_runs text;

-- Whatever it is that makes a run succeed: its followers have it in the same transaction. The edge is locked as it is read,
-- so that whoever removes it removes this too, or is waited for and gives it none. Edges come last in the lock order.
CREATE FUNCTION run_succeeded() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO arrival (project, task, at, run, predecessor, seen)
    SELECT e.project, e.task, NEW.closed_at, NEW.id, e.predecessor, false
    FROM task_edge e WHERE e.project = NEW.project AND e.predecessor = NEW.task FOR KEY SHARE;
    RETURN NULL;
END
$$;

CREATE TRIGGER run_succeeded AFTER UPDATE OF state ON run FOR EACH ROW
WHEN (NEW.state = 'succeeded' AND OLD.state <> 'succeeded' AND NEW.task IS NOT NULL)
EXECUTE FUNCTION run_succeeded();

-- Takes those followers of the first `most` new successes that nobody else has: nobody says anything of these tasks
-- meanwhile, and no other replica settles them. Waits for nobody. Answers all of them, and which are taken.
CREATE FUNCTION lock_followers(most bigint) RETURNS TABLE (of_project text, of_task text, taken boolean)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT DISTINCT n.project, n.task
        FROM (SELECT a.project, a.task FROM arrival a WHERE NOT a.seen ORDER BY a.at, a.run LIMIT most) n
        ORDER BY n.project, n.task
    LOOP
        of_project := wanted.project;
        of_task := wanted.task;
        taken := pg_try_advisory_xact_lock_shared(lock_key('project ' || of_project));
        IF taken THEN
            PERFORM FROM task t WHERE t.project = of_project AND t.name = of_task FOR NO KEY UPDATE SKIP LOCKED;
            taken := FOUND;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
