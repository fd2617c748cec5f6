package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"integrityledger/eventstore/postgres"
	"integrityledger/migrations"
)

// patience limits each step that prepares or ends a test, generously, because the machine may be busy.
const patience = 4 * time.Minute

// Main runs a package's tests on a throwaway server and exits. Goroutines left at the end fail the package.
func Main(m goleak.TestingM, ignore ...goleak.Option) {
	stop := func() error { return nil }
	if os.Getenv(Variable) == "" && os.Getenv(CitusVariable) == "" {
		server, err := Start(context.Background())
		if errors.Is(err, postgres.ErrNoPrograms) {
			err = fmt.Errorf("%w; make test installs them where it may", err)
		}
		if err == nil {
			// New and the package's child processes read the environment.
			err = os.Setenv(Variable, server.URL())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			os.Exit(2)
		}
		stop = func() error { return server.Stop(context.Background()) }
	}
	ignore = append(ignore, goleak.IgnoreCurrent())
	goleak.VerifyTestMain(patientTests{m, ignore}, append(ignore, goleak.Cleanup(func(code int) {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))...)
}

// Verify runs the tests of a package that needs no server, and exits. Goroutines left at the end fail the package.
func Verify(m goleak.TestingM) { goleak.VerifyTestMain(patientTests{m, nil}) }

// patientTests waits up to a minute for ending goroutines, because the machine may be busy. goleak waits half a second.
type patientTests struct {
	goleak.TestingM
	ignore []goleak.Option
}

func (s patientTests) Run() int {
	code := s.TestingM.Run()
	for deadline := time.Now().Add(time.Minute); goleak.Find(s.ignore...) != nil && time.Now().Before(deadline); {
	}
	return code
}

// New creates a database of the newest schema for this test only and returns its URL. It is dropped when the test ends,
// even if connections are still open.
func New(t testing.TB) string {
	t.Helper()
	if coordinator := os.Getenv(CitusVariable); coordinator != "" {
		return newOnCitus(t, coordinator)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server := os.Getenv(Variable)
	if server == "" {
		t.Fatal("pgtest: the package needs func TestMain(m *testing.M) { pgtest.Main(m) }")
	}
	name, err := create(ctx, server)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := drop(ctx, server, name); err != nil {
			t.Error("pgtest:", err)
		}
	})
	database, err := withDatabase(server, name)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	return database
}

// terminate returns a query that ends all connections to a database and waits up to a minute for each.
func terminate(name string) string {
	return fmt.Sprintf("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '%s'", name)
}

func create(ctx context.Context, server string) (name string, err error) {
	conn, err := connect(ctx, server)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	template, err := ensureTemplate(ctx, conn, server)
	if err != nil {
		return "", err
	}
	name = "test_" + strings.ToLower(rand.Text())
	// For a small database, copying files takes half the work of copying pages through the WAL.
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template+" STRATEGY file_copy"); err != nil {
		return "", fmt.Errorf("clone the template: %w", err)
	}
	return name, nil
}

func drop(ctx context.Context, server, name string) (err error) {
	conn, err := connect(ctx, server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	// DROP DATABASE alone waits only five seconds for the connections that it ends.
	for _, sql := range []string{terminate(name), "DROP DATABASE " + name + " WITH (FORCE)"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("drop the test's database: %w", err)
		}
	}
	return nil
}

// ensureTemplate creates the template once for each server and schema. It is renamed after the migrations, so an
// existing template is complete.
func ensureTemplate(ctx context.Context, conn *pgx.Conn, server string) (string, error) {
	hash, err := migrations.Hash()
	if err != nil {
		return "", err
	}
	template := "template_" + hash[:32]
	exists := func() (found bool, err error) {
		err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", template).Scan(&found)
		return found, err
	}
	if found, err := exists(); err != nil || found {
		return template, err
	}
	// The lock ends with the connection, which the caller closes.
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", template); err != nil {
		return "", fmt.Errorf("lock the template: %w", err)
	}
	if found, err := exists(); err != nil || found {
		return template, err
	}
	unfinished := template + "_new"
	for _, sql := range []string{
		"DROP DATABASE IF EXISTS " + unfinished + " WITH (FORCE)", "CREATE DATABASE " + unfinished,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("make the template: %w", err)
		}
	}
	database, err := withDatabase(server, unfinished)
	if err != nil {
		return "", err
	}
	if err := migrations.Up(ctx, database); err != nil {
		return "", fmt.Errorf("make the template: %w", err)
	}
	// ALTER DATABASE alone waits only five seconds for connections that the migration has just closed.
	for _, sql := range []string{terminate(unfinished), "ALTER DATABASE " + unfinished + " RENAME TO " + template} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("make the template: %w", err)
		}
	}
	return template, nil
}

func connect(ctx context.Context, server string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("test server: %w", err)
	}
	if err := verify(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

func withDatabase(server, name string) (string, error) {
	parsed, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("%s: %w", Variable, err)
	}
	parsed.Path = "/" + name
	return parsed.String(), nil
}
