-- The transparency tree: one Merkle tree (RFC 6962) over the leaf hashes of all events of all shards, in the order in
-- which it took them. These tables belong to no tenant; whoever holds the tree's lease alone writes them. On Citus they
-- stay on the coordinator.

-- +goose Up

-- How far the tree has come. Tiles, runs and this row are written in one transaction.
CREATE TABLE log_tree (
    id         smallint NOT NULL PRIMARY KEY CHECK (id = 1),
    size       bigint   NOT NULL, -- leaves
    root       bytea    NOT NULL,
    positions  bigint[] NOT NULL, -- of each shard, in the order of their numbers: the last that is in the tree
    epoch      bigint   NOT NULL, -- the ledger's when the tree was begun or last allowed to go on
    generation bigint   NOT NULL  -- raised by each process that takes the tree over: its predecessor can write no more
) WITH (fillfactor = 10);

-- C2SP tlog-tiles of height 8: up to 256 hashes of 32 bytes. A tile only grows.
CREATE TABLE log_tiles (
    level  smallint NOT NULL,
    n      bigint   NOT NULL,
    hashes bytea    NOT NULL,
    PRIMARY KEY (level, n)
);
ALTER TABLE log_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL; -- hashes cannot be compressed

-- Which events the leaves are: so many of a shard from a position on stand from first_leaf on.
CREATE TABLE log_runs (
    first_leaf     bigint  NOT NULL PRIMARY KEY,
    from_shard     integer NOT NULL,
    first_position bigint  NOT NULL,
    leaves         bigint  NOT NULL
) WITH (fillfactor = 90);
CREATE INDEX log_runs_position ON log_runs (from_shard, first_position);

-- The last checkpoint, the only one that is served: signed after the tree that it covers was committed.
CREATE TABLE log_checkpoint (
    id        smallint    NOT NULL PRIMARY KEY CHECK (id = 1),
    size      bigint      NOT NULL,
    root      bytea       NOT NULL,
    note      text        NOT NULL, -- signed by the log alone
    signed_at timestamptz NOT NULL
) WITH (fillfactor = 10);

-- What each witness has cosigned last.
CREATE TABLE log_cosignatures (
    witness   text COLLATE "C" NOT NULL PRIMARY KEY,
    size      bigint           NOT NULL,
    signature text             NOT NULL -- a line of a signed note
) WITH (fillfactor = 10);

GRANT SELECT, INSERT, UPDATE ON log_tree, log_tiles, log_runs, log_checkpoint, log_cosignatures TO integrity_service;

-- +goose Down
DROP TABLE log_cosignatures, log_checkpoint, log_runs, log_tiles, log_tree;
