-- +goose Up

-- The IDs of the keys with which a process encrypts (the first) and decrypts webhook secrets: a key may be rotated once
-- every process knows the new one. Older programs list none.
ALTER TABLE processes ADD COLUMN secret_keys text[] NOT NULL DEFAULT '{}';
