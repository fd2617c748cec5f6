-- What the last attempt of a delivery brought, for the members who manage destinations: up to 1,024 bytes of the answer's
-- body, null without an answer, and the time it took. Both go with the row, which the log keeps for 30 days.

-- +goose Up
ALTER TABLE webhook_deliveries ADD COLUMN answer bytea, ADD COLUMN took_ms integer;
ALTER TABLE webhook_log ADD COLUMN answer bytea, ADD COLUMN took_ms integer;

-- +goose Down
ALTER TABLE webhook_log DROP COLUMN took_ms, DROP COLUMN answer;
ALTER TABLE webhook_deliveries DROP COLUMN took_ms, DROP COLUMN answer;
