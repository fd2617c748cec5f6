package cluster

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// root is the root of the module.
const root = "../.."

// distributed lists the tables that migrations.Distribute splits: those with a primary key that begins with the shard.
func distributed(t *testing.T) map[string]bool {
	t.Helper()
	var schema []struct{ Table, SQL string }
	text, err := os.ReadFile(filepath.Join(root, "migrations/schema.json"))
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]bool{}
	for _, object := range schema {
		if name, public := strings.CutPrefix(object.Table, "public."); public &&
			strings.Contains(object.SQL, "PRIMARY KEY (shard") {
			tables[name] = true
		}
	}
	if !tables["shard_heads"] || !tables["events"] || len(tables) < 30 {
		t.Fatalf("distributed tables: %v", slices.Sorted(maps.Keys(tables)))
	}
	return tables
}

// TestDistributedTablesAreMarked reads every text in the program's source: a statement that names a distributed table
// marks it, and a mark names a distributed table. A name with a schema is for the coordinator: a node refuses it.
func TestDistributedTablesAreMarked(t *testing.T) {
	tables := distributed(t)
	found := 0
	others := []string{ // not on nodes, or in another database
		"migrations", "cmd/lab", "eventstore/postgres", "cmd/integrity/demo", "cmd/integrity/clientcmd", "handlers/client",
		"eventstore/cluster/clustertest", "projections/ledgertest",
	}
	if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		hidden := strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".."
		if err == nil && entry.IsDir() && (slices.Contains(others, name) || hidden) {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source := token.NewFileSet()
		file, err := parser.ParseFile(source, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Error(err)
			}
			if table, unmarked := Unmarked(text, func(name string) bool { return tables[name] }); unmarked {
				t.Errorf("%s names the table %s without a mark: %s", source.Position(literal.Pos()), table, text)
			}
			if words(text) == nil || !strings.ContainsAny(text, " ") {
				return true
			}
			for i, table := range parseTemplate(text).tables {
				before := words(parseTemplate(text).texts[i])
				if len(before) == 0 || !slices.Contains(tableFollows, before[len(before)-1]) {
					continue // another use of braces, such as a path
				}
				if found++; !tables[table] {
					t.Errorf("%s marks %s, which is not distributed: %s", source.Position(literal.Pos()), table, text)
				}
			}
			return true
		})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if found < 300 {
		t.Errorf("only %d marks were found", found)
	}
}

// TestUnmarkedTablesAreRefused: a statement that names a table in a way that Citus would plan is not sent to a node.
func TestUnmarkedTablesAreRefused(t *testing.T) {
	p := NewPiece([]string{"events", "usage"}, []string{"events_102", "usage_102"})
	for sql, want := range map[string]string{
		"COMMIT": "COMMIT",
		SQL("SELECT e.position FROM {events} e WHERE shard = $1"): "SELECT e.position FROM events_102 e WHERE shard = $1",
		SQL(
			"INSERT INTO {usage} AS usage (used) VALUES ('{}') ON CONFLICT DO UPDATE SET used = usage.used + 1",
		): "INSERT INTO usage_102 AS usage (used) VALUES ('{}') ON CONFLICT DO UPDATE SET used = usage.used + 1",
		SQL(
			"DELETE FROM {usage} d USING {events} AS events WHERE d.used IS DISTINCT FROM events.used",
		): "DELETE FROM usage_102 d USING events_102 AS events WHERE d.used IS DISTINCT FROM events.used",
		"SELECT used FROM usage":                                        "",
		"UPDATE public.usage SET used = 0":                              "",
		SQL("SELECT FROM {events} e JOIN usage u ON u.shard = e.shard"): "",
		SQL("SELECT FROM {ledger}"):                                     "",
	} {
		for range 2 { // the second time from memory
			if text, err := p.Text(sql); text != want || (err != nil) != (want == "") {
				t.Errorf("%s became %q, %v", sql, text, err)
			}
		}
	}
	if text, err := (*Piece)(nil).Text("SELECT used FROM usage"); err != nil || text != "SELECT used FROM usage" {
		t.Errorf("on one server: %q, %v", text, err)
	}
}

// TestNamesNeedAliases: a statement that uses a table's name, which differs on a node, must declare an alias.
func TestNamesNeedAliases(t *testing.T) {
	for template, refused := range map[string]bool{
		"UPDATE {usage} SET used = usage.used + 1":          true,
		"UPDATE {usage} AS usage SET used = usage.used + 1": false,
		"SELECT 1 FROM {usage} FOR UPDATE OF usage":         true,
		"SELECT 1 FROM {usage} u FOR UPDATE OF u":           false,
		"UPDATE {usage} SET used = 1":                       false,
	} {
		func() {
			defer func() {
				if (recover() != nil) != refused {
					t.Errorf("%s: refused: %t", template, !refused)
				}
			}()
			SQL(template)
		}()
	}
}

// BenchmarkSend measures the cost of a batch for a node besides sending it.
func BenchmarkSend(b *testing.B) {
	p := NewPiece([]string{"events", "texts"}, []string{"events_102", "texts_102"})
	batch := &pgx.Batch{}
	const statements = 30
	for i := range statements {
		batch.Queue(SQL("INSERT INTO {events} (" + strings.Repeat("column_name, ", 60+i) + ") SELECT FROM {texts} t"))
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = p.Send(b.Context(), nowhere{}, batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/statements, "ns/statement")
}

// BenchmarkText measures the lookup of one statement.
func BenchmarkText(b *testing.B) {
	p := NewPiece([]string{"events", "texts"}, []string{"events_102", "texts_102"})
	sql := SQL("INSERT INTO {events} (" + strings.Repeat("column_name, ", 60) + ") SELECT FROM {texts} t")
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.Text(sql)
	}
}

type nowhere struct{ Sender }

func (nowhere) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return nil }
