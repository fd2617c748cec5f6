package migrations

import (
	"context"
	"crypto/sha256"
	"database/sql"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster/connect"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
)

// Object is a part of the schema: a table, a column, an index and so on.
type Object struct {
	Kind  ObjectKind `json:"kind"`
	Table string     `json:"table,omitempty"` // with its schema; empty for what belongs to no table
	Name  string     `json:"name"`
	// SQL makes the object, except that a table has no columns yet.
	SQL string `json:"sql"`
}

// ObjectKind is the kind of an Object.
type ObjectKind string

// Kinds in the order in which a schema is made.
const (
	SchemaObject     ObjectKind = "schema"
	FunctionObject   ObjectKind = "function"
	TableObject      ObjectKind = "table"
	ColumnObject     ObjectKind = "column"
	OptionsObject    ObjectKind = "options"
	ConstraintObject ObjectKind = "constraint"
	IndexObject      ObjectKind = "index"
	TriggerObject    ObjectKind = "trigger"
	GrantObject      ObjectKind = "grant"
)

// OfService reports whether the object is a grant to the service, without which nothing is served. The name of another
// grant is its role.
func (o Object) OfService() bool { return o.Kind == GrantObject && o.Name == "" }

// String names the object to an operator.
func (o Object) String() string { return o.Said().String() }

// Said is String in any language.
func (o Object) Said() say.Sentence {
	kind := say.Word(o.Kind)
	switch {
	case o.Table == "" || o.Kind == TableObject:
		return say.Sentencef("%s %s", kind, o.Name)
	case o.Name == "":
		return say.Sentencef("%s of %s", kind, o.Table)
	default:
		return say.Sentencef("%s %s of %s", kind, o.Name, o.Table)
	}
}

// key is what two objects that ought to be the same have in common.
func (o Object) key() [3]string { return [3]string{string(o.Kind), o.Table, o.Name} }

// schemaFile is the schema that all migrations together make, an object a line. A test generates it.
//
//go:embed schema.json
var schemaFile []byte

// Expected is the schema that all migrations together make, in the order in which it can be made.
func Expected() ([]Object, error) {
	var all []Object
	if err := json.Unmarshal(schemaFile, &all); err != nil {
		return nil, fmt.Errorf("schema.json: %w", err) //nolint:forbidigo // a bug
	}
	return all, nil
}

