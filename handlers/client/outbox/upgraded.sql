INSERT INTO integrity_outbox SELECT id, company_reference, source, document_reference, version, declaration,
    CASE WHEN response IS NULL AND EXISTS (
        SELECT 1 FROM integrity_outbox_before AS e
        WHERE e.company_reference = b.company_reference AND e.source = b.source AND e.document_reference = b.document_reference
            AND e.id < b.id AND e.response IS NULL) THEN 'queued' ELSE state END,
    attempts, due_at, response, evidence, problem FROM integrity_outbox_before AS b;
DROP TABLE integrity_outbox_before;
