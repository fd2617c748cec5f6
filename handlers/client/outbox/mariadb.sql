CREATE TABLE IF NOT EXISTS integrity_outbox (
    id                 bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- The declaration, which your program writes.
    company_reference  varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        CHECK (company_reference RLIKE '^[A-Za-z0-9][A-Za-z0-9._:-]*\\z'),
    source             varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        CHECK (source RLIKE '^[A-Za-z0-9][A-Za-z0-9._:-]*\\z'),
    document_reference varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        CHECK (document_reference RLIKE '^[A-Za-z0-9][A-Za-z0-9._:-]*\\z'),
    version            int NOT NULL CHECK (version >= 1),
    previous_version   int,
    sha256             varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL CHECK (sha256 RLIKE '^[0-9A-Fa-f]{64}\\z'),
    size_bytes         bigint NOT NULL CHECK (size_bytes BETWEEN 0 AND 9007199254740991),
    mime_type          varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'application/octet-stream',
    generated_at       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        DEFAULT (DATE_FORMAT(UTC_TIMESTAMP(3), '%Y-%m-%dT%H:%i:%s.%fZ')),
    reservation_id     varchar(26) CHARACTER SET ascii COLLATE ascii_bin,
    -- The outcome, which the worker writes. Times are in UTC.
    state              varchar(10) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'registered', 'conflict', 'refused')),
    attempts           int NOT NULL DEFAULT 0,
    next_attempt_at    datetime(3) DEFAULT (UTC_TIMESTAMP(3)),
    sent_at            datetime(3), -- of the last attempt while its outcome is unknown
    lease_token        varchar(26) CHARACTER SET ascii COLLATE ascii_bin, -- of the worker that holds the row
    lease_until        datetime(3),
    public_id          varchar(26) CHARACTER SET ascii COLLATE ascii_bin,
    verification_url   text CHARACTER SET utf8mb4,
    record             mediumtext CHARACTER SET utf8mb4,
    evidence           mediumtext CHARACTER SET utf8mb4,
    error_code         varchar(64) CHARACTER SET ascii COLLATE ascii_bin,
    error_detail       text CHARACTER SET utf8mb4,
    registered_at      datetime(3),
    evidence_at        datetime(3),
    UNIQUE KEY integrity_outbox_identity (company_reference, source, document_reference, version),
    KEY integrity_outbox_due (state, evidence_at, id),
    KEY integrity_outbox_versions (company_reference, source, document_reference, state, version),
    CHECK (previous_version IS NULL OR previous_version >= 1 AND previous_version < version)
) ENGINE=InnoDB;
DELIMITER //
CREATE OR REPLACE TRIGGER integrity_outbox_immutable BEFORE UPDATE ON integrity_outbox FOR EACH ROW
IF (OLD.attempts > 0 OR OLD.lease_token IS NOT NULL) AND NOT (OLD.company_reference <=> NEW.company_reference AND OLD.source <=> NEW.source
    AND OLD.document_reference <=> NEW.document_reference AND OLD.version <=> NEW.version
    AND OLD.previous_version <=> NEW.previous_version AND OLD.sha256 <=> NEW.sha256 AND OLD.size_bytes <=> NEW.size_bytes
    AND OLD.mime_type <=> NEW.mime_type AND OLD.generated_at <=> NEW.generated_at
    AND OLD.reservation_id <=> NEW.reservation_id)
THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a declaration is never changed after it was sent'; END IF//
DELIMITER ;
