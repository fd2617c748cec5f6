CREATE TABLE IF NOT EXISTS integrity_outbox (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The declaration, which your program writes.
    company_reference  TEXT NOT NULL CHECK (length(company_reference) <= 128 AND company_reference GLOB '[A-Za-z0-9]*'
        AND company_reference NOT GLOB '*[^A-Za-z0-9._:-]*'),
    source             TEXT NOT NULL CHECK (length(source) <= 128 AND source GLOB '[A-Za-z0-9]*'
        AND source NOT GLOB '*[^A-Za-z0-9._:-]*'),
    document_reference TEXT NOT NULL CHECK (length(document_reference) <= 128 AND document_reference GLOB '[A-Za-z0-9]*'
        AND document_reference NOT GLOB '*[^A-Za-z0-9._:-]*'),
    version            INTEGER NOT NULL CHECK (typeof(version) = 'integer' AND version BETWEEN 1 AND 2147483647),
    previous_version   INTEGER CHECK (previous_version >= 1 AND previous_version < version),
    sha256             TEXT NOT NULL CHECK (length(sha256) = 64 AND sha256 NOT GLOB '*[^0-9A-Fa-f]*'),
    size_bytes         INTEGER NOT NULL CHECK (typeof(size_bytes) = 'integer' AND size_bytes BETWEEN 0 AND 9007199254740991),
    mime_type          TEXT NOT NULL DEFAULT 'application/octet-stream' CHECK (length(mime_type) <= 255),
    generated_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) CHECK (length(generated_at) <= 64),
    reservation_id     TEXT,
    -- The outcome, which the worker writes. Times are in UTC, in the form of generated_at.
    state              TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'registered', 'conflict', 'refused')),
    attempts           INTEGER NOT NULL DEFAULT 0,
    next_attempt_at    TEXT DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    sent_at            TEXT, -- of the last attempt while its outcome is unknown
    lease_token        TEXT, -- of the worker that holds the row
    lease_until        TEXT,
    public_id          TEXT,
    verification_url   TEXT,
    record             TEXT,
    evidence           TEXT,
    error_code         TEXT,
    error_detail       TEXT,
    registered_at      TEXT,
    evidence_at        TEXT,
    UNIQUE (company_reference, source, document_reference, version)
);
CREATE INDEX IF NOT EXISTS integrity_outbox_pending ON integrity_outbox (id) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS integrity_outbox_evidence ON integrity_outbox (id) WHERE state = 'registered' AND evidence_at IS NULL;
CREATE INDEX IF NOT EXISTS integrity_outbox_versions ON integrity_outbox (company_reference, source, document_reference, version)
    WHERE state = 'pending';
CREATE TRIGGER IF NOT EXISTS integrity_outbox_immutable BEFORE UPDATE OF company_reference, source, document_reference, version,
    previous_version, sha256, size_bytes, mime_type, generated_at, reservation_id ON integrity_outbox
    WHEN OLD.attempts > 0 OR OLD.lease_token IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a declaration is never changed after it was sent'); END;
