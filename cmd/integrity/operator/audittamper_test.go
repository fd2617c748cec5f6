package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
)

// evil is a ledger with every kind of history, and an attacker who can write its tables past every guard in the
// database.
type evil struct {
	*ledgertest.Ledger
	t     *testing.T
	owner *pgxpool.Pool
	org   ledgertest.Organization
	other ledgertest.Organization
	app   *app
	as    *ledger.Opened
}

func newEvil(t *testing.T) *evil {
	t.Helper()
	v := &evil{Ledger: ledgertest.New(t), t: t, app: &app{&cli.App{Out: io.Discard, Errs: io.Discard, Now: time.Now}}}
	v.org, v.other = v.Organization(t, 0, domain.InternalPlan), v.Organization(t, 0, domain.InternalPlan)
	v.Everything(t, v.org)
	v.Everything(t, v.other)
	v.requests()
	config, err := pgxpool.ParseConfig(v.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["session_replication_role"] = "replica" // no trigger runs
	if v.owner, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.owner.Close)
	v.Installation.Shards = 1 // the others are empty, and would take time
	v.exec("DELETE FROM shard_heads WHERE shard > 0")
	v.as = &ledger.Opened{
		Primary: cluster.At(v.URL),
		Ledger:  v.Ledger.Ledger, Read: v.Pool, Installation: v.Installation, URL: v.URL,
		Store: query.New(query.Config{Pool: v.Pool, Public: v.Pool, Installation: v.Installation}),
	}
	return v
}

// requests creates an organization that uses most of a month's requests and is warned.
func (v *evil) requests() {
	v.t.Helper()
	o := v.Organization(v.t, 0, "gratis")
	store := query.New(query.Config{Pool: v.Pool, Plans: v.Plans})
	used := int(*v.Plans["gratis"].RequestsPerMonth) * 9 / 10
	if err := store.TakeRequests(
		context.Background(), domain.Access{Organization: o.ID, Plan: "gratis"}, used, time.Now(),
	); err != nil {
		v.t.Fatal(err)
	}
	v.Must(v.t, &domain.WarnOfMeters{Origin: domain.Origin{Organization: o.ID, Actor: domain.SystemActor}})
}

func (v *evil) exec(sql string, args ...any) {
	v.t.Helper()
	if _, err := v.owner.Exec(context.Background(), sql, args...); err != nil {
		v.t.Fatalf("%s: %v", sql, err)
	}
}

func (v *evil) audit(change ...func(*auditOptions)) auditView {
	v.t.Helper()
	o := auditOptions{Trusted: v.Trusted, Start: time.Now()}
	for _, c := range change {
		c(&o)
	}
	view, err := v.app.auditDatabase(context.Background(), v.as, domain.OrganizationID{}, o)
	if err != nil {
		v.t.Fatal(err)
	}
	return view
}

// export exports a bundle of the first organization.
func (v *evil) export() (dir string) {
	v.t.Helper()
	dir = filepath.Join(v.t.TempDir(), "bundle")
	v.exportTo(dir)
	return dir
}

func (v *evil) exportTo(dir string) {
	v.t.Helper()
	if err := v.tryExport(dir); err != nil {
		v.t.Fatal(err)
	}
}

func (v *evil) tryExport(dir string, change ...func(*bundle.Config)) error {
	keys, err := v.Trusted.Marshal()
	if err != nil {
		return err
	}
	config := bundle.Config{
		Organization: v.org.ID, Issuer: v.Installation.Issuer, Texts: true, TrustedKeys: keys,
		Now: evidence.FormatTime(time.Now()), SegmentEvents: 10,
		Replace: func(path string, text []byte) error { return os.WriteFile(path, text, 0o600) },
	}
	for _, c := range change {
		c(&config)
	}
	w, err := bundle.Create(dir, config)
	if err != nil {
		return err
	}
	_, err = v.app.export(context.Background(), v.as, v.org.ID, w)
	return err
}

func against(t *testing.T, dir string) func(*auditOptions) {
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *auditOptions) { o.against = b }
}

// save saves tables, and returns a function that restores them.
func (v *evil) save(name string, tables ...string) (restore func(tables ...string)) {
	for _, table := range tables {
		v.exec(fmt.Sprintf("CREATE TABLE public.%[2]s_%[1]s AS TABLE public.%[1]s", table, name))
	}
	return func(tables ...string) {
		for _, table := range tables {
			v.exec("DELETE FROM public." + table)
			v.exec(fmt.Sprintf("INSERT INTO public.%[1]s TABLE public.%[2]s_%[1]s", table, name))
		}
	}
}

