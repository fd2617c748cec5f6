package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
)

// certificateFor creates a self-signed certificate, and its key in PEM.
func certificateFor(t *testing.T, name string, usage ...x509.ExtKeyUsage) (der, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		NotAfter:  time.Date(2036, 1, 2, 3, 4, 5, 0, time.UTC), ExtKeyUsage: usage, BasicConstraintsValid: true,
		IsCA: usage == nil,
	}
	der, err = x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return der, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// TestPinned pins and unpins witnesses and timestamp authorities.
func TestPinned(t *testing.T) {
	t.Parallel()
	dir, first := keyDir(t)
	keys := func(words ...string) []string { return append([]string{"keys"}, append(words, "--data-dir", dir)...) }
	file := func(name string, text []byte) string {
		t.Helper()
		return write(t, filepath.Join(t.TempDir(), name), string(text))
	}
	before, err := os.ReadFile(filepath.Join(dir, keyfiles.TrustedKeysFile))
	if err != nil {
		t.Fatal(err)
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	witness, err := evidence.NewWitnessKey("witness.example/w", public)
	if err != nil {
		t.Fatal(err)
	}
	logKey, err := evidence.NewLogKey("witness.example/w", public)
	if err != nil {
		t.Fatal(err)
	}
	root, rootKey := certificateFor(t, "Root")
	stamper, _ := certificateFor(t, "Stamper", x509.ExtKeyUsageTimeStamping)
	server, _ := certificateFor(t, "Server", x509.ExtKeyUsageServerAuth)
	asPEM := func(ders ...[]byte) (text []byte) {
		for _, der := range ders {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
		}
		return text
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitFailed, "type 0x04", keys("add-witness", logKey.VerifierKey)},
		{cli.ExitFailed, "command must read", keys("add-witness")},
		{cli.ExitNegative, "not among the trusted keys", keys("remove-witness", witness.Name)},
		{cli.ExitNegative, "timestamp authority is not among", keys("remove-authority", "tsa")},
		{cli.ExitFailed, "command must read", keys("add-authority", "tsa")},
		{cli.ExitFailed, "no such file", keys("add-authority", "tsa", filepath.Join(dir, "absent.pem"))},
		{
			cli.ExitFailed, "block PRIVATE KEY",
			keys("add-authority", "tsa", file("both.pem", append(asPEM(root), rootKey...))),
		},
		{cli.ExitFailed, "certificates/0: must be", keys("add-authority", "tsa", file("text", []byte("no certificate")))},
		{
			cli.ExitFailed, "holds no readable PEM certificate",
			keys("add-authority", "tsa", file("broken.pem", []byte("-----BEGIN CERTIFICATE-----\n"))),
		},
		{
			cli.ExitFailed, "certificates/1: it is given twice",
			keys("add-authority", "tsa", file("root.pem", asPEM(root)), file("root.der", root)),
		},
		{
			cli.ExitFailed, "at most 1048576 bytes",
			keys("add-authority", "tsa", file("large", bytes.Repeat([]byte{0}, 1<<20+1))),
		},
		{cli.ExitFailed, "name: must be", keys("add-authority", "a b", file("root.pem", asPEM(root)))},
	} {
		if r := integrity(t, nil, c.args...); r.code != c.code || !strings.Contains(r.errs, c.says) || r.out != "" {
			t.Errorf("integrity %v: %d %s%s, want %d %q", c.args, r.code, r.out, r.errs, c.code, c.says)
		}
	}
	if now, err := os.ReadFile(filepath.Join(dir, keyfiles.TrustedKeysFile)); err != nil || !bytes.Equal(now, before) {
		t.Errorf("a refusal changed the file: %v", err)
	}

	for range 2 { // repeating changes nothing
		must(t, nil, keys("add-witness", witness.VerifierKey)...)
	}
	out := must(t, nil, keys("add-authority", "tsa", file("chain.pem", asPEM(root, stamper)))...)
	for _, want := range []string{
		"CN=Root  2026-01-02T03:04:05Z to 2036-01-02T03:04:05Z  signs certificates", "CN=Stamper", "signs timestamps",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("add-authority does not say %q: %s", want, out)
		}
	}
	if out := must(t, nil,
		keys("add-authority", "tsa", file("server.der", server))...); !strings.Contains(
		out, "replacing its former certificates",
	) || !strings.Contains(out, "no token can chain to it") {
		t.Errorf("in its place: %s", out)
	}
	trusted := trustedAt(t, dir)
	if a, ok := trusted.Authority("tsa"); !ok || len(a.Certificates) != 1 || !bytes.Equal(a.Certificates[0], server) ||
		len(trusted.WitnessKeys()) != 1 {
		t.Errorf("pinned %v, %v", a.Name, trusted.WitnessKeys())
	}
	list := must(t, nil, keys("list")...)
	for _, want := range []string{"  witness   " + witness.VerifierKey, "  time      CN=Server"} {
		if !strings.Contains(list, want) {
			t.Errorf("keys list lacks %q: %s", want, list)
		}
	}
	// Members written by a newer program are never lost.
	path := filepath.Join(dir, keyfiles.TrustedKeysFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(text, []byte("{"), []byte(`{"policies":[],`), 1)
	for _, content := range [][]byte{newer, text} {
		write(t, path, string(content))
		r := integrity(t, nil, keys("remove-authority", "tsa")...)
		if now, err := os.ReadFile(path); bytes.Equal(content, newer) && (r.code != cli.ExitFailed ||
			!strings.Contains(r.errs, "policies") || err != nil || !bytes.Equal(now, newer)) {
			t.Errorf("an unknown member: %+v, %s", r, now)
		}
	}
	must(t, nil, keys("remove-witness", witness.Name)...)
	if now, err := os.ReadFile(filepath.Join(dir, keyfiles.TrustedKeysFile)); err != nil || !bytes.Equal(now, before) ||
		!trusts(trustedAt(t, dir), first.KeyID) {
		t.Errorf("what was pinned is not gone: %s, %v", now, err)
	}
}

