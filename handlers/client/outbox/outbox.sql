CREATE TABLE IF NOT EXISTS integrity_outbox (
    id                 INTEGER PRIMARY KEY,
    company_reference  TEXT    NOT NULL,
    source             TEXT    NOT NULL,
    document_reference TEXT    NOT NULL,
    version            INTEGER NOT NULL,
    declaration        TEXT    NOT NULL, -- the bytes that are sent, every time
    state              TEXT    NOT NULL CHECK (state IN ('queued', 'waiting', 'sent', 'registered', 'done', 'stopped', 'abandoned')),
    attempts           INTEGER NOT NULL DEFAULT 0,
    due_at             INTEGER NOT NULL, -- milliseconds of Unix time
    response           TEXT, -- the record, as registered
    evidence           TEXT, -- as the service gave it
    problem            TEXT, -- of the last attempt that failed
    UNIQUE (company_reference, source, document_reference, version)
);
CREATE INDEX IF NOT EXISTS integrity_outbox_to_send ON integrity_outbox (due_at, id) WHERE state IN ('waiting', 'sent');
CREATE INDEX IF NOT EXISTS integrity_outbox_to_export ON integrity_outbox (due_at, id) WHERE state = 'registered';
-- A document has one version at most that is to be sent, is under way or has stopped; those behind it are queued.
CREATE UNIQUE INDEX IF NOT EXISTS integrity_outbox_first ON integrity_outbox (company_reference, source, document_reference)
    WHERE response IS NULL AND state IN ('waiting', 'sent', 'stopped');
CREATE INDEX IF NOT EXISTS integrity_outbox_queue ON integrity_outbox (company_reference, source, document_reference, id) WHERE state = 'queued';
CREATE TRIGGER IF NOT EXISTS integrity_outbox_next AFTER UPDATE OF state ON integrity_outbox
WHEN OLD.response IS NULL AND OLD.state <> 'abandoned' AND (NEW.response IS NOT NULL OR NEW.state = 'abandoned')
BEGIN
    UPDATE integrity_outbox SET state = CASE attempts WHEN 0 THEN 'waiting' ELSE 'sent' END WHERE id = (
        SELECT id FROM integrity_outbox
        WHERE state = 'queued' AND company_reference = NEW.company_reference AND source = NEW.source AND document_reference = NEW.document_reference
        ORDER BY id LIMIT 1);
END;
CREATE TRIGGER IF NOT EXISTS integrity_outbox_immutable BEFORE UPDATE OF company_reference, source, document_reference, version, declaration ON integrity_outbox
BEGIN SELECT RAISE(ABORT, 'a declaration is never changed'); END;
