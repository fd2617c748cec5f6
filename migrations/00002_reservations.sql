-- Reservations: a version identity may exist before it is registered. The same
-- row is both, so that reservation and version cannot disagree: the columns of a
-- registration are null until it comes, and expires_at is null from then on.
-- Besides, the index of the search by hash.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    s text;
BEGIN
    FOREACH s IN ARRAY ARRAY['public', 'rebuild'] LOOP
        EXECUTE format('ALTER TABLE %I.identities
            ALTER COLUMN record_id DROP NOT NULL,
            ALTER COLUMN sha256 DROP NOT NULL,
            ALTER COLUMN size_bytes DROP NOT NULL,
            ALTER COLUMN mime_type DROP NOT NULL,
            ALTER COLUMN generated_at DROP NOT NULL,
            ALTER COLUMN received_at DROP NOT NULL,
            ALTER COLUMN position DROP NOT NULL,
            ADD COLUMN expires_at timestamptz,
            ADD CONSTRAINT identities_reserved_or_registered CHECK (CASE WHEN record_id IS NULL
                THEN expires_at IS NOT NULL AND num_nonnulls(previous_version, sha256, size_bytes, mime_type, generated_at, received_at, position, revoked_at) = 0
                ELSE expires_at IS NULL AND num_nulls(sha256, size_bytes, mime_type, generated_at, received_at, position) = 0 END)', s);

        -- What is counted against the limit of active reservations.
        EXECUTE format('CREATE INDEX identities_pending ON %I.identities (shard, organization_id, expires_at) WHERE record_id IS NULL', s);

        EXECUTE format('ALTER TABLE %I.organization_state
            ADD COLUMN unfinalized integer NOT NULL DEFAULT 0,
            ADD COLUMN unfinalized_limit integer', s);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Only the first bytes of the hash stand in the index, which is written at a
-- random place by every registration and so must be narrow; a record's id begins
-- with its time and gives the order. Only readers need it, so the schema rebuild
-- has none.
CREATE INDEX identities_sha256 ON public.identities (shard, organization_id, substring(sha256 from 1 for 6), record_id)
    WHERE record_id IS NOT NULL;

-- +goose Down
DROP INDEX public.identities_sha256;
-- +goose StatementBegin
DO $$
DECLARE
    s text;
BEGIN
    FOREACH s IN ARRAY ARRAY['public', 'rebuild'] LOOP
        EXECUTE format('ALTER TABLE %I.organization_state DROP COLUMN unfinalized_limit, DROP COLUMN unfinalized', s);
        EXECUTE format('DROP INDEX %I.identities_pending', s);
        EXECUTE format('DELETE FROM %I.identities WHERE record_id IS NULL', s);
        EXECUTE format('ALTER TABLE %I.identities
            DROP CONSTRAINT identities_reserved_or_registered,
            DROP COLUMN expires_at,
            ALTER COLUMN record_id SET NOT NULL,
            ALTER COLUMN sha256 SET NOT NULL,
            ALTER COLUMN size_bytes SET NOT NULL,
            ALTER COLUMN mime_type SET NOT NULL,
            ALTER COLUMN generated_at SET NOT NULL,
            ALTER COLUMN received_at SET NOT NULL,
            ALTER COLUMN position SET NOT NULL', s);
    END LOOP;
END
$$;
-- +goose StatementEnd
