-- The plain case of the calls that a busy installation makes most, in one statement each: a transaction by itself, and so
-- one round trip. Whatever is not plain changes nothing and answers no row; the program then asks the rules.

-- What such a statement needs of the revision. Copied when the run is submitted, as its limits are; none: the run was
-- submitted by an earlier version, and nothing of it is plain.
ALTER TABLE run ADD COLUMN lease_millis bigint, ADD COLUMN max_attempts bigint;

-- How many runs of a task hold a place, without one: see `core::occupancy`. A count is only worth something in a statement
-- that comes after the lock of what has the limit.
CREATE FUNCTION places_of_task(of_project text, of_task text, but uuid) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN (
        SELECT count(*) FROM run r
        WHERE r.project = of_project AND r.task = of_task AND r.id IS DISTINCT FROM but
          AND (r.state IN ('dispatching', 'running') OR (r.state = 'lost' AND r.mutex))
    ) + (
        -- Others, by the first of their attempts of which something may still live.
        SELECT count(*) FROM attempt a JOIN run r ON r.id = a.run
        WHERE a.may_live AND r.project = of_project AND r.task = of_task AND r.id IS DISTINCT FROM but
          AND NOT (r.state IN ('dispatching', 'running') OR (r.state = 'lost' AND r.mutex))
          AND NOT EXISTS (
              SELECT FROM attempt earlier
              WHERE earlier.may_live AND earlier.run = a.run AND earlier.number < a.number
          )
    );
END
$$;

-- The same of a project.
CREATE FUNCTION places_of_project(of_project text, but uuid) RETURNS bigint LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN (
        SELECT count(*) FROM run r
        WHERE r.project = of_project AND r.id IS DISTINCT FROM but
          AND (r.state IN ('dispatching', 'running') OR (r.state = 'lost' AND r.mutex))
    ) + (
        SELECT count(*) FROM attempt a JOIN run r ON r.id = a.run
        WHERE a.may_live AND r.project = of_project AND r.id IS DISTINCT FROM but
          AND NOT (r.state IN ('dispatching', 'running') OR (r.state = 'lost' AND r.mutex))
          AND NOT EXISTS (
              SELECT FROM attempt earlier
              WHERE earlier.may_live AND earlier.run = a.run AND earlier.number < a.number
          )
    );
END
$$;

