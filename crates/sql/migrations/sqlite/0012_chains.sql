-- Chains: which task runs after which. Of a deleted task there is none.
CREATE TABLE task_edge (
    project TEXT NOT NULL,
    predecessor TEXT NOT NULL,
    task TEXT NOT NULL,
    PRIMARY KEY (project, predecessor, task),
    FOREIGN KEY (project, predecessor) REFERENCES task (project, name),
    FOREIGN KEY (project, task) REFERENCES task (project, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_edge_follower ON task_edge (project, task);

-- The successes that a follower has not taken. One that it has not seen is looked at next; the others wait with it.
CREATE TABLE arrival (
    project TEXT NOT NULL,
    task TEXT NOT NULL,
    at INTEGER NOT NULL,
    run BLOB NOT NULL REFERENCES run (id),
    predecessor TEXT NOT NULL,
    seen INTEGER NOT NULL CHECK (seen IN (0, 1)),
    PRIMARY KEY (project, task, at, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX arrival_new ON arrival (at, run, project, task) WHERE seen = 0;

-- The runs that succeeded before this one, as its job reads them.
ALTER TABLE run ADD COLUMN after_runs TEXT;

-- Whatever it is that makes a run succeed: its followers have it in the same transaction.
CREATE TRIGGER run_succeeded AFTER UPDATE OF state ON run
WHEN NEW.state = 'succeeded' AND OLD.state <> 'succeeded' AND NEW.task IS NOT NULL
BEGIN
    INSERT INTO arrival (project, task, at, run, predecessor, seen)
    SELECT e.project, e.task, NEW.closed_at, NEW.id, NEW.task, 0
    FROM task_edge e WHERE e.project = NEW.project AND e.predecessor = NEW.task;
END;
