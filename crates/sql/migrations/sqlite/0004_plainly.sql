-- PostgreSQL decides the plain case of its hot calls in one statement: this step only keeps the numbers of both databases
-- the same.
SELECT 1;
