-- The schema of the first release. Later migrations only add to it (additive_test.go).
--
-- Sharding: the primary key and every unique constraint of a tenant table begin with shard, so that Citus can
-- distribute the ledger by shard. Tables without a shard belong to no tenant: the ledger's own row, OAuth subjects,
-- running processes, applied migrations, the transparency log and the witness.
--
-- Autovacuum: a table that only grows is vacuumed after 2 % of new rows instead of 20 %, so that each run is short and
-- index-only scans and freezing keep up. A queue, whose rows come and go, is vacuumed after 2 % of dead rows, without
-- pauses. Counters need neither: their fill factors keep updates within a page, which cleans itself.
--
-- A period is a UTC month, year * 100 + month.

-- +goose Up

-- The ledger and its log.

-- A program version is one number: 1.2.3 is 1002003. A migration that older programs cannot work with raises
-- minimum_version here and in shard_heads, in its own transaction:
--   UPDATE ledger SET minimum_version = greatest(minimum_version, N);
--   UPDATE shard_heads SET minimum_version = greatest(minimum_version, N);
CREATE TABLE ledger (
    id              smallint    NOT NULL PRIMARY KEY CHECK (id = 1),
    issuer          text        NOT NULL,
    secret          bytea       NOT NULL,
    shards          integer     NOT NULL CHECK (shards BETWEEN 1 AND 65535),
    epoch           bigint      NOT NULL,                -- raised by each restore
    -- A rebuild that changes rows of the feed raises feed_epoch; readers see the higher of the two epochs. feed_mending
    -- is set before the first row changes and cleared with the new epoch, so that a rebuild that was killed is not
    -- forgotten.
    feed_epoch      bigint,
    feed_mending    boolean     NOT NULL DEFAULT false,
    minimum_version bigint      NOT NULL DEFAULT 0,      -- the lowest program version that may write
    rules           text[]      NOT NULL DEFAULT '{}',   -- names of the decision rules that are on
    created_at      timestamptz NOT NULL
);

