-- Former public ids: the version was registered again after its record was lost, and integrity heal made the lost public
-- id an alias of the record that stayed. position leads to the event with the signed statement.

-- +goose Up
CREATE TABLE aliases (
    shard           integer NOT NULL,
    public_id       uuid    NOT NULL,
    organization_id uuid    NOT NULL,
    alias_of        uuid    NOT NULL,
    position        bigint  NOT NULL,
    PRIMARY KEY (shard, public_id)
);

CREATE UNLOGGED TABLE rebuild.aliases (LIKE aliases INCLUDING ALL);

GRANT SELECT, INSERT, UPDATE ON aliases TO integrity_service;
GRANT SELECT ON aliases, rebuild.aliases TO integrity_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rebuild.aliases TO integrity_service;

-- +goose Down
DROP TABLE rebuild.aliases;
DROP TABLE aliases;
