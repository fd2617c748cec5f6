package pgtest

import (
	"net/url"
	"os"
	"testing"

	"integrityledger/eventstore/postgres"
)

// PasswordRole is a role that logs in only with its password, on its own server, and owns a database there.
type PasswordRole struct {
	Superuser string // URL of the role's database as a superuser, who needs no password
	name      string
	server    *postgres.Server
}

// NewPasswordRole starts a server and creates the role there. A role whose name ends in _b beside it needs its password
// too.
func NewPasswordRole(t testing.TB, name, password string) *PasswordRole {
	t.Helper()
	r := &PasswordRole{name: name, server: StartMortal(t, ClusterDir(t), nil)}
	Exec(t, r.server.URL(postgres.Database), "CREATE ROLE "+name+" LOGIN CREATEROLE PASSWORD '"+password+"'")
	Exec(t, r.server.URL(postgres.Database), "CREATE DATABASE "+name+" OWNER "+name)
	r.Superuser = r.edit(t, func(u *url.URL) { u.Path = "/" + name })
	file, err := Ask[string](r.Superuser, "SELECT current_setting('hba_file')")
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	rules, err := os.ReadFile(file)
	if err == nil {
		// The file keeps its owner.
		err = os.WriteFile(file, append([]byte("local all "+name+","+name+"_b scram-sha-256\n"), rules...), 0o600) //nolint:gosec // the test's own server named it
	}
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	Exec(t, r.Superuser, "SELECT pg_reload_conf()")
	open := r.edit(t, func(u *url.URL) { u.Path = "/" + name; setQuery(u, "user", name) })
	Eventually(t, "the server asks for a password", func() (bool, error) {
		_, err := Ask[int](open, "SELECT 1")
		return err != nil, nil
	})
	return r
}

// URL returns the URL of the role's database with the role and a password. more are further parameters, in pairs.
func (r *PasswordRole) URL(t testing.TB, password string, more ...string) string {
	t.Helper()
	return r.edit(t, func(u *url.URL) {
		u.Path = "/" + r.name
		setQuery(u, "user", r.name)
		if password != "" {
			setQuery(u, "password", password)
		}
		for i := 0; i+1 < len(more); i += 2 {
			setQuery(u, more[i], more[i+1])
		}
	})
}

// Rotate changes the role's password.
func (r *PasswordRole) Rotate(t testing.TB, password string) {
	t.Helper()
	Exec(t, r.Superuser, "ALTER ROLE "+r.name+" PASSWORD '"+password+"'")
}

func (r *PasswordRole) edit(t testing.TB, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(r.server.URL(postgres.Database))
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	change(u)
	return u.String()
}

func setQuery(u *url.URL, name, value string) {
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
}
