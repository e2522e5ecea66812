-- Tasks: a name in a project and the revision that its next run executes. A deleted one keeps its row, so that the same
-- call again is told the same and its numbers go on where it comes back.
CREATE TABLE task (
    project text COLLATE "C" NOT NULL REFERENCES project (name),
    name text COLLATE "C" NOT NULL,
    revision bytea NOT NULL REFERENCES revision (digest) CHECK (octet_length(revision) = 32),
    number bigint NOT NULL,
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    deleted_at bigint,
    PRIMARY KEY (project, name)
);

-- Every revision that a task had.
CREATE TABLE task_revision (
    project text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    revision bytea NOT NULL REFERENCES revision (digest) CHECK (octet_length(revision) = 32),
    applied_at bigint NOT NULL,
    applied_by text NOT NULL,
    PRIMARY KEY (project, task, number),
    FOREIGN KEY (project, task) REFERENCES task (project, name)
);

CREATE TRIGGER task_revision_told BEFORE UPDATE ON task_revision FOR EACH ROW
EXECUTE FUNCTION never_changes('a revision of a task never changes');

-- What a person says of tasks: no other does meanwhile, nothing is submitted to the project, and the runs of what goes stand
-- still. `leaving` goes; with `pruned`, every task that is there and not in `kept` goes too.
CREATE FUNCTION lock_tasks(of_project text, leaving text[], kept text[], pruned boolean) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM lock_project(of_project);
    IF pruned THEN
        leaving := leaving || ARRAY(
            SELECT name FROM task WHERE project = of_project AND deleted_at IS NULL AND name <> ALL (kept)
        );
    END IF;
    RETURN lock_in_order(NULL, ARRAY(
        SELECT id FROM run WHERE project = of_project AND task = ANY (leaving)
            AND state IN ('pending', 'dispatching', 'running', 'retry_wait', 'lost')
    ), '{}');
END
$$;
