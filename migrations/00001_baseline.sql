-- The schema of the first release. Later migrations only add to it (additive_test.go).
--
-- The growth rule: the primary key and every unique constraint of a tenant table begin with shard, so that a ledger can be
-- distributed by it. Tables that belong to no tenant are ledger, oauth_subjects and those of the transparency log.
--
-- Autovacuum: a table that only grows is vacuumed after 2 % of new rows instead of 20 %, so that each run is short and
-- index-only scans and freezing keep up. A queue, whose rows come and go, is vacuumed after 2 % of dead rows, without
-- pauses. Counters need neither: their fill factors keep updates within a page, which cleans itself.

-- +goose Up

-- The ledger and its log.

CREATE TABLE ledger (
    id         smallint    NOT NULL PRIMARY KEY CHECK (id = 1),
    issuer     text        NOT NULL,
    secret     bytea       NOT NULL,
    shards     integer     NOT NULL CHECK (shards BETWEEN 1 AND 65535),
    epoch      bigint      NOT NULL, -- raised by each restore
    created_at timestamptz NOT NULL
);

CREATE TABLE shard_heads (
    shard       integer     NOT NULL PRIMARY KEY,
    position    bigint      NOT NULL,
    occurred_at timestamptz NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE events (
    shard           integer     NOT NULL,
    position        bigint      NOT NULL,
    organization_id uuid        NOT NULL,
    sequence        bigint      NOT NULL,
    id              uuid        NOT NULL,
    v               smallint    NOT NULL,
    company_id      uuid,
    type            text        NOT NULL,
    subject         text        NOT NULL,
    occurred_at     timestamptz NOT NULL,
    actor           text        NOT NULL,
    request_id      text        NOT NULL,
    data            bytea       NOT NULL,
    nonce           bytea       NOT NULL,
    hash            bytea       NOT NULL,
    PRIMARY KEY (shard, position),
    UNIQUE (shard, organization_id, sequence)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- These find the events of one action, and those about one thing, in a long history. Registrations are most of every log
-- and stand in neither index, so that registering does not pay for them: those of an action are found by reading a part of
-- the history, and the registration of a record through its version.
CREATE INDEX events_action ON events (shard, organization_id, type, sequence) WHERE type <> 'integrity.registered';
CREATE INDEX events_target ON events (shard, organization_id, subject, sequence) WHERE type <> 'integrity.registered';

-- Free text and addresses of people. An operator can erase a body, which becomes null; events name a text by its id and by
-- SHA-256(salt || body).
CREATE TABLE texts (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    id              uuid    NOT NULL,
    salt            bytea   NOT NULL,
    body            text,
    PRIMARY KEY (shard, organization_id, id)
);

-- Organizations, members, API keys and companies. Projections are written from events alone, by the same function in a
-- group's transaction and in a rebuild.

CREATE TABLE organization_state (
    shard             integer     NOT NULL,
    organization_id   uuid        NOT NULL,
    sequence          bigint      NOT NULL,
    name_id           uuid        NOT NULL,
    plan              text        NOT NULL,
    internal          boolean     NOT NULL,
    per_minute        integer,
    companies         integer     NOT NULL,
    unfinalized       integer     NOT NULL DEFAULT 0, -- versions reserved and not registered, expired ones included
    unfinalized_limit integer,
    created_at        timestamptz NOT NULL,
    warned_period     integer     NOT NULL DEFAULT 0, -- the last month with a quota warning: year * 100 + month
    warned_80         timestamptz,
    warned_95         timestamptz,
    warned_100        timestamptz,
    PRIMARY KEY (shard, organization_id)
) WITH (fillfactor = 30);

CREATE TABLE members (
    shard           integer     NOT NULL,
    organization_id uuid        NOT NULL,
    member_id       uuid        NOT NULL,
    email_id        uuid        NOT NULL,
    role            text        NOT NULL,
    status          text        NOT NULL,
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (shard, organization_id, member_id)
);

CREATE TABLE api_keys (
    shard            integer     NOT NULL,
    key_id           uuid        NOT NULL,
    organization_id  uuid        NOT NULL,
    member_id        uuid        NOT NULL,
    secret_sha256    bytea       NOT NULL,
    scopes           text[]      NOT NULL,
    source           text,
    network          text,
    max_version_step integer,
    created_at       timestamptz NOT NULL,
    expires_at       timestamptz NOT NULL,
    revoked_at       timestamptz,
    PRIMARY KEY (shard, key_id)
);
CREATE INDEX api_keys_organization ON api_keys (shard, organization_id);

-- When an API key was last used, to the minute. No projection: a read is no event. Serving processes write it in batches.
CREATE TABLE api_key_uses (
    shard        integer     NOT NULL,
    key_id       uuid        NOT NULL,
    last_used_at timestamptz NOT NULL,
    PRIMARY KEY (shard, key_id)
) WITH (fillfactor = 50);

CREATE TABLE companies (
    shard           integer          NOT NULL,
    company_id      uuid             NOT NULL,
    organization_id uuid             NOT NULL,
    reference       text COLLATE "C" NOT NULL,
    created_at      timestamptz      NOT NULL,
    -- How many webhooks are authorized for the company. A registration reads it with the company, and so needs no query of
    -- its own to learn that nothing is to be queued.
    webhooks        integer          NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, company_id),
    UNIQUE (shard, organization_id, reference)
);

-- What an API key may do in a company.
CREATE TABLE grants (
    shard      integer     NOT NULL,
    key_id     uuid        NOT NULL,
    company_id uuid        NOT NULL,
    enabled    boolean     NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (shard, key_id, company_id)
);

-- Versions, their documents, the feed and the usage.

CREATE TABLE documents (
    shard           integer          NOT NULL,
    document_id     uuid             NOT NULL,
    organization_id uuid             NOT NULL,
    company_id      uuid             NOT NULL,
    source          text COLLATE "C" NOT NULL,
    reference       text COLLATE "C" NOT NULL,
    highest_version integer          NOT NULL,
    highest_revoked boolean          NOT NULL,
    PRIMARY KEY (shard, document_id),
    UNIQUE (shard, company_id, source, reference)
) WITH (fillfactor = 85, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- One row is the whole life of a version, reserved or not before it is registered, so that a reservation and its record
-- cannot disagree. While it is only reserved, what a registration fills is null; from then on expires_at is null. The
-- status of a record is derived: revoked when revoked_at is set, current when its version is the document's highest,
-- superseded otherwise. position leads to the signed bytes.
CREATE TABLE versions (
    shard            integer     NOT NULL,
    document_id      uuid        NOT NULL,
    version          integer     NOT NULL,
    organization_id  uuid        NOT NULL,
    public_id        uuid        NOT NULL,
    record_id        uuid,
    previous_version integer,
    sha256           bytea,
    size_bytes       bigint,
    mime_type        text,
    generated_at     text,
    received_at      timestamptz,
    position         bigint,
    revoked_at       timestamptz,
    expires_at       timestamptz, -- of the reservation
    PRIMARY KEY (shard, document_id, version),
    UNIQUE (shard, public_id),
    CONSTRAINT versions_reserved_or_registered CHECK (CASE WHEN record_id IS NULL
        THEN expires_at IS NOT NULL AND num_nonnulls(previous_version, sha256, size_bytes, mime_type, generated_at, received_at, position, revoked_at) = 0
        ELSE expires_at IS NULL AND num_nulls(sha256, size_bytes, mime_type, generated_at, received_at, position) = 0 END)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- What counts against the limit of active reservations.
CREATE INDEX versions_pending ON versions (shard, organization_id, expires_at) WHERE record_id IS NULL;

CREATE TABLE feed (
    shard       integer     NOT NULL,
    company_id  uuid        NOT NULL,
    sequence    bigint      NOT NULL,
    event_id    uuid        NOT NULL,
    type        smallint    NOT NULL,
    status      smallint    NOT NULL,
    version     integer     NOT NULL,
    occurred_at timestamptz NOT NULL,
    document_id uuid        NOT NULL,
    public_id   uuid        NOT NULL,
    PRIMARY KEY (shard, company_id, sequence)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- New versions in a UTC month. A period is year * 100 + month, here and everywhere; the row with the nil UUID as its
-- company is the organization's own total.
CREATE TABLE usage (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    period          integer NOT NULL,
    company_id      uuid    NOT NULL,
    used            bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id, period, company_id)
) WITH (fillfactor = 30);

-- Warnings, their mails, and the counts of requests.

-- Warnings about the allowances of requests and of artifacts, as organization_state has them about versions: what was
-- reached in the last month that had any. A table of its own, because wider rows of organization_state would change how its
-- look-ups are planned.
CREATE TABLE allowance_warnings (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    allowance       text    NOT NULL,
    period          integer NOT NULL,
    at_80           timestamptz,
    at_95           timestamptz,
    at_100          timestamptz,
    PRIMARY KEY (shard, organization_id, allowance)
);

-- A queue, which no rebuild writes. A row is one warning about an allowance, or the notice of one disabled webhook, to
-- everyone whom it concerns; the recipients are looked up when it is sent. due_at is also the lease of the worker that
-- takes the row: taking it moves due_at on.
CREATE TABLE mails (
    shard           integer     NOT NULL,
    mail_id         uuid        NOT NULL, -- the event's id
    organization_id uuid        NOT NULL,
    period          integer,
    percent         integer,
    used            bigint,
    allowance       bigint,
    of_allowance    text        NOT NULL DEFAULT 'versions', -- without meaning for a webhook
    webhook_id      uuid,
    reason          text,
    created_at      timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    attempts        integer     NOT NULL,
    sent            uuid[]      NOT NULL, -- members to whom it was sent
    PRIMARY KEY (shard, mail_id),
    CONSTRAINT mails_of_one_kind CHECK (CASE WHEN webhook_id IS NULL
        THEN num_nulls(period, percent, used, allowance) = 0 AND reason IS NULL
        ELSE num_nonnulls(period, percent, used, allowance) = 0 AND reason IS NOT NULL END)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX mails_due ON mails (shard, due_at);

-- Requests in a minute. Unlogged: a crash loses at most one minute's count.
CREATE UNLOGGED TABLE meters (
    shard   integer NOT NULL,
    subject uuid    NOT NULL,
    minute  bigint  NOT NULL,
    used    integer NOT NULL,
    PRIMARY KEY (shard, subject, minute)
) WITH (fillfactor = 30);

-- Requests of a month to the endpoints beside the integrity API. Counting a request is no event; reaching a part of the
-- allowance is one, which follows. limit_… is the allowance at that moment: the plan may have changed since.
CREATE TABLE request_usage (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    period          integer NOT NULL,
    used            bigint  NOT NULL,
    reached_80      timestamptz,
    reached_95      timestamptz,
    reached_100     timestamptz,
    limit_80        bigint,
    limit_95        bigint,
    limit_100       bigint,
    PRIMARY KEY (shard, organization_id, period)
) WITH (fillfactor = 30);

-- Finds the months in which something was reached; counting alone never touches it.
CREATE INDEX request_usage_reached ON request_usage (shard, period, organization_id) WHERE reached_80 IS NOT NULL;

-- Webhooks. Destinations and their authorizations are projections; deliveries, their log, usage and health are a queue and
-- its books, which no rebuild writes.

-- A deleted destination keeps its row, so that its deliveries still have one.
CREATE TABLE webhooks (
    shard           integer     NOT NULL,
    webhook_id      uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    url_id          uuid        NOT NULL,
    description_id  uuid,
    types           smallint    NOT NULL, -- bits: registered, superseded, revoked
    status          text        NOT NULL,
    disabled_reason text,
    secret          bytea       NOT NULL, -- sealed, as is the previous one
    previous_secret bytea,
    previous_until  timestamptz,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    PRIMARY KEY (shard, webhook_id)
);
CREATE INDEX webhooks_organization ON webhooks (shard, organization_id, webhook_id) WHERE status <> 'deleted';

CREATE TABLE company_webhooks (
    shard      integer     NOT NULL,
    company_id uuid        NOT NULL,
    webhook_id uuid        NOT NULL,
    enabled    boolean     NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (shard, company_id, webhook_id)
);
CREATE INDEX company_webhooks_webhook ON company_webhooks (shard, webhook_id, company_id);

-- Deliveries that are still to be sent, and no others: one that has ended moves to webhook_log. due_at is the time of the
-- next attempt, leased_until the lease of the worker that has the row. No index has leased_until, so that taking a row
-- stays within its page.
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
    attempts        integer     NOT NULL, -- of the current schedule
    attempted_at    timestamptz,
    response_status integer,
    reason          text        NOT NULL, -- why the last attempt failed
    -- Without webhook_id: a look-up of one row could otherwise be planned through the index below, which reads the whole
    -- queue of a destination.
    PRIMARY KEY (shard, delivery_id)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The condition, which is always true, keeps the index to statements that name destinations. PostgreSQL 17 and later
-- estimate a table without statistics by its fill factor, expect a single row here, and would otherwise look one delivery
-- up by walking over a shard's whole queue.
CREATE INDEX webhook_deliveries_webhook_due ON webhook_deliveries (shard, webhook_id, due_at) WHERE webhook_id IS NOT NULL;

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
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX webhook_log_finished ON webhook_log (shard, finished_at);

-- Attempts in a UTC month.
CREATE TABLE webhook_usage (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    period          integer NOT NULL,
    used            bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id, period)
) WITH (fillfactor = 30);

-- Since when a destination has had nothing but failures; without a row, or with null, it works.
CREATE TABLE webhook_health (
    shard         integer     NOT NULL,
    webhook_id    uuid        NOT NULL,
    failing_since timestamptz,
    PRIMARY KEY (shard, webhook_id)
) WITH (fillfactor = 50);

-- Certification: artifacts with their versions, analyses, reviews, approvals and certificates, and the bytes that are kept
-- for a time.

-- Retention and file credits of an organization; without a row it has neither.
CREATE TABLE artifact_accounts (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    retention_days  integer NOT NULL, -- 0: bytes are not kept
    credits         bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id)
);

-- Artifacts registered in a UTC month out of the allowance; those paid with credits are not counted.
CREATE TABLE artifact_usage (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    period          integer NOT NULL,
    used            bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id, period)
) WITH (fillfactor = 50);

CREATE TABLE artifacts (
    shard           integer     NOT NULL,
    artifact_id     uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    latest_version  integer     NOT NULL,
    certified       integer     NOT NULL, -- highest version with a certificate, 0 for none
    certified_by    uuid,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL, -- of the newest version
    PRIMARY KEY (shard, artifact_id)
);
CREATE INDEX artifacts_organization ON artifacts (shard, organization_id, artifact_id);

CREATE TABLE artifact_versions (
    shard           integer     NOT NULL,
    version_id      uuid        NOT NULL,
    artifact_id     uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    version         integer     NOT NULL,
    kind            text        NOT NULL,
    title_id        uuid        NOT NULL,
    file_name_id    uuid,
    media_type      text,
    sha256          bytea       NOT NULL,
    size_bytes      bigint      NOT NULL,
    state           text        NOT NULL,
    reviews         integer     NOT NULL,
    outcome         text        NOT NULL, -- of the latest review; empty without one
    retain_until    timestamptz,
    content_erased  timestamptz,
    registered_at   timestamptz NOT NULL,
    PRIMARY KEY (shard, version_id),
    UNIQUE (shard, artifact_id, version)
) WITH (fillfactor = 85);
CREATE INDEX artifact_versions_sha256 ON artifact_versions (shard, organization_id, sha256);

-- position leads to the event, which holds the whole analysis.
CREATE TABLE analyses (
    shard           integer NOT NULL,
    analysis_id     uuid    NOT NULL,
    version_id      uuid    NOT NULL,
    organization_id uuid    NOT NULL,
    position        bigint  NOT NULL,
    PRIMARY KEY (shard, analysis_id),
    UNIQUE (shard, version_id)
);

CREATE TABLE detector_runs (
    shard            integer NOT NULL,
    organization_id  uuid    NOT NULL,
    detector         text    NOT NULL,
    detector_version integer NOT NULL,
    analysis_id      uuid    NOT NULL,
    outcome          text    NOT NULL,
    micros           bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id, detector, detector_version, analysis_id)
);

