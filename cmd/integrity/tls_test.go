package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
)

// certify writes a self-signed certificate for this machine's loopback address and name, and trusts it.
func certify(t *testing.T, serial int64, certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	certifyUntil(t, time.Now().Add(time.Hour), serial, certFile, keyFile, roots)
}

func certifyUntil(t *testing.T, end time.Time, serial int64, certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots.AppendCertsFromPEM(chain)
	write(t, certFile, string(chain))
	write(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// TestTLS uses HTTP/2 and HTTP/1.1 with the service, and sees a new certificate after SIGHUP.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	certFile, keyFile := filepath.Join(filepath.Dir(dir), "tls.pem"), filepath.Join(filepath.Dir(dir), "tls-key.pem")
	address := freeAddress(t)
	roots := x509.NewCertPool()
	certify(t, 1, certFile, keyFile, roots)
	client := func(http2 bool) *http.Client {
		return &http.Client{Timeout: patient, Transport: &http.Transport{
			DisableKeepAlives: true, ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{RootCAs: roots},
		}}
	}
	s := surroundings{encrypted: client(true)}.start(
		t, dir, "--tls-cert", certFile, "--tls-key", keyFile, "--metrics-listen", address,
	)
	seen := func(c *http.Client) (major int, serial int64, err error) {
		response, err := c.Get(s.base + "/api/integrity-openapi")
		if err != nil {
			return 0, 0, err
		}
		defer response.Body.Close()
		var body bytes.Buffer
		if _, err := body.ReadFrom(response.Body); err != nil {
			return 0, 0, err
		}
		if !strings.Contains(body.String(), `"url": "`+s.base+`"`) || response.Header.Get("Strict-Transport-Security") == "" {
			return 0, 0, fmt.Errorf("the base URL is not %s: %v", s.base, response.Header)
		}
		return response.ProtoMajor, response.TLS.PeerCertificates[0].SerialNumber.Int64(), nil
	}
	for http2, want := range map[bool]int{true: 2, false: 1} {
		if major, serial, err := seen(client(http2)); err != nil || major != want || serial != 1 {
			t.Errorf("HTTP/%d, certificate %d, %v", major, serial, err)
		}
	}
	// A client that speaks plain http gets an error that says so, and nothing else.
	if response, err := plainHTTP().Get("http" + strings.TrimPrefix(s.base, "https") + "/healthz"); err == nil {
		if response.Body.Close(); response.StatusCode != http.StatusBadRequest {
			t.Errorf("http answers %d", response.StatusCode)
		}
	}

	write(t, certFile, "no certificate")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log says that the certificate is unreadable", func() error {
		if !strings.Contains(readLog(t, s), "certificate not reloaded; the previous one stays in use") {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	if _, serial, err := seen(client(true)); err != nil || serial != 1 {
		t.Errorf("certificate %d, %v", serial, err)
	}
	certifyUntil(t, time.Now().Add(-time.Minute), 3, certFile, keyFile, roots)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log says that the certificate has expired", func() error {
		if !strings.Contains(readLog(t, s), "INTEGRITY_TLS_CERT: the certificate expired at ") {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	if _, serial, err := seen(client(true)); err != nil || serial != 1 {
		t.Errorf("certificate %d, %v", serial, err)
	}
	const expiry = "integrity_tls_certificate_expiry_timestamp_seconds"
	left, found := scrapeOf(t, address).Sum(expiry)
	if left -= float64(time.Now().Unix()); !found || left < 60 || left > 3600 {
		t.Errorf("%s: %v seconds are left, %v", expiry, left, found)
	}
	certify(t, 2, certFile, keyFile, roots)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new certificate is shown", func() error {
		if _, serial, err := seen(client(true)); err != nil || serial != 2 {
			return fmt.Errorf("certificate %d, %w", serial, err)
		}
		return nil
	})
}

func TestServeRefusesMissingCertificate(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "absent.pem")
	r := integrity(
		t, nil, "serve", "--listen", "127.0.0.1:0", "--data-dir", dataDir(t), "--tls-cert", missing, "--tls-key", missing,
	)
	if r.code != cli.ExitFailed || !strings.Contains(r.errs, "INTEGRITY_TLS_CERT") {
		t.Errorf("absent files: %d %s", r.code, r.errs)
	}
}
