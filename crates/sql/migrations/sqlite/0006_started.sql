-- PostgreSQL decides the plain case of two more calls in one statement each: this step only keeps the numbers of both
-- databases the same.
SELECT 1;
