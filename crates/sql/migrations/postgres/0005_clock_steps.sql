-- Steps of this database's clock that a replica has seen, each by which the ends that were fixed before it were moved. Almost
-- always empty: one row per step, however many replicas saw it.
CREATE TABLE clock_step (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    -- Forward is positive.
    by_millis bigint NOT NULL
);
