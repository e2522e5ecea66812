-- An attempt changes its state four times, and each time every index got an entry: two of them selected by the state, and one
-- stood on the worker. What they select by has columns of its own now, which for most attempts never change, so that the
-- new version stays in the page of the old one and no index hears of it.
DROP INDEX attempt_deadline, attempt_open;

ALTER TABLE attempt
    -- Its deadline, while that can pass.
    ADD COLUMN passing_lease bigint GENERATED ALWAYS AS (
        CASE WHEN state IN ('starting', 'running') THEN deadline_lease END
    ) STORED,
    -- Something of it may live, or the question of its end is open.
    ADD COLUMN unsettled boolean GENERATED ALWAYS AS (may_live OR (state = 'lost' AND resolution = 'none')) STORED;

CREATE INDEX attempt_passing ON attempt (passing_lease, id) WHERE passing_lease IS NOT NULL;

-- What keeps a worker from being deleted. Few in all, so that those of one worker need no order of their own.
CREATE INDEX attempt_unsettled ON attempt (id) WHERE unsettled;
