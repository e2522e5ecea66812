-- The first schema. Ids are 16 bytes, digests 32, times integer milliseconds: `…_at` of the wall clock (for people),
-- `…_lease` of the lease clock (for decisions). Current-state tables plus append-only events.

CREATE TABLE installation (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    trust_domain TEXT NOT NULL,
    ca_certificate BLOB NOT NULL,
    ca_key BLOB NOT NULL,
    ticket_key BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE api_token (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT;

CREATE TABLE enrollment (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    worker TEXT NOT NULL,
    labels TEXT NOT NULL,
    token BLOB NOT NULL UNIQUE CHECK (length(token) = 32),
    expires_at INTEGER NOT NULL,
    -- Set together, once, when the machine enrolls.
    public_key BLOB CHECK (length(public_key) = 32),
    certificate BLOB,
    used_at INTEGER,
    CHECK ((public_key IS NULL) = (certificate IS NULL) AND (public_key IS NULL) = (used_at IS NULL))
) STRICT;

CREATE INDEX enrollment_worker ON enrollment (worker);

CREATE TABLE worker (
    id TEXT PRIMARY KEY,
    enrollment BLOB NOT NULL REFERENCES enrollment (id),
    state TEXT NOT NULL CHECK (state IN ('active', 'revoked', 'deleted')),
    labels TEXT NOT NULL,
    current_session BLOB REFERENCES session (id),
    generation INTEGER,
    rival_session BLOB CHECK (length(rival_session) = 16),
    rival_heard INTEGER,
    rival_audited INTEGER CHECK (rival_audited IN (0, 1)),
    -- A person's wish that the worker take nothing new.
    drain_by TEXT,
    drain_why TEXT,
    drain_at INTEGER,
    -- A person's permission for one registration that would be kept out otherwise.
    takeover_by TEXT,
    takeover_why TEXT,
    takeover_expires_at INTEGER,
    enrolled_at INTEGER NOT NULL,
    certificate_expires_at INTEGER NOT NULL,
    CHECK ((rival_session IS NULL) = (rival_heard IS NULL) AND (rival_session IS NULL) = (rival_audited IS NULL)),
    CHECK ((takeover_by IS NULL) = (takeover_expires_at IS NULL) AND (takeover_why IS NULL OR takeover_by IS NOT NULL)),
    CHECK ((drain_by IS NULL) = (drain_at IS NULL) AND (drain_why IS NULL OR drain_by IS NOT NULL))
) STRICT;

-- What an agent said last of its faults: written when they change, and apart from the rows that every beat reads.
CREATE TABLE worker_fault (
    worker TEXT PRIMARY KEY REFERENCES worker (id),
    faults TEXT NOT NULL,
    said_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Canonical capabilities, apart from the session: a heartbeat rewrites the session's row, and that row stays narrow.
CREATE TABLE capabilities (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    canonical BLOB NOT NULL
) STRICT;

-- Every session that was ever accepted: a late duplicate of one is told apart from a copy.
CREATE TABLE session (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    worker TEXT NOT NULL REFERENCES worker (id),
    generation INTEGER NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('active', 'draining', 'offline')),
    boot TEXT NOT NULL,
    registration BLOB NOT NULL CHECK (length(registration) = 32),
    capabilities BLOB NOT NULL REFERENCES capabilities (digest),
    max_runs INTEGER NOT NULL CHECK (max_runs BETWEEN 1 AND 256),
    slots INTEGER NOT NULL CHECK (slots BETWEEN 0 AND max_runs),
    obeys_drain INTEGER NOT NULL CHECK (obeys_drain IN (0, 1)),
    lease_millis INTEGER NOT NULL,
    interval_millis INTEGER NOT NULL,
    expires_lease INTEGER NOT NULL,
    spoke_lease INTEGER NOT NULL,
    software TEXT NOT NULL,
    protocol INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    UNIQUE (worker, generation)
) STRICT;

-- Canonical placements: what the runs of a lane share.
CREATE TABLE placement (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    canonical BLOB NOT NULL
) STRICT;

-- Canonical execution revisions; never changed.
CREATE TABLE revision (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    canonical BLOB NOT NULL
) STRICT;

CREATE TABLE run (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    project TEXT NOT NULL,
    task TEXT,
    revision BLOB NOT NULL REFERENCES revision (digest),
    placement BLOB NOT NULL REFERENCES placement (digest),
    -- The task, for a run of a task with a limit; empty otherwise. With project and placement it is the run's lane.
    lane_task TEXT NOT NULL,
    -- What a list shows: the revision's name or its command's first words.
    name TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN -100 AND 100),
    state TEXT NOT NULL CHECK (state IN ('pending', 'dispatching', 'running', 'retry_wait', 'lost',
                                         'succeeded', 'failed', 'cancelled', 'timed_out')),
    version INTEGER NOT NULL,
    latest INTEGER NOT NULL,
    fence INTEGER,
    intent_reason TEXT CHECK (intent_reason IN ('cancel', 'timeout')),
    intent_by TEXT,
    intent_why TEXT,
    intent_at INTEGER,
    failures INTEGER NOT NULL,
    machinery_failures INTEGER NOT NULL,
    due_lease INTEGER,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    closing_outcome TEXT,
    closing_unobserved INTEGER CHECK (closing_unobserved IN (0, 1)),
    closed_at INTEGER,
    CHECK ((intent_reason IS NULL) = (intent_by IS NULL) AND (intent_reason IS NULL) = (intent_at IS NULL)),
    CHECK ((closed_at IS NULL) = (closing_outcome IS NULL) AND (closed_at IS NULL) = (closing_unobserved IS NULL)),
    CHECK ((closed_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled', 'timed_out'))),
    CHECK ((due_lease IS NOT NULL) = (state = 'retry_wait'))
) STRICT;

CREATE INDEX run_pending ON run (project, placement, lane_task, priority DESC, id) WHERE state = 'pending';
CREATE INDEX run_due ON run (due_lease, id) WHERE state = 'retry_wait';
CREATE INDEX run_state ON run (state, id);
CREATE INDEX run_project ON run (project, id);
CREATE INDEX run_task ON run (project, task, id) WHERE task IS NOT NULL;

CREATE TABLE attempt (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    run BLOB NOT NULL REFERENCES run (id),
    number INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'claimed', 'starting', 'running', 'succeeded', 'failed',
                                         'cancelled', 'timed_out', 'lost')),
    version INTEGER NOT NULL,
    lease_generation INTEGER,
    worker TEXT REFERENCES worker (id),
    boot TEXT,
    start_by_lease INTEGER,
    deadline_lease INTEGER,
    handle_boot TEXT,
    handle_pid INTEGER,
    handle_start_time INTEGER,
    callback_sequence INTEGER,
    callback_token BLOB CHECK (length(callback_token) = 32),
    claimed_at INTEGER,
    starting_at INTEGER,
    running_at INTEGER,
    ended_at INTEGER,
    outcome TEXT,
    resolution TEXT NOT NULL CHECK (resolution IN ('none', 'receipt', 'policy', 'person')),
    -- The word of the person who closed its question.
    word_verb TEXT CHECK (word_verb IN ('retry', 'mark-failed', 'mark-succeeded')),
    word_by TEXT,
    word_why TEXT,
    word_at INTEGER,
    -- Everything that is known of an end that nobody saw: names of evidence, a space between two.
    evidence TEXT NOT NULL DEFAULT '',
    may_live INTEGER NOT NULL CHECK (may_live IN (0, 1)),
    -- Processes that the kernel would not let go: how many, and the first ones' ids.
    left_count INTEGER CHECK (left_count > 0),
    left_pids TEXT,
    log_length INTEGER,
    log_digest BLOB CHECK (length(log_digest) = 32),
    log_finished INTEGER CHECK (log_finished IN (0, 1)),
    log_cut TEXT CHECK (log_cut IN ('quota', 'disk_full', 'write_failed')),
    log_cut_stdout INTEGER,
    log_cut_stderr INTEGER,
    usage_user_millis INTEGER,
    usage_system_millis INTEGER,
    usage_max_rss_kib INTEGER,
    usage_oom_killed INTEGER CHECK (usage_oom_killed IN (0, 1)),
    -- How each limit that was asked for was kept.
    usage_memory_kept TEXT,
    usage_cpu_kept TEXT,
    usage_pids_kept TEXT,
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
) STRICT;

CREATE INDEX attempt_deadline ON attempt (deadline_lease, id)
    WHERE state IN ('starting', 'running') AND deadline_lease IS NOT NULL;

-- What keeps a worker from being deleted.
CREATE INDEX attempt_open ON attempt (worker, id) WHERE may_live = 1 OR (state = 'lost' AND resolution = 'none');

-- One row per claim; the latest generation of an attempt says who may run it.
CREATE TABLE lease (
    attempt BLOB NOT NULL REFERENCES attempt (id),
    generation INTEGER NOT NULL,
    run BLOB NOT NULL REFERENCES run (id),
    offer BLOB NOT NULL UNIQUE CHECK (length(offer) = 16),
    token BLOB NOT NULL UNIQUE CHECK (length(token) = 32),
    version INTEGER NOT NULL,
    worker TEXT NOT NULL REFERENCES worker (id),
    session BLOB NOT NULL REFERENCES session (id),
    session_generation INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    length_millis INTEGER NOT NULL,
    expires_lease INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('active', 'released', 'expired', 'ended')),
    score INTEGER NOT NULL,
    claimed_at INTEGER NOT NULL,
    PRIMARY KEY (attempt, generation),
    UNIQUE (run, fence)
) STRICT;

