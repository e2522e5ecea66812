-- The lines of a schedule ledger are kept for a time. That a nominal time has its run stands in the run, which stays.
CREATE UNIQUE INDEX run_scheduled ON run (project, task, trigger_name, scheduled_at) WHERE scheduled_at IS NOT NULL;

-- One ledger after the other, and each by its times.
CREATE INDEX schedule_ledger_of ON schedule_ledger (project, task, name, at);

-- The key that a person made a project with, and the limit that was asked for: the same request again makes no second.
ALTER TABLE project ADD COLUMN made_key text;
ALTER TABLE project ADD COLUMN made_limit bigint;