// catalogue describes the objects of the ledger's schemas from the catalogue alone, which every role may read. It works
// on the coordinator of Citus too: the pieces of a table are tables of their own, and no statement names them. NOT NULL
// belongs to the column: only PostgreSQL 18 knows it as a constraint.
const catalogue = `WITH
	tables AS (
		SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name, c.relpersistence, c.reloptions, c.relacl
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname IN ('public', 'rebuild') AND c.relkind IN ('r', 'p') AND c.relname <> 'goose_db_version'
			AND NOT EXISTS (SELECT FROM pg_depend d
				WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')),
	objects (kind, "table", name, sql, place) AS (
		SELECT 'schema', '', n.nspname::text, format('CREATE SCHEMA %I', n.nspname), 1000
		FROM pg_namespace n WHERE n.nspname = 'rebuild'
		UNION ALL
		SELECT 'function', '', p.oid::regprocedure::text, pg_get_functiondef(p.oid), 2000
		FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_language l ON l.oid = p.prolang
		WHERE n.nspname = 'public' AND l.lanname = 'plpgsql'
			AND NOT EXISTS (SELECT FROM pg_depend d
				WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
		UNION ALL
		SELECT 'table', t.name, t.name,
			format('CREATE %sTABLE %s ()', CASE t.relpersistence WHEN 'u' THEN 'UNLOGGED ' ELSE '' END, t.name), 3000
		FROM tables t
		UNION ALL
		SELECT 'column', t.name, a.attname::text, format('ALTER TABLE %s ADD COLUMN %I %s%s%s%s', t.name, a.attname,
				format_type(a.atttypid, a.atttypmod),
				CASE WHEN a.attcollation <> y.typcollation THEN ' COLLATE ' || a.attcollation::regcollation ELSE '' END,
				CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END,
				' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid)), 4000 + a.attnum
		FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
		JOIN pg_type y ON y.oid = a.atttypid
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		UNION ALL
		SELECT 'options', t.name, '', format('ALTER TABLE %s SET (%s)', t.name,
			(SELECT string_agg(o, ', ' ORDER BY o) FROM unnest(t.reloptions) o)), 6000
		FROM tables t WHERE t.reloptions IS NOT NULL
		UNION ALL
		SELECT 'constraint', t.name, k.conname::text,
			format('ALTER TABLE %s ADD CONSTRAINT %I %s', t.name, k.conname, pg_get_constraintdef(k.oid)), 7000 + CASE k.contype WHEN 'p' THEN 0 ELSE 1 END
		FROM tables t JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype IN ('c', 'f', 'p', 'u', 'x')
		UNION ALL
		SELECT 'index', t.name, c.relname::text,
			pg_get_indexdef(i.indexrelid) || CASE WHEN i.indisvalid THEN '' ELSE ' -- invalid' END, 8000
		FROM tables t JOIN pg_index i ON i.indrelid = t.oid JOIN pg_class c ON c.oid = i.indexrelid
		WHERE NOT EXISTS (SELECT FROM pg_constraint k
			WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x'))
		UNION ALL
		SELECT 'trigger', t.name, g.tgname::text,
			pg_get_triggerdef(g.oid) || CASE g.tgenabled WHEN 'D' THEN ' -- disabled' ELSE '' END, 9000
		FROM tables t
		JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal AND g.tgname NOT LIKE 'truncate\_trigger\_%'
		UNION ALL
		SELECT 'grant', t.name, CASE r.rolname WHEN 'integrity_service' THEN '' ELSE r.rolname END,
			format('GRANT %s ON %s TO %s', string_agg(a.privilege_type, ', ' ORDER BY a.privilege_type), t.name, r.rolname),
			10000
		FROM tables t CROSS JOIN LATERAL aclexplode(t.relacl) a
		JOIN pg_roles r ON r.oid = a.grantee AND r.rolname IN ('integrity_service', 'integrity_reader')
		GROUP BY t.name, r.rolname)
	SELECT kind, "table", name, sql FROM objects ORDER BY "table" <> '', "table", place, name`

// Actual is the schema of a database. Any role that may connect can ask for it.
func Actual(ctx context.Context, conn *pgx.Conn) (all []Object, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		// So that every name is written with its schema. Names of PostgreSQL's own are found without it.
		if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog; SET LOCAL lock_timeout = '5s'"); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, catalogue) // CollectRows returns its error
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Object])
		return err
	})
	if err != nil {
		return nil, say.Errorf("read the catalogue: %w", err)
	}
	return all, nil
}

// Drift is a difference between the schema of a database and the migrations.
type Drift struct {
	Object        // as the migrations make it; where Extra, as the database has it
	Found  string // the statement that would make what the database has; empty: it lacks the object
	Extra  bool   // no migration makes it, and it can refuse what the program writes
}

// Compare lists what a database lacks, or has in another form, and what it has besides that can refuse a write. A table
// that is missing is one difference, whatever belongs to it.
func Compare(expected, actual []Object) (drifts []Drift) {
	has, wants := map[[3]string]Object{}, map[[3]string]bool{}
	for _, o := range actual {
		has[o.key()] = o
	}
	for _, o := range expected {
		wants[o.key()] = true
		table := Object{Kind: TableObject, Table: o.Table, Name: o.Table}
		if _, there := has[table.key()]; !there && o.Table != "" && o.Kind != TableObject {
			continue
		}
		if found := has[o.key()]; logged(found.SQL) != logged(o.SQL) {
			drifts = append(drifts, Drift{Object: o, Found: found.SQL})
		}
	}
	for _, o := range actual {
		table := Object{Kind: TableObject, Table: o.Table, Name: o.Table}
		if !wants[o.key()] && wants[table.key()] && refuses(o) {
			drifts = append(drifts, Drift{Object: o, Found: o.SQL, Extra: true})
		}
	}
	return drifts
}

