package client

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/eventstore/outbound/peertest"
	"integrityledger/handlers/wire"
)

// However a peer delays the client, each call ends within its timeout, and the outcome of a write is unknown.
func TestHostilePeers(t *testing.T) {
	id := strings.Repeat("a", 26)
	for name, shape := range peertest.Shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := New(Config{BaseURL: peertest.Serve(t, shape), APIKey: newKey(t), Timeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			var registered, compared, exported, checkpoint error
			var all sync.WaitGroup
			all.Go(func() { _, registered = c.Register(t.Context(), wire.Declaration{}) })
			all.Go(func() { _, compared = c.Compare(t.Context(), id, strings.Repeat("0", 64)) })
			all.Go(func() { _, exported = c.Evidence(t.Context(), id) })
			all.Go(func() { _, checkpoint = c.LogCheckpoint(t.Context()) })
			all.Wait()
			if !Unknown(registered) {
				t.Errorf("a write: %v", registered)
			}
			for what, err := range map[string]error{
				"Register": registered, "Compare": compared, "Evidence": exported, "LogCheckpoint": checkpoint,
			} {
				if err == nil || Refused(err) || errors.As(err, new(*Error)) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}
