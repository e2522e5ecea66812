-- Webhooks: what lets somebody call one. Its digest only; it goes with its trigger.
CREATE TABLE webhook_token (
    project TEXT NOT NULL,
    task TEXT NOT NULL,
    name TEXT NOT NULL,
    token BLOB NOT NULL CHECK (length(token) = 32),
    made_by TEXT NOT NULL,
    made_at INTEGER NOT NULL,
    PRIMARY KEY (project, task, name),
    FOREIGN KEY (project, task, name) REFERENCES task_trigger (project, task, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
