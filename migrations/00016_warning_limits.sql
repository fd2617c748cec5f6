-- +goose Up

-- The limit that the warnings of an allowance belong to, and what was used at each. Without a value the warnings are of any
-- limit of the month: those of programs that do not know the rule warnings-by-limit, which write none of these columns.
ALTER TABLE organization_state ADD COLUMN warned_limit bigint, ADD COLUMN warned_used_80 bigint,
    ADD COLUMN warned_used_95 bigint, ADD COLUMN warned_used_100 bigint;
ALTER TABLE rebuild.organization_state ADD COLUMN warned_limit bigint, ADD COLUMN warned_used_80 bigint,
    ADD COLUMN warned_used_95 bigint, ADD COLUMN warned_used_100 bigint;
ALTER TABLE allowance_warnings ADD COLUMN of_limit bigint, ADD COLUMN used_80 bigint, ADD COLUMN used_95 bigint,
    ADD COLUMN used_100 bigint;
ALTER TABLE rebuild.allowance_warnings ADD COLUMN of_limit bigint, ADD COLUMN used_80 bigint, ADD COLUMN used_95 bigint,
    ADD COLUMN used_100 bigint;

-- When webhook attempts reached each part of the month's allowance, and of which, as request_usage has it.
ALTER TABLE webhook_usage ADD COLUMN reached_80 timestamptz, ADD COLUMN reached_95 timestamptz,
    ADD COLUMN reached_100 timestamptz, ADD COLUMN limit_80 bigint, ADD COLUMN limit_95 bigint, ADD COLUMN limit_100 bigint;
CREATE INDEX webhook_usage_reached ON webhook_usage (shard, period, organization_id) WHERE reached_80 IS NOT NULL;
