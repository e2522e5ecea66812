-- SQLite commits queued writes together already: this step only keeps the numbers of both databases the same.
SELECT 1;
