package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFullDisk fills the disk under a running service: /readyz and the log say so, and the service works again once
// there is room.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	disk := dataDir(t) // the log is outside it
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(
		t.Context(), "mount", "-t", "tmpfs", "-o", "mode=0755,size=400m", "tmpfs", disk,
	).CombinedOutput(); err != nil {
		t.Skipf("this machine does not let root mount a small disk: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "--lazy", disk).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	s := start(t, disk)
	asked := func(status int, part string) error {
		response, err := plainHTTP().Get(s.base + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != status || !strings.Contains(string(text), part) {
			return fmt.Errorf("%d %s %w", response.StatusCode, text, err)
		}
		return nil
	}
	ballast := filepath.Join(disk, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for block := bytes.Repeat([]byte{1}, 1<<20); len(block) > 0; block = block[:len(block)/2] {
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "readyz names the full disk", func() error {
		return asked(http.StatusServiceUnavailable, "disk is full")
	})
	if log, err := os.ReadFile(s.log); err != nil || !strings.Contains(string(log), "disk is full") {
		t.Errorf("the log does not name it: %v %s", err, tail(s.log))
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is ready again", func() error { return asked(http.StatusOK, "ready") })
}
