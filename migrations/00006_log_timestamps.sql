-- +goose Up

-- Tokens of time-stamping authorities (RFC 3161) over checkpoints of the transparency log. No event gives them and no rebuild
-- writes them; a row is never changed. On Citus they stay on the coordinator, as the tree does.
CREATE TABLE log_timestamps (
    tree_size  bigint           NOT NULL, -- of the checkpoint
    authority  text COLLATE "C" NOT NULL, -- as the trusted-keys file names it
    gen_time   timestamptz      NOT NULL, -- that the token states
    checkpoint text             NOT NULL, -- signed by the log alone; the token is over the SHA-256 of exactly these bytes
    token      bytea            NOT NULL, -- the DER of a TimeStampToken
    PRIMARY KEY (authority, tree_size)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX log_timestamps_size ON log_timestamps (tree_size, authority);
GRANT SELECT, INSERT ON log_timestamps TO integrity_service;
