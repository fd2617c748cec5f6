-- OAuth: links between members and identities of an external provider are
-- projections of the log.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    s text;
BEGIN
    FOREACH s IN ARRAY ARRAY['public', 'rebuild'] LOOP
        EXECUTE format('CREATE TABLE %I.oauth_links (
            shard           integer     NOT NULL,
            link_id         uuid        NOT NULL,
            organization_id uuid        NOT NULL,
            member_id       uuid        NOT NULL,
            secret_sha256   bytea       NOT NULL,
            scopes          text[]      NOT NULL,
            created_at      timestamptz NOT NULL,
            expires_at      timestamptz NOT NULL, -- of the code
            identity        bytea,                -- null until the link is redeemed
            consented       text[],
            linked_at       timestamptz,
            withdrawn_at    timestamptz,
            PRIMARY KEY (shard, link_id))', s);
        EXECUTE format('CREATE INDEX oauth_links_organization ON %I.oauth_links (shard, organization_id, link_id)', s);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Which link an identity is to be looked for in. A reference table, never written
-- in a group: the row is written before the event that redeems the link, so every
-- redeemed link has had its row. It gives no right by itself: whoever finds it asks the link.
CREATE TABLE oauth_identities (
    identity        bytea       NOT NULL PRIMARY KEY,
    organization_id uuid        NOT NULL,
    link_id         uuid        NOT NULL,
    claimed_at      timestamptz NOT NULL
);

GRANT SELECT, INSERT, UPDATE ON oauth_links, oauth_identities TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON rebuild.oauth_links TO integrity_service;

-- +goose Down
DROP TABLE oauth_identities;
DROP TABLE rebuild.oauth_links, oauth_links;
