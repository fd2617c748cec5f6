package transparency

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
	osexec "os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/digitorus/timestamp"

	"integrityledger/domain/evidence"
)

// authority is a time-stamping authority with a root of its own. What it answers is made by OpenSSL, unless a test says
// otherwise.
type authority struct {
	t    *testing.T
	name string
	root *x509.Certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string // of the files that OpenSSL reads
	*httptest.Server

	mu    sync.Mutex
	asked int
	// misbehave, where it is set, answers in its place.
	misbehave func(w http.ResponseWriter, r *http.Request, query []byte)
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, name: name, dir: t.TempDir()}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	a.root = certificate(t, nil, rootKey, rootKey, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name + " root"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	a.cert = certificate(t, a.root, a.key, rootKey, stamper(name, time.Now().Add(24*time.Hour)))
	private, err := x509.MarshalPKCS8PrivateKey(a.key)
	check(t, err)
	for file, block := range map[string]*pem.Block{
		"key.pem": {Type: "PRIVATE KEY", Bytes: private}, "cert.pem": {Type: "CERTIFICATE", Bytes: a.cert.Raw}, "root.pem": {Type: "CERTIFICATE", Bytes: a.root.Raw},
	} {
		check(t, os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600))
	}
	check(t, os.WriteFile(filepath.Join(a.dir, "tsa.cnf"), []byte(`[tsa]
default_tsa = it
[it]
default_policy = 1.2.3.4
digests = sha256
signer_digest = sha256
ess_cert_id_alg = sha256
serial = `+filepath.Join(a.dir, "serial")+"\n"), 0o600))
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// stamper is what the certificate of an authority must be.
func stamper(name string, until time.Time) *x509.Certificate {
	usage, _ := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}})
	return &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}},
	}
}

// certificate has issuer certify a key; nil: it certifies itself.
func certificate(t *testing.T, issuer *x509.Certificate, key, by *ecdsa.PrivateKey, template *x509.Certificate) *x509.Certificate {
	t.Helper()
	if issuer == nil {
		issuer = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), by)
	check(t, err)
	c, err := x509.ParseCertificate(der)
	check(t, err)
	return c
}

func (a *authority) pinned() evidence.Authority {
	a.t.Helper()
	pinned, err := evidence.NewAuthority(a.name, [][]byte{a.root.Raw})
	check(a.t, err)
	return pinned
}

func (a *authority) configured() *TimestampAuthority {
	a.t.Helper()
	configured, err := NewTimestampAuthority(a.name, a.URL)
	check(a.t, err)
	return configured
}

func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != queryType {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.misbehave != nil {
		a.misbehave(w, r, query)
		return
	}
	file, answer := filepath.Join(a.dir, "query.tsq"), filepath.Join(a.dir, "reply.tsr")
	check(a.t, os.WriteFile(file, query, 0o600))
	a.openssl("ts", "-reply", "-config", filepath.Join(a.dir, "tsa.cnf"), "-queryfile", file, "-inkey", filepath.Join(a.dir, "key.pem"), "-signer", filepath.Join(a.dir, "cert.pem"), "-out", answer)
	made, err := os.ReadFile(answer)
	check(a.t, err)
	reply(w, made)
}

func (a *authority) openssl(args ...string) {
	a.t.Helper()
	if out, err := osexec.Command("openssl", args...).CombinedOutput(); err != nil {
		a.t.Errorf("openssl %v: %v\n%s", args, err, out)
	}
}

func reply(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", replyType)
	_, _ = w.Write(body)
}

func (a *authority) does(misbehave func(w http.ResponseWriter, r *http.Request, query []byte)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.misbehave = misbehave
}

// forge answers as an authority does whose program is another, and in which change has altered what is to be signed.
func (a *authority) forge(query []byte, cert *x509.Certificate, key crypto.Signer, change func(*timestamp.Timestamp)) []byte {
	a.t.Helper()
	q, err := timestamp.ParseRequest(query)
	check(a.t, err)
	stamp := &timestamp.Timestamp{
		HashAlgorithm: q.HashAlgorithm, HashedMessage: q.HashedMessage, Time: time.Now(), Nonce: q.Nonce, Policy: asn1.ObjectIdentifier{1, 2, 3}, AddTSACertificate: true,
	}
	change(stamp)
	der, err := stamp.CreateResponseWithOpts(cert, key, crypto.SHA256)
	check(a.t, err)
	return der
}
