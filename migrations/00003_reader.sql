-- The role of auditors: it reads the log, the projections and the transparency log, and changes nothing. It does not
-- read queues and credentials: answers kept for Idempotency-Key, mails, sign-in links and console sessions.

-- +goose Up

-- +goose StatementBegin
DO $$
BEGIN
    CREATE ROLE integrity_reader NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        -- The role may exist: the right to create roles is checked first.
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'integrity_reader') THEN
            RAISE EXCEPTION 'the role % may not create the role integrity_reader: let a superuser run CREATE ROLE '
                'integrity_reader NOLOGIN', quote_ident(session_user) USING ERRCODE = 'insufficient_privilege';
        END IF;
END
$$;
-- +goose StatementEnd

GRANT USAGE ON SCHEMA public, rebuild TO integrity_reader;
GRANT SELECT ON
    ledger, applied_migrations, processes, shard_heads, events, texts, operator_acts, consumers,
    organization_state, members, companies, api_keys, api_key_uses, grants, passkeys, passkey_uses, oauth_links,
    documents, versions, feed, usage, allowance_warnings, administrative_usage, request_usage, meters, traffic,
    webhooks, company_webhooks, webhook_usage, webhook_health,
    artifact_accounts, artifact_usage, artifacts, artifact_versions, analyses, detector_runs, reviews,
    approvals, certificates, kept_contents,
    transparency_tree, transparency_tiles, transparency_runs, transparency_checkpoint, transparency_cosignatures,
    transparency_keys, log_timestamps, witness_logs, witness_split_views
    TO integrity_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA rebuild TO integrity_reader;