type column struct{ table, name, kind string }

// columns lists the columns of tables, from the database's catalogue.
func (v *evil) columns(tables []string) map[string][]column {
	v.t.Helper()
	rows, err := v.owner.Query(context.Background(),
		`SELECT table_name, column_name, udt_name FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name = ANY($1) ORDER BY table_name, ordinal_position`, tables)
	if err != nil {
		v.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c column, err error) {
		return c, row.Scan(&c.table, &c.name, &c.kind)
	})
	if err != nil {
		v.t.Fatal(err)
	}
	by := map[string][]column{}
	for _, c := range all {
		by[c.table] = append(by[c.table], c)
	}
	return by
}

// flipped returns an SQL expression for the column with one bit, or the smallest amount, changed.
func (c column) flipped(t *testing.T) string {
	t.Helper()
	expression := map[string]string{
		"int2":        "coalesce(%[1]s, 0) # 16384::int2",
		"int4":        "coalesce(%[1]s, 0) # 1073741824",
		"int8":        "coalesce(%[1]s, 0) # 1073741824",
		"bool":        "NOT coalesce(%[1]s, false)",
		"timestamptz": "coalesce(%[1]s, now()) + interval '1 microsecond'",
		"uuid": "coalesce((left(%[1]s::text, 35) || to_hex((('x' || right(%[1]s::text, 1))::bit(4) # " +
			"b'0001')::int))::uuid, gen_random_uuid())",
		"text": `CASE WHEN coalesce(%[1]s, '') = '' THEN 'x' ELSE overlay(%[1]s placing chr(ascii(substr(%[1]s, (length(%[1]s) + 1) / 2, 1)) # 1)
			from (length(%[1]s) + 1) / 2 for 1) END`,
		"bytea": `CASE WHEN coalesce(length(%[1]s), 0) = 0 THEN '\x01' ELSE set_byte(%[1]s, length(%[1]s) / 2, get_byte(%[1]s, length(%[1]s) / 2) # 1) END`,
		"_text": "coalesce(%[1]s, '{}') || 'x'::text",
	}[c.kind]
	if expression == "" {
		t.Fatalf("column %s.%s is of a type that this test cannot flip: %s", c.table, c.name, c.kind)
	}
	return fmt.Sprintf(expression, pgx.Identifier{c.name}.Sanitize())
}

// flip changes one column of one row that matches the condition.
func (v *evil) flip(c column, where string) {
	v.t.Helper()
	sql := fmt.Sprintf("UPDATE public.%[1]s SET %[2]s = %[3]s WHERE ctid = (SELECT ctid FROM public.%[1]s WHERE %[4]s "+
		"ORDER BY ctid LIMIT 1)",
		c.table, pgx.Identifier{c.name}.Sanitize(), c.flipped(v.t), where)
	tag, err := v.owner.Exec(context.Background(), sql)
	if err != nil || tag.RowsAffected() != 1 {
		v.t.Fatalf("%s: %v, %v", sql, tag, err)
	}
}

