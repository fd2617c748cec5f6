-- The last failure of each witness, so that every server shows it, whichever one asked the witness.

-- +goose Up
CREATE TABLE transparency_refusals (
    witness    text COLLATE "C" NOT NULL PRIMARY KEY, -- its verifier key
    size       bigint           NOT NULL,             -- of the checkpoint that it did not cosign
    reason     text             NOT NULL,
    refused_at timestamptz      NOT NULL
) WITH (fillfactor = 10);

GRANT SELECT, INSERT, UPDATE, DELETE ON transparency_refusals TO integrity_service;
GRANT SELECT ON transparency_refusals TO integrity_reader;

-- +goose Down
DROP TABLE transparency_refusals;