-- At most one live lease per attempt, whatever the code above believes.
CREATE UNIQUE INDEX lease_active ON lease (attempt) WHERE state = 'active';
CREATE INDEX lease_active_expiry ON lease (expires_lease, attempt) WHERE state = 'active';
CREATE INDEX lease_active_worker ON lease (worker, attempt) WHERE state = 'active';

CREATE TABLE event (
    run BLOB NOT NULL REFERENCES run (id),
    sequence INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    attempt BLOB,
    actor TEXT NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (run, sequence)
) STRICT, WITHOUT ROWID;

-- Bodies of refused or late calls whose event is written already.
CREATE TABLE event_digest (
    attempt BLOB NOT NULL REFERENCES attempt (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (attempt, digest)
) STRICT, WITHOUT ROWID;

-- Workers that gave a run back, and until when they are not asked again.
CREATE TABLE refused (
    run BLOB NOT NULL REFERENCES run (id),
    worker TEXT NOT NULL REFERENCES worker (id),
    times INTEGER NOT NULL,
    until_lease INTEGER NOT NULL,
    PRIMARY KEY (run, worker)
) STRICT, WITHOUT ROWID;

CREATE TABLE log_chunk (
    attempt BLOB NOT NULL REFERENCES attempt (id),
    log_offset INTEGER NOT NULL CHECK (log_offset >= 0),
    length INTEGER NOT NULL CHECK (length > 0),
    bytes BLOB NOT NULL,
    PRIMARY KEY (attempt, log_offset)
) STRICT;

CREATE TABLE audit (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    -- `admin socket` or an address; none for what the control plane does by itself.
    origin TEXT,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    facts TEXT NOT NULL
) STRICT;

CREATE TABLE idempotency_key (
    project TEXT NOT NULL,
    key TEXT NOT NULL,
    run BLOB NOT NULL REFERENCES run (id),
    PRIMARY KEY (project, key)
) STRICT, WITHOUT ROWID;

-- The stored lease clock: it stands still while no control plane runs.
CREATE TABLE lease_clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    at INTEGER NOT NULL
) STRICT;