-- A group of commands locks the head of its shard. The statement that locks it reads minimum_version and rules, so an
-- outdated program commits nothing after they were raised.
CREATE TABLE shard_heads (
    shard           integer     NOT NULL PRIMARY KEY,
    position        bigint      NOT NULL,
    occurred_at     timestamptz NOT NULL,
    minimum_version bigint      NOT NULL DEFAULT 0,
    rules           text[]      NOT NULL DEFAULT '{}'
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

-- These indexes find the events of one action, or about one subject, in a long history. Registrations are most of every
-- log and are in neither index, so that registering does not pay for them: the history is scanned for the registrations
-- of an action, and the registration of a record is found through its version.
CREATE INDEX events_action ON events (shard, organization_id, type, sequence) WHERE type <> 'integrity.registered';
CREATE INDEX events_target ON events (shard, organization_id, subject, sequence) WHERE type <> 'integrity.registered';

-- The log is append-only. The trigger guards against mistakes only: the owner of the table can drop it.

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

-- Free text and addresses of people. An operator can erase a body, which becomes null. Events name a text by its id and
-- by SHA-256(salt || body).
CREATE TABLE texts (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    id              uuid    NOT NULL,
    salt            bytea   NOT NULL,
    body            text,
    PRIMARY KEY (shard, organization_id, id)
);

-- The system user behind an operator's events, written in the transaction that appends them. Only operators read it:
-- audit events show the organization the request id, not the person.
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

-- How far each consumer has read the log of each shard. A consumer locks its row while it handles a page of events.
CREATE TABLE consumers (
    shard    integer          NOT NULL,
    consumer text COLLATE "C" NOT NULL,
    position bigint           NOT NULL,
    PRIMARY KEY (shard, consumer)
) WITH (fillfactor = 10);

-- The claims of Idempotency-Key. The request that has the token holds the claim until lease_until; a finished request
-- has an answer.
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

-- Processes that serve. Each renews its own row. Ages are measured by the clock of the database. On Citus the table
-- stays on the coordinator.
CREATE TABLE processes (
    id         text COLLATE "C" NOT NULL PRIMARY KEY, -- random, drawn when the process starts
    name       text             NOT NULL,             -- host and process id, for people
    version    bigint           NOT NULL,
    rules      text[]           NOT NULL,             -- that the program knows
    started_at timestamptz      NOT NULL DEFAULT now(),
    seen_at    timestamptz      NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- The SHA-256 of the statements of each migration as they were applied, without comments: integrity doctor finds a
-- program whose migrations were edited since.
CREATE TABLE applied_migrations (
    version bigint NOT NULL PRIMARY KEY,
    sha256  bytea  NOT NULL
);

-- Organizations, members and companies. Like most tables below they are projections: written from events alone, by the
-- same code in a group's transaction and in a rebuild. A comment says so where a table is something else.

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
    -- Warnings about versions in the last month that had one: the limit, and per percentage the time and the usage.
    warned_period     integer     NOT NULL DEFAULT 0,
    warned_limit      bigint      NOT NULL DEFAULT 0,
    warned_80         timestamptz,
    warned_95         timestamptz,
    warned_100        timestamptz,
    warned_used_80    bigint,
    warned_used_95    bigint,
    warned_used_100   bigint,
    PRIMARY KEY (shard, organization_id)
) WITH (fillfactor = 30);

CREATE TABLE members (
    shard             integer     NOT NULL,
    organization_id   uuid        NOT NULL,
    member_id         uuid        NOT NULL,
    email_id          uuid        NOT NULL,
    email_sha256      bytea,                -- of the lower-case address, for sign-in; null once it is erased
    role              text        NOT NULL,
    status            text        NOT NULL,
    invitation_sha256 bytea,
    invited_until     timestamptz,
    created_at        timestamptz NOT NULL,
    PRIMARY KEY (shard, organization_id, member_id)
);

-- A queue, which no rebuild writes: codes of invitations that are waiting to be mailed, sealed with the service's
-- secret key. A row is deleted when its mail is sent, or when its invitation ends or is replaced. due_at is also the
-- lease of the worker that takes the row.
CREATE TABLE invitation_mails (
    shard           integer     NOT NULL,
    mail_id         uuid        NOT NULL, -- the event's id
    organization_id uuid        NOT NULL,
    member_id       uuid        NOT NULL,
    secret_sha256   bytea       NOT NULL, -- of the invitation
    sealed          bytea       NOT NULL,
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    attempts        integer     NOT NULL,
    PRIMARY KEY (shard, mail_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX invitation_mails_due ON invitation_mails (shard, due_at);

CREATE TABLE companies (
    shard           integer          NOT NULL,
    company_id      uuid             NOT NULL,
    organization_id uuid             NOT NULL,
    reference       text COLLATE "C" NOT NULL,
    -- The number of webhooks authorized for the company. A registration reads it with the company, so it needs no query
    -- of its own to learn that nothing is to be queued.
    webhooks        integer          NOT NULL DEFAULT 0,
    created_at      timestamptz      NOT NULL,
    closed_at       timestamptz,
    PRIMARY KEY (shard, company_id),
    UNIQUE (shard, organization_id, reference)
);

-- API keys and what they may use.

CREATE TABLE api_keys (
    shard            integer     NOT NULL,
    key_id           uuid        NOT NULL,
    organization_id  uuid        NOT NULL,
    member_id        uuid        NOT NULL,
    name_id          uuid,
    secret_sha256    bytea       NOT NULL,
    scopes           text[]      NOT NULL,
    source           text,
    networks         text[],               -- null: any
    max_version_step integer,
    created_by       text        NOT NULL, -- the actor
    created_at       timestamptz NOT NULL,
    expires_at       timestamptz NOT NULL,
    revoked_at       timestamptz,
    PRIMARY KEY (shard, key_id)
);
CREATE INDEX api_keys_organization ON api_keys (shard, organization_id, key_id);

-- When an API key was last used, to the minute. Not a projection: a read is no event. Serving processes write it in
-- batches.
CREATE TABLE api_key_uses (
    shard        integer     NOT NULL,
    key_id       uuid        NOT NULL,
    last_used_at timestamptz NOT NULL,
    PRIMARY KEY (shard, key_id)
) WITH (fillfactor = 50);

-- Whether an API key may use a company.
CREATE TABLE grants (
    shard      integer     NOT NULL,
    key_id     uuid        NOT NULL,
    company_id uuid        NOT NULL,
    enabled    boolean     NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (shard, key_id, company_id)
);
CREATE INDEX grants_company ON grants (shard, company_id, key_id);

-- Sign-in to the console. Passkeys are a projection; readers and workers write the other tables, which hold secrets
-- only as hashes.

CREATE TABLE passkeys (
    shard           integer     NOT NULL,
    passkey_id      uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    member_id       uuid        NOT NULL,
    credential_id   bytea       NOT NULL,
    public_key      bytea       NOT NULL, -- COSE
    transports      text[]      NOT NULL,
    backup_eligible boolean     NOT NULL,
    name_id         uuid        NOT NULL,
    created_at      timestamptz NOT NULL,
    removed_at      timestamptz,
    PRIMARY KEY (shard, passkey_id)
);
CREATE INDEX passkeys_member ON passkeys (shard, member_id, passkey_id);

-- When a passkey was last used, and the highest counter of its signatures. Not a projection: a sign-in is no event.
CREATE TABLE passkey_uses (
    shard        integer     NOT NULL,
    passkey_id   uuid        NOT NULL,
    sign_count   bigint      NOT NULL,
    last_used_at timestamptz NOT NULL,
    PRIMARY KEY (shard, passkey_id)
);

-- role is the member's role when the session began; a change of role ends the session.
CREATE TABLE console_sessions (
    shard           integer     NOT NULL,
    token_sha256    bytea       NOT NULL,
    session_id      uuid        NOT NULL, -- names the session to its owner
    organization_id uuid        NOT NULL,
    member_id       uuid        NOT NULL,
    role            text        NOT NULL,
    user_agent      text        NOT NULL,
    data            bytea       NOT NULL,
    created_at      timestamptz NOT NULL,
    proved_at       timestamptz NOT NULL, -- the last proof of identity
    used_at         timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    PRIMARY KEY (shard, token_sha256)
);
CREATE INDEX console_sessions_member ON console_sessions (shard, member_id, session_id);
CREATE INDEX console_sessions_expired ON console_sessions (shard, expires_at);

-- Links that sign a person in, once. browser_sha256 is the hash of the cookie of the browser that asked for the link;
-- null means any browser may use it. A link is for every membership of an address, or for one named member.
CREATE TABLE console_links (
    shard           integer     NOT NULL,
    link_id         uuid        NOT NULL,
    secret_sha256   bytea       NOT NULL,
    email_sha256    bytea,
    browser_sha256  bytea,
    organization_id uuid,
    member_id       uuid,
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    used_at         timestamptz,
    PRIMARY KEY (shard, link_id),
    CHECK (num_nonnulls(email_sha256, member_id) = 1 AND num_nonnulls(organization_id, member_id) <> 1)
);
CREATE INDEX console_links_address ON console_links (shard, email_sha256, created_at);
CREATE INDEX console_links_expired ON console_links (shard, expires_at);

-- Used challenges, kept until they expire so that they cannot be replayed.
CREATE TABLE console_challenges (
    shard      integer     NOT NULL,
    id_sha256  bytea       NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (shard, id_sha256)
);
CREATE INDEX console_challenges_expired ON console_challenges (shard, expires_at);

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

-- The link of each subject. On Citus it is a reference table, which no group writes: the row is written before the
-- event that redeems the link, so every redeemed link has a row. The row alone gives no right; the link decides.
CREATE TABLE oauth_subjects (
    subject         bytea       NOT NULL PRIMARY KEY,
    organization_id uuid        NOT NULL,
    link_id         uuid        NOT NULL,
    claimed_at      timestamptz NOT NULL
);

-- Documents, their versions, and the change feed.

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
) WITH (fillfactor = 85, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02);

-- One row is the whole life of a version, whether it was reserved first or not, so that a reservation and its record
-- cannot disagree. While the version is only reserved, the columns of a registration are null; from then on expires_at
-- is null. The status of a record is derived: revoked if revoked_at is set, current if its version is the document's
-- highest, superseded otherwise. position leads to the signed bytes.
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
    -- When the reservation was last released. It is released while expires_at is the same moment: renewing it moves
    -- expires_at alone. Meaningless once the version is registered.
    released_at      timestamptz,
    PRIMARY KEY (shard, document_id, version),
    UNIQUE (shard, public_id),
    CONSTRAINT versions_reserved_or_registered CHECK (CASE WHEN record_id IS NULL
        THEN expires_at IS NOT NULL
            AND num_nonnulls(previous_version, sha256, size_bytes, mime_type, generated_at, received_at, position,
                revoked_at) = 0
        ELSE expires_at IS NULL
            AND num_nulls(sha256, size_bytes, mime_type, generated_at, received_at, position) = 0 END)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02);

-- Counts the reservations against the limit of active ones.
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

-- Use, limits and warnings.

-- New versions in a month. The row with the nil UUID as its company is the organization's total.
CREATE TABLE usage (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    period          integer NOT NULL,
    company_id      uuid    NOT NULL,
    used            bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id, period, company_id)
) WITH (fillfactor = 30);