-- A claim that nothing speaks against: see `core::claim`. The locks are those of every claim, and the clock is read behind
-- them, or told by a test.
CREATE FUNCTION claim_plainly(
    of_worker text, of_session uuid, of_generation bigint, with_offer uuid, with_token bytea, wanted uuid,
    with_score bigint, claim_window bigint, by_actor text, told_lease bigint, told_utc bigint
) RETURNS TABLE (the_run run, the_attempt attempt, the_lease lease, executes bytea, lease_now bigint, utc_now bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    read_clock bigint := lock_asks(of_worker, of_session, ARRAY[with_offer], ARRAY[with_token], wanted);
    places bigint;
BEGIN
    lease_now := coalesce(told_lease, read_clock);
    utc_now := coalesce(told_utc, read_clock);
    PERFORM FROM worker w JOIN session s ON s.id = w.current_session
    WHERE w.id = of_worker AND w.state = 'active' AND w.drain_by IS NULL
      AND s.worker = of_worker AND s.id = of_session AND s.generation = of_generation
      AND s.state = 'active' AND s.expires_lease > lease_now
      AND (SELECT count(*) FROM lease WHERE worker = of_worker AND state = 'active') < s.max_runs;
    IF NOT FOUND
        OR EXISTS (SELECT FROM lease WHERE offer = with_offer) OR EXISTS (SELECT FROM lease WHERE token = with_token)
    THEN
        RETURN;
    END IF;
    SELECT r.* INTO the_run FROM run r
    WHERE r.id = wanted AND r.state = 'pending' AND r.intent_reason IS NULL AND r.lease_millis IS NOT NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF the_run.concurrency IS NOT NULL THEN
        IF places_of_task(the_run.project, the_run.task, wanted) >= the_run.concurrency THEN
            RETURN;
        END IF;
    END IF;
    SELECT concurrency INTO places FROM project WHERE name = the_run.project;
    IF places IS NOT NULL THEN
        IF places_of_project(the_run.project, wanted) >= places THEN
            RETURN;
        END IF;
    END IF;
    UPDATE attempt a SET state = 'claimed', version = a.version + 1, worker = of_worker, claimed_at = utc_now,
        lease_generation = coalesce(a.lease_generation, 0) + 1
    WHERE a.run = wanted AND a.number = the_run.latest AND a.state = 'pending' RETURNING a.* INTO the_attempt;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE run r SET state = 'dispatching', version = r.version + 1, fence = coalesce(r.fence, 0) + 1
    WHERE r.id = wanted RETURNING r.* INTO the_run;
    INSERT INTO lease AS l (
        attempt, generation, run, offer, token, version, worker, session, session_generation, fence, length_millis,
        expires_lease, state, score, claimed_at
    ) VALUES (
        the_attempt.id, the_attempt.lease_generation, wanted, with_offer, with_token, 0, of_worker, of_session,
        of_generation, the_run.fence, the_run.lease_millis, lease_now + claim_window, 'active', with_score, utc_now
    ) RETURNING l.* INTO the_lease;
    INSERT INTO event (run, sequence, at, kind, attempt, actor, facts) VALUES (
        wanted, (SELECT coalesce(max(sequence), 0) + 1 FROM event WHERE run = wanted), utc_now, 'attempt.claimed',
        the_attempt.id, by_actor,
        '{"fence":' || to_json(the_run.fence::text) || ',"worker":' || to_json(of_worker) || '}'
    );
    SELECT canonical INTO executes FROM revision WHERE digest = the_run.revision;
    RETURN NEXT;
END
$$;

-- An end that nothing speaks against. What it makes of the records is decided before: see `core::end::plain`, whose
-- assumptions are compared here.
CREATE FUNCTION end_plainly(
    of_worker text, of_session uuid, of_generation bigint,
    of_attempt uuid, with_offer uuid, with_claim bigint, with_token bytea, with_sequence bigint, with_callback bytea,
    whatever_the_policy boolean,
    attempt_state text, with_outcome text, at bigint,
    length bigint, digest bytea, finished boolean, cut text, cut_stdout bigint, cut_stderr bigint,
    user_millis bigint, system_millis bigint, rss_kib bigint, oom boolean, memory text, cpu text, pids text,
    run_state text, run_outcome text, unobserved boolean,
    kinds text[], of_attempts uuid[], actors text[], with_facts text[],
    told_lease bigint, told_utc bigint
) RETURNS SETOF bigint LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    read_clock bigint := lock_in_order(of_worker, '{}', ARRAY[of_attempt]);
    lease_now bigint := coalesce(told_lease, read_clock);
    utc_now bigint := coalesce(told_utc, read_clock);
    of_run uuid;
BEGIN
    SELECT r.id INTO of_run
    FROM worker w
    JOIN session s ON s.id = w.current_session
    JOIN attempt a ON a.id = of_attempt
    JOIN lease l ON l.attempt = a.id AND l.generation = a.lease_generation
    JOIN run r ON r.id = a.run
    WHERE w.id = of_worker AND w.state = 'active'
      AND s.worker = of_worker AND s.id = of_session AND s.generation = of_generation
      AND s.state <> 'offline' AND s.expires_lease > lease_now
      AND l.generation = with_claim AND l.offer = with_offer AND l.token = with_token AND l.worker = of_worker
      AND l.state = 'active'
      AND a.state = 'running' AND a.resolution = 'none'
      AND a.callback_sequence = with_sequence AND a.callback_token = with_callback
      AND r.state = 'running' AND r.latest = a.number AND r.intent_reason IS NULL
      AND (whatever_the_policy OR r.max_attempts = 1);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE attempt a SET state = attempt_state, version = a.version + 1, outcome = with_outcome, ended_at = at,
        start_by_lease = NULL, left_count = NULL, left_pids = NULL,
        log_length = length, log_digest = digest, log_finished = finished,
        log_cut = cut, log_cut_stdout = cut_stdout, log_cut_stderr = cut_stderr,
        usage_user_millis = user_millis, usage_system_millis = system_millis, usage_max_rss_kib = rss_kib,
        usage_oom_killed = oom, usage_memory_kept = memory, usage_cpu_kept = cpu, usage_pids_kept = pids
    WHERE a.id = of_attempt;
    UPDATE run r SET state = run_state, version = r.version + 1, due_lease = NULL,
        closing_outcome = run_outcome, closing_unobserved = unobserved, closed_at = utc_now
    WHERE r.id = of_run;
    UPDATE lease l SET state = 'ended' WHERE l.attempt = of_attempt AND l.generation = with_claim;
    INSERT INTO event (run, sequence, at, kind, attempt, actor, facts)
    SELECT of_run, (SELECT coalesce(max(e.sequence), 0) FROM event e WHERE e.run = of_run) + told.place, utc_now,
        told.kind, told.attempt, told.actor, told.facts
    FROM unnest(kinds, of_attempts, actors, with_facts) WITH ORDINALITY AS told (kind, attempt, actor, facts, place);
    RETURN NEXT read_clock;
END
$$;
