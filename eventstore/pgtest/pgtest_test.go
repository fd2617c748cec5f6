package pgtest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEachTestHasItsOwnMigratedDatabase(t *testing.T) {
	seen := map[string]bool{}
	for range 8 {
		t.Run("", func(t *testing.T) {
			url := pgtest.New(t)
			if seen[url] {
				t.Fatal("two tests share a database")
			}
			seen[url] = true
			ctx := context.Background()
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := conn.Close(ctx); err != nil {
					t.Error(err)
				}
			}()
			var migrated bool
			if err := conn.QueryRow(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&migrated); err != nil ||
				!migrated {
				t.Fatal(migrated, err)
			}
		})
	}
}
