-- Where those who read the log after the commit have come to in each shard, and
-- which process does it at the moment.

-- +goose Up

CREATE TABLE consumers (
    shard        integer          NOT NULL,
    consumer     text COLLATE "C" NOT NULL,
    position     bigint           NOT NULL,
    holder       uuid             NOT NULL,
    leased_until timestamptz      NOT NULL, -- by the database's clock
    PRIMARY KEY (shard, consumer)
) WITH (fillfactor = 10);

GRANT SELECT, INSERT, UPDATE ON consumers TO integrity_service;

-- +goose Down
DROP TABLE consumers;
