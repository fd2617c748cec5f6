-- The witness: what this installation has cosigned of other logs (C2SP tlog-witness). Like the transparency log's, these
-- tables belong to no tenant, and on Citus they stay on the coordinator.

-- +goose Up

-- What was cosigned last of each log. Its row is locked while a checkpoint is judged, and its size never goes back.
CREATE TABLE witness_logs (
    origin      text COLLATE "C" NOT NULL PRIMARY KEY,
    size        bigint           NOT NULL CHECK (size >= 0),
    root        bytea            NOT NULL,
    note        text             NOT NULL, -- that was cosigned, with the log's own signatures; empty before the first
    cosigned_at timestamptz,
    epoch       bigint           NOT NULL -- the ledger's when the row was made, or last allowed to go on after a restore
) WITH (fillfactor = 10);

-- Proofs that a log has signed two histories: two checkpoints with its signatures that no one tree holds. The first of each
-- log are kept.
CREATE TABLE witness_split_views (
    origin   text COLLATE "C" NOT NULL,
    size     bigint           NOT NULL, -- of the checkpoint that was refused
    root     bytea            NOT NULL,
    cosigned text             NOT NULL, -- the signed note that it contradicts
    refused  text             NOT NULL, -- a signed note
    proof    text[]           NOT NULL, -- consistency proof to the refused checkpoint, of another root at the size of the cosigned one; empty where both have one size
    found_at timestamptz      NOT NULL,
    PRIMARY KEY (origin, size, root)
);

GRANT SELECT, INSERT, UPDATE ON witness_logs TO integrity_service;
GRANT SELECT, INSERT ON witness_split_views TO integrity_service;