CREATE TABLE reviews (
    shard           integer     NOT NULL,
    review_id       uuid        NOT NULL,
    version_id      uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    key             text        NOT NULL, -- the actor
    member_id       uuid        NOT NULL,
    outcome         text        NOT NULL,
    statement_id    uuid        NOT NULL,
    declared_at     timestamptz NOT NULL,
    sequence        bigint      NOT NULL,
    PRIMARY KEY (shard, review_id)
);
CREATE INDEX reviews_version ON reviews (shard, version_id, sequence);

CREATE TABLE approvals (
    shard           integer     NOT NULL,
    approval_id     uuid        NOT NULL,
    version_id      uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    key             text        NOT NULL, -- the actor
    member_id       uuid        NOT NULL,
    statement_id    uuid        NOT NULL,
    approved_at     timestamptz NOT NULL,
    PRIMARY KEY (shard, approval_id),
    UNIQUE (shard, version_id)
);

CREATE TABLE certificates (
    shard           integer     NOT NULL,
    public_id       uuid        NOT NULL,
    version_id      uuid        NOT NULL,
    artifact_id     uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    public_fields   text[]      NOT NULL,
    payload_id      uuid        NOT NULL, -- the signed bytes
    key_id          text        NOT NULL, -- of the signing key
    signature       text        NOT NULL,
    issued_at       timestamptz NOT NULL,
    revoked_at      timestamptz,
    replaced_at     timestamptz,
    replaced_by     uuid,
    PRIMARY KEY (shard, public_id),
    UNIQUE (shard, version_id)
);

