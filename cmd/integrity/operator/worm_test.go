package operator

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/cmd/integrity/internal/worm"
	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/stamptest"
)

// vault is a ledger with a transparency log, whose checkpoints are exported to an S3 server with object lock.
type vault struct {
	*evil
	signer    *transparency.Signer
	witness   *evidence.Signer
	authority *stamptest.Authority
	client    minio.Core
	bucket    string // that put writes to
	address   string
}

func newVault(t *testing.T) *vault {
	t.Helper()
	v := &vault{evil: newEvil(t), authority: stamptest.New(t, "good"), witness: evidence.GenerateSigner(), bucket: "exports"}
	var err error
	v.signer, err = transparency.NewSigner(evidence.LogName(v.Installation.Issuer), evidence.GenerateSigner())
	if err == nil {
		v.Trusted, err = v.Trusted.AddLogKey(v.signer.LogKey)
	}
	if err == nil {
		v.Trusted, err = v.Trusted.PutAuthority(v.authority.Pinned())
	}
	if err == nil {
		v.Trusted, err = v.Trusted.AddWitnessKey(must1(evidence.NewWitnessKey(witnessName, v.witness.Key().Ed25519())))
	}
	if err != nil {
		t.Fatal(err)
	}
	v.grow()
	v.address = integritytest.ServeS3(t, t.TempDir())
	t.Setenv("AWS_ACCESS_KEY_ID", "KEY")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
	v.client.Client, err = minio.New(v.address, &minio.Options{
		Creds: credentials.NewStaticV4("KEY", "SECRET", ""), Region: "eu-west-1",
	})
	for bucket, locked := range map[string]bool{"exports": true, "unlocked": false} {
		if err == nil {
			err = v.client.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{ObjectLocking: locked})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// grow lets a keeper grow, sign and stamp the log.
func (v *vault) grow() {
	v.t.Helper()
	ctx, cancel := context.WithCancel(v.t.Context())
	defer cancel()
	pool, err := cluster.At(v.URL).ConsumerPool(ctx, 4)
	if err != nil {
		v.t.Fatal(err)
	}
	defer pool.Close()
	authorities, err := transparency.ParseTimestampAuthorities("good " + v.authority.URL)
	if err != nil {
		v.t.Fatal(err)
	}
	k, err := transparency.New(transparency.Config{
		Pool: pool, Shards: 1, Signer: func() *transparency.Signer { return v.signer }, Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Interval: time.Millisecond, Poll: 10 * time.Millisecond,
		Stamp: time.Millisecond, Authorities: authorities, Pinned: v.Trusted.Authority,
	})
	if err != nil {
		v.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.Run(ctx)
	}()
	integritytest.Eventually(v.t, "the log is signed and stamped", func() error {
		var behind bool
		err := v.owner.QueryRow(ctx, `SELECT (SELECT sum(position) FROM shard_heads) > coalesce((SELECT size FROM transparency_checkpoint), 0)
			OR coalesce((SELECT max(tree_size) FROM log_timestamps), 0) < (SELECT size FROM transparency_checkpoint)`).Scan(&behind)
		if err == nil && behind {
			err = errors.New("not yet")
		}
		return err
	})
	cancel()
	<-ended
}

const witnessName = "witness.example/w"

// cosign stores the cosignature of the witness on the newest checkpoint.
func (v *vault) cosign() {
	v.t.Helper()
	head := must1((&transparency.Reader{Pool: v.Pool}).Checkpoint(v.t.Context()))
	c := must1(evidence.OpenCheckpoint(head, v.Trusted))
	text, _, _ := strings.Cut(head, "\n\n")
	at := time.Now().Unix()
	signature := must1(base64.RawURLEncoding.DecodeString(must1(v.witness.Sign(
		fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s\n", at, text),
	))))
	line := must1(hex.DecodeString(must1(evidence.NewWitnessKey(witnessName, v.witness.Key().Ed25519())).KeyHash))
	line = append(binary.BigEndian.AppendUint64(line, uint64(at)), signature...)
	v.exec(
		"INSERT INTO transparency_cosignatures (witness, size, signature) VALUES ($1, $2, $3)", witnessName, c.Size,
		"— "+witnessName+" "+base64.StdEncoding.EncodeToString(line)+"\n",
	)
}

// url adds the parameters of the server.
func (v *vault) url(url string) string {
	if !strings.Contains(url, "?") {
		url += "?object-lock=compliance&days=30"
	}
	return url + "&region=eu-west-1&use_path_style=true&endpoint=http://" + v.address
}

func (v *vault) locked(url string) *blobs.Locked {
	v.t.Helper()
	b, err := blobs.OpenLocked(v.url(url), true)
	if err != nil {
		v.t.Fatal(err)
	}
	return b
}

// export exports as on a day, so many days ago.
func (v *vault) export(url string, ago int) (WormView, error) {
	v.t.Helper()
	keys, err := v.Trusted.Marshal()
	if err != nil {
		v.t.Fatal(err)
	}
	a := &app{&cli.App{Out: io.Discard, Errs: io.Discard, Now: func() time.Time { return time.Now().AddDate(0, 0, -ago) }}}
	return a.writeWorm(v.t.Context(), v.as, v.locked(url), v.Trusted, keys)
}

func (v *vault) exported(url string, ago int) WormView {
	v.t.Helper()
	view, err := v.export(url, ago)
	if err != nil || !view.Written {
		v.t.Fatalf("export: %+v %v", view, err)
	}
	return view
}

// compared audits the database against the exports.
func (v *vault) compared(url string) auditView {
	v.t.Helper()
	return v.audit(func(o *auditOptions) { o.worm = v.locked(url) })
}

// want fails unless the audit has exactly findings that contain these texts, and notes that contain the others.
func (v *vault) want(view auditView, findings []string, notes ...string) {
	v.t.Helper()
	if int(view.FindingCount) != len(findings) {
		v.t.Errorf("%d findings, want %d: %v", view.FindingCount, len(findings), view.Findings)
	}
	for _, want := range findings {
		found := false
		for _, f := range view.Findings {
			found = found || strings.Contains(f.String(), want)
		}
		if !found {
			v.t.Errorf("no finding says %q: %v", want, view.Findings)
		}
	}
	said := say.In(say.Catalogue{}, view.text())
	for _, want := range notes {
		if !strings.Contains(said, want) {
			v.t.Errorf("%q is missing: %s", want, said)
		}
	}
}

func (v *vault) register(document string) {
	v.t.Helper()
	v.Must(v.t, v.Register(v.t, v.org, v.org.Declaration(document, 1, document)))
	v.grow()
}

// TestWormExport exports over several days, one of which is missed. Neither the program nor another client with the
// same credentials can overwrite or delete an export.
func TestWormExport(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an S3 server")
	}
	v := newVault(t)
	const url = "s3://exports/of/ledger"
	if _, err := v.export("s3://unlocked", 0); err == nil || !strings.Contains(err.Error(), "has no object lock") ||
		!strings.Contains(err.Error(), "s3://bucket/prefix?object-lock=compliance&days=3650") {
		t.Errorf("to a bucket without object lock: %v", err)
	}
	if _, err := v.audited(url); err == nil || !strings.Contains(err.Error(), "contains no complete export") {
		t.Errorf("against an empty bucket: %v", err)
	}
	v.cosign()
	first := v.exported(url, 4)
	if again, err := v.export(url, 4); err != nil || again.Written || again.Export != first.Export {
		t.Errorf("a second export of the day: %+v %v", again, err)
	}
	if quiet := v.exported(url, 3); quiet.TreeSize != first.TreeSize {
		t.Errorf("an export of a day without events: %+v", quiet)
	}
	v.register("later")
	last := v.exported(url, 1)
	if last.TreeSize <= first.TreeSize || last.Tokens != 1 || last.Until == nil {
		t.Errorf("the last export: %+v", last)
	}
	v.register("after-it")
	validate, files := validator(t), map[string]string{}
	v.copied("of/ledger/", "", func(name, text string) (string, bool) {
		files[name] = text
		if strings.HasSuffix(name, "/manifest.json") {
			validate("integrity-worm-v1.json", []byte(text))
		}
		return "", false
	})
	stamps := strings.TrimPrefix(last.Export, "s3://exports/of/ledger/") + "/stamps/good"
	v.authority.Verify([]byte(files[stamps+".checkpoint"]), []byte(files[stamps+".tst"])) // with openssl
	gap := time.Now().UTC().AddDate(0, 0, -2).Format(time.DateOnly)
	v.want(v.compared(url), nil, "exports: 3 in s3://exports/of/ledger, from ", "; tokens: 3",
		"days without an export (1): "+gap, "whether the history was rewritten before the first export",
		"the history since the last export", "exports that are cosigned by a pinned witness: 2", "everything that was checked is correct")

	// The same credentials can neither delete nor change a version, nor end its lock.
	ctx := t.Context()
	name := strings.TrimPrefix(first.Export, "s3://exports/") + "/" + bundle.CheckpointFile
	info, err := v.client.StatObject(ctx, "exports", name, minio.StatObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	soon := time.Now().Add(time.Minute)
	mode := minio.Compliance
	for what, attempt := range map[string]func() error{
		"delete": func() error {
			return v.client.RemoveObject(ctx, "exports", name, minio.RemoveObjectOptions{VersionID: info.VersionID})
		},
		"delete as governor": func() error {
			return v.client.RemoveObject(
				ctx, "exports", name, minio.RemoveObjectOptions{VersionID: info.VersionID, GovernanceBypass: true},
			)
		},
		"shorten": func() error {
			return v.client.PutObjectRetention(ctx, "exports", name, minio.PutObjectRetentionOptions{
				VersionID: info.VersionID, Mode: &mode, RetainUntilDate: &soon, GovernanceBypass: true,
			})
		},
		"write again": func() error {
			return v.locked(url).Write(
				ctx, strings.TrimPrefix(name, "of/ledger/"), []byte("x"), time.Now().AddDate(0, 0, 1),
			)
		},
	} {
		if err := attempt(); err == nil {
			t.Errorf("%s: no error", what)
		} else {
			t.Logf("%s: %v", what, err)
		}
	}
	v.want(v.compared(url), nil)
	// A client with the credentials can hide an object, or add a version. Neither deceives the audit.
	manifest := strings.TrimSuffix(name, bundle.CheckpointFile) + "manifest.json"
	if err := v.client.RemoveObject(ctx, "exports", manifest, minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	// The exports have names of the past, which cover nothing before the store took them.
	v.want(v.compared(url), nil, "exports: 3 in", "were deleted later; their locked versions were read",
		"backdated", "before the first export, of "+time.Now().UTC().Format(time.DateOnly))
	v.put(name, "replaced")
	v.want(v.compared(url), []string{"export: s3://exports/" + name + ": expected one version"}, "exports: 3 in")
	if _, err := v.export(url, 1); err != nil {
		t.Errorf("an export after that: %v", err)
	}
	// A wrong clock dates an export in the future. It hides no missed export, and later exports continue it, too.
	v.exported(url, -40)
	v.want(v.compared(url), []string{"expected one version"}, "exports: 4 in", "is dated in the future")
	d := &doctor{app: &app{&cli.App{Out: io.Discard, Errs: io.Discard, Now: func() time.Time {
		return time.Now().AddDate(0, 0, 2)
	}}}}
	d.cfg.Worm = v.url(url)
	diagnosed := func(wants ...string) {
		t.Helper()
		d.findings = nil
		d.exports(ctx)
		ok := len(d.findings) == len(wants)
		for i, want := range wants {
			ok = ok && d.findings[i].State == stateWarn && strings.Contains(d.findings[i].Found.String(), want)
		}
		if !ok {
			t.Errorf("doctor: %+v, want %q", d.findings, wants)
		}
	}
	future := time.Now().UTC().AddDate(0, 0, 40).Format(time.DateOnly)
	diagnosed("the export "+future, "the last export was made at "+time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly))
	d.issuer = "https://other.example"
	diagnosed("the export "+future, " is of https://ledger.example, but this installation is https://other.example")
	d.issuer = v.Installation.Issuer
	// A store that lists the export but refuses its manifest accuses nobody.
	address := v.address
	v.address = refusing(t, address, "/manifest.json")
	d.cfg.Worm = v.url(url)
	diagnosed("the export "+future, "/manifest.json: ")
	if do := d.findings[1].Do; !strings.Contains(do.String(), "no checkpoint is exported until it answers") {
		t.Errorf("doctor: %v", do)
	}
	v.address = address
	alone := "s3://exports/future"
	v.exported(alone, -40)
	d.cfg.Worm = v.url(alone)
	diagnosed("the export "+future, "has no export of the last 31 days")
	v.exported(url, 0)
	v.want(v.compared(url), []string{"expected one version"}, "exports: 5 in")
}

// refusing serves what another server does, without objects whose names have an ending.
func refusing(t *testing.T, address, ending string) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: address})
		r.Out.Host = r.In.Host // which is signed
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ending) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestFloodedExports: an audit against a bucket of too many objects prints its whole result, and the answer is negative.
func TestFloodedExports(t *testing.T) {
	view := auditView{Source: "database", Scope: wholeScope, Events: 7}
	view.exports(&worm.Report{
		Place: "s3://exports", Findings: []audit.Finding{{
			Check: audit.CheckExport, Place: "s3://exports", Expected: say.Sentencef("at most %d exports and %d objects", 1, 2),
			Found: say.Sentencef("more"),
		}},
		More:       3,
		NotChecked: []say.Sentence{say.Sentencef("whether the history was rewritten: no export with a past date was read")},
	})
	var out bytes.Buffer
	a := &app{&cli.App{Out: &out, Errs: io.Discard, Now: time.Now}}
	if err := a.printAudit(view, false); !errors.Is(err, cli.NegativeError("")) {
		t.Errorf("the audit ends with %v", err)
	}
	for _, want := range []string{
		"FINDING export: s3://exports: expected at most 1 exports and 2 objects, found more\n", "exports: 0 in s3://exports; tokens: 0\n",
		"7 events in ", "- whether the history was rewritten: no export with a past date was read\n", "and 3 more findings\n",
		"verdict: NOT proven, 4 findings",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing: %s", want, &out)
		}
	}
	if text := must1(json.Marshal(view)); !bytes.Contains(text, []byte(`"first":null,"last":null`)) {
		t.Errorf("%s", text)
	}
}

