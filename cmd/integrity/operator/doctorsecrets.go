package operator

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/handlers/oauth"
	"integrityledger/projections/queue"
)

// modes checks that only the service's user and groups can read the files of private keys and passwords.
func (d *doctor) modes() {
	for _, path := range d.cfg.SecretFiles() {
		if info, err := os.Stat(path); err == nil && keyfiles.Exposed(info) {
			d.fail(
				"keys", say.Sentencef("%s may be read by others (mode %04o)", path, info.Mode().Perm()),
				say.Sentencef("chmod 600, or 440 with a group of the service's user, and assume that others may have read it"),
			)
		}
	}
}

// secrets checks that the configured keys decrypt every stored secret.
func (d *doctor) secrets(ctx context.Context, pool *pgxpool.Pool, shards int) {
	const check = "webhooks"
	keys, err := d.cfg.SecretSource().SecretKeys()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // keys reports a missing file
		d.fail(check, said(err), say.Sentencef("correct the variable"))
		return
	}
	stored, err := queue.Secrets{Pool: pool, Shards: shards, Now: d.Now}.Stored(ctx)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "42501" {
		d.warn(check, said(err), remedy(err)) // integrity_reader does not read the codes of invitations
		return
	}
	if err != nil {
		d.fail(check, said(err), remedy(err))
		return
	}
	for _, id := range slices.Sorted(maps.Keys(stored)) {
		if !slices.Contains(keys.IDs(), id) {
			d.fail(
				check, say.Sentencef("%d secrets are encrypted with the key %s, which is not configured", stored[id], id),
				say.Sentencef(
					"add that key after the first one of INTEGRITY_SECRET_KEY, send SIGHUP and run integrity keys rotate-secret --reencrypt; if it is lost, rotate the secrets of these destinations",
				),
			)
		}
	}
}

// replica checks that the replica is a standby of this ledger's database.
func (d *doctor) replica(ctx context.Context, primary *pgx.Conn) error {
	const check = "replica"
	if d.cfg.ReplicaURL == "" {
		return nil
	}
	in, err := eventstore.ReadInstallation(ctx, primary)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	var theirs eventstore.Installation
	var standby bool
	conn, err := connect.Open(ctx, d.cfg.ReplicaURL)
	if err == nil {
		defer conn.Close(context.WithoutCancel(ctx))
		if err = conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err == nil {
			theirs, err = eventstore.ReadInstallation(ctx, conn)
		}
	}
	found := say.Sentencef("a standby of this ledger")
	if err != nil {
		found = said(cluster.Explain(d.cfg.GivenBy("REPLICA_URL"), err))
	}
	d.first(check, found,
		verdict{err != nil, stateWarn, found, say.Sentencef(
			"start the standby, or unset INTEGRITY_REPLICA_URL: until then the primary answers all reads",
		)},
		verdict{
			theirs.ID() != in.ID(), StateFail, say.Sentencef("INTEGRITY_REPLICA_URL names the database of another ledger"),
			say.Sentencef("name a standby of the database in INTEGRITY_DATABASE_URL: the service does not start with another " +
				"one"),
		},
		verdict{
			!standby, stateWarn, say.Sentencef("INTEGRITY_REPLICA_URL names a primary, so all reads stay on it"),
			say.Sentencef("name a standby; SELECT pg_is_in_recovery() answers true there"),
		})
	return nil
}

func (d *doctor) askOAuth(ctx context.Context) error {
	return oauth.New(oauth.Config{Issuer: d.cfg.OAuthIssuer, Now: d.Now}).Discover(ctx)
}
