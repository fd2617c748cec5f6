-- Backfill allowances: the versions that an organization may register outside its months. sequence leads to the event
-- that gave the allowance, last_sequence to the last version that was charged to it. The newest one is in force.

-- +goose Up
CREATE TABLE backfills (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    sequence        bigint  NOT NULL,
    versions        bigint  NOT NULL,
    used            bigint  NOT NULL,
    last_sequence   bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id, sequence)
);

CREATE UNLOGGED TABLE rebuild.backfills (LIKE backfills INCLUDING ALL);

GRANT SELECT, INSERT, UPDATE ON backfills TO integrity_service;
GRANT SELECT ON backfills, rebuild.backfills TO integrity_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rebuild.backfills TO integrity_service;

-- +goose Down
DROP TABLE rebuild.backfills;
DROP TABLE backfills;
