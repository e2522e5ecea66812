-- The plain case of the two acknowledgements that move a claimed attempt, in one statement each, as claims and ends have it.

-- From `starting` to `running`, and how long the process may run. Copied when the run is submitted; without the first, the
-- run was submitted by an earlier version, and its start is not plain.
ALTER TABLE run ADD COLUMN start_millis bigint, ADD COLUMN timeout_millis bigint;

-- `claimed → starting`, of a run that nobody wished to stop, by the session that claimed it: see `core::attempt::starting`.
CREATE FUNCTION start_plainly(
    of_worker text, of_session uuid, of_generation bigint,
    of_attempt uuid, with_offer uuid, with_claim bigint, with_token bytea,
    by_actor text, told_lease bigint, told_utc bigint
) RETURNS TABLE (lease_version bigint, lease_length bigint, may_run bigint) LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    read_clock bigint := lock_in_order(of_worker, '{}', ARRAY[of_attempt]);
    lease_now bigint := coalesce(told_lease, read_clock);
    utc_now bigint := coalesce(told_utc, read_clock);
    boot_now text;
    starts record;
BEGIN
    SELECT s.boot INTO boot_now FROM worker w JOIN session s ON s.id = w.current_session
    WHERE w.id = of_worker AND w.state = 'active'
      AND s.worker = of_worker AND s.id = of_session AND s.generation = of_generation
      AND s.state <> 'offline' AND s.expires_lease > lease_now;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT r.id AS run, r.start_millis, r.timeout_millis INTO starts
    FROM attempt a
    JOIN lease l ON l.attempt = a.id AND l.generation = a.lease_generation
    JOIN run r ON r.id = a.run
    WHERE a.id = of_attempt AND a.state = 'claimed' AND a.boot IS NULL
      AND l.generation = with_claim AND l.offer = with_offer AND l.token = with_token AND l.worker = of_worker
      AND l.session = of_session AND l.state = 'active' AND l.expires_lease > lease_now
      AND r.intent_reason IS NULL AND r.start_millis IS NOT NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE attempt a SET state = 'starting', version = a.version + 1, boot = boot_now, starting_at = utc_now,
        start_by_lease = lease_now + starts.start_millis, deadline_lease = lease_now + starts.timeout_millis
    WHERE a.id = of_attempt;
    UPDATE lease l SET version = l.version + 1, expires_lease = lease_now + l.length_millis
    WHERE l.attempt = of_attempt AND l.generation = with_claim
    RETURNING l.version, l.length_millis INTO lease_version, lease_length;
    may_run := starts.timeout_millis;
    INSERT INTO event (run, sequence, at, kind, attempt, actor, facts) VALUES (
        starts.run, (SELECT coalesce(max(e.sequence), 0) + 1 FROM event e WHERE e.run = starts.run), utc_now,
        'attempt.starting', of_attempt, by_actor, '{}'
    );
    RETURN NEXT;
END
$$;

-- `starting → running`, attempt and run together, by the session that holds the lease: see `core::attempt::running`.
CREATE FUNCTION run_plainly(
    of_worker text, of_session uuid, of_generation bigint,
    of_attempt uuid, with_offer uuid, with_claim bigint, with_token bytea,
    with_boot text, with_pid bigint, with_start_time bigint, with_sequence bigint, with_callback bytea, since bigint,
    by_actor text, with_facts text, told_lease bigint, told_utc bigint
) RETURNS TABLE (lease_version bigint, lease_length bigint, lease_expires bigint, lease_now bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    read_clock bigint := lock_in_order(of_worker, '{}', ARRAY[of_attempt]);
    of_run uuid;
BEGIN
    lease_now := coalesce(told_lease, read_clock);
    SELECT r.id, l.version, l.length_millis, l.expires_lease INTO of_run, lease_version, lease_length, lease_expires
    FROM worker w
    JOIN session s ON s.id = w.current_session
    JOIN attempt a ON a.id = of_attempt
    JOIN lease l ON l.attempt = a.id AND l.generation = a.lease_generation
    JOIN run r ON r.id = a.run
    WHERE w.id = of_worker AND w.state = 'active'
      AND s.worker = of_worker AND s.id = of_session AND s.generation = of_generation
      AND s.state <> 'offline' AND s.expires_lease > lease_now
      AND a.state = 'starting' AND (a.boot IS NULL OR a.boot = s.boot)
      AND l.generation = with_claim AND l.offer = with_offer AND l.token = with_token AND l.worker = of_worker
      AND l.session = of_session AND l.state = 'active' AND l.expires_lease > lease_now
      AND r.state = 'dispatching';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE attempt a SET state = 'running', version = a.version + 1, start_by_lease = NULL, running_at = since,
        handle_boot = with_boot, handle_pid = with_pid, handle_start_time = with_start_time,
        callback_sequence = with_sequence, callback_token = with_callback
    WHERE a.id = of_attempt;
    UPDATE run r SET state = 'running', version = r.version + 1, due_lease = NULL,
        started_at = coalesce(r.started_at, since)
    WHERE r.id = of_run;
    INSERT INTO event (run, sequence, at, kind, attempt, actor, facts) VALUES (
        of_run, (SELECT coalesce(max(e.sequence), 0) + 1 FROM event e WHERE e.run = of_run),
        coalesce(told_utc, read_clock), 'attempt.running', of_attempt, by_actor, with_facts
    );
    RETURN NEXT;
END
$$;
