CREATE TABLE held (
    company     TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    document    TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    public_id   TEXT    NOT NULL, -- empty: no input says it
    received_at INTEGER NOT NULL, -- microseconds of Unix time; without a receipt the latest
    place       TEXT    NOT NULL,
    receipt     BLOB,             -- payload, keyId, signature and references
    declaration BLOB,
    revoked     INTEGER NOT NULL,
    PRIMARY KEY (company, source, document, version, received_at, public_id)
) WITHOUT ROWID;
CREATE INDEX held_id ON held (company, source, document, version, public_id);
