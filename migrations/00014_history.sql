-- How readers find the events of one action, and those about one thing, in a long history. Registrations are most of
-- every log and stand in neither index, so that registering costs what it did: those of an action are found by
-- reading a part of the history, and the one of a record through its identity.

-- +goose NO TRANSACTION

-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_action ON events (shard, organization_id, type, sequence)
    WHERE type <> 'integrity.registered';
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_target ON events (shard, organization_id, subject, sequence)
    WHERE type <> 'integrity.registered';

-- An attempt that was cut off leaves an index that nobody uses.
-- +goose StatementBegin
DO $$
DECLARE
    i text;
BEGIN
    FOR i IN SELECT indexrelid::regclass::text FROM pg_index
            WHERE indrelid = 'events'::regclass AND NOT indisvalid LOOP
        RAISE EXCEPTION 'the index % is incomplete: run REINDEX INDEX CONCURRENTLY %; and migrate again', i, i;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP INDEX events_target;
DROP INDEX events_action;