// TestAuditFindsEveryColumn changes a bit in every column of the log and of every projection. The columns come from the
// database, so a new one is covered automatically.
func TestAuditFindsEveryColumn(t *testing.T) {
	if testing.Short() {
		t.Skip("audits once a column")
	}
	v := newEvil(t)
	if view := v.audit(); view.FindingCount != 0 || len(view.Projections) < 20 || view.Events < 60 ||
		len(view.Organizations) != 3 {
		t.Fatalf("of a sound ledger: %+v", view)
	}
	checks, err := pgx.CollectRows(must1(v.owner.Query(context.Background(),
		`SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace`)), pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, drop := range checks {
		v.exec(drop)
	}
	tables, err := projections.Projections(context.Background(), v.owner)
	if err != nil {
		t.Fatal(err)
	}
	logTables := []string{"events", "texts", "shard_heads"}
	restore := v.save("saved", append(logTables, tables...)...)
	t.Run("log", func(t *testing.T) {
		v.t = t
		row := map[string]string{
			"events":      "shard = 0 AND type = 'integrity.registered'",
			"texts":       "shard = 0 AND body IS NOT NULL",
			"shard_heads": "shard = 0",
		}
		for table, columns := range v.columns(logTables) {
			for _, c := range columns {
				// These columns limit future writers and are not part of the history. The next start raises a value that is too
				// low.
				if table == "shard_heads" && slices.Contains([]string{"minimum_version", "rules"}, c.name) {
					continue
				}
				v.flip(c, row[table])
				view := v.audit()
				if view.FindingCount == 0 {
					t.Errorf("a change of %s.%s was not found", table, c.name)
				} else {
					t.Logf("%s.%s: %s", table, c.name, view.Findings[0])
				}
				restore(table)
			}
		}
	})
	t.Run("projections", func(t *testing.T) {
		v.t = t
		columns := v.columns(tables)
		for n := 0; ; n++ { // the nth column of every table at once
			flipped := map[string]column{}
			for _, table := range tables {
				if n < len(columns[table]) {
					flipped[table] = columns[table][n]
					v.flip(columns[table][n], "shard = 0")
				}
			}
			if len(flipped) == 0 {
				break
			}
			view := v.audit()
			for table, c := range flipped {
				i := slices.IndexFunc(view.Findings, func(f audit.Finding) bool {
					return f.Check == audit.CheckProjection && strings.HasPrefix(f.Place, table+" ")
				})
				if i < 0 {
					t.Errorf("a change of %s.%s was not found", table, c.name)
				} else if n > 3 {
					t.Logf("%s.%s: %s", table, c.name, view.Findings[i])
				}
				restore(table)
			}
		}
	})
	v.t = t
	if view := v.audit(); view.FindingCount != 0 {
		t.Errorf("after all was put back: %+v", view.Findings)
	}
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// first returns the first finding, which must come from this check and, unless sequence is 0, concern this sequence of
// the first organization.
func (v *evil) first(view auditView, check audit.Check, sequence int64) {
	v.t.Helper()
	if view.FindingCount == 0 {
		v.t.Error("nothing was found")
		return
	}
	i := slices.IndexFunc(view.Findings, func(f audit.Finding) bool { return f.Check == check })
	if i < 0 || sequence != 0 && (view.Findings[0].Sequence != sequence ||
		view.Findings[0].Organization != v.org.ID.String()) {
		v.t.Errorf("found %v, want %s at sequence %d", view.Findings, check, sequence)
		return
	}
	v.t.Logf("%s", view.Findings[i])
}

// event reads one event of the first organization.
func (v *evil) event(where string) domain.Event {
	v.t.Helper()
	for _, e := range v.Events(v.t, 0) {
		if e.Organization == v.org.ID && string(e.Type) == where {
			return e
		}
	}
	v.t.Fatalf("no event %s", where)
	return domain.Event{}
}

// rewrite stores an event with its matching hash.
func (v *evil) rewrite(e *domain.Event) {
	v.t.Helper()
	data, err := e.Canonical()
	if err != nil {
		v.t.Fatal(err)
	}
	e.Data = data
	hash := domain.LeafHash(e.Leaf())
	v.exec(
		"UPDATE events SET data = $3, hash = $4, subject = $5, actor = $6 WHERE shard = $1 AND position = $2", e.Shard,
		e.Position, e.Data, hash[:], e.Subject, e.Actor,
	)
}

// rebuild rebuilds the projections, like an attacker who hides a change.
func (v *evil) rebuild() {
	v.t.Helper()
	pool, err := cluster.At(v.URL).RebuildPool(context.Background(), 2)
	if err != nil {
		v.t.Fatal(err)
	}
	defer pool.Close()
	if _, err := (&projections.Rebuild{Pool: pool, Program: "evil"}).Shard(context.Background(), 0); err != nil {
		v.t.Fatal(err)
	}
}

// TestAuditFindsTampering: changes that an attacker with full access to the database could make to the history.
func TestAuditFindsTampering(t *testing.T) {
	if testing.Short() {
		t.Skip("audits many times")
	}
	v := newEvil(t)
	tables, err := projections.Projections(context.Background(), v.owner)
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{"events", "texts", "shard_heads"}, tables...)
	length := v.audit().Organizations[0].Events
	earlier := v.save("earlier", all...)
	for n := range 3 {
		v.Must(t, v.Register(t, v.org, v.org.Declaration(fmt.Sprint("later-", n), 1, fmt.Sprint(n))))
	}
	former := v.export()
	restore := v.save("saved", all...)
	registered := v.event("integrity.registered")
	stranger := evidence.GenerateSigner()
	for name, tamper := range map[string]func(){
		"deleted event": func() {
			v.exec("DELETE FROM events WHERE shard = 0 AND position = $1", registered.Position)
			v.first(v.audit(), audit.CheckSequence, registered.Sequence)
		},
		"deleted event, the others moved up": func() {
			v.exec("DELETE FROM events WHERE shard = 0 AND position = $1", registered.Position)
			v.exec(
				"UPDATE events SET sequence = -sequence WHERE shard = 0 AND organization_id = $1 AND sequence > $2",
				[16]byte(v.org.ID), registered.Sequence,
			)
			v.exec("UPDATE events SET sequence = -sequence - 1 WHERE sequence < 0")
			v.exec("UPDATE events SET position = -position WHERE shard = 0 AND position > $1", registered.Position)
			v.exec("UPDATE events SET position = -position - 1 WHERE position < 0")
			v.exec("UPDATE shard_heads SET position = position - 1 WHERE shard = 0")
			v.first(v.audit(), audit.CheckHash, registered.Sequence)
		},
		"an event before the first": func() {
			v.exec(`INSERT INTO events SELECT shard, -position, organization_id, -sequence, gen_random_uuid(), v, company_id, type, subject, occurred_at,
				actor, request_id, data, nonce, hash FROM events WHERE shard = 0 AND position = $1`, registered.Position)
			v.first(v.audit(), audit.CheckPosition, -registered.Sequence)
			view, err := v.app.auditDatabase(
				context.Background(), v.as, v.org.ID, auditOptions{Trusted: v.Trusted, Start: time.Now()},
			)
			if err != nil {
				t.Fatal(err)
			}
			v.first(view, audit.CheckSequence, -registered.Sequence)
		},
		"two events swapped": func() {
			v.exec("UPDATE events SET position = -2, sequence = -2 WHERE shard = 0 AND position = $1", registered.Position)
			v.exec(
				"UPDATE events SET position = position - 1, sequence = sequence - 1 WHERE shard = 0 AND position = $1",
				registered.Position+1,
			)
			v.exec(
				"UPDATE events SET position = $1, sequence = $2 WHERE position = -2", registered.Position+1, registered.Sequence+1,
			)
			v.first(v.audit(), audit.CheckHash, registered.Sequence)
		},
		"payload signed by another key": func() {
			e := v.event("integrity.registered")
			body := *e.Body.(*domain.RecordRegisteredBody)
			body.Record.SHA256 = evidence.Hash{0xab}
			body.Payload = body.Record.AppendCanonical(nil)
			body.KeyID, body.Signature = stranger.Key().KeyID, must1(stranger.Sign(body.Payload))
			e.Body = &body
			v.rewrite(&e)
			v.rebuild()
			v.first(v.audit(), audit.CheckSignature, e.Sequence)
		},
		"payload changed under its signature": func() {
			e := v.event("integrity.registered")
			body := *e.Body.(*domain.RecordRegisteredBody)
			body.Record.SizeBytes++
			body.Payload = body.Record.AppendCanonical(nil)
			e.Body = &body
			v.rewrite(&e)
			v.rebuild()
			v.first(v.audit(), audit.CheckSignature, e.Sequence)
		},
		"other references under the payload": func() {
			e := v.event("integrity.registered")
			body := *e.Body.(*domain.RecordRegisteredBody)
			body.Salt = strings.Repeat("A", 22)
			e.Body = &body
			v.rewrite(&e)
			v.first(v.audit(), audit.CheckBinding, e.Sequence)
		},
		"revocation taken for another version": func() {
			e := v.event("integrity.revoked")
			body := *e.Body.(*domain.RecordRevokedBody)
			body.Version = 2
			e.Body = &body
			v.rewrite(&e)
			v.first(v.audit(), audit.CheckHistory, e.Sequence)
		},
		"erased without an event": func() {
			v.exec(
				"UPDATE texts SET body = NULL WHERE id = (SELECT id FROM texts WHERE shard = 0 AND organization_id = $1 AND "+
					"body IS NOT NULL LIMIT 1)",
				[16]byte(v.org.ID),
			)
			v.first(v.audit(), audit.CheckText, 0)
		},
		"a text too many": func() {
			v.exec(
				"INSERT INTO texts SELECT shard, organization_id, gen_random_uuid(), salt, body FROM texts WHERE body IS NOT " +
					"NULL LIMIT 1",
			)
			v.first(v.audit(), audit.CheckText, 0)
		},
		"a row where nobody looks": func() {
			v.exec(
				"INSERT INTO documents SELECT 77, document_id, organization_id, company_id, source, reference, " +
					"highest_version, highest_revoked FROM documents LIMIT 1",
			)
			v.first(v.audit(), audit.CheckStray, 0)
		},
		"tail cut off": func() {
			v.exec("DELETE FROM events WHERE shard = 0 AND position > (SELECT position - 3 FROM shard_heads WHERE shard = 0)")
			v.first(v.audit(), audit.CheckHead, 0)
		},
		"database restored to an earlier state": func() {
			earlier(all...)
			if view := v.audit(); view.FindingCount != 0 {
				t.Errorf("without a former bundle: %v", view.Findings)
			}
			view := v.audit(against(v.t, former))
			v.first(view, audit.CheckFormer, length+1)
			if want := fmt.Sprintf("at least %d events", length+3); !strings.Contains(view.Findings[0].Expected.String(), want) {
				t.Errorf("found %s, want %s", view.Findings[0], want)
			}
			if err := v.tryExport(former); !errors.Is(err, bundle.ErrNotExtended) {
				t.Errorf("an export into the former bundle: %v", err)
			}
		},
		"history rewritten as a whole": func() {
			e := v.event("company.created")
			e.Actor = domain.SystemActor
			v.rewrite(&e)
			if view := v.audit(); view.FindingCount != 0 {
				t.Errorf("without a former bundle: %v", view.Findings)
			}
			v.first(v.audit(against(v.t, former)), audit.CheckFormer, e.Sequence)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v.t = t
			tamper()
			v.t = t
			restore(all...)
		})
	}
	v.t = t
	v.Must(t, v.Register(t, v.org, v.org.Declaration("more", 1, "more")))
	view := v.audit(against(v.t, former))
	if view.FindingCount != 0 {
		t.Errorf("of a history that was only extended: %+v", view.Findings)
	}
	// A bundle says nothing of the other organizations, and the answer says so.
	if not := fmt.Sprint(view.NotChecked); !strings.Contains(not, "any organization but "+v.org.ID.String()+" was rewritten") {
		t.Errorf("not checked: %s", not)
	}
	c := view.Against
	if said := say.In(say.Catalogue{}, view.text()); c == nil || c.Organization != v.org.ID || c.Events != length+3 ||
		!strings.Contains(said, fmt.Sprintf("compared with the bundle %s: organization %s, %d events, exported at %s; ",
			former, v.org.ID, c.Events, c.ExportedAt)) {
		t.Errorf("compared with %+v: %s", c, said)
	}
}

