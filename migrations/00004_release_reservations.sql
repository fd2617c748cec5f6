-- +goose Up

-- When the reservation of the version was last released. It stands released while its expires_at is that moment: a renewal
-- moves expires_at alone, so that a process of the version before this one renews it rightly too. Without meaning once the
-- version is registered.
ALTER TABLE versions ADD COLUMN released_at timestamptz;
ALTER TABLE rebuild.versions ADD COLUMN released_at timestamptz;
