-- Rebuild by difference. What stands in the schema rebuild can be made again from
-- the log at any time, so it is not logged: after a crash of the database it is
-- empty, and so is the progress of what was under way.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    t text;
BEGIN
    FOR t IN SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'rebuild' AND c.relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE rebuild.%I SET UNLOGGED', t);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- How far the tables of the schema have come, and by what: the log's position of
-- a whole shard, or the sequence of the one organization that scope names.
-- Another program may project otherwise, so it starts from the beginning.
CREATE UNLOGGED TABLE rebuild.progress (
    shard   integer NOT NULL PRIMARY KEY,
    scope   text    NOT NULL,
    program text    NOT NULL,
    reached bigint  NOT NULL
);
GRANT SELECT, INSERT, UPDATE, DELETE ON rebuild.progress TO integrity_service;

-- +goose Down
DROP TABLE rebuild.progress;
-- +goose StatementBegin
DO $$
DECLARE
    t text;
BEGIN
    FOR t IN SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'rebuild' AND c.relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE rebuild.%I SET LOGGED', t);
    END LOOP;
END
$$;
-- +goose StatementEnd
