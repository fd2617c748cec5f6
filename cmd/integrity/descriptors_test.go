package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestDoctorCountsOpenFiles runs the program with two limits: one leaves no room for clients, one leaves little.
func TestDoctorCountsOpenFiles(t *testing.T) {
	for limit, state := range map[string]string{"200": "fail", "700": "warn", "4096": "ok"} {
		cmd := exec.CommandContext(
			t.Context(), "/bin/sh", "-c", "ulimit -n "+limit+" && exec \"$@\"", "sh", os.Getenv(binaryVariable), "doctor",
			"--data-dir", dataDir(t),
		)
		cmd.Env = cleanEnviron()
		out, _ := cmd.CombinedOutput() // other findings also set its exit code
		var found string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "open files") {
				found = line
			}
		}
		if !strings.HasPrefix(found, state) || !strings.Contains(found, limit+" may be open") {
			t.Errorf("limit %s: %q of %s", limit, found, out)
		}
	}
}
