-- Healed records that are not charged to the month in which they were healed. period is the month that is charged, 0
-- for none. sequence leads to the event in the feed.

-- +goose Up
CREATE TABLE healed_charges (
    shard      integer NOT NULL,
    company_id uuid    NOT NULL,
    sequence   bigint  NOT NULL,
    period     integer NOT NULL,
    PRIMARY KEY (shard, company_id, sequence)
);

-- The condition is always true. It keeps the index to statements that name a period: the look-up of one event by this
-- index would read all of a company's rows.
CREATE INDEX healed_charges_period ON healed_charges (shard, company_id, period, sequence) WHERE period IS NOT NULL;

CREATE UNLOGGED TABLE rebuild.healed_charges (LIKE healed_charges INCLUDING ALL);

GRANT SELECT, INSERT, UPDATE ON healed_charges TO integrity_service;
GRANT SELECT ON healed_charges, rebuild.healed_charges TO integrity_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rebuild.healed_charges TO integrity_service;

-- +goose Down
DROP TABLE rebuild.healed_charges;
DROP TABLE healed_charges;
