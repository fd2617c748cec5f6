package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
)

// TestWormCommands exports as the manual says, and audits the database and a bundle against the exports.
func TestWormCommands(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs an S3 server")
	}
	gateway := integritytest.ServeS3(t, t.TempDir())
	client, err := minio.New(gateway, &minio.Options{
		Creds: credentials.NewStaticV4("KEY", "SECRET", ""), Region: "eu-west-1",
	})
	if err == nil {
		err = client.MakeBucket(t.Context(), "exports", minio.MakeBucketOptions{ObjectLocking: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := dataDir(t)
	s := start(t, dir, "--demo")
	first := s.included(s.registerOne("first"))
	where := "region=eu-west-1&use_path_style=true&endpoint=http://" + gateway
	place, exports := "s3://exports/ledger?"+where, "s3://exports/ledger?object-lock=compliance&days=1&"+where
	env := []string{
		"INTEGRITY_DATA_DIR=" + dir, "AWS_ACCESS_KEY_ID=KEY", "AWS_SECRET_ACCESS_KEY=SECRET", "INTEGRITY_WORM=" + exports,
	}
	refused := func(want string, code int, args ...string) {
		t.Helper()
		if r := integrity(t, env, args...); r.code != code || !strings.Contains(r.out+r.errs, want) {
			t.Errorf("%v: %d %s%s", args, r.code, r.out, r.errs)
		}
	}
	doctor := func(want string) {
		t.Helper()
		if r := integrity(t, env, "doctor"); !strings.Contains(r.out, want) {
			t.Errorf("doctor: %s", r.out)
		}
	}
	refused("it contains no complete export", cli.ExitFailed, "audit", "--against", place)
	doctor("has no export of the last 31 days")
	refused("object-lock and days or years are missing", cli.ExitFailed, "export", "--worm", place)
	refused("object-lock must be compliance or governance", cli.ExitFailed, "export", "--worm", "s3://x?object-lock=on&days=1")
	refused("days must be a whole number from 1", cli.ExitFailed, "export", "--worm", "s3://x?object-lock=compliance&days=0")
	refused(
		"either days or years", cli.ExitFailed, "export", "--worm", "s3://x?object-lock=compliance&days=1&years=1",
	)
	refused(`unknown parameter "color"`, cli.ExitFailed, "export", "--worm", exports+"&color=red")
	refused("if any flags in the group", cli.ExitFailed, "export", "--worm", exports, "--out", "x")
	refused("give --organization and --out for a bundle", cli.ExitFailed, "export", "--out", "x")

	var view operator.WormView
	mustJSON(t, env, &view, "export")
	if !view.Written || view.TreeSize < first.N || view.Until == nil {
		t.Errorf("exported: %+v", view)
	}
	if out := must(t, append(env, "LC_ALL=es_ES.UTF-8"), "export", "--worm", exports); !strings.HasPrefix(
		out, "no se ha escrito nada: la copia exportada de hoy ya existe, s3://exports/ledger/",
	) {
		t.Errorf("again: %s", out)
	}
	doctor("the last export was made at " + time.Now().UTC().Format(time.DateOnly))
	weak := "s3://exports/weak?object-lock=governance&years=1&" + where
	if out := must(t, env, "export", "--worm", weak); !strings.Contains(out, "WARNING: in governance mode") {
		t.Errorf("in governance mode: %s", out)
	}
	if out := must(t, env, "audit", "--against", weak); !strings.Contains(out, "exports that are locked in governance mode only: 1") {
		t.Errorf("audit of the weak exports: %s", out)
	}
	s.included(s.registerOne("second"))
	if out := must(t, env, "audit", "--against", place); !strings.Contains(out, "exports: 1 in s3://exports/ledger, ") ||
		strings.Contains(out, "not locked") {
		t.Errorf("audit: %s", out)
	}
	refused("leave out --organization", cli.ExitFailed, "audit", "--organization", s.demo().OrganizationID, "--against", place)

	// A bundle has no tree: the keys are compared, and the checkpoint if one of its size was exported.
	bundle := filepath.Join(t.TempDir(), "bundle")
	must(t, env, "export", "--organization", s.demo().OrganizationID, "--out", bundle)
	pinned := filepath.Join(dir, keyfiles.TrustedKeysFile)
	out := must(t, env, "audit", bundle, "--trusted-keys", pinned, "--against", place)
	for _, want := range []string{
		"exports: 1 in s3://exports/ledger, ", "no export has the size of its checkpoint",
		"whether the service recorded these ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("audit of the bundle lacks %q: %s", want, out)
		}
	}
	same := "s3://exports/same?object-lock=compliance&days=1&" + where
	must(t, env, "export", "--worm", same)
	if out := must(t, env, "audit", bundle, "--against", same); strings.Contains(out, "no export has the size") {
		t.Errorf("audit of the bundle, whose checkpoint was exported: %s", out)
	}
	// A log of its own, with the same keys and issuer, is another log.
	other := dataDir(t)
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{keyfiles.SigningKeyFile, keyfiles.LogKeyFile, keyfiles.TrustedKeysFile} {
		copyFile(t, dir, other, name, 0o600)
	}
	s.stop()
	address := strings.TrimPrefix(s.base, "http://")
	twin := start(t, other, "--demo", "--listen", address)
	twin.included(twin.registerOne("first"))
	twin.included(twin.registerOne("second"))
	twin.included(twin.registerOne("third"))
	if out := must(t, env, "audit", "--data-dir", other); !strings.Contains(out, "everything that was checked is correct") {
		t.Errorf("audit of the other log: %s", out)
	}
	refused("FINDING export: "+view.Export+"/checkpoint: expected the exported root", cli.ExitNegative, "audit", "--data-dir",
		other, "--against", place)
	refused("nothing is exported: the database contradicts "+view.Export, cli.ExitNegative, "export", "--data-dir", other)
	env[2] = "AWS_SECRET_ACCESS_KEY=WRONG"
	refused("The request signature", cli.ExitFailed, "audit", "--against", place)
	refused("The request signature", cli.ExitFailed, "export")
	doctor("warn  exports")
}