// logged is a statement without UNLOGGED: Citus moves no unlogged table, so an operator makes them logged meanwhile.
func logged(sql string) string {
	return strings.Replace(sql, "CREATE UNLOGGED TABLE", "CREATE TABLE", 1)
}

// refuses reports whether an object that no migration makes can refuse a write or change it.
func refuses(o Object) bool {
	switch o.Kind {
	case ConstraintObject, TriggerObject:
		return true
	case ColumnObject:
		return strings.Contains(o.SQL, " NOT NULL") && !strings.Contains(o.SQL, " DEFAULT ")
	case IndexObject:
		return strings.HasPrefix(o.SQL, "CREATE UNIQUE INDEX")
	default:
		return false
	}
}

// statementsHash is the SHA-256 of a migration without comments and without the layout of its lines: the words around
// the statements may be mended, the statements may not change once they were applied.
func statementsHash(text []byte) []byte {
	var statements []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "-- +goose") {
			line, _, _ = strings.Cut(line, "--")
		}
		statements = append(statements, strings.Fields(line)...)
	}
	sum := sha256.Sum256([]byte(strings.Join(statements, " ")))
	return sum[:]
}

// record stores the hash of the statements of each migration that was applied.
func record(ctx context.Context, db *sql.DB, p *goose.Provider) error {
	rows, err := p.Status(ctx)
	if err != nil {
		return say.Errorf("list the migrations: %w", err)
	}
	var known string // versions; with them, a read-only role can start if all migrations are recorded
	const query = "SELECT coalesce(string_agg(version::text, ' '), '') FROM public.applied_migrations"
	if err := db.QueryRowContext(ctx, query).Scan(&known); err != nil {
		return say.Errorf("read which migrations were applied: %w", err)
	}
	for _, m := range rows {
		if m.State != goose.StateApplied || slices.Contains(strings.Fields(known), strconv.FormatInt(m.Source.Version, 10)) {
			continue
		}
		text, err := fs.ReadFile(files, m.Source.Path)
		if err != nil {
			return say.Errorf("read a migration: %w", err)
		}
		if _, err := db.ExecContext(ctx,
			"INSERT INTO public.applied_migrations (version, sha256) VALUES ($1, $2) ON CONFLICT DO NOTHING",
			m.Source.Version, statementsHash(text)); err != nil {
			return say.Errorf("record migration %d: %w", m.Source.Version, err)
		}
	}
	return nil
}

// Edited lists the migrations of this program whose statements are not those that the database has applied.
func Edited(ctx context.Context, conn *pgx.Conn) (edited []string, err error) {
	// ForEachRow returns its error.
	rows, _ := conn.Query(ctx, "SELECT version, encode(sha256, 'hex') FROM public.applied_migrations")
	applied := map[int64]string{}
	var version int64
	var sum string
	if _, err := pgx.ForEachRow(rows, []any{&version, &sum}, func() error {
		applied[version] = sum
		return nil
	}); err != nil {
		return nil, say.Errorf("read which migrations were applied: %w", err)
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, say.Errorf("list the migrations: %w", err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, say.Errorf("read a migration: %w", err)
		}
		if version, err = goose.NumericComponent(name); err != nil {
			return nil, say.Errorf("read the number of a migration: %w", err)
		}
		if was, ok := applied[version]; ok && was != hex.EncodeToString(statementsHash(text)) {
			edited = append(edited, name)
		}
	}
	return edited, nil
}

// Lost are the projections that no service can use: a table of one of their two copies is missing, or the service has
// no right to it because Recreate has made it and nothing has filled it yet.
func Lost(ctx context.Context, conn *pgx.Conn) (lost []string, err error) {
	drifts, err := drifted(ctx, conn)
	for _, d := range drifts {
		name := projectionOf(d.Object)
		gone := d.Found == "" && (d.Kind == TableObject || d.OfService())
		if name != "" && gone && !slices.Contains(lost, name) {
			lost = append(lost, name)
		}
	}
	slices.Sort(lost)
	return lost, err
}

