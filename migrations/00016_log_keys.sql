-- The keys of the transparency log. After a restore the log goes on as another history only under a key that was made
-- after that restore; every other key that may have signed the lost history is barred.

-- +goose Up
CREATE TABLE log_keys (
    key    text COLLATE "C" NOT NULL PRIMARY KEY, -- name+key hash, as a signed note names it
    epoch  bigint           NOT NULL,             -- the ledger's when the key became known
    made   boolean          NOT NULL,             -- after the restore that began this epoch: it cannot have signed what was lost
    barred boolean          NOT NULL              -- may have signed another history than the tree's: it signs no more
);

GRANT SELECT, INSERT, UPDATE ON log_keys TO integrity_service;

-- +goose Down
DROP TABLE log_keys;
