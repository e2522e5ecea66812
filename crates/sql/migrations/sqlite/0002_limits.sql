-- Limits of runs at once: a task's stands in the revision that a run has pinned, a project's stands here.

-- What a limit is counted from, beside the run's state: see `core::occupancy`. Copied from the revision when the run is
-- submitted, which never changes; a run without a task has no task's limit.
ALTER TABLE run ADD COLUMN mutex INTEGER NOT NULL DEFAULT 0 CHECK (mutex IN (0, 1));
ALTER TABLE run ADD COLUMN concurrency INTEGER CHECK (concurrency > 0);

-- A revision that cannot be read has no limits here; its run cannot be claimed anyway.
UPDATE run SET
    mutex = coalesce((SELECT json_extract(CAST(canonical AS TEXT), '$.limits.mutex') FROM revision
                      WHERE digest = run.revision AND json_valid(CAST(canonical AS TEXT))), 0),
    concurrency = (SELECT json_extract(CAST(canonical AS TEXT), '$.limits.concurrency') FROM revision
                   WHERE digest = run.revision AND json_valid(CAST(canonical AS TEXT)) AND run.task IS NOT NULL)
WHERE closed_at IS NULL;

-- Runs that hold a place by where they stand, and attempts of which something may still live, whatever became of their runs.
CREATE INDEX run_held ON run (project, task, id)
    WHERE state IN ('dispatching', 'running') OR (state = 'lost' AND mutex = 1);
CREATE INDEX attempt_may_live ON attempt (run, number) WHERE may_live = 1;

-- A deleted project keeps its row, so that the same call again is told the same.
CREATE TABLE project (
    name TEXT PRIMARY KEY,
    concurrency INTEGER CHECK (concurrency > 0),
    created_at INTEGER NOT NULL,
    deleted_at INTEGER,
    CHECK (deleted_at IS NULL OR concurrency IS NULL)
) STRICT, WITHOUT ROWID;

INSERT INTO project (name, created_at) SELECT project, min(created_at) FROM run GROUP BY project;
INSERT INTO project (name, created_at) SELECT 'default', created_at FROM installation WHERE true
    ON CONFLICT (name) DO UPDATE SET created_at = excluded.created_at;