// TestLedgerKeys: an audit says why the ledger has no keys to compare exports with.
func TestLedgerKeys(t *testing.T) {
	v := newEvil(t)
	missing := func(want string) {
		t.Helper()
		keys, err := ledgerKeys(t.Context(), v.as)
		if err != nil || keys.TrustedKeys != nil || !strings.Contains(keys.Missing.String(), want) {
			t.Errorf("%+v %v, want %q", keys, err, want)
		}
	}
	missing("it has published none in its transparency log")
	v.Must(t, &domain.PublishKeys{
		Origin: domain.Origin{Organization: domain.InstallationID, Actor: domain.OperatorActor, RequestID: "r"},
		Set:    must1(evidence.NewKeySet(v.Installation.Issuer, v.Trusted)),
	})
	if keys, err := ledgerKeys(t.Context(), v.as); err != nil || len(keys.Keys()) == 0 {
		t.Errorf("%+v %v", keys, err)
	}
	v.exec("UPDATE events SET data = 'x' WHERE type = 'keys.published'")
	missing("the ones that it has published are damaged in the database")
}

// audited is compared with its error.
func (v *vault) audited(url string) (auditView, error) {
	return v.app.auditDatabase(v.t.Context(), v.as, domain.OrganizationID{}, auditOptions{
		Trusted: v.Trusted, Start: time.Now(), worm: v.locked(url),
	})
}

