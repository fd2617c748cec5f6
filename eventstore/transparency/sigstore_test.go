package transparency

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/projections/ledgertest"
)

// sigstoreAuthority is sigstore's program, at a version that this Go version builds.
const sigstoreAuthority = "github.com/sigstore/timestamp-authority/v2@v2.1.3"

// TestSigstoreAuthority: sigstore's timestamp authority, run as a separate program, stamps the log. Its tokens verify
// under the pinned certificates, and OpenSSL accepts them.
func TestSigstoreAuthority(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds another program")
	}
	dir := t.TempDir()
	module, _, _ := strings.Cut(sigstoreAuthority, "@")
	for _, args := range [][]string{
		{"mod", "init", "scratch"}, {"get", sigstoreAuthority},
		{"build", "-o", "timestamp-server", module + "/cmd/timestamp-server"},
	} {
		c := osexec.Command("go", args...)
		c.Dir, c.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	address := listener.Addr().String()
	check(t, listener.Close())
	host, port, err := net.SplitHostPort(address)
	check(t, err)
	log, err := os.Create(filepath.Join(dir, "log"))
	check(t, err)
	defer log.Close()
	server := osexec.Command(
		filepath.Join(dir, "timestamp-server"), "serve", "--host", host, "--port", port, "--timestamp-signer", "memory",
		"--disable-ntp-monitoring",
	)
	server.Dir, server.Stdout, server.Stderr = dir, log, log
	check(t, server.Start())
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	var chain []byte
	eventually(t, "the authority answers", func() bool {
		answer, err := http.Get("http://" + address + "/api/v1/timestamp/certchain")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		chain, err = io.ReadAll(answer.Body)
		return err == nil && answer.StatusCode == http.StatusOK
	})
	// Its tokens contain only its own certificate. The root and the intermediate certificate are pinned.
	var above [][]byte
	_, roots := pem.Decode(chain)
	for block, rest := pem.Decode(roots); block != nil; block, rest = pem.Decode(rest) {
		above = append(above, block.Bytes)
	}
	authority, err := evidence.NewAuthority("sigstore", above)
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, "above.pem"), roots, 0o600))

	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	asked, err := NewTimestampAuthority("sigstore", "http://"+address+"/api/v1/timestamp")
	check(t, err)
	keeper := process(t, l, signer, func(c *Config) {
		c.Authorities = []*TimestampAuthority{asked}
		c.Pinned = func(string) (evidence.Authority, bool) { return authority, true }
	})
	for round := range 3 {
		register(t, l, o, 10*round, 10)
		keeper.turned(t)
		check(t, keeper.stampNewest(context.Background(), asked))
	}
	stamps := stampsOf(t, l)
	if len(stamps) != 3 || time.Since(stamps[2].GenTime).Abs() > time.Minute {
		t.Fatalf("%d tokens", len(stamps))
	}
	for i, s := range stamps {
		note, token := filepath.Join(dir, fmt.Sprint("note", i)), filepath.Join(dir, fmt.Sprint("token", i))
		check(t, errors.Join(os.WriteFile(note, []byte(s.Checkpoint), 0o600), os.WriteFile(token, s.Token, 0o600)))
		if out, err := osexec.Command(
			"openssl", "ts", "-verify", "-data", note, "-token_in", "-in", token, "-CAfile", filepath.Join(dir, "above.pem"),
		).CombinedOutput(); err != nil {
			t.Errorf("openssl ts -verify: %v\n%s", err, out)
		}
	}
}
