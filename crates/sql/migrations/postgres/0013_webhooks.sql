-- Webhooks: what lets somebody call one. Its digest only; it goes with its trigger.
CREATE TABLE webhook_token (
    project text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    token bytea NOT NULL CHECK (octet_length(token) = 32),
    made_by text NOT NULL,
    made_at bigint NOT NULL,
    PRIMARY KEY (project, task, name),
    FOREIGN KEY (project, task, name) REFERENCES task_trigger (project, task, name) ON DELETE CASCADE
);

-- Takes what a call of a webhook needs: nobody says anything of its project's tasks meanwhile, and no other call and no replica
-- starts a run of this task by itself. Whoever asks next what stands in the way sees this call's run.
CREATE FUNCTION lock_call(of_project text, of_task text) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock_key('project ' || of_project));
    PERFORM FROM task WHERE project = of_project AND name = of_task FOR NO KEY UPDATE;
    RETURN clock_millis();
END
$$;
