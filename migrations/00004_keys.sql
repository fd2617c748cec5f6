-- When a key was last seen, to the minute. Not a projection: reads are no events.
-- One row a key, written by serving processes in batches, never by a request.

-- +goose Up

CREATE TABLE key_uses (
    shard        integer     NOT NULL,
    key_id       uuid        NOT NULL,
    last_used_at timestamptz NOT NULL,
    PRIMARY KEY (shard, key_id)
) WITH (fillfactor = 50);

GRANT SELECT, INSERT, UPDATE ON key_uses TO integrity_service;

-- +goose Down
DROP TABLE key_uses;
