package evidence

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryByteOfTheToken changes every byte of tokens, including the certificates that their signers need: no change
// is accepted. A certificate that the signer does not need is ignored.
func TestEveryByteOfTheToken(t *testing.T) {
	t.Parallel()
	f := newStampFixture(t)
	const note = "a note"
	middle := certify(t, "Alpha Intermediate", curveKey(t, elliptic.P384(), 42), f.root, nil)
	below := stampSpec{
		by: certify(t, "Alpha below", curveKey(t, elliptic.P256(), 41), middle, stamping(t)), genTime: goodTime,
		hash: crypto.SHA384,
	}
	rsa := stampSpec{
		by: certify(t, "Alpha RSA", rsaKey(t, "timestamp-rsa-key.pem"), f.root, stamping(t)), genTime: goodTime,
		hash: crypto.SHA256,
	}
	withRoot := f.alpha.with("chain", func(b []byte) []byte { return slices.Concat(b, f.root.certificate.Raw) })
	alpha, _ := f.trust.Authority("Alpha")
	for name, spec := range map[string]stampSpec{
		"one certificate": f.alpha, "an intermediate": below, "RSA": rsa, "the root": withRoot,
	} {
		token := spec.token(t, note)
		if _, err := alpha.CheckToken(token, sha256.Sum256([]byte(note))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		needless := bytes.Index(token, f.root.certificate.Raw) // a pinned certificate is not read from the token
		for i := range token {
			if needless >= 0 && i >= needless && i < needless+len(f.root.certificate.Raw) {
				continue
			}
			for _, mask := range fewMasks {
				changed := bytes.Clone(token)
				changed[i] ^= mask
				if _, err := alpha.CheckToken(changed, sha256.Sum256([]byte(note))); err == nil {
					t.Errorf("%s: byte %d of %d xor %#x was accepted", name, i, len(token), mask)
				}
			}
		}
	}
}

// TestEveryByteOfTimedEvidence changes every byte of evidence with timestamps.
func TestEveryByteOfTimedEvidence(t *testing.T) {
	t.Parallel()
	f := newStampFixture(t)
	e := f.envelope()
	i := f.goodInclusion(t)
	s := f.stamped(t, 5)
	s.Tokens = []StampToken{stampToken("Alpha", f.alpha.token(t, s.Checkpoint), goodGenTime)}
	e.Inclusion, e.Timestamps = &i, []Timestamp{s}
	everyByte(
		t, f.trust, marshal(t, e),
		Options{
			Now: testNow, RequireTimestamp: true, RequireInclusion: true,
			Document: &Document{f.record.SHA256.String(), f.record.SizeBytes},
		},
		fewMasks,
	)
}

// TestTokenOfOpenSSL: OpenSSL and this package verify each other's tokens alike.
func TestTokenOfOpenSSL(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Fatal("openssl is needed: apt-get install openssl")
	}
	dir := t.TempDir()
	openssl := func(arguments ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "openssl", arguments...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("openssl %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const note = "ledger.example/log\n1\nroot\n"
	write("note", note)
	write("serial", "01\n")
	write("tsa.cnf", `[tsa]
default_tsa = own
[own]
serial = serial
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
accuracy = secs:1, millisecs:500
ordering = yes
tsa_name = yes
ess_cert_id_alg = sha256
[usage]
extendedKeyUsage = critical,timeStamping
basicConstraints = CA:false
keyUsage = digitalSignature
[req]
distinguished_name = name
[name]
`)
	for name, algorithm := range map[string][]string{
		"rsa": {"-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"},
		"ec":  {"-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"},
	} {
		openssl(append([]string{"genpkey", "-out", name + ".key"}, algorithm...)...)
		openssl(append([]string{"genpkey", "-out", name + "-root.key"}, algorithm...)...)
		openssl(
			"req", "-x509", "-new", "-key", name+"-root.key", "-subj", "/CN="+name+" root", "-days", "30", "-out",
			name+"-root.pem",
		)
		openssl("x509", "-in", name+"-root.pem", "-outform", "DER", "-out", name+"-root.der")
		openssl(
			"req", "-new", "-key", name+".key", "-subj", "/CN="+name+" authority", "-config", "tsa.cnf", "-out", name+".csr",
		)
		openssl(
			"x509", "-req", "-in", name+".csr", "-CA", name+"-root.pem", "-CAkey", name+"-root.key", "-days", "30", "-extfile",
			"tsa.cnf", "-extensions", "usage", "-out", name+".pem",
		)
		openssl("ts", "-query", "-data", "note", "-sha256", "-cert", "-out", "query")
		openssl(
			"ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query", "-signer", name+".pem", "-inkey", name+".key",
			"-token_out", "-out", "token",
		)
		a, err := NewAuthority(name, [][]byte{read(name + "-root.der")})
		if err != nil {
			t.Fatal(err)
		}
		token, err := a.CheckToken(read("token"), sha256.Sum256([]byte(note)))
		if err != nil || token.Nonce == nil || token.Accuracy.String() != "1.5s" {
			t.Errorf("%s: %+v, %v", name, token, err)
		}
		// Authorities add duplicates and certificates of other chains.
		others := []string{name + ".pem", name + "-root.pem", name + "-root.pem"}
		for kind, algorithm := range map[string][]string{
			"ed25519":   {"-algorithm", "ED25519"},
			"brainpool": {"-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:brainpoolP256r1"},
			"weak":      {"-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"},
		} {
			openssl(append([]string{"genpkey", "-out", kind + ".key"}, algorithm...)...)
			openssl("req", "-x509", "-new", "-key", kind+".key", "-subj", "/CN=Unrelated", "-days", "30", "-out", kind+".pem")
			others = append(others, kind+".pem")
		}
		var chain []byte
		for _, file := range others {
			chain = append(chain, read(file)...)
		}
		write("chain.pem", string(chain))
		openssl("ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query", "-signer", name+".pem", "-inkey", name+".key",
			"-chain", "chain.pem",
			"-token_out", "-out", "crowded")
		openssl("ts", "-verify", "-data", "note", "-token_in", "-in", "crowded", "-CAfile", name+"-root.pem")
		if _, err := a.CheckToken(read("crowded"), sha256.Sum256([]byte(note))); err != nil {
			t.Errorf("%s: a token with certificates that its signer does not need: %v", name, err)
		}
		if _, err := a.CheckToken(read("token"), sha256.Sum256([]byte("another note"))); err == nil ||
			errors.Is(err, ErrUntrustedToken) {
			t.Errorf("%s: of another note: %v", name, err)
		}
	}
	f := newStampFixture(t)
	write("alpha.der", string(f.root.certificate.Raw))
	openssl("x509", "-inform", "DER", "-in", "alpha.der", "-out", "alpha.pem")
	others := unrelatedCertificates(t)
	others["none"] = nil
	for name, other := range others {
		write("ours", string(f.alpha.with("chain", func(b []byte) []byte { return slices.Concat(b, other) }).token(t, note)))
		t.Log(name)
		openssl("ts", "-verify", "-data", "note", "-token_in", "-in", "ours", "-CAfile", "alpha.pem", "-attime", "1795080660")
	}
}

// FuzzToken: no token causes a panic, and a token that differs in meaning from the good one is never accepted.
func FuzzToken(f *testing.F) {
	x := newStampFixture(f)
	good := x.alpha.token(f, "a note")
	alpha, _ := x.trust.Authority("Alpha")
	says, err := alpha.CheckToken(good, sha256.Sum256([]byte("a note")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(x.alpha.with("unsigned", replaced(tlv(tagContext1))).token(f, "a note"))
	f.Fuzz(func(t *testing.T, token []byte) {
		// Certificates that the signer does not need may differ.
		if got, err := alpha.CheckToken(token, sha256.Sum256([]byte("a note"))); err == nil && !reflect.DeepEqual(got, says) {
			t.Fatalf("%x was accepted", token)
		}
	})
}
