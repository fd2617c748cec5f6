-- The requests of a month to the endpoints beside the integrity API. Metering is
-- no event: a count that only grows, and when its parts were reached.

-- +goose Up

CREATE TABLE request_usage (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    period          integer NOT NULL, -- year * 100 + month
    used            bigint  NOT NULL,
    reached_80      timestamptz,
    reached_95      timestamptz,
    reached_100     timestamptz,
    PRIMARY KEY (shard, organization_id, period)
) WITH (fillfactor = 30);

GRANT SELECT, INSERT, UPDATE ON request_usage TO integrity_service;

-- +goose Down
DROP TABLE request_usage;
