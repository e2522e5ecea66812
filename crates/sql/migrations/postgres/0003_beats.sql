-- Plain beats, many in one statement. A beat is plain where nothing is to be told beside its answer, nothing is refused, and
-- nothing changes but the session's narrow row and the ends of its leases. Every other is left as it is, and answered by the
-- rules in `core`, which this repeats for the plain ones alone: a differential test holds it to them.
--
-- The one lock order, and nothing is waited for: a beat whose rows are in other hands is not plain. `told` is the clock of a
-- test; without one, the database's is read once everything is locked. Of the answer, a row without a renewal is a session,
-- and its length the interval; both are counted from one, as they were given.
CREATE FUNCTION beat_together(
    workers text[], sessions uuid[], generations bigint[], versions bigint[], free bigint[], obeying boolean[],
    of_beats bigint[], attempts uuid[], offers uuid[], claims bigint[], tokens bytea[], told bigint
) RETURNS TABLE (
    at bigint, of_beat bigint, of_renewal bigint, is_generation bigint, is_version bigint, is_state text,
    is_expires bigint, is_length bigint
) LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    mine text[];
    held uuid[];
    plain bigint[];
BEGIN
    mine := ARRAY(SELECT id FROM worker WHERE id = ANY (workers) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED);
    IF cardinality(attempts) > 0 THEN
        held := ARRAY(
            SELECT attempt FROM lease WHERE attempt = ANY (attempts) AND state = 'active'
            ORDER BY attempt FOR NO KEY UPDATE SKIP LOCKED
        );
    END IF;
    at := coalesce(told, clock_millis());

    plain := ARRAY(
        SELECT b.place
        FROM unnest(workers, sessions, generations, versions, obeying) WITH ORDINALITY
            AS b (worker, session, generation, version, obeys, place)
        JOIN worker w ON w.id = b.worker
        JOIN session s ON s.id = w.current_session
        LEFT JOIN unnest(of_beats, attempts, offers, claims, tokens) AS n (beat, attempt, offer, claim, token)
            ON n.beat = b.place
        LEFT JOIN attempt a ON a.id = n.attempt AND a.lease_generation = n.claim AND a.left_count IS NULL
            AND (a.boot IS NULL OR a.boot = s.boot)
        LEFT JOIN lease l ON l.attempt = a.id AND l.generation = n.claim AND l.attempt = ANY (held)
            AND l.offer = n.offer AND l.token = n.token AND l.worker = w.id AND l.session = s.id
            AND l.state = 'active' AND at < l.expires_lease
        WHERE w.id = ANY (mine) AND w.state = 'active' AND w.rival_session IS NULL
            AND CASE WHEN w.drain_by IS NULL THEN NOT b.obeys ELSE b.obeys OR s.state <> 'active' END
            AND s.worker = w.id AND s.id = b.session AND s.generation = b.generation AND s.version = b.version
            AND s.state <> 'offline' AND at < s.expires_lease
            AND NOT EXISTS (
                SELECT FROM lease o JOIN run r ON r.id = o.run
                WHERE o.worker = w.id AND o.state = 'active' AND r.intent_reason IS NOT NULL
            )
        GROUP BY b.place
        HAVING count(n.beat) = count(l.attempt)
    );

    UPDATE session s
    SET version = s.version + 1,
        slots = CASE WHEN s.state = 'active' THEN least(b.free, s.max_runs) ELSE 0 END,
        obeys_drain = b.obeys, expires_lease = at + s.lease_millis, spoke_lease = at
    FROM unnest(sessions, free, obeying) WITH ORDINALITY AS b (session, free, obeys, place)
    WHERE s.id = b.session AND b.place = ANY (plain);

    -- What has not started is not extended, and what starts only within its window.
    UPDATE lease l SET version = l.version + 1, expires_lease = at + l.length_millis
    FROM unnest(of_beats, attempts, claims) AS n (beat, attempt, claim)
    JOIN attempt a ON a.id = n.attempt
    WHERE l.attempt = n.attempt AND l.generation = n.claim AND l.state = 'active' AND n.beat = ANY (plain)
        AND (a.state = 'running' OR (a.state = 'starting' AND (a.start_by_lease IS NULL OR at < a.start_by_lease)));

    RETURN QUERY
        SELECT at, b.place, NULL::bigint, s.generation, s.version, s.state, s.expires_lease, s.interval_millis
        FROM unnest(sessions) WITH ORDINALITY AS b (session, place)
        JOIN session s ON s.id = b.session
        WHERE b.place = ANY (plain);
    IF cardinality(attempts) > 0 THEN
        RETURN QUERY
            SELECT at, n.beat, n.place, l.generation, l.version, a.state, l.expires_lease, l.length_millis
            FROM unnest(of_beats, attempts, claims) WITH ORDINALITY AS n (beat, attempt, claim, place)
            JOIN attempt a ON a.id = n.attempt
            JOIN lease l ON l.attempt = n.attempt AND l.generation = n.claim
            WHERE n.beat = ANY (plain);
    END IF;
END
$$;
