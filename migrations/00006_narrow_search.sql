-- The index of the search by hash is written at a random place by every
-- registration, so it holds only what finds the rows: a part of the hash. The few
-- rows found are filtered and sorted when somebody searches.

-- +goose Up
DROP INDEX public.identities_sha256;
CREATE INDEX identities_sha256 ON public.identities (shard, substring(sha256 from 1 for 6)) WHERE record_id IS NOT NULL;

-- +goose Down
DROP INDEX public.identities_sha256;
CREATE INDEX identities_sha256 ON public.identities (shard, organization_id, substring(sha256 from 1 for 6), record_id)
    WHERE record_id IS NOT NULL;
