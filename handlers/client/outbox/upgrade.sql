-- Makes the table of before batches one of these: it knew no queue. Indexes and triggers follow with outbox.sql.
DROP INDEX integrity_outbox_due;
DROP TRIGGER integrity_outbox_immutable;
ALTER TABLE integrity_outbox RENAME TO integrity_outbox_before;
