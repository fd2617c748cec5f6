-- Who causes load, and which person ran an operator's command. Neither table is a projection: requests are no events, and
-- an event names no person.

-- +goose Up

-- What each organization asked for in a UTC minute. Serving processes add up in memory and write every few seconds.
-- Unlogged: a crash loses the last hour's counts. The zero organization stands for requests without a valid credential.
CREATE UNLOGGED TABLE traffic (
    shard           integer NOT NULL,
    minute          bigint  NOT NULL,
    organization_id uuid    NOT NULL,
    requests        bigint  NOT NULL,
    registrations   bigint  NOT NULL,
    refusals        bigint  NOT NULL, -- requests answered with 4xx or 5xx, and items of batches
    received_bytes  bigint  NOT NULL, -- of bodies
    sent_bytes      bigint  NOT NULL, -- of bodies
    PRIMARY KEY (shard, minute, organization_id)
) WITH (fillfactor = 50);

-- The system user behind an operator's events, written in the transaction that appends them. Audit events show the request
-- id to the organization; only operators read this table.
CREATE TABLE operator_acts (
    shard           integer          NOT NULL,
    organization_id uuid             NOT NULL,
    request_id      text COLLATE "C" NOT NULL,
    occurred_at     timestamptz      NOT NULL,
    person          text             NOT NULL, -- the system user
    host            text             NOT NULL,
    command         text             NOT NULL, -- its name, without arguments
    PRIMARY KEY (shard, organization_id, request_id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON traffic TO integrity_service;
GRANT SELECT, INSERT ON operator_acts TO integrity_service;
