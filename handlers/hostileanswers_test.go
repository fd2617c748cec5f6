package handlers_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/eventstore/outbound/peertest"
	"integrityledger/handlers/client"
	"integrityledger/handlers/developers"
	"integrityledger/handlers/wire"
)

// hostilePeer answers every request with one row of the table, or in one form.
type hostilePeer struct {
	Name   string   `json:"name"`
	Origin string   `json:"origin"`
	Fails  []string `json:"fails"` // the operations that must fail
	// The peer stops in the middle, or sends very slowly: the client's timeout must end the wait. Every other peer quickly
	// sends enough to be judged.
	Holds bool `json:"holds"`
}

// hostilePeers serve testdata/hostile-answers.json, and peers that delay a client beyond its timeout.
func hostilePeers(t *testing.T) (peers []hostilePeer) {
	t.Helper()
	text, err := os.ReadFile(clientTests + "/hostile-answers.json")
	check(t, err)
	var table struct {
		Answers []struct {
			Name, Body, Base64 string
			Bodies             []string // answered in turn
			Status             int
			Headers            map[string]string
			Fails              []string
		}
	}
	check(t, json.Unmarshal(text, &table))
	all := []string{"read", "write", "list", "changes", "signed", "log"}
	for _, row := range table.Answers {
		body := []byte(row.Body)
		if row.Base64 != "" {
			body, err = base64.StdEncoding.DecodeString(row.Base64)
			check(t, err)
		}
		if len(row.Bodies) == 0 {
			row.Bodies = []string{string(body)}
		}
		var asked atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			for name, value := range row.Headers {
				w.Header().Set(name, value)
			}
			w.WriteHeader(row.Status)
			_, _ = io.WriteString(w, row.Bodies[int(asked.Add(1))%len(row.Bodies)]) // some statuses have no body
		}))
		t.Cleanup(server.Close)
		if row.Fails == nil {
			row.Fails = all
		}
		peers = append(peers, hostilePeer{row.Name, server.URL, row.Fails, false})
	}
	holding := []string{
		"101", "101 and a body", "101 of no protocol", "101 after 100 and 103", "1xx that drip", "silence",
		"headers that drip", "a body that drips", "trailers that drip", "TLS", "a refusal that drips",
		"a body that is not sent",
	}
	for name, shape := range peertest.Shapes() {
		// One operation for each kind of answer: JSON, the feed, a signed text, bytes.
		fails := []string{"read", "changes", "signed", "log"}
		peers = append(peers, hostilePeer{name, peertest.Serve(t, shape), fails, slices.Contains(holding, name)})
	}
	return peers
}

// Every client returns its own error for every answer that is not the service's, within its timeout.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	peers := hostilePeers(t)
	file := filepath.Join(t.TempDir(), "peers.json")
	text, err := json.Marshal(map[string]any{"peers": peers})
	check(t, err)
	check(t, os.WriteFile(file, text, 0o600))

	t.Run("Go", func(t *testing.T) {
		key, _ := domain.NewAPIKey(domain.NewKeyID(time.Now(), 0))
		var all sync.WaitGroup
		for _, peer := range peers {
			timeout := 5 * time.Minute
			if peer.Holds {
				timeout = 2 * time.Second
			}
			c, err := client.New(client.Config{BaseURL: peer.Origin, APIKey: key, Timeout: timeout})
			check(t, err)
			t.Cleanup(c.Close)
			for _, operation := range peer.Fails {
				all.Go(func() {
					err := hostileOperation(t.Context(), c, operation)
					if err == nil || !peer.Holds && errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s, %s: %v", peer.Name, operation, err)
					}
				})
			}
		}
		all.Wait()
	})
	t.Run("JavaScript", func(t *testing.T) {
		list, err := developers.Downloads()
		check(t, err)
		var archive string
		for _, download := range list {
			if download.Kind == "npm" {
				archive = filepath.Join(t.TempDir(), download.Name)
				check(t, os.WriteFile(archive, download.Body, 0o600))
			}
		}
		setup, err := json.Marshal(body{"peers": file})
		check(t, err)
		runTests(t, installedClient(t, archive), clientTests+"/hostile.test.js", string(setup))
	})
	t.Run("Python", func(t *testing.T) {
		servedPython(t).unittest(t, []string{"PEERS=" + file}, "test_hostile_answers")
	})
	t.Run("PHP", func(t *testing.T) {
		var calls []phpCall
		for _, peer := range peers {
			timeout := 300
			// curl reads chunk extensions without end, keeps nothing and reports nothing.
			if peer.Holds || peer.Name == "a chunk's extension without end" {
				timeout = 2
			}
			for _, operation := range peer.Fails {
				if slices.Contains([]string{"read", "write", "signed", "many"}, operation) { // it has no others
					calls = append(calls, phpCall{peer.Origin, timeout, operation, peer.Name})
				}
			}
		}
		for i, answer := range ask(t, calls) {
			if answer.Kind == "success" || answer.OutcomeUnknown && calls[i].Operation != "write" ||
				calls[i].Timeout == 300 && strings.Contains(answer.Message, "timed out") {
				t.Errorf("%s, %s: %+v", calls[i].name, calls[i].Operation, answer)
			}
		}
	})
}

// hostileOperation is the operation of each client by name.
func hostileOperation(ctx context.Context, c *client.Client, name string) (err error) {
	switch name {
	case "read":
		_, err = c.Usage(ctx)
	case "write":
		_, err = c.Register(ctx, wire.Declaration{})
	case "list":
		pages := 0
		return client.Walk(func(after string) (wire.Next, error) {
			if pages++; pages == 20 {
				panic("it walks on and on")
			}
			page, err := c.Companies(ctx, client.CompaniesQuery{}, after)
			return page.Next, err
		})
	case "changes":
		pages := 0
		return client.Follower{Client: c, Company: "c", Take: func(client.Page) error {
			if pages++; pages == 20 {
				panic("it walks on and on")
			}
			return nil
		}}.Run(ctx)
	case "signed":
		_, err = c.Evidence(ctx, strings.Repeat("a", 26))
	case "many":
		_, err = c.EvidenceOfMany(ctx, wire.EvidenceRequest{PublicIDs: []string{"a", "b"}})
	case "log":
		_, err = c.LogTile(ctx, tlog.Tile{H: client.LogTileHeight, W: 1 << client.LogTileHeight})
	}
	return err
}
