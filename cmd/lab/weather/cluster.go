package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/pgtest/network"
)

// socketLink puts a link in front of a socket of PostgreSQL or a pooler, and returns the directory in which clients
// find it.
func (w *world) socketLink(t testing.TB, name, toDir string) string {
	dir := pgtest.ClusterDir(t)
	const socket = ".s.PGSQL.5432"
	w.links[name] = network.Listen(
		t, network.Address{Network: "unix", Name: filepath.Join(dir, socket)},
		network.Address{Network: "unix", Name: filepath.Join(toDir, socket)},
	)
	return dir
}

// startDatabases starts the three servers. The first is the primary.
func (w *world) startDatabases(t testing.TB) {
	for _, name := range []string{serverOne, serverTwo, serverLate} {
		s := &server{w: w, name: name, dir: pgtest.ClusterDir(t)}
		w.servers[name] = s
		if w.library {
			s.control(0, false, false)
		}
	}
	one, two, late := w.servers[serverOne], w.servers[serverTwo], w.servers[serverLate]
	const in = "host=%s port=5432 user=integrity"
	one.from = fmt.Sprintf(in, w.socketLink(t, "pg-one → pg-two", filepath.Join(two.dir, "socket")))
	two.from = fmt.Sprintf(in, w.socketLink(t, "pg-two → pg-one", filepath.Join(one.dir, "socket")))
	late.from = fmt.Sprintf("host=%s,%s port=5432,5432 user=integrity target_session_attrs=read-write",
		w.socketLink(t, "pg-late → pg-one", filepath.Join(one.dir, "socket")),
		w.socketLink(t, "pg-late → pg-two", filepath.Join(two.dir, "socket")))
	t.Cleanup(w.stop) // before the directories are removed
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := one.start(ctx); err != nil {
		t.Fatal(err)
	}
	w.primary.Store(one)
	for _, s := range []*server{two, late} {
		if err := errors.Join(s.copyFrom(one), s.start(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.synchronous(one, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// other returns the one of the pair that is not the primary.
func (w *world) other() *server {
	if w.primary.Load().name == serverOne {
		return w.servers[serverTwo]
	}
	return w.servers[serverOne]
}

// synchronous waits until the standby streams, and then makes every commit wait for it.
func (w *world) synchronous(primary *server, patience time.Duration) error {
	streams := func(more string) error {
		return within(patience, func() error {
			ok, err := ask[bool](
				primary,
				"SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = '"+synchronousName+
					"' AND state = 'streaming'"+more+")",
			)
			if err == nil && !ok {
				err = errors.New("the standby does not stream" + more)
			}
			return err
		})
	}
	if err := streams(""); err != nil {
		return err
	}
	if err := primary.sql(
		"ALTER SYSTEM SET synchronous_standby_names = '"+synchronousName+"'", "SELECT pg_reload_conf()",
	); err != nil {
		return err
	}
	return streams(" AND sync_state = 'sync'")
}

// failOver loses the primary and its machine, promotes the standby, and recreates the lost server as the new standby.
func (w *world) failOver(down time.Duration) (told string, err error) {
	former, next := w.primary.Load(), w.other()
	// An earlier fault may have ended the standby, which its supervisor will restart.
	if err := within(time.Minute, func() error {
		_, err := ask[bool](next, "SELECT pg_is_in_recovery()")
		return err
	}); err != nil {
		return "", fmt.Errorf("the standby is away: %w", err)
	}
	former.kill()
	time.Sleep(down) // until the loss is noticed
	if err := within(time.Minute, func() error {
		recovering, err := ask[bool](next, "SELECT pg_is_in_recovery()")
		if err == nil && recovering {
			_, err = ask[bool](next, "SELECT pg_promote(true, 5)")
		}
		if err == nil && recovering {
			err = errors.New(next.name + " is no primary yet")
		}
		return err
	}); err != nil {
		return "", fmt.Errorf("promote %s: %w", next.name, err)
	}
	w.primary.Store(next)
	promoted := time.Now()
	if err := within(time.Minute, func() error {
		return next.sql("ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
	}); err != nil {
		return "", err
	}
	if err := within(2*time.Minute, func() error { return former.copyFrom(next) }); err != nil {
		return "", err
	}
	former.revive()
	if err := w.synchronous(next, 2*time.Minute); err != nil {
		return "", err
	}
	return fmt.Sprintf(
		"%s lost, %s promoted; a synchronous standby again %s later", former.name, next.name,
		time.Since(promoted).Round(100*time.Millisecond),
	), nil
}

// followed makes sure that the late server follows the current primary. If it cannot, it is recreated.
func (w *world) followed() error {
	late, primary := w.servers[serverLate], w.primary.Load()
	streams := func() error {
		ok, err := ask[bool](
			primary, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = 'late' AND state = 'streaming')",
		)
		if err == nil && !ok {
			err = errors.New("the late server does not stream")
		}
		return err
	}
	if within(15*time.Second, streams) == nil {
		return nil
	}
	w.note(
		"%s cannot follow %s and is copied anew: %s", late.name, primary.name, tail(filepath.Join(late.dir, "postgres.log")),
	)
	late.kill()
	if err := late.copyFrom(primary); err != nil {
		return err
	}
	late.revive()
	return within(time.Minute, streams)
}

// within repeats check until it returns nil.
func within(patience time.Duration, check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
