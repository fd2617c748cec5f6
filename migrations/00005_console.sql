-- The console: who signs in, with what, and which sessions there are. Passkeys are a projection, like members; the other
-- tables are written by readers and workers, and hold secrets as hashes only.

-- +goose Up

-- What an address is looked up by at a sign-in: the SHA-256 of it in lower case; null once the address is erased. The
-- copy of the table in rebuild needs no index: nobody looks there.
ALTER TABLE members ADD COLUMN email_sha256 bytea;
ALTER TABLE rebuild.members ADD COLUMN email_sha256 bytea;
UPDATE members m SET email_sha256 = sha256(convert_to(lower(t.body COLLATE "C"), 'UTF8'))
    FROM texts t WHERE t.shard = m.shard AND t.organization_id = m.organization_id AND t.id = m.email_id AND t.body IS NOT NULL;
CREATE INDEX members_email ON members (shard, email_sha256);

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
CREATE UNLOGGED TABLE rebuild.passkeys (LIKE public.passkeys INCLUDING ALL);

-- When a passkey was last used, and the highest counter of its signatures. Not a projection: a sign-in is no event.
CREATE TABLE passkey_uses (
    shard        integer     NOT NULL,
    passkey_id   uuid        NOT NULL,
    sign_count   bigint      NOT NULL,
    last_used_at timestamptz NOT NULL,
    PRIMARY KEY (shard, passkey_id)
);

-- Sessions of the console. role is the member's when the session began: any other role ends the session.
CREATE TABLE console_sessions (
    shard           integer     NOT NULL,
    token_sha256    bytea       NOT NULL,
    session_id      uuid        NOT NULL, -- names it to its owner
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

-- Links that sign a person in, once. browser_sha256 is of the cookie of the browser that asked; null: any browser may use
-- the link. It is for whatever memberships the address has, or for the one that is named.
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

-- Challenges that an authenticator is to sign, each for one answer.
CREATE TABLE console_challenges (
    shard      integer     NOT NULL,
    id_sha256  bytea       NOT NULL,
    data       bytea       NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (shard, id_sha256)
);
CREATE INDEX console_challenges_expired ON console_challenges (shard, expires_at);

GRANT SELECT, INSERT, UPDATE ON passkeys, passkey_uses TO integrity_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON console_sessions, console_links, console_challenges, rebuild.passkeys TO integrity_service;
