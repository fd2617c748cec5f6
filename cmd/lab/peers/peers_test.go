package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/transparency-dev/formats/log"
)

// TestTessera: an answer to /publish is covered by the published checkpoint, and entries get indexes in order.
func TestTessera(t *testing.T) {
	dir := t.TempDir()
	handler, closer, err := newLog(context.Background(), dir, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	for i, path := range []string{"/add", "/add", "/publish"} {
		resp, err := http.Post(server.URL+path, "", strings.NewReader("an entry"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || string(answer) != string(rune('0'+i)) {
			t.Errorf("%s: %d, %q, %v", path, resp.StatusCode, answer, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	var c log.Checkpoint
	if _, err := c.Unmarshal(text); err != nil || c.Size != 3 {
		t.Errorf("the checkpoint has %d entries: %v", c.Size, err)
	}
	if err := closer(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestImmudb makes every call against immudb's own server.
func TestImmudb(t *testing.T) {
	program := filepath.Join(t.TempDir(), "immudb")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/codenotary/immudb/cmd/immudb").
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	address := freeAddress(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(program, "--dir", t.TempDir(), "--address", host, "--port", port,
		"--pgsql-server=false", "--metrics-server=false", "--web-server=false")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
	}()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			break
		} else if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
	handler, closer, err := newGenerator(t.TempDir(), address)
	if err != nil {
		t.Fatal(err)
	}
	load := httptest.NewServer(handler)
	defer load.Close()
	for _, call := range []string{"Set", "VerifiedSet", "Get", "VerifiedGet", "Delete"} {
		resp, err := http.Get(load.URL + "/run?c=40&for=100ms&call=" + call)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if call == "Delete" {
			if resp.StatusCode != http.StatusInternalServerError {
				t.Errorf("an unknown call: %d, %s", resp.StatusCode, text)
			}
			continue
		}
		var done result
		if err := json.Unmarshal(text, &done); err != nil || len(done.Latencies) < 40 || done.Elapsed < 100*time.Millisecond {
			t.Errorf("%s: %d, %d calls in %s: %v: %.300s", call, resp.StatusCode, len(done.Latencies), done.Elapsed, err, text)
		}
	}
	if err := closer(context.Background()); err != nil {
		t.Error(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
