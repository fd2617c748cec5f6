// Package stamptest provides a time-stamping authority (RFC 3161) for tests. OpenSSL creates and checks its tokens.
package stamptest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/digitorus/timestamp"

	"integrityledger/domain/evidence"
)

// Media types of requests and responses (RFC 3161, section 3.4).
const (
	QueryType = "application/timestamp-query"
	ReplyType = "application/timestamp-reply"
)

// Authority is a time-stamping authority on this machine with its own root. OpenSSL creates its answers, unless a test
// replaces them.
type Authority struct {
	*httptest.Server
	Name       string
	Root, Cert *x509.Certificate // Cert signs the tokens

	t            testing.TB
	rootKey, key *ecdsa.PrivateKey
	dir          string // with OpenSSL's files

	mu    sync.Mutex
	asked int
	does  Answer
}

// Answer answers a request instead of the authority.
type Answer func(w http.ResponseWriter, r *http.Request, query []byte)

// New starts an authority that stops with the test.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, Name: name, dir: t.TempDir()}
	a.rootKey, a.key = newKey(t), newKey(t)
	a.Root = a.certify(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name + " root"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(60 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.Cert = a.Certify(time.Now().Add(50*24*time.Hour), true)
	private, err := x509.MarshalPKCS8PrivateKey(a.key)
	check(t, err)
	for file, block := range map[string]*pem.Block{
		"key.pem": {Type: "PRIVATE KEY", Bytes: private}, "cert.pem": {Type: "CERTIFICATE", Bytes: a.Cert.Raw},
		"root.pem": {Type: "CERTIFICATE", Bytes: a.Root.Raw},
	} {
		a.write(file, pem.EncodeToMemory(block))
	}
	a.write("tsa.cnf", []byte(`[tsa]
default_tsa = it
[it]
default_policy = 1.2.3.4
digests = sha256
signer_digest = sha256
ess_cert_id_alg = sha256
serial = `+a.path("serial")+"\n"))
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func (a *Authority) path(file string) string { return filepath.Join(a.dir, file) }

func (a *Authority) write(file string, content []byte) {
	a.t.Helper()
	check(a.t, os.WriteFile(a.path(file), content, 0o600))
}

// Certify returns a certificate of the authority's key, valid from yesterday. It may sign tokens only if stamps is set.
func (a *Authority) Certify(until time.Time, stamps bool) *x509.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: a.Name}, NotBefore: time.Now().Add(-24 * time.Hour),
		NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if stamps {
		usage, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}})
		check(a.t, err)
		template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}}
	}
	return a.certify(template)
}

// certify signs a certificate with the root. The first call signs the root's own certificate.
func (a *Authority) certify(template *x509.Certificate) *x509.Certificate {
	a.t.Helper()
	issuer, key := a.Root, a.key
	if issuer == nil {
		issuer, key = template, a.rootKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), a.rootKey)
	check(a.t, err)
	c, err := x509.ParseCertificate(der)
	check(a.t, err)
	return c
}

// Pinned pins its root.
func (a *Authority) Pinned() evidence.Authority {
	a.t.Helper()
	pinned, err := evidence.NewAuthority(a.Name, [][]byte{a.Root.Raw})
	check(a.t, err)
	return pinned
}

// Asked returns the number of requests.
func (a *Authority) Asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// Does makes something answer from now on. Nil means the authority itself.
func (a *Authority) Does(something Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.does = something
}

// ServeHTTP answers one request at a time.
func (a *Authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != QueryType {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.does != nil {
		a.does(w, r, query)
		return
	}
	if err := os.WriteFile(a.path("query"), query, 0o600); err != nil {
		a.t.Error(err)
	}
	if out, err := openssl(
		"ts", "-reply", "-config", a.path("tsa.cnf"), "-queryfile", a.path("query"), "-inkey", a.path("key.pem"), "-signer",
		a.path("cert.pem"), "-out", a.path("reply"),
	); err != nil {
		a.t.Errorf("openssl ts -reply: %v\n%s", err, out)
	}
	answer, err := os.ReadFile(a.path("reply"))
	if err != nil {
		a.t.Error(err)
	}
	Reply(w, answer)
}

// Reply sends a body as a time-stamp reply.
func Reply(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", ReplyType)
	_, _ = w.Write(body)
}

// Forge answers a request without OpenSSL, under a certificate of the authority's key. change alters the data before it
// is signed.
func (a *Authority) Forge(query []byte, cert *x509.Certificate, change func(*timestamp.Timestamp)) []byte {
	q, err := timestamp.ParseRequest(query)
	if err != nil {
		a.t.Error(err)
		return nil
	}
	stamp := &timestamp.Timestamp{
		HashAlgorithm: q.HashAlgorithm, HashedMessage: q.HashedMessage, Time: time.Now(), Nonce: q.Nonce,
		Policy: asn1.ObjectIdentifier{1, 2, 3}, AddTSACertificate: true,
	}
	change(stamp)
	der, err := stamp.CreateResponseWithOpts(cert, a.key, crypto.SHA256)
	if err != nil {
		a.t.Error(err)
	}
	return der
}

// Verify fails the test unless OpenSSL accepts the token for the note under the authority's root.
func (a *Authority) Verify(note, token []byte) {
	a.t.Helper()
	a.write("note", note)
	a.write("token", token)
	if out, err := openssl(
		"ts", "-verify", "-data", a.path("note"), "-token_in", "-in", a.path("token"), "-CAfile", a.path("root.pem"),
	); err != nil || !strings.Contains(string(out), "Verification: OK") {
		a.t.Errorf("openssl ts -verify: %v\n%s", err, out)
	}
}

func openssl(args ...string) ([]byte, error) {
	return exec.Command("openssl", args...).CombinedOutput() //nolint:gosec,noctx // it ends by itself; the arguments are this package's
}
