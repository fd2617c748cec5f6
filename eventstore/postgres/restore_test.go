package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestFoundFault: a program that is missing, interrupted or killed reports no damage.
func TestFoundFault(t *testing.T) {
	p := programs{dir: t.TempDir()}
	for name, text := range map[string]string{"finds": "exit 1", "killed": "kill -9 $$", "content": "exit 0"} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	interrupted, cancel := context.WithCancel(context.Background())
	cancel()
	for _, test := range []struct {
		ctx   context.Context
		name  string
		fails bool
		fault bool
	}{
		{context.Background(), "finds", true, true},
		{context.Background(), "killed", true, false},
		{context.Background(), "content", false, false},
		{context.Background(), "missing", true, false},
		{interrupted, "finds", true, false},
	} {
		err := run(test.ctx, p, test.name)
		if (err != nil) != test.fails || foundFault(err) != test.fault {
			t.Errorf("%s: %v, fault %t", test.name, err, foundFault(err))
		}
	}
	if !errors.Is(run(interrupted, p, "finds"), context.Canceled) {
		t.Error("an interruption is not told as one")
	}
}
