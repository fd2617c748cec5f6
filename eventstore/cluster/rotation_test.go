package cluster

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/pgtest"
	"integrityledger/migrations"
)

// TestARotatedPasswordIsReadAgain: in every kind of pool, existing connections stay, and new ones use the current
// password in the source or the password file. Until the password is updated, new connections fail with an error that
// another attempt may fix.
func TestARotatedPasswordIsReadAgain(t *testing.T) {
	ctx := t.Context()
	role := pgtest.NewPasswordRole(t, "app", "first")
	if err := migrations.Up(ctx, role.URL(t, "first")); err != nil {
		t.Fatal(err)
	}
	passfile := filepath.Join(t.TempDir(), "pgpass")
	keep := func(password string) {
		if err := os.WriteFile(passfile, []byte("*:*:*:app:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep("first")
	var url atomic.Pointer[string]
	set := func(password string) { u := role.URL(t, password); url.Store(&u) }
	set("first")
	source := connect.Source(func() string { return *url.Load() })
	find := func(from connect.Source) *Primary {
		p, err := Find(ctx, from)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	whole, byPassfile := find(source), find(connect.Fixed(role.URL(t, "", "passfile", passfile)))
	template := At(role.URL(t, "no password"))
	entered := find(source)
	entered.Entry = source
	template.Nodes = source
	pools := map[string]*pgxpool.Pool{}
	for name, open := range map[string]func() (*pgxpool.Pool, error){
		"commit":   func() (*pgxpool.Pool, error) { return whole.CommitPool(ctx, 2) },
		"queue":    func() (*pgxpool.Pool, error) { return whole.QueuePool(ctx, 2) },
		"consumer": func() (*pgxpool.Pool, error) { return whole.ConsumerPool(ctx, 2) },
		"witness":  func() (*pgxpool.Pool, error) { return whole.WitnessPool(ctx, 2) },
		"read":     func() (*pgxpool.Pool, error) { return whole.ReadPool(ctx, 2) },
		"notify":   func() (*pgxpool.Pool, error) { return whole.NotifyPool(ctx, 2) },
		"rebuild":  func() (*pgxpool.Pool, error) { return whole.RebuildPool(ctx, 1) },
		"replica":  func() (*pgxpool.Pool, error) { return whole.ReplicaPool(ctx, source, 2) },
		"entered":  func() (*pgxpool.Pool, error) { return entered.ReadPool(ctx, 2) },
		"passfile": func() (*pgxpool.Pool, error) { return byPassfile.ReadPool(ctx, 2) },
		"template": func() (*pgxpool.Pool, error) { return template.node("ignored", 1).ReadPool(ctx, 2) },
	} {
		pool, err := open()
		if err != nil {
			t.Fatal(name, err)
		}
		t.Cleanup(pool.Close)
		pools[name] = pool
	}
	held := map[string]*pgxpool.Conn{}
	for name, pool := range pools {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			t.Fatal(name, err)
		}
		defer conn.Release()
		held[name] = conn
	}
	role.Rotate(t, "second")
	for name, pool := range pools {
		conn, err := pool.Acquire(ctx)
		if err == nil {
			conn.Release()
			t.Errorf("%s: the former password is taken", name)
			continue
		}
		if !NotConnected(err) || !mayCome(err) || strings.Contains(err.Error(), "first") {
			t.Errorf("%s: refused with %v", name, err)
		}
		explained := Explain("INTEGRITY_DATABASE_URL_FILE", err).Error()
		const names = `INTEGRITY_DATABASE_URL_FILE: PostgreSQL does not let the role "app" in: `
		if !strings.HasPrefix(explained, names) || strings.Contains(explained, "first") {
			t.Errorf("%s: explained as %s", name, explained)
		}
	}
	set("second")
	keep("second")
	for name, pool := range pools {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			t.Errorf("%s: the new password: %v", name, err)
			continue
		}
		if conn.Conn() == held[name].Conn() {
			t.Errorf("%s: no new connection", name)
		}
		conn.Release()
		if err := held[name].Ping(ctx); err != nil {
			t.Errorf("%s: the connection from before: %v", name, err)
		}
	}
}

// TestTheServersOfAURLStay: rewriting the file cannot lead a running process to another server.
func TestTheServersOfAURLStay(t *testing.T) {
	config, err := connect.Config("postgres://a:p@db1,db2/ledger?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	if err := connect.Renew(config, connect.Fixed("postgres://b:q@elsewhere/ledger?sslmode=disable")); err != nil {
		t.Fatal(err)
	}
	hosts := []string{config.Host}
	for _, other := range config.Fallbacks {
		hosts = append(hosts, other.Host)
	}
	if config.User != "b" || config.Password != "q" || !slices.Equal(hosts, []string{"db1", "db2"}) {
		t.Errorf("it leads as %s:%s to %v", config.User, config.Password, hosts)
	}
}

// TestAnUnknownServerIsExplained: a name that DNS reports as nonexistent ends a start at once. A failure of DNS does
// not.
func TestAnUnknownServerIsExplained(t *testing.T) {
	for code, waits := range map[byte]bool{2: true, 3: false} { // SERVFAIL, NXDOMAIN
		config, err := connect.Config("postgres://app:hidden@ledger.example/app")
		if err != nil {
			t.Fatal(err)
		}
		server := answerDNS(t, code)
		resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", server)
		}}
		config.LookupFunc = resolver.LookupHost
		_, err = connect.OpenConfig(t.Context(), config)
		if err == nil || mayCome(err) != waits {
			t.Errorf("code %d: waited for: %t, %v", code, mayCome(err), err)
		}
		text := Explain("INTEGRITY_DATABASE_URL", err).Error()
		const names = `INTEGRITY_DATABASE_URL: the server's name "ledger.example" does not resolve: `
		if strings.HasPrefix(text, names) == waits || strings.Contains(text, "hidden") {
			t.Errorf("code %d: %s", code, text)
		}
	}
}

// answerDNS answers every DNS query with the same code.
func answerDNS(t *testing.T, code byte) (address string) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var answering sync.WaitGroup
	t.Cleanup(func() { _ = socket.Close(); answering.Wait() })
	answering.Go(func() {
		question := make([]byte, 4096)
		for {
			n, from, err := socket.ReadFrom(question)
			if err != nil {
				return
			}
			question[2], question[3] = question[2]|0x84, question[3]&0xf0|code // an authoritative answer
			_, _ = socket.WriteTo(question[:n], from)
		}
	})
	return socket.LocalAddr().String()
}