INSERT INTO lease_clock (one, at) VALUES (1, 0);

-- What no statement above may do, whatever the code above believes: a terminal row never changes its state, and what was
-- told is never told otherwise.
CREATE TRIGGER run_terminal BEFORE UPDATE OF state ON run
WHEN OLD.closed_at IS NOT NULL AND NEW.state IS NOT OLD.state
BEGIN SELECT RAISE(ABORT, 'a terminal run never changes'); END;

CREATE TRIGGER attempt_terminal BEFORE UPDATE OF state, outcome ON attempt
WHEN OLD.ended_at IS NOT NULL AND (NEW.state IS NOT OLD.state OR NEW.outcome IS NOT OLD.outcome)
BEGIN SELECT RAISE(ABORT, 'a terminal attempt never changes'); END;

CREATE TRIGGER lease_terminal BEFORE UPDATE ON lease
WHEN OLD.state <> 'active'
BEGIN SELECT RAISE(ABORT, 'a lease that ended never changes'); END;

CREATE TRIGGER revision_fixed BEFORE UPDATE ON revision
BEGIN SELECT RAISE(ABORT, 'a revision never changes'); END;

CREATE TRIGGER event_told BEFORE UPDATE ON event
BEGIN SELECT RAISE(ABORT, 'an event never changes'); END;

CREATE TRIGGER audit_told BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'an audit row never changes'); END;