// put writes an object without a lock.
func (v *vault) put(name, text string) {
	v.t.Helper()
	if _, err := v.client.Client.PutObject(
		v.t.Context(), v.bucket, name, strings.NewReader(text), int64(len(text)), minio.PutObjectOptions{},
	); err != nil {
		v.t.Fatal(err)
	}
}

// TestWormFindsRewrittenHistory: somebody with all keys and the database changes an early event, and makes all hashes,
// signatures, tokens, trees and projections anew. An audit by itself is satisfied. Against the exports it is not, and
// nothing more is exported.
func TestWormFindsRewrittenHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an S3 server")
	}
	v := newVault(t)
	const url = "s3://exports/ledger"
	first := v.exported(url, 2)
	v.register("later")
	second := v.exported(url, 1)
	v.want(v.compared(url), nil)

	e := v.event("integrity.registered")
	body := *e.Body.(*domain.RecordRegisteredBody)
	body.Record.SHA256 = evidence.Hash{0xab}
	body.Payload = body.Record.AppendCanonical(nil)
	body.KeyID, body.Signature = v.Registrar.Signer.Key().KeyID, must1(v.Registrar.Signer.Sign(body.Payload))
	e.Body = &body
	v.rewrite(&e)
	v.rebuild()
	for _, table := range []string{"tree", "tiles", "runs", "checkpoint", "cosignatures"} {
		v.exec("DELETE FROM transparency_" + table)
	}
	v.exec("DELETE FROM log_timestamps")
	v.grow()

	v.want(v.audit(), nil, "everything that was checked is correct")
	v.put(strings.TrimPrefix(second.Export, "s3://exports/")+"/manifest.json", "x")
	view := v.compared(url)
	if first := view.Findings[0].String(); !strings.Contains(first, "the history was rewritten or lost") {
		t.Errorf("the first finding is %s", first)
	}
	v.want(view, []string{
		"export: " + second.Export + "/manifest.json: expected one version",
		"export: " + first.Export + "/checkpoint: expected the exported root ",
		"export: " + first.Export + "/stamps/good.checkpoint: expected the exported root ",
		"export: " + second.Export + "/checkpoint: expected the exported root ",
		"export: " + second.Export + "/stamps/good.checkpoint: expected the exported root ",
	}, "the history was rewritten or lost", "verdict: NOT proven, 5 findings")
	var said bytes.Buffer
	v.app.Out = &said
	if err := v.app.printAudit(view, false); !errors.Is(err, cli.NegativeError("")) {
		t.Errorf("the audit ends with %v", err)
	}
	if _, err := v.export(url, 0); !errors.Is(err, cli.NegativeError("")) ||
		!strings.Contains(err.Error(), "the database contradicts "+second.Export) {
		t.Errorf("an export of the other history: %v", err)
	}
	// The tree is shorter than it was.
	v.exec("DELETE FROM transparency_checkpoint")
	v.exec("UPDATE transparency_tree SET size = 1")
	if _, err := v.export(url, 0); !errors.Is(err, cli.NegativeError("")) {
		t.Errorf("an export of a shorter log: %v", err)
	}
	if n := v.compared(url).Exports; n == nil || n.Exports != 2 {
		t.Errorf("exports after that: %+v", n)
	}
}

