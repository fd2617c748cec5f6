-- Search by hash. Only the first bytes of the hash stand in the index, which is
-- written at a random place by every registration and so must be narrow; a
-- record's id begins with its time and gives the order. Only readers need it, so
-- the schema rebuild has none.

-- +goose Up
CREATE INDEX identities_sha256 ON identities (shard, organization_id, substring(sha256 from 1 for 6), record_id)
    WHERE record_id IS NOT NULL;

-- +goose Down
DROP INDEX identities_sha256;
