-- When a company was closed, and the keys that may use a company, in the order of their ids.

-- +goose Up

ALTER TABLE companies ADD COLUMN closed_at timestamptz;
ALTER TABLE rebuild.companies ADD COLUMN closed_at timestamptz;

CREATE INDEX grants_company ON grants (shard, company_id, key_id);
CREATE INDEX grants_company ON rebuild.grants (shard, company_id, key_id);

-- +goose Down

DROP INDEX rebuild.grants_company;
DROP INDEX grants_company;
ALTER TABLE rebuild.companies DROP COLUMN closed_at;
ALTER TABLE companies DROP COLUMN closed_at;