// copied copies the current objects of a prefix to another, without a lock. change may change or leave out each.
func (v *vault) copied(from, to string, change func(name, text string) (string, bool)) {
	v.t.Helper()
	for o := range v.client.ListObjectsIter(v.t.Context(), "exports", minio.ListObjectsOptions{
		Prefix: from, Recursive: true,
	}) {
		if o.Err != nil {
			v.t.Fatal(o.Err)
		}
		body, err := v.client.Client.GetObject(v.t.Context(), "exports", o.Key, minio.GetObjectOptions{})
		if err != nil {
			v.t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		if err != nil {
			v.t.Fatal(err)
		}
		name := strings.TrimPrefix(o.Key, from)
		if changed, ok := change(name, string(text)); ok {
			v.put(to+name, changed)
		}
	}
}

// TestWormFindsChangedExports: in storage that does not protect its objects, changed and missing ones are found.
func TestWormFindsChangedExports(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an S3 server")
	}
	v := newVault(t)
	first, second := v.exported("s3://exports/a", 2), v.exported("s3://exports/a", 1)
	one, two := strings.TrimPrefix(first.Export, "s3://exports/a/"), strings.TrimPrefix(second.Export, "s3://exports/a/")
	otherKeys := must1(must1(evidence.NewTrustedKeys(
		[]evidence.TrustedKey{{PublicKey: evidence.GenerateSigner().Key()}}, nil, nil,
	)).Marshal())
	for name, c := range map[string]struct {
		change   func(name, text string) (string, bool)
		findings []string
		notes    []string
	}{
		"copied": {
			func(_, text string) (string, bool) { return text, true }, nil,
			[]string{"exports that are not locked, or no longer, or whose lock"},
		},
		"truncated manifest": {
			func(name, text string) (string, bool) {
				if name == two+"/manifest.json" {
					return text[:len(text)/2], true
				}
				return text, true
			},
			[]string{two + "/manifest.json: expected a manifest as integrity export writes it, found it is not whole"}, nil,
		},
		"first manifest with a space": {
			func(name, text string) (string, bool) {
				if name == one+"/manifest.json" {
					return text + " ", true
				}
				return text, true
			},
			[]string{
				one + "/manifest.json: expected a manifest as integrity export writes it",
				one + "/manifest.json: expected the manifest of SHA-256 ",
			}, nil,
		},
		"last manifest missing": {
			func(name, text string) (string, bool) { return text, name != two+"/manifest.json" }, nil,
			[]string{"the export " + two + " was broken off", "exports: 1 in"},
		},
		"first export removed": {
			func(name, text string) (string, bool) { return text, !strings.HasPrefix(name, one) }, nil,
			[]string{"the exports before " + two + " are gone"},
		},
		"manifest of the first removed": {
			func(name, text string) (string, bool) { return text, name != one+"/manifest.json" },
			[]string{two + "/manifest.json: expected the export " + one + ", which came before, found no such export"}, nil,
		},
		"token removed": {
			func(name, text string) (string, bool) { return text, name != two+"/stamps/good.tst" },
			[]string{two + "/stamps/good.tst: expected the file that the manifest names"}, nil,
		},
		"token changed": {
			func(name, text string) (string, bool) {
				if name == two+"/stamps/good.tst" {
					return text[:len(text)-1] + string(text[len(text)-1]^1), true
				}
				return text, true
			},
			[]string{
				"file: s3://exports/", two + "/stamps/good.tst: expected the authority's token for the checkpoint beside it",
			}, nil,
		},
		"checkpoint changed": {
			func(name, text string) (string, bool) {
				if name == two+"/checkpoint" {
					return strings.Replace(text, "ledger", "legder", 1), true
				}
				return text, true
			},
			[]string{
				"file: s3://exports/", two + "/checkpoint: expected a checkpoint signed by a trusted log key",
			}, nil,
		},
		"keys of somebody else": {
			func(name, text string) (string, bool) {
				if name == two+"/trusted-keys.json" {
					return string(otherKeys), true
				}
				return text, true
			},
			[]string{
				"file: s3://exports/",
				two + "/trusted-keys.json: expected the signing key " + v.Trusted.Keys()[0].KeyID + ", as in the export " + one,
				two + "/trusted-keys.json: expected the log key ",
				two + "/trusted-keys.json: expected the witness key ", two + "/trusted-keys.json: expected the certificate ",
			}, []string{"whether these belong to the service (the trusted keys do not have them): the signing key "},
		},
		"foreign objects": {
			func(name, text string) (string, bool) {
				if name == two+"/checkpoint" {
					v.put("foreign objects/readme.txt", "hello")
					v.put("foreign objects/"+two+"/readme.txt", "hello")
				}
				return text, true
			}, nil, []string{"objects that belong to no export were not read: 2", "readme.txt"},
		},
	} {
		v.copied("a/", name+"/", c.change)
		view := v.compared("s3://exports/" + strings.ReplaceAll(name, " ", "%20"))
		v.want(view, c.findings, c.notes...)
	}
	// A copy in a bucket without versions is read like the original.
	v.bucket = "unlocked"
	v.copied("a/", "a/", func(_, text string) (string, bool) { return text, true })
	v.want(v.compared("s3://unlocked/a"), nil, "exports: 2 in s3://unlocked/a", "exports that are not locked, or no longer, or whose lock")
	v.bucket = "exports"
	// The same day is exported again if its export was broken off.
	v.exported("s3://exports/last%20manifest%20missing", 1)
	v.want(v.compared("s3://exports/last%20manifest%20missing"), nil, "exports: 2 in", "was broken off")
	// An unreadable export is not continued.
	if _, err := v.export("s3://exports/truncated%20manifest", 0); !errors.Is(err, cli.NegativeError("")) ||
		!strings.Contains(err.Error(), "the export "+two+" is not as integrity export writes it") {
		t.Errorf("after a truncated manifest: %v", err)
	}
	// The pinned keys lack a key of the exports, which is staged.
	pinned, staged := v.Trusted, evidence.GenerateSigner().Key()
	v.Trusted = must1(v.Trusted.Add(staged, evidence.FormatTime(time.Now())))
	v.exported("s3://exports/a", 0)
	v.Trusted = pinned
	v.want(v.compared("s3://exports/a"), nil, "(the trusted keys do not have them): the signing key "+staged.KeyID)
	// The manifest names another issuer, whose log has the same name.
	v.copied("a/", "issuer/", func(name, text string) (string, bool) {
		return strings.ReplaceAll(text, `"issuer":"https://ledger.example"`, `"issuer":"https://ledger.example:444"`), strings.HasPrefix(name, one)
	})
	v.want(v.compared("s3://exports/issuer"), []string{
		one + "/manifest.json: expected an export of the issuer https://ledger.example, found one of https://ledger.example:444",
	})
	if _, err := v.export("s3://exports/issuer", 0); err == nil || !strings.Contains(err.Error(), "exports of https://ledger.example:444") {
		t.Errorf("after an export of another issuer: %v", err)
	}
	// Exports of another log.
	v.as.Installation.Issuer = "https://other.example"
	if _, err := v.export("s3://exports/a", 0); err == nil || !strings.Contains(err.Error(), "exports of https://ledger.example:") {
		t.Errorf("into the exports of another log: %v", err)
	}
	v.as.Installation.Issuer = "https://ledger.example"
	t.Setenv("AWS_SECRET_ACCESS_KEY", "WRONG")
	if view, err := v.audited("s3://exports/a"); err == nil || view.Exports != nil {
		t.Errorf("with wrong credentials: %+v %v", view, err)
	} else {
		t.Log(err)
	}
	if _, err := v.export("s3://exports/a", 0); err == nil {
		t.Error("an export with wrong credentials succeeded")
	}
}
