-- What organizations say about themselves: domains that they control, and a name. domain_id and name_id lead to texts,
-- which can be erased. checked_at is the last proof, failed_days the failed days in a row since.

-- +goose Up
CREATE TABLE publisher_domains (
    shard           integer     NOT NULL,
    statement_id    uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    domain_id       uuid        NOT NULL,
    added_at        timestamptz NOT NULL,
    method          text        NOT NULL, -- of the last proof; empty without one
    checked_at      timestamptz,
    failed_days     integer     NOT NULL,
    failed_at       timestamptz,
    lapsed_at       timestamptz,
    removed_at      timestamptz,
    PRIMARY KEY (shard, statement_id)
);

CREATE INDEX publisher_domains_organization ON publisher_domains (shard, organization_id, statement_id)
    WHERE removed_at IS NULL;

CREATE TABLE publisher_names (
    shard           integer     NOT NULL,
    organization_id uuid        NOT NULL,
    statement_id    uuid        NOT NULL,
    name_id         uuid        NOT NULL,
    member_id       uuid        NOT NULL,
    stated_at       timestamptz NOT NULL,
    withdrawn_at    timestamptz,
    PRIMARY KEY (shard, organization_id)
);

-- The queue of checks, which is not derived from the log. tried_at and found describe the last check, and
-- asked_at is when an owner asked for one.
CREATE TABLE publisher_checks (
    shard           integer     NOT NULL,
    statement_id    uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    due_at          timestamptz NOT NULL,
    asked_at        timestamptz,
    tried_at        timestamptz,
    found           text        NOT NULL,
    PRIMARY KEY (shard, statement_id)
);

CREATE INDEX publisher_checks_due ON publisher_checks (shard, due_at);

CREATE UNLOGGED TABLE rebuild.publisher_domains (LIKE publisher_domains INCLUDING ALL);
CREATE UNLOGGED TABLE rebuild.publisher_names (LIKE publisher_names INCLUDING ALL);

GRANT SELECT, INSERT, UPDATE ON publisher_domains, publisher_names TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON publisher_checks, rebuild.publisher_domains, rebuild.publisher_names
    TO integrity_service;
GRANT SELECT ON publisher_domains, publisher_names, publisher_checks, rebuild.publisher_domains, rebuild.publisher_names
    TO integrity_reader;

-- +goose Down
DROP TABLE rebuild.publisher_names;
DROP TABLE rebuild.publisher_domains;
DROP TABLE publisher_checks;
DROP TABLE publisher_names;
DROP TABLE publisher_domains;
