-- Warnings of the allowances of requests and of registrations, as organization_state
-- has them of versions: what was reached in the last month that had any. A table of
-- its own, because wider rows of organization_state would change how its look-ups
-- are planned.

-- +goose Up

CREATE TABLE allowance_warnings (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    allowance       text    NOT NULL,
    period          integer NOT NULL, -- year * 100 + month
    at_80           timestamptz,
    at_95           timestamptz,
    at_100          timestamptz,
    PRIMARY KEY (shard, organization_id, allowance)
);
CREATE TABLE rebuild.allowance_warnings (LIKE public.allowance_warnings INCLUDING ALL);
GRANT SELECT, INSERT, UPDATE ON allowance_warnings TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON rebuild.allowance_warnings TO integrity_service;

-- Counting a request is no event; that a part of the allowance was reached is one,
-- and follows. What it was a part of may be another plan's by then.
ALTER TABLE request_usage
    ADD COLUMN limit_80  bigint,
    ADD COLUMN limit_95  bigint,
    ADD COLUMN limit_100 bigint;

-- How the months in which something was reached are found; counting alone never touches it.
CREATE INDEX request_usage_reached ON request_usage (shard, period, organization_id) WHERE reached_80 IS NOT NULL;

-- Which allowance a mail is about. A row of the previous version is about versions.
ALTER TABLE mails ADD COLUMN of_allowance text NOT NULL DEFAULT 'versions';

-- +goose Down
ALTER TABLE mails DROP COLUMN of_allowance;
DROP INDEX request_usage_reached;
ALTER TABLE request_usage DROP COLUMN limit_80, DROP COLUMN limit_95, DROP COLUMN limit_100;
DROP TABLE rebuild.allowance_warnings;
DROP TABLE allowance_warnings;
