-- An ordinary role must be able to take on the service role. Since PostgreSQL 16 the creator of a role is a member of it
-- that may admit others, itself included, and may not take it on: any membership is not enough.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    since_16 boolean := current_setting('server_version_num')::integer >= 160000;
    membership text := format('GRANT integrity_service TO %I', session_user) || CASE WHEN since_16 THEN ' WITH SET TRUE' ELSE '' END;
BEGIN
    -- pg_has_role knows SET only since then; before, every member may take a role on.
    IF NOT pg_has_role(session_user, 'integrity_service', CASE WHEN since_16 THEN 'SET' ELSE 'MEMBER' END) THEN
        EXECUTE membership;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE EXCEPTION 'the role % must be able to take on the role integrity_service, which another role of this server has made: let a superuser run %',
            quote_ident(session_user), membership USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd

-- +goose Down
SELECT 1;
