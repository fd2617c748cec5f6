-- The first shape of a ledger. The growth rule: every tenant table has shard
-- first in its primary key and in every unique constraint (the one reference
-- table, ledger, is never written by a group).

-- +goose Up

CREATE TABLE ledger (
    id         smallint    NOT NULL PRIMARY KEY CHECK (id = 1),
    issuer     text        NOT NULL,
    secret     bytea       NOT NULL,
    shards     integer     NOT NULL CHECK (shards BETWEEN 1 AND 65535),
    epoch      bigint      NOT NULL,
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
);

-- Free text and addresses of people, which an operator can erase (body becomes
-- null); events name a text by its id and by SHA-256(salt || body).
CREATE TABLE texts (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    id              uuid    NOT NULL,
    salt            bytea   NOT NULL,
    body            text,
    PRIMARY KEY (shard, organization_id, id)
);

-- Projections: rebuilt from events alone, by the same function that writes
-- them in a group's transaction.

CREATE TABLE organization_state (
    shard           integer     NOT NULL,
    organization_id uuid        NOT NULL,
    sequence        bigint      NOT NULL,
    name_id         uuid        NOT NULL,
    plan            text        NOT NULL,
    internal        boolean     NOT NULL,
    per_minute      integer,
    companies       integer     NOT NULL,
    created_at      timestamptz NOT NULL,
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

CREATE TABLE companies (
    shard           integer          NOT NULL,
    company_id      uuid             NOT NULL,
    organization_id uuid             NOT NULL,
    reference       text COLLATE "C" NOT NULL,
    created_at      timestamptz      NOT NULL,
    PRIMARY KEY (shard, company_id),
    UNIQUE (shard, organization_id, reference)
);

CREATE TABLE grants (
    shard      integer     NOT NULL,
    key_id     uuid        NOT NULL,
    company_id uuid        NOT NULL,
    enabled    boolean     NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (shard, key_id, company_id)
);

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
) WITH (fillfactor = 85);

-- One row is the whole life of a version identity. Its status is derived:
-- revoked when revoked_at is set, current when its version is the document's
-- highest, superseded otherwise. position leads to the signed bytes.
CREATE TABLE identities (
    shard            integer     NOT NULL,
    document_id      uuid        NOT NULL,
    version          integer     NOT NULL,
    organization_id  uuid        NOT NULL,
    public_id        uuid        NOT NULL,
    record_id        uuid        NOT NULL,
    previous_version integer,
    sha256           bytea       NOT NULL,
    size_bytes       bigint      NOT NULL,
    mime_type        text        NOT NULL,
    generated_at     text        NOT NULL,
    received_at      timestamptz NOT NULL,
    position         bigint      NOT NULL,
    revoked_at       timestamptz,
    PRIMARY KEY (shard, document_id, version),
    UNIQUE (shard, public_id)
);

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
);

-- New versions a UTC month (period is year * 100 + month); the row whose
-- company is the nil UUID is the organization's own total.
CREATE TABLE usage (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    period          integer NOT NULL,
    company_id      uuid    NOT NULL,
    used            bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id, period, company_id)
) WITH (fillfactor = 30);

-- Requests a minute. Not logged: losing it in a crash costs at most one minute's count.
CREATE UNLOGGED TABLE meters (
    shard   integer NOT NULL,
    subject uuid    NOT NULL,
    minute  bigint  NOT NULL,
    used    integer NOT NULL,
    PRIMARY KEY (shard, subject, minute)
) WITH (fillfactor = 30);

-- The same projections once more, for rebuild by difference: the identical
-- Apply writes here when search_path is rebuild, public.
CREATE SCHEMA rebuild;
CREATE TABLE rebuild.organization_state (LIKE organization_state INCLUDING ALL);
CREATE TABLE rebuild.members            (LIKE members INCLUDING ALL);
CREATE TABLE rebuild.api_keys           (LIKE api_keys INCLUDING ALL);
CREATE TABLE rebuild.companies          (LIKE companies INCLUDING ALL);
CREATE TABLE rebuild.grants             (LIKE grants INCLUDING ALL);
CREATE TABLE rebuild.documents          (LIKE documents INCLUDING ALL);
CREATE TABLE rebuild.identities         (LIKE identities INCLUDING ALL);
CREATE TABLE rebuild.feed               (LIKE feed INCLUDING ALL);
CREATE TABLE rebuild.usage              (LIKE usage INCLUDING ALL);

-- Nothing updates or deletes an event. A guard against mistakes: whoever owns
-- the tables can remove it.
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

-- Roles belong to the whole server, so another database of it may be making
-- this one at the same moment.
-- +goose StatementBegin
DO $$
BEGIN
    CREATE ROLE integrity_service NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;
-- +goose StatementEnd

GRANT USAGE ON SCHEMA public, rebuild TO integrity_service;
GRANT SELECT ON ledger TO integrity_service;
GRANT SELECT, INSERT ON events TO integrity_service;
GRANT SELECT, INSERT, UPDATE ON texts, shard_heads TO integrity_service;
GRANT SELECT, INSERT, UPDATE ON
    organization_state, members, api_keys, companies, grants, documents, identities, feed, usage
    TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON meters TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rebuild TO integrity_service;

-- +goose Down
DROP SCHEMA rebuild CASCADE;
DROP TABLE meters, usage, feed, identities, documents, grants, companies, api_keys, members,
    organization_state, texts, events, shard_heads, ledger;
DROP FUNCTION refuse_change();