-- The warnings about every other allowance, as organization_state has those about versions. A table of its own, because
-- wider rows of organization_state would change how its look-ups are planned.
CREATE TABLE allowance_warnings (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    allowance       text    NOT NULL,
    period          integer NOT NULL,
    of_limit        bigint  NOT NULL,
    at_80           timestamptz,
    at_95           timestamptz,
    at_100          timestamptz,
    used_80         bigint,
    used_95         bigint,
    used_100        bigint,
    PRIMARY KEY (shard, organization_id, allowance)
);

-- A queue, which no rebuild writes. A row is one warning about an allowance, or one notice of a disabled webhook, for
-- everyone it concerns; the recipients are looked up when it is sent. due_at is also the lease of the worker that takes
-- the row: taking it moves due_at on.
CREATE TABLE mails (
    shard           integer     NOT NULL,
    mail_id         uuid        NOT NULL, -- the event's id
    organization_id uuid        NOT NULL,
    period          integer,
    percent         integer,
    used            bigint,
    allowance       bigint,
    of_allowance    text        NOT NULL DEFAULT 'versions', -- meaningless for a webhook
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

-- The administrative events of an organization in the last UTC day in which it caused any. A counter, not a projection:
-- no rebuild writes it. It is written in the transaction of the events and survives a crash with them.
CREATE TABLE administrative_usage (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    day             date    NOT NULL,
    used            bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id)
) WITH (fillfactor = 30);

