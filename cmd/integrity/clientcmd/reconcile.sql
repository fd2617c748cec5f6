CREATE TABLE IF NOT EXISTS cursor (
    one               INTEGER PRIMARY KEY CHECK (one = 1),
    service           TEXT    NOT NULL,
    company_reference TEXT    NOT NULL, -- empty: all companies of the key
    sequence          INTEGER NOT NULL, -- of the last event that was read
    epoch             INTEGER NOT NULL  -- of the service; raised when it was restored from a backup
);
CREATE TABLE IF NOT EXISTS events (
    id                 TEXT    PRIMARY KEY,
    sequence           INTEGER NOT NULL,
    type               TEXT    NOT NULL,
    occurred_at        TEXT    NOT NULL,
    public_id          TEXT    NOT NULL,
    source             TEXT    NOT NULL,
    document_reference TEXT    NOT NULL,
    version            INTEGER NOT NULL,
    record_status      TEXT    NOT NULL, -- right after the event
    event              TEXT    NOT NULL, -- JSON as the service gave it
    confirmed          INTEGER NOT NULL  -- 0: the service does not have it any more
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS events_sequence ON events (sequence);
DROP INDEX IF EXISTS events_version; -- of an earlier release
CREATE INDEX IF NOT EXISTS events_company
    ON events (json_extract(event, '$.companyReference'), source, document_reference, version, sequence);
BEGIN IMMEDIATE;
DROP VIEW IF EXISTS versions; -- in copies of an earlier release it lacks columns
CREATE VIEW versions AS
    SELECT json_extract(event, '$.companyReference') AS company_reference, source, document_reference, version, public_id,
        record_status, max(sequence) AS sequence, occurred_at AS changed_at,
        json_extract(event, '$.sha256') AS sha256 -- as declared; null if an earlier service gave the event
    FROM events WHERE confirmed = 1 GROUP BY 1, source, document_reference, version;
COMMIT;
