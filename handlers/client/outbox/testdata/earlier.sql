CREATE TABLE IF NOT EXISTS integrity_outbox (
    id                 INTEGER PRIMARY KEY,
    company_reference  TEXT    NOT NULL,
    source             TEXT    NOT NULL,
    document_reference TEXT    NOT NULL,
    version            INTEGER NOT NULL,
    declaration        TEXT    NOT NULL, -- the bytes that are sent, every time
    state              TEXT    NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'registered', 'done', 'stopped')),
    attempts           INTEGER NOT NULL DEFAULT 0,
    due_at             INTEGER NOT NULL, -- milliseconds of Unix time
    response           TEXT, -- the record, as registered
    evidence           TEXT, -- as the service gave it
    problem            TEXT, -- of the last attempt that failed
    UNIQUE (company_reference, source, document_reference, version)
);
CREATE INDEX IF NOT EXISTS integrity_outbox_due ON integrity_outbox (due_at, id) WHERE state IN ('waiting', 'sent', 'registered');
CREATE TRIGGER IF NOT EXISTS integrity_outbox_immutable BEFORE UPDATE OF company_reference, source, document_reference, version, declaration ON integrity_outbox
BEGIN SELECT RAISE(ABORT, 'a declaration is never changed'); END;
