CREATE OR REPLACE FUNCTION documents_to_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes, mime_type)
    VALUES (NEW.company, 'billing', NEW.reference, NEW.version, NEW.sha256, NEW.size, 'application/pdf');
    RETURN NULL;
END $$;
CREATE TRIGGER documents_to_outbox AFTER INSERT ON documents FOR EACH ROW EXECUTE FUNCTION documents_to_outbox();