// TestFindingsAreInOrder: an audit and rebuild --check print the same in the same order for any number of sessions.
func TestFindingsAreInOrder(t *testing.T) {
	v := newEvil(t)
	for i := range 20 {
		v.Must(t, v.Register(t, v.org, v.org.Declaration(fmt.Sprint("d-", i), 1, "x")))
	}
	for _, spoil := range []string{
		"UPDATE companies SET reference = reference || 'x'", "UPDATE usage SET used = used + 1", "DELETE FROM allowance_warnings",
		"UPDATE documents SET highest_version = highest_version + 1", "DELETE FROM feed WHERE sequence % 3 = 0",
		"UPDATE versions SET size_bytes = 7 WHERE record_id IS NOT NULL", "UPDATE feed SET version = 9",
	} {
		v.exec(spoil)
	}
	var audited, checked string
	for _, sessions := range []int{1, 8} {
		before := runtime.GOMAXPROCS(sessions)
		view := v.audit()
		runtime.GOMAXPROCS(before)
		if got := fmt.Sprint(view.Findings); audited == "" {
			audited = got
		} else if got != audited {
			t.Errorf("audit with %d sessions: %s, want %s", sessions, got, audited)
		}
		pool, err := cluster.At(v.URL).RebuildPool(t.Context(), sessions)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		var out strings.Builder
		v.app.Out = &out
		err = v.app.rebuild(t.Context(), &projections.Rebuild{
			Pool: pool, Check: true, Parts: projections.PartsOf(sessions, 1),
		}, []domain.Shard{0}, sessions, false)
		if got, _, _ := strings.Cut(out.String(), " events replayed"); checked == "" {
			checked = got
		} else if got != checked || !strings.Contains(got, "feed") || err == nil {
			t.Errorf("check with %d sessions: %v %s, want %s", sessions, err, got, checked)
		}
	}
}
