-- The first schema, facing SQLite's. Ids are uuids, digests 32 bytes, times integer milliseconds: `…_at` for people,
-- `…_lease` for decisions; both are this database's clock. Current-state tables plus append-only events.
--
-- Every text is compared byte by byte, as in every other store: the order of pages must not depend on a locale.
-- No index stands on a column that a heartbeat writes, and pages of what beats keep room: such updates stay in their page.

CREATE TABLE installation (
    one smallint PRIMARY KEY CHECK (one = 1),
    trust_domain text COLLATE "C" NOT NULL,
    ca_certificate bytea NOT NULL,
    ca_key bytea NOT NULL,
    ticket_key bytea NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE api_token (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    created_at bigint NOT NULL,
    expires_at bigint
);

CREATE TABLE enrollment (
    id uuid PRIMARY KEY,
    worker text COLLATE "C" NOT NULL,
    labels text NOT NULL,
    token bytea NOT NULL UNIQUE CHECK (octet_length(token) = 32),
    expires_at bigint NOT NULL,
    -- Set together, once, when the machine enrolls.
    public_key bytea CHECK (octet_length(public_key) = 32),
    certificate bytea,
    used_at bigint,
    CHECK ((public_key IS NULL) = (certificate IS NULL) AND (public_key IS NULL) = (used_at IS NULL))
);

CREATE INDEX enrollment_worker ON enrollment (worker);

-- Its lock is the lock of the worker's session: every call of a session takes it first.
CREATE TABLE worker (
    id text COLLATE "C" PRIMARY KEY,
    enrollment uuid NOT NULL REFERENCES enrollment (id),
    state text NOT NULL CHECK (state IN ('active', 'revoked', 'deleted')),
    labels text NOT NULL,
    current_session uuid,
    generation bigint,
    rival_session uuid,
    rival_heard bigint,
    rival_audited boolean,
    -- A person's wish that the worker take nothing new.
    drain_by text,
    drain_why text,
    drain_at bigint,
    -- A person's permission for one registration that would be kept out otherwise.
    takeover_by text,
    takeover_why text,
    takeover_expires_at bigint,
    enrolled_at bigint NOT NULL,
    certificate_expires_at bigint NOT NULL,
    CHECK ((rival_session IS NULL) = (rival_heard IS NULL) AND (rival_session IS NULL) = (rival_audited IS NULL)),
    CHECK ((takeover_by IS NULL) = (takeover_expires_at IS NULL) AND (takeover_why IS NULL OR takeover_by IS NOT NULL)),
    CHECK ((drain_by IS NULL) = (drain_at IS NULL) AND (drain_why IS NULL OR drain_by IS NOT NULL))
);

-- What an agent said last of its faults: written when they change, and apart from the rows that every beat reads.
CREATE TABLE worker_fault (
    worker text COLLATE "C" PRIMARY KEY REFERENCES worker (id),
    faults text NOT NULL,
    said_at bigint NOT NULL
);

-- Canonical capabilities, apart from the session: a heartbeat rewrites the session's row, and that row stays narrow.
CREATE TABLE capabilities (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    canonical bytea NOT NULL
);

-- Every session that was ever accepted: a late duplicate of one is told apart from a copy.
CREATE TABLE session (
    id uuid PRIMARY KEY,
    worker text COLLATE "C" NOT NULL REFERENCES worker (id),
    generation bigint NOT NULL,
    version bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('active', 'draining', 'offline')),
    boot text NOT NULL,
    registration bytea NOT NULL CHECK (octet_length(registration) = 32),
    capabilities bytea NOT NULL REFERENCES capabilities (digest) CHECK (octet_length(capabilities) = 32),
    max_runs integer NOT NULL CHECK (max_runs BETWEEN 1 AND 256),
    slots integer NOT NULL CHECK (slots BETWEEN 0 AND max_runs),
    obeys_drain boolean NOT NULL,
    lease_millis bigint NOT NULL,
    interval_millis bigint NOT NULL,
    expires_lease bigint NOT NULL,
    spoke_lease bigint NOT NULL,
    software text NOT NULL,
    protocol integer NOT NULL,
    registered_at bigint NOT NULL,
    UNIQUE (worker, generation)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

ALTER TABLE worker ADD CONSTRAINT worker_current_session_fkey FOREIGN KEY (current_session) REFERENCES session (id);

-- A deleted project keeps its row, so that the same call again is told the same.
CREATE TABLE project (
    name text COLLATE "C" PRIMARY KEY,
    concurrency bigint CHECK (concurrency > 0),
    created_at bigint NOT NULL,
    deleted_at bigint,
    CHECK (deleted_at IS NULL OR concurrency IS NULL)
);

-- Canonical placements: what the runs of a lane share.
CREATE TABLE placement (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    canonical bytea NOT NULL
);

-- Canonical execution revisions; never changed.
CREATE TABLE revision (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    canonical bytea NOT NULL
);

-- Its lock is the lock of its attempts too: their rows are written under it alone.
CREATE TABLE run (
    id uuid PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    task text COLLATE "C",
    revision bytea NOT NULL REFERENCES revision (digest) CHECK (octet_length(revision) = 32),
    placement bytea NOT NULL REFERENCES placement (digest) CHECK (octet_length(placement) = 32),
    -- The task, for a run of a task with a limit; empty otherwise. With project and placement it is the run's lane.
    lane_task text COLLATE "C" NOT NULL,
    -- What a list shows: the revision's name or its command's first words.
    name text NOT NULL,
    priority smallint NOT NULL CHECK (priority BETWEEN -100 AND 100),
    state text NOT NULL CHECK (state IN ('pending', 'dispatching', 'running', 'retry_wait', 'lost',
                                         'succeeded', 'failed', 'cancelled', 'timed_out')),
    version bigint NOT NULL,
    latest bigint NOT NULL,
    fence bigint,
    intent_reason text CHECK (intent_reason IN ('cancel', 'timeout')),
    intent_by text,
    intent_why text,
    intent_at bigint,
    failures bigint NOT NULL,
    machinery_failures bigint NOT NULL,
    due_lease bigint,
    created_at bigint NOT NULL,
    started_at bigint,
    closing_outcome text,
    closing_unobserved boolean,
    closed_at bigint,
    -- What a limit is counted from, beside the run's state: see `core::occupancy`. Copied from the revision when the run is
    -- submitted, which never changes; a run without a task has no task's limit.
    mutex boolean NOT NULL,
    concurrency bigint CHECK (concurrency > 0),
    CHECK ((intent_reason IS NULL) = (intent_by IS NULL) AND (intent_reason IS NULL) = (intent_at IS NULL)),
    CHECK ((closed_at IS NULL) = (closing_outcome IS NULL) AND (closed_at IS NULL) = (closing_unobserved IS NULL)),
    CHECK ((closed_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled', 'timed_out'))),
    CHECK ((due_lease IS NOT NULL) = (state = 'retry_wait'))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX run_pending ON run (project, placement, lane_task, priority DESC, id) WHERE state = 'pending';
CREATE INDEX run_due ON run (due_lease, id) WHERE state = 'retry_wait';
CREATE INDEX run_state ON run (state, id);
CREATE INDEX run_project ON run (project, id);
CREATE INDEX run_task ON run (project, task, id) WHERE task IS NOT NULL;


-- Runs that hold a place by where they stand.
CREATE INDEX run_held ON run (project, task, id) WHERE state IN ('dispatching', 'running') OR (state = 'lost' AND mutex);

CREATE TABLE attempt (
    id uuid PRIMARY KEY,
    run uuid NOT NULL REFERENCES run (id),
    number bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'claimed', 'starting', 'running', 'succeeded', 'failed',
                                         'cancelled', 'timed_out', 'lost')),
    version bigint NOT NULL,
    lease_generation bigint,
    worker text COLLATE "C" REFERENCES worker (id),
    boot text,
    start_by_lease bigint,
    deadline_lease bigint,
    handle_boot text,
    handle_pid bigint,
    handle_start_time bigint,
    callback_sequence bigint,
    callback_token bytea CHECK (octet_length(callback_token) = 32),
    claimed_at bigint,
    starting_at bigint,
    running_at bigint,
    ended_at bigint,
    outcome text,
    resolution text NOT NULL CHECK (resolution IN ('none', 'receipt', 'policy', 'person')),
    -- The word of the person who closed its question.
    word_verb text CHECK (word_verb IN ('retry', 'mark-failed', 'mark-succeeded')),
    word_by text,
    word_why text,
    word_at bigint,
    -- Everything that is known of an end that nobody saw: names of evidence, a space between two.
    evidence text NOT NULL DEFAULT '',
    may_live boolean NOT NULL,
    -- Processes that the kernel would not let go: how many, and the first ones' ids.
    left_count bigint CHECK (left_count > 0),
    left_pids text,
    log_length bigint,
    log_digest bytea CHECK (octet_length(log_digest) = 32),
    log_finished boolean,
    log_cut text CHECK (log_cut IN ('quota', 'disk_full', 'write_failed')),
    log_cut_stdout bigint,
    log_cut_stderr bigint,
    usage_user_millis bigint,
    usage_system_millis bigint,
    usage_max_rss_kib bigint,
    usage_oom_killed boolean,
    -- How each limit that was asked for was kept.
    usage_memory_kept text,
    usage_cpu_kept text,
    usage_pids_kept text,
    UNIQUE (run, number),
    CHECK ((ended_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled', 'timed_out', 'lost'))),
    CHECK ((ended_at IS NULL) = (outcome IS NULL)),
    CHECK ((handle_boot IS NULL) = (handle_pid IS NULL) AND (handle_boot IS NULL) = (handle_start_time IS NULL)),
    CHECK ((callback_sequence IS NULL) = (callback_token IS NULL)),
    CHECK ((log_length IS NULL) = (log_digest IS NULL) AND (log_length IS NULL) = (log_finished IS NULL)),
    CHECK ((log_cut IS NULL) = (log_cut_stdout IS NULL) AND (log_cut IS NULL) = (log_cut_stderr IS NULL)),
    CHECK (log_cut IS NULL OR log_length IS NOT NULL),
    CHECK ((word_verb IS NULL) = (word_by IS NULL) AND (word_verb IS NULL) = (word_at IS NULL)),
    CHECK ((left_count IS NULL) = (left_pids IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX attempt_deadline ON attempt (deadline_lease, id)
    WHERE state IN ('starting', 'running') AND deadline_lease IS NOT NULL;

-- What keeps a worker from being deleted.
CREATE INDEX attempt_open ON attempt (worker, id) WHERE may_live OR (state = 'lost' AND resolution = 'none');

-- Attempts of which something may still live, whatever became of their runs: they hold places too.
CREATE INDEX attempt_may_live ON attempt (run, number) WHERE may_live;

-- One row per claim; the latest generation of an attempt says who may run it. An active one is written under its own lock,
-- together with that of its run or of its worker; one that is not active never changes.
CREATE TABLE lease (
    attempt uuid NOT NULL REFERENCES attempt (id),
    generation bigint NOT NULL,
    run uuid NOT NULL REFERENCES run (id),
    offer uuid NOT NULL UNIQUE,
    token bytea NOT NULL UNIQUE CHECK (octet_length(token) = 32),
    version bigint NOT NULL,
    worker text COLLATE "C" NOT NULL REFERENCES worker (id),
    session uuid NOT NULL REFERENCES session (id),
    session_generation bigint NOT NULL,
    fence bigint NOT NULL,
    length_millis bigint NOT NULL,
    expires_lease bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('active', 'released', 'expired', 'ended')),
    score bigint NOT NULL,
    claimed_at bigint NOT NULL,
    PRIMARY KEY (attempt, generation),
    UNIQUE (run, fence)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- At most one live lease per attempt, whatever the code above believes. Leases that ran out are found among the active ones,
-- which are few: an index on their end would make every renewal a new entry in every index.
CREATE UNIQUE INDEX lease_active ON lease (attempt) WHERE state = 'active';
CREATE INDEX lease_active_worker ON lease (worker, attempt) WHERE state = 'active';

CREATE TABLE event (
    run uuid NOT NULL REFERENCES run (id),
    sequence bigint NOT NULL,
    at bigint NOT NULL,
    kind text NOT NULL,
    attempt uuid,
    actor text NOT NULL,
    facts text NOT NULL,
    PRIMARY KEY (run, sequence)
);

-- Bodies of refused or late calls whose event is written already.
CREATE TABLE event_digest (
    attempt uuid NOT NULL REFERENCES attempt (id),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    PRIMARY KEY (attempt, digest)
);

-- Workers that gave a run back, and until when they are not asked again.
CREATE TABLE refused (
    run uuid NOT NULL REFERENCES run (id),
    worker text COLLATE "C" NOT NULL REFERENCES worker (id),
    times bigint NOT NULL,
    until_lease bigint NOT NULL,
    PRIMARY KEY (run, worker)
);

CREATE TABLE log_chunk (
    attempt uuid NOT NULL REFERENCES attempt (id),
    log_offset bigint NOT NULL CHECK (log_offset >= 0),
    length bigint NOT NULL CHECK (length > 0),
    bytes bytea NOT NULL,
    PRIMARY KEY (attempt, log_offset)
);

-- Pieces of a log come compressed where that pays.
ALTER TABLE log_chunk ALTER COLUMN bytes SET STORAGE EXTERNAL;

CREATE TABLE audit (
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    actor text NOT NULL,
    -- `admin socket` or an address; none for what the control plane does by itself.
    origin text,
    action text NOT NULL,
    subject text NOT NULL,
    facts text NOT NULL
);

CREATE TABLE idempotency_key (
    project text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    run uuid NOT NULL REFERENCES run (id),
    PRIMARY KEY (project, key)
);

-- The clock that judges: milliseconds of this database's wall clock, now and not when the transaction began.
CREATE FUNCTION clock_millis() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- The one lock order: project → task → worker session → runs by id → leases by attempt. The attempts' runs are locked with the named ones, and
-- their active leases. Each statement sees what was committed while the one before it waited. Answers the clock, read once
-- everything is locked.
CREATE FUNCTION lock_in_order(of_worker text, runs uuid[], attempts uuid[]) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF of_worker IS NOT NULL THEN
        PERFORM FROM worker WHERE id = of_worker FOR NO KEY UPDATE;
    END IF;
    IF cardinality(attempts) > 0 THEN
        runs := runs || ARRAY(SELECT run FROM attempt WHERE id = ANY (attempts));
    END IF;
    IF cardinality(runs) > 0 THEN
        PERFORM FROM run WHERE id = ANY (runs) ORDER BY id FOR NO KEY UPDATE;
    END IF;
    IF cardinality(attempts) > 0 THEN
        PERFORM FROM lease WHERE attempt = ANY (attempts) AND state = 'active' ORDER BY attempt FOR NO KEY UPDATE;
    END IF;
    RETURN clock_millis();
END
$$;

-- The same for a session that renews or takes over what its worker holds: no run is locked but the named ones, those whose
-- lease belongs to an earlier session, because their story goes on, and those of which it says, or said, that something
-- cannot be killed, because their attempts are written.
CREATE FUNCTION lock_renewals(of_worker text, of_session uuid, runs uuid[], attempts uuid[], telling uuid[])
RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM FROM worker WHERE id = of_worker FOR NO KEY UPDATE;
    IF cardinality(attempts) > 0 THEN
        runs := runs || ARRAY(
            SELECT run FROM lease WHERE attempt = ANY (attempts) AND state = 'active' AND session <> of_session
            UNION SELECT run FROM attempt WHERE id = ANY (attempts) AND (left_count IS NOT NULL OR id = ANY (telling))
        );
    END IF;
    IF cardinality(runs) > 0 THEN
        PERFORM FROM run WHERE id = ANY (runs) ORDER BY id FOR NO KEY UPDATE;
    END IF;
    IF cardinality(attempts) > 0 THEN
        PERFORM FROM lease WHERE attempt = ANY (attempts) AND state = 'active' ORDER BY attempt FOR NO KEY UPDATE;
    END IF;
    RETURN clock_millis();
END
$$;

-- The key of an advisory lock of this schema.
CREATE FUNCTION lock_key(what text) RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT hashtextextended(current_schema() || ' ' || what, 0) $$;

-- The same for asks: what was claimed with them may be taken over, and a run may be claimed with one. What that run's limits
-- are counted from stands still: the project's row is the lock of its limit, and a task, which has no row, a key of its own.
-- Where there is no limit, nothing is locked; a project's limit that comes at the same instant counts from the next claim on.
CREATE FUNCTION lock_asks(of_worker text, of_session uuid, offers uuid[], tokens bytea[], claimed uuid)
RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    attempts uuid[];
    wanted record;
BEGIN
    SELECT project, task, concurrency INTO wanted FROM run WHERE id = claimed;
    IF FOUND THEN
        PERFORM FROM project WHERE name = wanted.project AND concurrency IS NOT NULL FOR NO KEY UPDATE;
        IF wanted.concurrency IS NOT NULL THEN
            PERFORM pg_advisory_xact_lock(lock_key('task ' || wanted.project || '/' || wanted.task));
        END IF;
    END IF;
    PERFORM FROM worker WHERE id = of_worker FOR NO KEY UPDATE;
    attempts := ARRAY(
        SELECT attempt FROM lease WHERE offer = ANY (offers) UNION SELECT attempt FROM lease WHERE token = ANY (tokens)
    );
    RETURN lock_renewals(of_worker, of_session, array_remove(ARRAY[claimed], NULL), attempts, '{}');
END
$$;

-- The same for a submission: its project is not deleted meanwhile. Submissions do not wait for each other.
CREATE FUNCTION lock_submission(of_project text, submitted uuid) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock_key('project ' || of_project));
    RETURN lock_in_order(NULL, ARRAY[submitted], '{}');
END
$$;

-- The same for what a person does to a project.
CREATE FUNCTION lock_project(of_project text) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('project ' || of_project));
    PERFORM FROM project WHERE name = of_project FOR NO KEY UPDATE;
    RETURN clock_millis();
END
$$;

-- The same for a scan: a run that another holds is left to the next scan. Answers the attempts that are locked.
CREATE FUNCTION lock_free(attempts uuid[]) RETURNS SETOF uuid LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    free uuid[];
BEGIN
    free := ARRAY(
        SELECT id FROM run WHERE id IN (SELECT run FROM attempt WHERE id = ANY (attempts))
        ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
    );
    PERFORM FROM lease WHERE attempt = ANY (attempts) AND run = ANY (free) AND state = 'active'
        ORDER BY attempt FOR NO KEY UPDATE;
    RETURN QUERY SELECT id FROM attempt WHERE id = ANY (attempts) AND run = ANY (free);
END
$$;

-- What no statement above may do, whatever the code above believes: a terminal row never changes its state, and what was
-- told is never told otherwise.
CREATE FUNCTION never_changes() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION '%', TG_ARGV[0]; END $$;

CREATE TRIGGER run_terminal BEFORE UPDATE OF state ON run FOR EACH ROW
WHEN (OLD.closed_at IS NOT NULL AND NEW.state IS DISTINCT FROM OLD.state)
EXECUTE FUNCTION never_changes('a terminal run never changes');

CREATE TRIGGER attempt_terminal BEFORE UPDATE OF state, outcome ON attempt FOR EACH ROW
WHEN (OLD.ended_at IS NOT NULL AND (NEW.state IS DISTINCT FROM OLD.state OR NEW.outcome IS DISTINCT FROM OLD.outcome))
EXECUTE FUNCTION never_changes('a terminal attempt never changes');

CREATE TRIGGER lease_terminal BEFORE UPDATE ON lease FOR EACH ROW
WHEN (OLD.state <> 'active')
EXECUTE FUNCTION never_changes('a lease that ended never changes');

CREATE TRIGGER revision_fixed BEFORE UPDATE ON revision FOR EACH ROW
EXECUTE FUNCTION never_changes('a revision never changes');

CREATE TRIGGER event_told BEFORE UPDATE ON event FOR EACH ROW
EXECUTE FUNCTION never_changes('an event never changes');

CREATE TRIGGER audit_told BEFORE UPDATE ON audit FOR EACH ROW
EXECUTE FUNCTION never_changes('an audit row never changes');