-- A queue, which no rebuild writes: bytes in the blob store that are to be erased when they are due. A row is written
-- before its bytes and is due soon, so that bytes whose version was never committed go too; due_at is also the lease.
CREATE TABLE kept_contents (
    shard           integer     NOT NULL,
    version_id      uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    artifact_id     uuid        NOT NULL,
    due_at          timestamptz NOT NULL,
    PRIMARY KEY (shard, version_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX kept_contents_due ON kept_contents (shard, due_at);

-- OAuth: links between members and OAuth subjects, the identities of people at an external provider.

CREATE TABLE oauth_links (
    shard           integer     NOT NULL,
    link_id         uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    member_id       uuid        NOT NULL,
    secret_sha256   bytea       NOT NULL,
    scopes          text[]      NOT NULL,
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL, -- of the code
    subject         bytea,                -- null until the link is redeemed
    consented       text[],
    linked_at       timestamptz,
    withdrawn_at    timestamptz,
    PRIMARY KEY (shard, link_id)
);
CREATE INDEX oauth_links_organization ON oauth_links (shard, organization_id, link_id);

-- Which link a subject is to be looked for in. A reference table that no group writes: the row is written before the event
-- that redeems the link, so every redeemed link has had its row. The row alone gives no right; the link decides.
CREATE TABLE oauth_subjects (
    subject         bytea       NOT NULL PRIMARY KEY,
    organization_id uuid        NOT NULL,
    link_id         uuid        NOT NULL,
    claimed_at      timestamptz NOT NULL
);

-- Idempotency keys. The request that has the token holds the claim until lease_until; a finished one has an answer.

CREATE TABLE idempotency_keys (
    shard           integer          NOT NULL,
    organization_id uuid             NOT NULL,
    route           text COLLATE "C" NOT NULL,
    key             text COLLATE "C" NOT NULL,
    token           uuid             NOT NULL,
    fingerprint     bytea            NOT NULL,
    created_at      timestamptz      NOT NULL,
    lease_until     timestamptz      NOT NULL,
    status          integer,
    answer          bytea,
    PRIMARY KEY (shard, organization_id, route, key)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX idempotency_keys_created ON idempotency_keys (shard, created_at);

-- Consumers, which read the log after the commit: how far each has come in each shard.

CREATE TABLE consumers (
    shard        integer          NOT NULL,
    consumer     text COLLATE "C" NOT NULL,
    position     bigint           NOT NULL, -- its row is locked while a page of events is handled
    PRIMARY KEY (shard, consumer)
) WITH (fillfactor = 10);

-- The transparency log: one Merkle tree (RFC 6962) over the leaf hashes of all events of all shards, in the order in which
-- it took them. The process that has locked the row of the tree writes tiles and runs. On Citus they stay on the coordinator.

-- How far the tree has come. Tiles, runs and this row are written in one transaction.
CREATE TABLE transparency_tree (
    id         smallint NOT NULL PRIMARY KEY CHECK (id = 1),
    size       bigint   NOT NULL, -- leaves
    root       bytea    NOT NULL,
    positions  bigint[] NOT NULL, -- of each shard, in the order of their numbers: the last that is in the tree
    epoch      bigint   NOT NULL -- the ledger's when the tree was begun or last allowed to go on
) WITH (fillfactor = 10);

-- C2SP tlog-tiles of height 8: up to 256 hashes of 32 bytes. A tile only grows.
CREATE TABLE transparency_tiles (
    level  smallint NOT NULL,
    n      bigint   NOT NULL,
    hashes bytea    NOT NULL,
    PRIMARY KEY (level, n)
);
ALTER TABLE transparency_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL; -- hashes cannot be compressed

-- Which events the leaves are: from first_leaf on, as many events of one shard from first_position on.
CREATE TABLE transparency_runs (
    first_leaf     bigint  NOT NULL PRIMARY KEY,
    from_shard     integer NOT NULL,
    first_position bigint  NOT NULL,
    leaves         bigint  NOT NULL
) WITH (fillfactor = 90);
CREATE INDEX transparency_runs_position ON transparency_runs (from_shard, first_position);

-- The last checkpoint, the only one that is served. It is signed after the tree that it covers was committed.
CREATE TABLE transparency_checkpoint (
    id        smallint    NOT NULL PRIMARY KEY CHECK (id = 1),
    size      bigint      NOT NULL,
    root      bytea       NOT NULL,
    note      text        NOT NULL, -- signed by the log alone
    signed_at timestamptz NOT NULL
) WITH (fillfactor = 10);

-- What each witness has cosigned last.
CREATE TABLE transparency_cosignatures (
    witness   text COLLATE "C" NOT NULL PRIMARY KEY,
    size      bigint           NOT NULL,
    signature text             NOT NULL -- a line of a signed note
) WITH (fillfactor = 10);

-- Log keys. After a restore the log goes on as another history only under a key that was made after that restore; every
-- other key that may have signed the lost history is barred.
CREATE TABLE transparency_keys (
    key    text COLLATE "C" NOT NULL PRIMARY KEY, -- name+key hash, as a signed note names it
    epoch  bigint           NOT NULL,             -- the ledger's when the key became known
    made   boolean          NOT NULL,             -- after the restore that began this epoch: it cannot have signed what was lost
    barred boolean          NOT NULL              -- may have signed another history than the tree's: it signs no more
);

-- Nothing updates or deletes an event. This guards against mistakes only: the owner of the tables can remove it.

-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'table % is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Every projection once more, for a rebuild by difference: the identical Apply writes here when search_path is rebuild,
-- public. The copies can be made again from the log at any time, so they are not logged: after a crash of the database they
-- are empty, and so is the progress of an unfinished rebuild.

CREATE SCHEMA rebuild;

-- +goose StatementBegin
DO $$
DECLARE
    projection text;
BEGIN
    FOREACH projection IN ARRAY ARRAY['organization_state', 'members', 'api_keys', 'companies', 'grants',
            'documents', 'versions', 'feed', 'usage', 'allowance_warnings', 'webhooks', 'company_webhooks',
            'artifact_accounts', 'artifact_usage', 'artifacts', 'artifact_versions', 'analyses', 'detector_runs', 'reviews',
            'approvals', 'certificates', 'oauth_links'] LOOP
        EXECUTE format('CREATE UNLOGGED TABLE rebuild.%1$I (LIKE public.%1$I INCLUDING ALL)', projection);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- How far a rebuild has come, and which: the position of the log of a whole shard, or the sequence of the one organization
-- that scope names. Another program may project otherwise, so it starts from the beginning.
CREATE UNLOGGED TABLE rebuild.progress (
    shard   integer NOT NULL PRIMARY KEY,
    scope   text    NOT NULL,
    program text    NOT NULL,
    reached bigint  NOT NULL
);

-- The index of the search by hash, made here because only readers need it and so rebuild has no copy. Every registration
-- writes it at a random place, so it holds only a part of the hash; a search filters and sorts the few rows found.
CREATE INDEX versions_sha256 ON versions (shard, substring(sha256 from 1 for 6)) WHERE record_id IS NOT NULL;

-- The role of serving connections. Roles belong to the whole server, so another database of it may be making this one at
-- the same moment.

-- +goose StatementBegin
DO $$
BEGIN
    CREATE ROLE integrity_service NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;
-- +goose StatementEnd

-- An ordinary role must be able to take on the service role. Since PostgreSQL 16 the creator of a role is a member that may
-- admit others, itself included, but may not take the role on: any membership is not enough.

-- +goose StatementBegin
DO $$
DECLARE
    since_16 boolean := current_setting('server_version_num')::integer >= 160000;
    membership text := format('GRANT integrity_service TO %I', session_user) || CASE WHEN since_16 THEN ' WITH SET TRUE' ELSE '' END;
BEGIN
    -- pg_has_role knows SET only since then; before, every member may take a role on.
    IF NOT pg_has_role(session_user, 'integrity_service', CASE WHEN since_16 THEN 'SET' ELSE 'MEMBER' END) THEN
        EXECUTE membership;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE EXCEPTION 'the role % must be able to take on the role integrity_service, which another role of this server has made: let a superuser run %',
            quote_ident(session_user), membership USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd

GRANT USAGE ON SCHEMA public, rebuild TO integrity_service;
GRANT SELECT ON ledger TO integrity_service;
GRANT SELECT, INSERT ON events TO integrity_service;
GRANT SELECT, INSERT, UPDATE ON
    shard_heads, texts,
    organization_state, members, api_keys, api_key_uses, companies, grants,
    documents, versions, feed, usage, allowance_warnings, request_usage, webhooks, company_webhooks,
    artifact_accounts, artifact_usage, artifacts, artifact_versions, analyses, detector_runs, reviews, approvals, certificates,
    oauth_links, oauth_subjects, consumers,
    transparency_tree, transparency_tiles, transparency_runs, transparency_checkpoint, transparency_cosignatures, transparency_keys
    TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON
    mails, meters, webhook_deliveries, webhook_log, webhook_usage, webhook_health, kept_contents, idempotency_keys
    TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rebuild TO integrity_service;
