CREATE TABLE IF NOT EXISTS origin ( -- one row: what stands in documents cannot change under them
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    service TEXT NOT NULL,
    company TEXT NOT NULL,
    source  TEXT NOT NULL,
    public  TEXT NOT NULL -- where the downloads are
);
CREATE TABLE IF NOT EXISTS documents (
    number       INTEGER PRIMARY KEY, -- of the emission, from 1
    reference    TEXT    NOT NULL UNIQUE,
    version      INTEGER NOT NULL,
    token        TEXT    NOT NULL UNIQUE, -- of the download
    allocated_at INTEGER NOT NULL -- milliseconds of Unix time, as all times here
);
CREATE TABLE IF NOT EXISTS files (
    number           INTEGER PRIMARY KEY REFERENCES documents (number),
    pdf              BLOB    NOT NULL,
    sha256           TEXT    NOT NULL,
    verification_url TEXT    NOT NULL, -- empty: emitted without
    finalized_at     INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS deliveries (
    number       INTEGER PRIMARY KEY REFERENCES files (number),
    delivered_at INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS files_update BEFORE UPDATE ON files BEGIN SELECT RAISE(ABORT, 'a finalized document is never changed'); END;
CREATE TRIGGER IF NOT EXISTS files_delete BEFORE DELETE ON files BEGIN SELECT RAISE(ABORT, 'a finalized document is never deleted'); END;
