-- Webhooks: destinations and their authorizations are projections of the log;
-- deliveries, their log, allowance and health are a queue and its books, which
-- replay and rebuild never write.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    s text;
BEGIN
    FOREACH s IN ARRAY ARRAY['public', 'rebuild'] LOOP
        -- A destination that was deleted keeps its row, so that its deliveries still have one.
        EXECUTE format('CREATE TABLE %I.webhooks (
            shard           integer     NOT NULL,
            webhook_id      uuid        NOT NULL,
            organization_id uuid        NOT NULL,
            url_id          uuid        NOT NULL,
            description_id  uuid,
            types           smallint    NOT NULL, -- bits: registered, superseded, revoked
            status          text        NOT NULL,
            disabled_reason text,
            secret          bytea       NOT NULL, -- sealed, as are all secrets here
            previous_secret bytea,
            previous_until  timestamptz,
            created_at      timestamptz NOT NULL,
            updated_at      timestamptz NOT NULL,
            PRIMARY KEY (shard, webhook_id))', s);
        EXECUTE format('CREATE INDEX webhooks_organization ON %I.webhooks (shard, organization_id, webhook_id) WHERE status <> ''deleted''', s);

        EXECUTE format('CREATE TABLE %I.company_webhooks (
            shard      integer     NOT NULL,
            company_id uuid        NOT NULL,
            webhook_id uuid        NOT NULL,
            enabled    boolean     NOT NULL,
            updated_at timestamptz NOT NULL,
            PRIMARY KEY (shard, company_id, webhook_id))', s);
        EXECUTE format('CREATE INDEX company_webhooks_webhook ON %I.company_webhooks (shard, webhook_id, company_id)', s);

        -- How many destinations are authorized for the company. A registration reads it
        -- with the company, and so knows without another query that nothing is to be queued.
        EXECUTE format('ALTER TABLE %I.companies ADD COLUMN webhooks integer NOT NULL DEFAULT 0', s);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- What is still to be sent, and nothing else: a delivery that came to its end
-- moves to webhook_log. due_at is when the next attempt is wanted, leased_until
-- the lease of the worker that has it; that column is in no index, so that taking a
-- row stays within its page.
CREATE TABLE webhook_deliveries (
    shard           integer     NOT NULL,
    webhook_id      uuid        NOT NULL,
    delivery_id     uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    company_id      uuid,                 -- null for a test
    sequence        bigint      NOT NULL,
    event_id        uuid        NOT NULL,
    type            smallint    NOT NULL, -- as in feed; 0 for a test
    created_at      timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    leased_until    timestamptz,
    attempts        integer     NOT NULL, -- of the present schedule
    attempted_at    timestamptz,
    response_status integer,
    reason          text        NOT NULL, -- why the last attempt failed
    -- Without webhook_id: a look-up of one row could otherwise be planned through the
    -- index below, which reads the whole queue of a destination.
    PRIMARY KEY (shard, delivery_id)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (shard, webhook_id, due_at);

CREATE TABLE webhook_log (
    shard           integer     NOT NULL,
    webhook_id      uuid        NOT NULL,
    delivery_id     uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    company_id      uuid,
    sequence        bigint      NOT NULL,
    event_id        uuid        NOT NULL,
    type            smallint    NOT NULL,
    created_at      timestamptz NOT NULL,
    attempts        integer     NOT NULL,
    attempted_at    timestamptz,
    response_status integer,
    reason          text        NOT NULL,
    status          smallint    NOT NULL,
    finished_at     timestamptz NOT NULL,
    PRIMARY KEY (shard, webhook_id, delivery_id)
);
CREATE INDEX webhook_log_finished ON webhook_log (shard, finished_at);

-- Attempts a UTC month (period is year * 100 + month).
CREATE TABLE webhook_usage (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    period          integer NOT NULL,
    used            bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id, period)
) WITH (fillfactor = 30);

-- Since when a destination has had nothing but failures; no row, or null: it works.
CREATE TABLE webhook_health (
    shard         integer     NOT NULL,
    webhook_id    uuid        NOT NULL,
    failing_since timestamptz,
    PRIMARY KEY (shard, webhook_id)
) WITH (fillfactor = 50);

-- A mail is a quota warning or the notice of a disabled destination.
ALTER TABLE mails
    ALTER COLUMN period DROP NOT NULL,
    ALTER COLUMN percent DROP NOT NULL,
    ALTER COLUMN used DROP NOT NULL,
    ALTER COLUMN allowance DROP NOT NULL,
    ADD COLUMN webhook_id uuid,
    ADD COLUMN reason text,
    ADD CONSTRAINT mails_of_one_kind CHECK (CASE WHEN webhook_id IS NULL
        THEN num_nulls(period, percent, used, allowance) = 0 AND reason IS NULL
        ELSE num_nonnulls(period, percent, used, allowance) = 0 AND reason IS NOT NULL END);

GRANT SELECT, INSERT, UPDATE ON webhooks, company_webhooks TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_deliveries, webhook_log, webhook_usage, webhook_health TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON rebuild.webhooks, rebuild.company_webhooks TO integrity_service;

-- +goose Down
DELETE FROM mails WHERE webhook_id IS NOT NULL;
ALTER TABLE mails
    DROP CONSTRAINT mails_of_one_kind,
    DROP COLUMN reason,
    DROP COLUMN webhook_id,
    ALTER COLUMN period SET NOT NULL,
    ALTER COLUMN percent SET NOT NULL,
    ALTER COLUMN used SET NOT NULL,
    ALTER COLUMN allowance SET NOT NULL;
DROP TABLE webhook_health, webhook_usage, webhook_log, webhook_deliveries;
ALTER TABLE rebuild.companies DROP COLUMN webhooks;
ALTER TABLE companies DROP COLUMN webhooks;
DROP TABLE rebuild.company_webhooks, rebuild.webhooks, company_webhooks, webhooks;
