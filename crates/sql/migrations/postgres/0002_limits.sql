-- The first schema of PostgreSQL has limits from the start: this step only keeps the numbers of both databases the same.
SELECT 1;