-- Requests of an organization in a minute. Unlogged: a crash loses at most one minute's count.
CREATE UNLOGGED TABLE meters (
    shard   integer NOT NULL,
    subject uuid    NOT NULL,
    minute  bigint  NOT NULL,
    used    integer NOT NULL,
    PRIMARY KEY (shard, subject, minute)
) WITH (fillfactor = 30);

-- Requests of a month to the endpoints beside the integrity API. Counting a request is no event; reaching a part of the
-- allowance becomes one later. limit_… is the allowance at that moment: the plan may have changed since.
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

-- Finds the months in which a part was reached; counting alone never touches it.
CREATE INDEX request_usage_reached ON request_usage (shard, period, organization_id) WHERE reached_80 IS NOT NULL;

-- What each organization asked for in a UTC minute. Serving processes add up in memory and write every few seconds.
-- Unlogged: a crash loses the last hour's counts. The nil UUID as the organization stands for requests without a valid
-- credential.
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

-- Webhooks. Destinations and their authorizations are projections; no rebuild writes deliveries, their log, usage and
-- health.

-- A deleted destination keeps its row, which its deliveries still refer to.
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

-- Deliveries that are still to be sent; a delivery that has ended moves to webhook_log. due_at is the time of the next
-- attempt, leased_until the lease of the worker that has the row. leased_until is in no index, so that taking a row
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
    -- Without webhook_id: a look-up of one row could otherwise be planned through the index below, which reads the
    -- whole queue of a destination.
    PRIMARY KEY (shard, delivery_id)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The condition is always true. It keeps the index to statements that name destinations: PostgreSQL 17 and later
-- estimate a table without statistics by its fill factor, expect a single row here, and would otherwise look one
-- delivery up by reading a shard's whole queue.
CREATE INDEX webhook_deliveries_webhook_due ON webhook_deliveries (shard, webhook_id, due_at)
    WHERE webhook_id IS NOT NULL;

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

-- Attempts in a month, with what they reached, as in request_usage.
CREATE TABLE webhook_usage (
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
CREATE INDEX webhook_usage_reached ON webhook_usage (shard, period, organization_id) WHERE reached_80 IS NOT NULL;

-- Since when every attempt to a destination has failed. A destination without a row, or with null, works.
CREATE TABLE webhook_health (
    shard         integer     NOT NULL,
    webhook_id    uuid        NOT NULL,
    failing_since timestamptz,
    PRIMARY KEY (shard, webhook_id)
) WITH (fillfactor = 50);

-- Certification: artifacts with their versions, analyses, reviews, approvals and certificates, and the bytes that are
-- kept for a time.

-- Retention and file credits of an organization; an organization without a row has neither.
CREATE TABLE artifact_accounts (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    retention_days  integer NOT NULL, -- 0: bytes are not kept
    credits         bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id)
);

