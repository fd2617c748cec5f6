-- +goose Up

-- The administrative events of an organization in the last UTC day in which it caused any. Like the meters this is no
-- projection: a process of the previous version does not count, and no rebuild compares the table with the log. It is
-- written in the transaction of the events and survives a crash with them.
CREATE TABLE administrative_usage (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    day             date    NOT NULL,
    used            bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id)
) WITH (fillfactor = 30);

GRANT SELECT, INSERT, UPDATE ON administrative_usage TO integrity_service;
