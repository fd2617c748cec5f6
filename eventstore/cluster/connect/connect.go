// Package connect opens connections to PostgreSQL. It bounds the time to connect and detects a server that has
// vanished. It knows nothing about ledgers, so migrations use it too.
package connect

import (
	"cmp"
	"context"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/domain/say"
)

// Timeout limits a connection attempt to each server.
const Timeout = 5 * time.Second

// Config reads a database URL. A connect_timeout in the URL replaces Timeout.
func Config(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, say.Errorf("database URL: %w", err)
	}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, Timeout)
	KeepAlive(config)
	return config, nil
}

// KeepAlive makes connections detect a server that vanished, even if they only listen or wait for a lock.
func KeepAlive(config *pgx.ConnConfig) {
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}
	config.DialFunc = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
}

// Open opens one connection.
func Open(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := Config(url)
	if err != nil {
		return nil, err
	}
	return OpenConfig(ctx, config)
}

// OpenConfig opens one connection with a config.
func OpenConfig(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, say.Errorf("open database: %w", err)
	}
	return conn, nil
}

// Source returns the current URL of a database. A file that holds the URL may have been rewritten since the process
// started.
type Source func() string

// Fixed is the Source of a URL that does not change.
func Fixed(url string) Source { return func() string { return url } }

// Renew updates a config with the source's current user, password and certificates. It also reads password files and
// certificate files again. It keeps the servers of config, because another server may hold another ledger.
func Renew(config *pgx.ConnConfig, from Source) error {
	fresh, err := pgx.ParseConfig(from())
	if err != nil {
		return say.Errorf("database URL: %w", err)
	}
	config.User, config.Password = fresh.User, fresh.Password
	if slices.EqualFunc(servers(config), servers(fresh), func(a, b *pgconn.FallbackConfig) bool {
		return a.Host == b.Host && a.Port == b.Port && (a.TLSConfig == nil) == (b.TLSConfig == nil)
	}) {
		config.TLSConfig, config.Fallbacks = fresh.TLSConfig, fresh.Fallbacks
	}
	return nil
}

// servers returns the servers that a connection tries in turn.
func servers(config *pgx.ConnConfig) []*pgconn.FallbackConfig {
	first := &pgconn.FallbackConfig{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}
	return append([]*pgconn.FallbackConfig{first}, config.Fallbacks...)
}

// Each returns one config per server of config.
func Each(config *pgx.ConnConfig) []*pgx.ConnConfig {
	all := servers(config)
	each := make([]*pgx.ConnConfig, len(all))
	for i, server := range all {
		one := config.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = server.Host, server.Port, server.TLSConfig, nil
		each[i] = one
	}
	return each
}
