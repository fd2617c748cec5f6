package heal_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/operator/heal"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/bundle"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

const issuer = "https://ledger.example"

// origin is an organization that holds evidence of a ledger.
type origin struct {
	t       *testing.T
	signer  *evidence.Signer
	trusted *evidence.TrustedKeys
	dir     string
	ids     []string // of the items that were read last, in their order
}

func newOrigin(t *testing.T) *origin {
	t.Helper()
	signer := evidence.GenerateSigner()
	trusted, err := evidence.NewTrustedKeys(
		[]evidence.TrustedKey{{PublicKey: signer.Key(), Status: evidence.KeyActive}}, nil, nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	return &origin{t: t, signer: signer, trusted: trusted, dir: t.TempDir()}
}

func (o *origin) declaration(document string, version int32) wire.Declaration {
	return wire.Declaration{
		CompanyReference: "c", Source: "s", DocumentReference: document, Version: version,
		SHA256: strings.Repeat("ab", 32), SizeBytes: 1, MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	}
}

// evidence returns the evidence of a version, received at a second of the year.
func (o *origin) evidence(d wire.Declaration, at time.Time, by *evidence.Signer) (id string, text []byte) {
	o.t.Helper()
	references := evidence.References{
		CompanyReference: d.CompanyReference, Source: d.Source, DocumentReference: d.DocumentReference,
		Version: int64(d.Version), Salt: "AAAAAAAAAAAAAAAAAAAAAA",
	}
	id = domain.NewPublicID(domain.LedgerSecret("secret"), 0).String()
	sum, _ := domain.ParseSHA256(d.SHA256)
	payload := evidence.RecordPayload{
		Issuer: issuer, PublicID: id, SHA256: sum, SizeBytes: d.SizeBytes, MimeType: d.MimeType,
		GeneratedAt: evidence.DeclaredTime(d.GeneratedAt), ReceivedAt: at, ReferencesSHA256: references.SHA256(),
	}.AppendCanonical(nil)
	signed, err := by.SignPayload(payload)
	if err != nil {
		o.t.Fatal(err)
	}
	e := evidence.NewEnvelope(signed)
	e.References = &references
	text, err = json.Marshal(e)
	if err != nil {
		o.t.Fatal(err)
	}
	return id, text
}

func (o *origin) write(name, text string) {
	o.t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// read returns one line for each item, and the names of the refused inputs.
func (o *origin) read(paths ...string) (items, refused []string) {
	o.t.Helper()
	stage := &heal.Stage{
		Issuer: issuer, Trusted: o.trusted, Now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
		Refused: func(place string, why error) error {
			refused = append(refused, filepath.Base(place))
			o.t.Log(place, why)
			return nil
		},
	}
	o.ids = nil
	ctx := context.Background()
	if err := stage.Open(ctx); err != nil {
		o.t.Fatal(err)
	}
	defer func() {
		if err := stage.Close(); err != nil {
			o.t.Error(err)
		}
	}()
	if err := stage.Read(ctx, paths); err != nil {
		o.t.Fatal(err)
	}
	if err := stage.Versions(ctx, func(version []heal.Item) error {
		for _, i := range version {
			previous := "-"
			if p := i.Declaration.PreviousVersion; p != nil {
				previous = fmt.Sprint(*p)
			}
			o.ids = append(o.ids, i.PublicID.String())
			items = append(items, fmt.Sprintf(
				"%s %d id %t receipt %t previous %s unknown %t", i.Declaration.DocumentReference, i.Declaration.Version,
				i.PublicID != domain.PublicID{}, i.Receipt != nil, previous, i.PreviousUnknown,
			))
		}
		return nil
	}); err != nil {
		o.t.Fatal(err)
	}
	slices.Sort(refused)
	return items, refused
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// TestInputs: evidence, JSON lines and declarations of one version become one item; whatever is unusable is refused by
// its name, and the rest is read.
func TestInputs(t *testing.T) {
	o := newOrigin(t)
	d := o.declaration("d", 2)
	d.PreviousVersion = new(int32(1))
	_, receipt := o.evidence(d, noon, o.signer)
	o.write("evidence.json", string(receipt))
	declaration, _ := json.Marshal(d)
	o.write("declarations.jsonl", string(declaration)+"\n\n{\"not\":\"ours\"}\n"+string(declaration)+"\nnot JSON\n")
	_, bare := o.evidence(o.declaration("bare", 1), noon, o.signer)
	o.write("bare.json", string(bare))
	_, foreign := o.evidence(o.declaration("foreign", 1), noon, evidence.GenerateSigner())
	o.write("foreign.json", string(foreign))
	o.write("altered.json", strings.Replace(string(bare), `"source":"s"`, `"source":"other"`, 1))
	o.write("binary", "\x00\xff")
	o.write("long.jsonl", strings.Repeat("x", 2<<20)+"\n"+string(bare)+"\n")
	open, _ := json.Marshal(o.declaration("open", 1))
	o.write("open.jsonl", string(open)+"\n")
	items, refused := o.read(o.dir)
	want(t, "items", items,
		"bare 1 id true receipt true previous - unknown true",
		"d 2 id true receipt true previous 1 unknown false",
		"open 1 id false receipt false previous - unknown false")
	want(t, "refused", refused,
		"altered.json", "binary", "declarations.jsonl:3", "declarations.jsonl:5", "foreign.json", "long.jsonl:1")
}

// TestBundle: of a bundle only the events are read. Files of the same names elsewhere are refused.
func TestBundle(t *testing.T) {
	o := newOrigin(t)
	inside := filepath.Join(o.dir, "bundle")
	w, err := bundle.Create(inside, bundle.Config{
		Organization: domain.NewID[domain.OrganizationID](noon), Issuer: issuer, TrustedKeys: []byte("{}"), Checkpoint: "c",
		Now:     evidence.FormatTime(noon),
		Replace: func(path string, text []byte) error { return os.WriteFile(path, text, 0o600) },
	})
	if err == nil {
		_, err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	declaration, _ := json.Marshal(o.declaration("d", 1))
	o.write("bundle/more.jsonl", string(declaration)+"\n")
	o.write("checkpoint", "c")
	items, refused := o.read(o.dir)
	want(t, "items", items, "d 1 id false receipt false previous - unknown false")
	want(t, "refused", refused, "checkpoint:1")
	if err := os.Remove(filepath.Join(inside, bundle.ManifestFile)); err != nil {
		t.Fatal(err)
	}
	_, refused = o.read(o.dir)
	want(t, "refused without a manifest", refused, "checkpoint:1", "checkpoint:1", "trusted-keys.json")
}

// TestVersionRegisteredTwice: the receipt that is older comes first, so that it keeps the record.
func TestVersionRegisteredTwice(t *testing.T) {
	o := newOrigin(t)
	d := o.declaration("d", 1)
	second, later := o.evidence(d, noon.Add(time.Hour), o.signer)
	first, earlier := o.evidence(d, noon, o.signer)
	o.write("evidence.jsonl", string(later)+"\n"+string(earlier)+"\n")
	_, refused := o.read(o.dir)
	want(t, "public ids", o.ids, first, second)
	want(t, "refused", refused)
}

// TestContradictingInputs: the first of two declarations stays, and a receipt counts more than any declaration.
func TestContradictingInputs(t *testing.T) {
	o := newOrigin(t)
	d := o.declaration("d", 1)
	other := d
	other.SizeBytes = 2
	_, receipt := o.evidence(d, noon, o.signer)
	one, _ := json.Marshal(d)
	two, _ := json.Marshal(other)
	o.write("a.jsonl", string(two)+"\n"+string(one)+"\n")
	o.write("b.json", string(receipt))
	items, refused := o.read(o.dir)
	want(t, "items", items, "d 1 id true receipt true previous - unknown true")
	want(t, "refused", refused, "a.jsonl:1", "a.jsonl:2")
}

// TestContradictingAnswer: an item of an outbox that names the record of a receipt and declares other data is refused,
// whichever is read first.
func TestContradictingAnswer(t *testing.T) {
	for _, names := range [][2]string{{"a.json", "b.json"}, {"b.json", "a.json"}} {
		o := newOrigin(t)
		d := o.declaration("d", 1)
		id, receipt := o.evidence(d, noon, o.signer)
		d.SizeBytes = 2
		other, _ := json.Marshal(d)
		o.write(names[0], string(receipt))
		o.write(names[1], fmt.Sprintf(`{"declaration":%s,"response":{"publicId":%q}}`, other, id))
		items, refused := o.read(o.dir)
		want(t, "items", items, "d 1 id true receipt true previous - unknown true")
		want(t, "refused", refused, names[1])
	}
}

// TestOutboxDatabase reads the database of an outbox while it is open, also in the form of earlier releases.
func TestOutboxDatabase(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		testOutboxDatabase(t, earlier)
	}
}

func testOutboxDatabase(t *testing.T, earlier bool) {
	o := newOrigin(t)
	ctx := context.Background()
	path := filepath.Join(o.dir, "outbox.sqlite")
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	do := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(ctx, statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	id, receipt := o.evidence(o.declaration("d", 1), noon, o.signer)
	second := domain.NewPublicID(domain.LedgerSecret("secret"), 0).String()
	answers := []string{`{"publicId":"` + id + `","usage":{"period":"2026-03"}}`, `{"publicId":"` + second + `","usage":{"period":"2026-03"}}`}
	if earlier {
		do(`CREATE TABLE integrity_outbox (id INTEGER PRIMARY KEY, version INTEGER, declaration TEXT, response TEXT, evidence TEXT)`)
		for n := range int32(3) {
			d, err := json.Marshal(o.declaration("d", n+1))
			if err != nil {
				t.Fatal(err)
			}
			do(`INSERT INTO integrity_outbox (version, declaration) VALUES (?, ?)`, n+1, string(d))
		}
		do("UPDATE integrity_outbox SET response = ?, evidence = ? WHERE version = 1", answers[0], string(receipt))
		do("UPDATE integrity_outbox SET response = ? WHERE version = 2", answers[1])
	} else {
		box, err := outbox.New(ctx, db)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range int32(3) {
			if err := box.Add(ctx, tx, o.declaration("d", n+1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		do("UPDATE integrity_outbox SET record = ?, evidence = ? WHERE version = 1", answers[0], string(receipt))
		do("UPDATE integrity_outbox SET record = ? WHERE version = 2", answers[1])
	}
	items, refused := o.read(path)
	want(t, "items", items,
		"d 1 id true receipt true previous - unknown false",
		"d 2 id true receipt false previous - unknown false",
		"d 3 id false receipt false previous - unknown false")
	want(t, "refused", refused)
	if _, refused := o.read(filepath.Join(o.dir, "outbox.sqlite")); refused != nil {
		t.Errorf("a second time: %q", refused)
	}
}
