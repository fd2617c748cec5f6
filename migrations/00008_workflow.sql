-- The older workflow: artifacts with their versions, analyses, reviews,
-- approvals and certificates; what it knows of an organization; the queue of
-- erasures; claims of Idempotency-Keys.

-- +goose Up

-- Retention and file credits of an organization; no row means neither.
CREATE TABLE artifact_accounts (
    shard           integer NOT NULL,
    organization_id uuid    NOT NULL,
    retention_days  integer NOT NULL, -- 0: bytes are not kept
    credits         bigint  NOT NULL,
    PRIMARY KEY (shard, organization_id)
);

-- Registrations of a UTC month (year * 100 + month) out of its allowance; those
-- out of credits are not in it.
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
    key             text        NOT NULL,
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
    key_id          text        NOT NULL,
    signature       text        NOT NULL,
    issued_at       timestamptz NOT NULL,
    revoked_at      timestamptz,
    replaced_at     timestamptz,
    replaced_by     uuid,
    PRIMARY KEY (shard, public_id),
    UNIQUE (shard, version_id)
);

-- +goose StatementBegin
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['artifact_accounts', 'artifact_usage', 'artifacts', 'artifact_versions', 'analyses', 'detector_runs',
            'reviews', 'approvals', 'certificates'] LOOP
        EXECUTE format('CREATE TABLE rebuild.%1$I (LIKE public.%1$I INCLUDING ALL)', t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE ON public.%I TO integrity_service', t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON rebuild.%I TO integrity_service', t);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- A queue, not a projection: bytes in the blob store that are to be erased when
-- they are due. A row is written before its bytes, due soon, so that what was
-- never committed goes too; due_at is also the worker's lease.
CREATE TABLE kept_contents (
    shard           integer     NOT NULL,
    version_id      uuid        NOT NULL,
    organization_id uuid        NOT NULL,
    artifact_id     uuid        NOT NULL,
    due_at          timestamptz NOT NULL,
    PRIMARY KEY (shard, version_id)
);
CREATE INDEX kept_contents_due ON kept_contents (shard, due_at);

-- Idempotency-Keys. Whoever holds the token has the claim until lease_until; a
-- finished request has an answer.
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
);
CREATE INDEX idempotency_keys_created ON idempotency_keys (shard, created_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON kept_contents, idempotency_keys TO integrity_service;

-- +goose Down
DROP TABLE idempotency_keys, kept_contents;
DROP TABLE rebuild.certificates, rebuild.approvals, rebuild.reviews, rebuild.detector_runs, rebuild.analyses,
    rebuild.artifact_versions, rebuild.artifacts, rebuild.artifact_usage, rebuild.artifact_accounts;
DROP TABLE certificates, approvals, reviews, detector_runs, analyses, artifact_versions, artifacts, artifact_usage, artifact_accounts;
