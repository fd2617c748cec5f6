-- What was applied to this database, and which epoch the feed shows.

-- +goose Up

-- The statements of each migration as they were applied, as a SHA-256 over them without comments: integrity doctor finds a
-- program whose migrations were edited since.
CREATE TABLE applied_migrations (
    version bigint NOT NULL PRIMARY KEY,
    sha256  bytea  NOT NULL
);
GRANT SELECT ON applied_migrations TO integrity_service;

-- A rebuild that changes rows of the feed tells its readers by an epoch of the feed alone. The epoch of the ledger means that
-- history was lost, and would halt the transparency log. The feed shows the higher of the two. feed_mending is set with the
-- first row that changes and cleared with the new epoch, so that a rebuild that was killed between is not forgotten.
ALTER TABLE ledger ADD COLUMN feed_epoch bigint, ADD COLUMN feed_mending boolean NOT NULL DEFAULT false;

-- +goose Down

ALTER TABLE ledger DROP COLUMN feed_mending, DROP COLUMN feed_epoch;
DROP TABLE applied_migrations;
