-- PostgreSQL keeps the versions of an attempt in their page: this step only keeps the numbers of both databases the same.
SELECT 1;
