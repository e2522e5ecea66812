-- Tasks: a name in a project and the revision that its next run executes. A deleted one keeps its row, so that the same
-- call again is told the same and its numbers go on where it comes back.
CREATE TABLE task (
    project TEXT NOT NULL REFERENCES project (name),
    name TEXT NOT NULL,
    revision BLOB NOT NULL REFERENCES revision (digest),
    number INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    deleted_at INTEGER,
    PRIMARY KEY (project, name)
) STRICT, WITHOUT ROWID;

-- Every revision that a task had.
CREATE TABLE task_revision (
    project TEXT NOT NULL,
    task TEXT NOT NULL,
    number INTEGER NOT NULL,
    revision BLOB NOT NULL REFERENCES revision (digest),
    applied_at INTEGER NOT NULL,
    applied_by TEXT NOT NULL,
    PRIMARY KEY (project, task, number),
    FOREIGN KEY (project, task) REFERENCES task (project, name)
) STRICT, WITHOUT ROWID;
