-- Quota warnings: what was reached in the last month that had any, and the
-- queue of mails about it.

-- +goose Up

ALTER TABLE organization_state
    ADD COLUMN warned_period integer NOT NULL DEFAULT 0, -- year * 100 + month
    ADD COLUMN warned_80     timestamptz,
    ADD COLUMN warned_95     timestamptz,
    ADD COLUMN warned_100    timestamptz;
ALTER TABLE rebuild.organization_state
    ADD COLUMN warned_period integer NOT NULL DEFAULT 0,
    ADD COLUMN warned_80     timestamptz,
    ADD COLUMN warned_95     timestamptz,
    ADD COLUMN warned_100    timestamptz;

-- A queue, not a projection: replay and rebuild never write it. A row is one
-- warning for everyone whom it concerns; who that is, is looked up when it is
-- sent. due_at is also the lease: it moves on when a worker takes the row.
CREATE TABLE mails (
    shard           integer     NOT NULL,
    mail_id         uuid        NOT NULL, -- the event's id
    organization_id uuid        NOT NULL,
    period          integer     NOT NULL,
    percent         integer     NOT NULL,
    used            bigint      NOT NULL,
    allowance       bigint      NOT NULL,
    created_at      timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    attempts        integer     NOT NULL,
    sent            uuid[]      NOT NULL, -- members who have it
    PRIMARY KEY (shard, mail_id)
);
CREATE INDEX mails_due ON mails (shard, due_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON mails TO integrity_service;

-- +goose Down
DROP TABLE mails;
ALTER TABLE rebuild.organization_state
    DROP COLUMN warned_period, DROP COLUMN warned_80, DROP COLUMN warned_95, DROP COLUMN warned_100;
ALTER TABLE organization_state
    DROP COLUMN warned_period, DROP COLUMN warned_80, DROP COLUMN warned_95, DROP COLUMN warned_100;
