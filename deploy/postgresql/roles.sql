-- Two roles for Leasehold: one that owns the schema and migrates it, one that replicas run as.
--
--   createdb leasehold --encoding=UTF8 --template=template0
--   psql leasehold -v ON_ERROR_STOP=1 -f roles.sql              # as a superuser, once
--   \password leasehold_owner
--   \password leasehold
--
-- Before the first start, and before every upgrade, the owner brings the schema up to date:
--
--   LEASEHOLD_DATABASE_FILE=owner-url leasehold serve --migrate-only
--
-- The runtime role can read and write rows, and nothing else: it makes, changes and drops no table, and switches no trigger
-- off. By the schema's triggers nobody changes or deletes a line of the audit or of a run's events, whatever rows they may
-- write, nor changes what has ended.

CREATE ROLE leasehold_owner LOGIN;
CREATE ROLE leasehold LOGIN;

CREATE SCHEMA leasehold AUTHORIZATION leasehold_owner;
GRANT USAGE ON SCHEMA leasehold TO leasehold;

-- What the owner makes there from now on, by migrations of this version and of later ones.
ALTER DEFAULT PRIVILEGES FOR ROLE leasehold_owner IN SCHEMA leasehold
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO leasehold;
ALTER DEFAULT PRIVILEGES FOR ROLE leasehold_owner IN SCHEMA leasehold
    GRANT USAGE ON SEQUENCES TO leasehold;

-- Nobody else gets in, and the runtime role makes nothing in the database, not even a temporary table.
REVOKE ALL ON SCHEMA public FROM PUBLIC;
DO $$
BEGIN
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO leasehold, leasehold_owner', current_database());
END
$$;
