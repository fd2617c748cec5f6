-- Names, makers and networks of API keys, and invitations of members.

-- +goose Up

-- network keeps the first of several networks, so that a previous version that still runs lets fewer requests in, not more.
ALTER TABLE api_keys ADD COLUMN name_id uuid, ADD COLUMN networks text[], ADD COLUMN created_by text;
ALTER TABLE members ADD COLUMN invitation_sha256 bytea, ADD COLUMN invited_until timestamptz;
ALTER TABLE rebuild.api_keys ADD COLUMN name_id uuid, ADD COLUMN networks text[], ADD COLUMN created_by text;
ALTER TABLE rebuild.members ADD COLUMN invitation_sha256 bytea, ADD COLUMN invited_until timestamptz;

-- Pages of an organization's keys.
CREATE INDEX api_keys_organization_key ON api_keys (shard, organization_id, key_id);

-- The keys that are there were made by the actors of their events, whose subjects are the ids of the keys as TypeIDs: 26
-- characters of five bits each, the first of which has two bits of padding.
UPDATE api_keys k SET created_by = e.actor
FROM events e
WHERE e.shard = k.shard AND e.organization_id = k.organization_id AND e.type <> 'integrity.registered' AND e.type = 'key.created'
    AND e.subject = 'key_' || (
        SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + substr('00' || ('x' || replace(k.key_id::text, '-', ''))::bit(128)::text, 5 * n - 4, 5)::bit(5)::integer, 1), '' ORDER BY n)
        FROM generate_series(1, 26) AS n);

-- A queue, which no rebuild writes: the codes of invitations that are to be mailed, sealed with the service's secret key. A
-- row goes as soon as its mail is sent, or its invitation has ended or was made again. due_at is also the lease of the
-- worker that takes the row.
CREATE TABLE invitation_mails (
    shard           integer     NOT NULL,
    mail_id         uuid        NOT NULL, -- the event's id
    organization_id uuid        NOT NULL,
    member_id       uuid        NOT NULL,
    secret_sha256   bytea       NOT NULL, -- that of the invitation
    sealed          bytea       NOT NULL,
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    attempts        integer     NOT NULL,
    PRIMARY KEY (shard, mail_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX invitation_mails_due ON invitation_mails (shard, due_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON invitation_mails TO integrity_service;
