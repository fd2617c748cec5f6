package main

import (
	"crypto/ed25519"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/outbound/peertest"
)

// TestCommandsGiveUp: a command ends by itself if the service stops answering, and says that there is no answer.
func TestCommandsGiveUp(t *testing.T) {
	t.Parallel()
	dir, id := t.TempDir(), strings.Repeat("a", 26)
	file := write(t, filepath.Join(dir, "f.pdf"), "x")
	watched := newWatchedLog(t, 3)
	shapes := peertest.Shapes()
	shapes["answers without end"] = func(conn io.Writer) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		}
	}
	for _, name := range []string{
		"101", "101 and a body", "101 after 100 and 103", "1xx without end", "headers without end", "a body without end",
		"a packed body", "answers without end", "a redirect to itself",
	} {
		peer := peertest.Serve(t, shapes[name])
		env := []string{config.VariableAPIKey + "=" + testKey(t), config.VariableBaseURL + "=" + peer}
		for _, args := range [][]string{
			{"compare", file, peer + "/integrity/" + id},
			{"evidence", id},
			{"lookup", "--company", "c", "--source", "s", "--document", "d", "--version", "1"},
			{"register", file, "--company", "c", "--source", "s", "--version", "1"},
			{"reconcile", filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".db"), "--company", "c"},
			{"changes", "--company", "c"},
			{"usage"},
			append([]string{"monitor", peer}, watched.args[2:]...),
		} {
			r := integrity(t, env, args...)
			// Bytes that the peer sends unasked must not be printed either.
			if r.code != cli.ExitFailed || r.out != "" || !strings.Contains(r.errs, peer) ||
				strings.Contains(r.errs, "Unsolicited") {
				t.Errorf("%s, %s: %d %s%s", name, args[0], r.code, r.out, r.errs)
			}
		}
	}
}

// witnessKey returns the verifier key of a witness that cosigns nothing.
func witnessKey(t *testing.T, name string) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := evidence.NewWitnessKey(name, public)
	if err != nil {
		t.Fatal(err)
	}
	return key.VerifierKey
}

// TestServeEndsWhilePeersHang: hanging witnesses and webhook destinations do not keep the service from ending on
// SIGTERM.
func TestServeEndsWhilePeersHang(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1024)
	holding := func(name string, answer peertest.Shape) string {
		var once sync.Once
		return peertest.Serve(t, func(conn io.Writer) {
			once.Do(func() { asked <- name })
			answer(conn)
		})
	}
	silence := func(io.Writer) {}
	s := surroundings{env: []string{
		"INTEGRITY_WEBHOOK_ALLOW_INSECURE=true",
		"INTEGRITY_WITNESSES=" +
			witnessKey(t, "a.example") + " " + holding("a witness that switches", peertest.Switching) + "," +
			witnessKey(t, "b.example") + " " + holding("a silent witness", silence),
	}}.start(t, dataDir(t), "--demo")
	access := s.demo()
	webhookTo(t, s, access, holding("a destination that switches", peertest.Switching))
	webhookTo(t, s, access, holding("a silent destination", silence))
	file := write(t, filepath.Join(t.TempDir(), "a.pdf"), "%PDF a")
	env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + access.BaseURL}
	must(t, env, "register", file, "--company", access.CompanyReference, "--source", "s", "--version", "1")
	for range 4 {
		t.Log(<-asked)
	}
	s.stop()
}
