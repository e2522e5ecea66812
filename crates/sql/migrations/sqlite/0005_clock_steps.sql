-- SQLite's lease clock does not step, see lease_clock: this step only keeps the numbers of both databases the same.
SELECT 1;
