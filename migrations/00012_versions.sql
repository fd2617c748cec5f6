-- Which program versions may write the ledger, by which rules it decides, and which processes serve it. A version is one
-- number: 1.2.3 is 1002003, and 0 lets every program write.
--
-- A program reads minimum_version in the statement that locks a head, and commits nothing when it is older.
--
-- A later migration that an older program cannot work with raises the minimum in its own transaction:
--   UPDATE ledger SET minimum_version = greatest(minimum_version, N);
--   UPDATE shard_heads SET minimum_version = greatest(minimum_version, N);

-- +goose Up

ALTER TABLE ledger ADD COLUMN minimum_version bigint NOT NULL DEFAULT 0;
ALTER TABLE ledger ADD COLUMN rules text[] NOT NULL DEFAULT '{}';      -- names of decision rules that are on

ALTER TABLE shard_heads ADD COLUMN minimum_version bigint NOT NULL DEFAULT 0;
ALTER TABLE shard_heads ADD COLUMN rules text[] NOT NULL DEFAULT '{}';

-- Processes that serve, each with a row of its own that it renews. Ages are by the clock of the database. On Citus the table
-- stays on the coordinator.
CREATE TABLE processes (
    id         text COLLATE "C" NOT NULL PRIMARY KEY, -- random, drawn at the start of the process
    name       text             NOT NULL,             -- host and process id, for people
    version    bigint           NOT NULL,
    rules      text[]           NOT NULL, -- that the program knows
    started_at timestamptz      NOT NULL DEFAULT now(),
    seen_at    timestamptz      NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON processes TO integrity_service;