-- Artifacts registered in a month out of the allowance; artifacts paid with credits are not counted.
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
    certified       integer     NOT NULL, -- the highest version with a certificate, 0 for none
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

-- A queue, which no rebuild writes: bytes in the blob store that are erased when they are due. A row is written before
-- its bytes and is due soon, so that the bytes of a version that was never committed are erased too. due_at is also the
-- lease.
CREATE TABLE kept_contents (
    shard           integer     NOT NULL,
    version_id      uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    artifact_id     uuid        NOT NULL,
    due_at          timestamptz NOT NULL,
    PRIMARY KEY (shard, version_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX kept_contents_due ON kept_contents (shard, due_at);

-- The transparency log: one Merkle tree (RFC 6962) over the leaf hashes of all events of all shards, in the order in
-- which it took them. The process that has locked the row of the tree writes tiles and runs. On Citus these tables stay
-- on the coordinator.

-- How far the tree has come. Tiles, runs and this row are written in one transaction.
CREATE TABLE transparency_tree (
    id        smallint NOT NULL PRIMARY KEY CHECK (id = 1),
    size      bigint   NOT NULL, -- the number of leaves
    root      bytea    NOT NULL,
    positions bigint[] NOT NULL, -- the last position of each shard that is in the tree, in the order of the shards
    epoch     bigint   NOT NULL  -- the ledger's when the tree was begun or last allowed to go on
) WITH (fillfactor = 10);

-- C2SP tlog-tiles of height 8: up to 256 hashes of 32 bytes. A tile only grows.
CREATE TABLE transparency_tiles (
    level  smallint NOT NULL,
    n      bigint   NOT NULL,
    hashes bytea    NOT NULL,
    PRIMARY KEY (level, n)
);
ALTER TABLE transparency_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL; -- hashes cannot be compressed

-- Which events the leaves are: the leaves from first_leaf on are the events of one shard from first_position on.
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

-- What each witness cosigned last.
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
    made   boolean          NOT NULL,             -- after the restore that began this epoch: it signed nothing lost
    barred boolean          NOT NULL              -- may have signed another history than the tree's: it signs no more
);

-- Tokens of time-stamping authorities (RFC 3161) over checkpoints. No event creates them and no rebuild writes them; a
-- row never changes.
CREATE TABLE log_timestamps (
    tree_size  bigint           NOT NULL, -- of the checkpoint
    authority  text COLLATE "C" NOT NULL, -- as the trusted-keys file names it
    gen_time   timestamptz      NOT NULL, -- that the token states
    checkpoint text             NOT NULL, -- signed by the log alone; the token covers the SHA-256 of these bytes
    token      bytea            NOT NULL, -- the DER of a TimeStampToken
    PRIMARY KEY (authority, tree_size)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX log_timestamps_size ON log_timestamps (tree_size, authority);

-- The witness: cosigned checkpoints of other logs (C2SP tlog-witness). On Citus these tables stay on the coordinator.

-- The last cosigned checkpoint of each log. The row is locked while a checkpoint is judged; its size never decreases.
CREATE TABLE witness_logs (
    origin      text COLLATE "C" NOT NULL PRIMARY KEY,
    size        bigint           NOT NULL CHECK (size >= 0),
    root        bytea            NOT NULL,
    note        text             NOT NULL, -- that was cosigned, with the log's own signatures; empty before the first
    cosigned_at timestamptz,
    epoch       bigint           NOT NULL  -- the ledger's when the row was made or last allowed to go on
) WITH (fillfactor = 10);

-- Proofs that a log has signed two histories: two checkpoints with its signatures that no single tree holds. The first
-- proofs of each log are kept.
CREATE TABLE witness_split_views (
    origin   text COLLATE "C" NOT NULL,
    size     bigint           NOT NULL, -- of the checkpoint that was refused
    root     bytea            NOT NULL,
    cosigned text             NOT NULL, -- the signed note that it contradicts
    refused  text             NOT NULL, -- a signed note
    -- A consistency proof to the refused checkpoint, from another root at the size of the cosigned one; empty if both
    -- checkpoints have one size.
    proof    text[]           NOT NULL,
    found_at timestamptz      NOT NULL,
    PRIMARY KEY (origin, size, root)
);

-- A second copy of every projection, for a rebuild by difference: the identical code writes here while search_path is
-- rebuild, public. The copies can be made again from the log at any time, so they are not logged: after a crash of the
-- database they are empty, and so is the progress of an unfinished rebuild.

CREATE SCHEMA rebuild;

-- +goose StatementBegin
DO $$
DECLARE
    projection text;
BEGIN
    FOREACH projection IN ARRAY ARRAY['organization_state', 'members', 'companies', 'api_keys', 'grants', 'passkeys',
            'oauth_links', 'documents', 'versions', 'feed', 'usage', 'allowance_warnings', 'webhooks',
            'company_webhooks', 'artifact_accounts', 'artifact_usage', 'artifacts', 'artifact_versions', 'analyses',
            'detector_runs', 'reviews', 'approvals', 'certificates'] LOOP
        EXECUTE format('CREATE UNLOGGED TABLE rebuild.%1$I (LIKE public.%1$I INCLUDING ALL)', projection);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- How far a rebuild has come, and which rebuild: the position in the log of a whole shard, or the sequence of the one
-- organization that scope names. Another program may project differently, so it starts from the beginning.
CREATE UNLOGGED TABLE rebuild.progress (
    shard   integer NOT NULL PRIMARY KEY,
    scope   text    NOT NULL,
    program text    NOT NULL,
    reached bigint  NOT NULL
);

-- Only readers need the next two indexes, so they are created after the copies and the copies lack them.

-- The search by hash. Every registration writes this index at a random place, so it holds only a part of the hash; a
-- search filters and sorts the few rows found.
CREATE INDEX versions_sha256 ON versions (shard, substring(sha256 from 1 for 6)) WHERE record_id IS NOT NULL;

-- Sign-in by address.
CREATE INDEX members_email ON members (shard, email_sha256);

-- The role of serving connections. Roles belong to the whole server, so another database of it may be creating the role
-- at the same moment.

-- +goose StatementBegin
DO $$
BEGIN
    CREATE ROLE integrity_service NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;
-- +goose StatementEnd

-- An ordinary role must be able to take on the service role. Since PostgreSQL 16 the creator of a role is a member that
-- may admit others, itself included, but may not take the role on: any membership is not enough.

-- +goose StatementBegin
DO $$
DECLARE
    since_16 boolean := current_setting('server_version_num')::integer >= 160000;
    membership text := format('GRANT integrity_service TO %I', session_user)
        || CASE WHEN since_16 THEN ' WITH SET TRUE' ELSE '' END;
BEGIN
    -- pg_has_role knows SET only since then; before, every member may take a role on.
    IF NOT pg_has_role(session_user, 'integrity_service', CASE WHEN since_16 THEN 'SET' ELSE 'MEMBER' END) THEN
        EXECUTE membership;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE EXCEPTION 'the role % must be able to take on the role integrity_service, which another role of this '
            'server has made: let a superuser run %', quote_ident(session_user), membership
            USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd

GRANT USAGE ON SCHEMA public, rebuild TO integrity_service;
GRANT SELECT ON ledger, applied_migrations TO integrity_service;
GRANT SELECT, INSERT ON events, operator_acts, log_timestamps, witness_split_views TO integrity_service;
GRANT SELECT, INSERT, UPDATE ON
    shard_heads, texts, consumers,
    organization_state, members, companies, api_keys, api_key_uses, grants, passkeys, passkey_uses, oauth_links,
    oauth_subjects, documents, versions, feed, usage, allowance_warnings, administrative_usage, request_usage, webhooks,
    company_webhooks, artifact_accounts, artifact_usage, artifacts, artifact_versions, analyses, detector_runs, reviews,
    approvals, certificates,
    transparency_tree, transparency_tiles, transparency_runs, transparency_checkpoint, transparency_cosignatures,
    transparency_keys, witness_logs
    TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON
    idempotency_keys, processes, invitation_mails, console_sessions, console_links, console_challenges,
    mails, meters, traffic, webhook_deliveries, webhook_log, webhook_usage, webhook_health, kept_contents
    TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rebuild TO integrity_service;
