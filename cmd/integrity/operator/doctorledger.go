package operator

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/transparency"
	"integrityledger/migrations"
)

// ledger checks that the database holds a ledger, and that it is intact.
func (d *doctor) ledger(ctx context.Context, conn *pgx.Conn, url string) error {
	const check = "ledger"
	var issuer string
	var shards int
	var epoch int64
	err := conn.QueryRow(ctx, "SELECT issuer, shards, epoch FROM ledger WHERE id = 1").Scan(&issuer, &shards, &epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		d.warn(
			check, say.Sentencef("this database has none yet"),
			say.Sentencef("integrity migrate with INTEGRITY_ISSUER, or start the service"),
		)
		return nil
	}
	if err != nil {
		return say.Errorf("read the ledger row: %w", err)
	}
	d.issuer = issuer
	d.first(check, say.Sentencef("issuer %s, %d shards, epoch %d", issuer, shards, epoch),
		verdict{
			d.cfg.Issuer != "" && d.cfg.Issuer != issuer, StateFail,
			say.Sentencef("its issuer is %q, but INTEGRITY_ISSUER is %q", issuer, d.cfg.Issuer),
			say.Sentencef("unset the variable: an issuer cannot change"),
		})
	primary := cluster.At(url)
	primary.Reader = true
	pool, err := primary.ReadPool(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	err = history.CheckHeads(ctx, pool)
	switch _, contradicts := errors.AsType[history.HeadError](err); {
	case contradicts:
		d.fail(
			check, said(err), say.Sentencef("stop the service and restore a backup: something else has changed the database"),
		)
	case err != nil:
		d.fail(check, said(err), remedy(err))
	default:
		d.ok(check, say.Sentencef("every shard's head agrees with its log; integrity rebuild --check compares the rest"))
	}
	for _, look := range []func(context.Context, *pgx.Conn) error{d.versions, d.heads, d.placement, d.replica} {
		if err := look(ctx, conn); err != nil {
			return err
		}
	}
	d.transparency(ctx, pool, issuer)
	d.secrets(ctx, pool, shards)
	var changeable, disabled bool
	if err := conn.QueryRow(ctx, `SELECT has_table_privilege('integrity_service', 'events', 'UPDATE, DELETE, TRUNCATE'),
		NOT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = 'events'::regclass AND NOT tgisinternal)
		OR EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = 'events'::regclass AND NOT tgisinternal AND tgenabled = 'D')`).Scan(&changeable, &disabled); err != nil {
		return say.Errorf("read the log's protection: %w", err)
	}
	d.every(check,
		verdict{
			changeable, StateFail, say.Sentencef("the role integrity_service may change events"),
			run("REVOKE UPDATE, DELETE, TRUNCATE ON events FROM integrity_service"),
		},
		verdict{
			disabled, StateFail, say.Sentencef("the trigger that keeps events from being changed is missing or disabled"),
			say.Sentencef("ALTER TABLE events ENABLE TRIGGER ALL, and integrity rebuild --check"),
		})
	return nil
}

// placement checks whether the shards are spread evenly over the nodes of a Citus cluster.
func (d *doctor) placement(ctx context.Context, conn *pgx.Conn) error {
	var distributed bool
	if err := conn.QueryRow(
		ctx, "SELECT to_regproc('public.ledger_shards') IS NOT NULL",
	).Scan(&distributed); err != nil || !distributed {
		return err
	}
	var moves int
	var found string
	if err := conn.QueryRow(ctx, migrations.Uneven).Scan(&moves, &found); err != nil {
		return say.Errorf("read the nodes of the shards: %w", err)
	}
	d.first("nodes", say.Sentencef("shards by node: %s", found),
		verdict{
			moves > 0, stateWarn, say.Sentencef("shards by node: %s; %d moves make it even", found, moves),
			say.Sentencef("SELECT rebalance_table_shards(), as the operators' manual says (Capacity: Citus)"),
		})
	return nil
}

// transparency checks the transparency log.
func (d *doctor) transparency(ctx context.Context, pool *pgxpool.Pool, issuer string) {
	const check = "transparency"
	if !d.cfg.Transparency {
		d.ok(check, say.Sentencef("no log is kept"))
		return
	}
	status, err := transparency.ReadStatus(ctx, pool)
	if err != nil {
		d.fail(check, said(err), remedy(err))
		return
	}
	if trusted, err := keyfiles.ReadTrusted(d.cfg.TrustedKeysPath()); err == nil {
		d.signedHead(ctx, pool, trusted)
		signer, err := d.cfg.LogSource().LogSigner(evidence.LogName(issuer), trusted)
		if err == nil {
			if away := signer.Check(); away != nil {
				d.warn(
					check, said(away), say.Sentencef("no checkpoint is signed until the agent signs; nothing else depends on it"),
				)
			}
		}
		if err == nil {
			var key transparency.KeyState
			if key, err = transparency.KnownKey(ctx, pool, signer.LogKey); err == nil && key.Barred {
				err = transparency.ErrBarred
			}
		}
		switch {
		case errors.Is(err, evidence.ErrRevokedKey):
			d.fail(
				check, said(err),
				say.Sentencef(
					"no checkpoint is signed: integrity keys rotate --transparency-log --stage, and --activate, then SIGHUP",
				),
			)
		case err != nil:
			d.warn(check, said(err), say.Sentencef("put the log key in place, then SIGHUP: nothing else depends on it"))
		}
		switch why, err := unpublished(ctx, pool, issuer, trusted); {
		case err != nil:
			d.fail(check, said(err), remedy(err))
		case why.Format != "":
			d.warn(check, why, run("integrity keys publish"))
		}
	}
	found := say.Sentencef("%d of %d events are published", status.Published, status.Events)
	age := d.Now().Sub(status.Oldest).Round(time.Second)
	d.first(check, found,
		verdict{
			status.Halted, stateWarn, say.Sentencef("the log has been stopped since the database was restored; %s", found),
			run("integrity log resume"),
		},
		verdict{
			!status.Oldest.IsZero() && age > lateLog, stateWarn,
			say.Sentencef(
				"%s; the oldest of the rest is %s old", found, age,
			), say.Sentencef("start the service, or read its log"),
		})
}

// signedHead compares the transparency log with the largest head stored in this data directory.
func (d *doctor) signedHead(ctx context.Context, pool *pgxpool.Pool, trusted *evidence.TrustedKeys) {
	const check = "transparency"
	in, err := eventstore.ReadInstallation(ctx, pool)
	if err != nil {
		d.fail(check, said(err), remedy(err))
		return
	}
	file := keyfiles.NewSignedHead(d.cfg.DataDir, in.ID())
	known, err := file.Read(trusted, in.Epoch)
	var missing say.Sentence
	if err == nil {
		missing, err = known.Lacks(ctx, pool)
	}
	switch {
	case err != nil:
		d.fail(check, said(err), remedy(err))
	case missing.Format != "":
		d.fail(check, say.Sentencef("%s (known from %s)", missing, file.Path()), say.Sentencef(eventstore.Remedy))
	}
}

// lateLog is how long an event may wait for the transparency log.
const lateLog = time.Minute