// TestRevokedLogKey: under a revoked key the log signs nothing, and says so. After a rotation the newest checkpoint is
// signed again, without another event.
func TestRevokedLogKey(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := surroundings{env: []string{"INTEGRITY_METRICS_LISTEN=" + freeAddress(t)}}.start(t, dir, "--demo")
	head := s.included(s.registerOne("before"))
	env := []string{"INTEGRITY_DATA_DIR=" + dir}
	key := trustedAt(t, dir).LogKeys()[0]
	r := integrity(t, env, "keys", "compromise", "--json", key.Name+"+"+key.KeyHash)
	if r.code != cli.ExitOK || !strings.Contains(r.errs, "no checkpoint is signed until you replace it") ||
		!strings.Contains(r.out, `"keyId":"`+key.KeyID()+`"`) {
		t.Errorf("compromise: %+v", r)
	}
	first := trustedAt(t, dir).Revoked()
	must(t, env, "keys", "compromise", "--", key.KeyID()) // by its other name; the first time stays
	if again := trustedAt(t, dir).Revoked(); len(first) != 1 || len(again) != 1 || again[0] != first[0] {
		t.Errorf("revoked %v, then %v", first, again)
	}
	if list := must(t, env, "keys", "list"); !strings.Contains(list, key.VerifierKey+"  compromised since ") ||
		strings.Contains(list, "  revoked ") {
		t.Errorf("keys list: %s", list)
	}
	s.reload()
	if log := readLog(t, s); !strings.Contains(log, "NO CHECKPOINT IS SIGNED") ||
		!strings.Contains(log, "compromised since") {
		t.Errorf("the log does not say it: %s", log)
	}
	wantFindings(
		t, examine(t, cli.ExitNegative, env),
		"fail transparency: log key "+key.Name+"+"+key.KeyHash+": the key is revoked (compromised since ",
	)
	s.registerOne("meanwhile")
	if now, err := s.logHead(); err != nil || now.text != head.text {
		t.Errorf("a revoked key signed: %s, %v", now.text, err)
	}

	for _, step := range []string{"--stage", "--activate"} {
		must(t, env, "keys", "rotate", "--transparency-log", step)
	}
	s.reload()
	newest := trustedAt(t, dir).LogKeys()[1]
	eventually(t, "the new key signs", func() error {
		now, err := s.logHead()
		if err == nil && (now.key != newest.KeyHash || now.N <= head.N) {
			err = errors.New("signed by " + now.key)
		}
		return err
	})
	if now := s.included(s.registerOne("after")); now.key != newest.KeyHash {
		t.Errorf("signed by %s", now.key)
	}
	wantFindings(t, examine(t, cli.ExitOK, env), "ok ledger: ")
}
