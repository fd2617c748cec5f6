-- The index of due deliveries answers only a statement that names destinations.
-- Without its condition a look-up of one delivery by its key could be planned as a
-- walk over a shard's whole queue: PostgreSQL 17 and later take the fill factor into
-- account for tables without statistics, and then expect a single row there.

-- +goose Up
CREATE INDEX webhook_deliveries_webhook_due ON webhook_deliveries (shard, webhook_id, due_at) WHERE webhook_id IS NOT NULL;
-- The previous version's statements find the new index: they name destinations wherever they used the old one.
-- unused since 00018
DROP INDEX webhook_deliveries_due;

-- +goose Down
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (shard, webhook_id, due_at);
DROP INDEX webhook_deliveries_webhook_due;