func drifted(ctx context.Context, conn *pgx.Conn) ([]Drift, error) {
	expected, err := Expected()
	if err != nil {
		return nil, err
	}
	actual, err := Actual(ctx, conn)
	return Compare(expected, actual), err
}

// projectionOf names the projection that an object belongs to; empty: none.
func projectionOf(o Object) string {
	_, name, _ := strings.Cut(o.Table, ".")
	if IsProjection(o.Table) {
		return name
	}
	return ""
}

// IsProjection reports whether a table, named with its schema, is one of the two copies of a projection.
func IsProjection(table string) bool {
	expected, _ := Expected() // a test reads the file
	_, name, _ := strings.Cut(table, ".")
	copies := 0
	for _, o := range expected {
		if o.Kind == TableObject && (o.Table == "public."+name || o.Table == "rebuild."+name) {
			copies++
		}
	}
	return copies == 2
}

// Recreate makes the missing tables of lost projections as the migrations make them, with their indexes, as the role of
// url. The service gets no right to the live ones: until they are filled and Release is called, a group that needs one
// fails as it did without the table. Otherwise it would decide on rows that are not there.
func Recreate(ctx context.Context, url string, projections []string) error {
	err := onProjections(ctx, url, projections,
		func(ctx context.Context, tx pgx.Tx, missing map[string]bool, o Object) error {
			if !missing[o.Table] || o.Kind == GrantObject && strings.HasPrefix(o.Table, "public.") {
				return nil
			}
			if _, err := tx.Exec(ctx, o.SQL); err != nil {
				return say.Errorf("make %s: %w", o, err)
			}
			if o.Kind == TableObject && strings.HasPrefix(o.Table, "rebuild.") {
				// An interrupted rebuild would go on after the events whose rows this empty copy lacks.
				if _, err := tx.Exec(ctx, "DELETE FROM rebuild.progress"); err != nil {
					return say.Errorf("let rebuilds begin again: %w", err)
				}
			}
			return nil
		})
	if err != nil {
		return err
	}
	return redistribute(ctx, url)
}

// Release gives the service its rights to projections that Recreate has made.
func Release(ctx context.Context, url string, projections []string) error {
	return onProjections(ctx, url, projections, func(ctx context.Context, tx pgx.Tx, _ map[string]bool, o Object) error {
		if o.Kind != GrantObject {
			return nil
		}
		if _, err := tx.Exec(ctx, o.SQL); err != nil {
			return say.Errorf("%s: %w", o, err)
		}
		return nil
	})
}

// onProjections gives do, in one transaction, every object of the projections and the set of tables that are missing.
func onProjections(
	ctx context.Context, url string, projections []string, do func(context.Context, pgx.Tx, map[string]bool, Object) error,
) error {
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	expected, err := Expected()
	if err != nil {
		return err
	}
	actual, err := Actual(ctx, conn)
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	for _, d := range Compare(expected, actual) {
		if d.Kind != TableObject || !slices.Contains(projections, projectionOf(d.Object)) {
			continue
		}
		if now := RenamedTo(expected, actual, d.Table); now != "" {
			_, name, _ := strings.Cut(d.Table, ".")
			return say.Errorf("%s was renamed to %s: ALTER TABLE %s RENAME TO %s", d.Table, now, now, name)
		}
		missing[d.Table] = true
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, o := range expected {
			if slices.Contains(projections, projectionOf(o)) {
				if err := do(ctx, tx, missing, o); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// RenamedTo is the table that has the primary key of a missing one; empty: none has it.
func RenamedTo(expected, actual []Object, table string) string {
	schema, _, _ := strings.Cut(table, ".")
	for _, o := range expected {
		if o.Table != table || o.Kind != ConstraintObject || !strings.Contains(o.SQL, " PRIMARY KEY ") {
			continue
		}
		for _, a := range actual {
			if a.Kind == ConstraintObject && a.Name == o.Name && strings.HasPrefix(a.Table, schema+".") {
				return a.Table
			}
		}
	}
	return ""
}
