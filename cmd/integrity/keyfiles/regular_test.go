package keyfiles_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
)

// TestReadFile: whichever file a setting names, reading it does not wait for a pipe's writer, and does not read an
// endless file whole.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	pipe, huge, good := filepath.Join(dir, "pipe"), filepath.Join(dir, "huge"), filepath.Join(dir, "good")
	for _, err := range []error{
		syscall.Mkfifo(pipe, 0o600), os.WriteFile(good, []byte("text"), 0o600), os.WriteFile(huge, nil, 0o600),
		os.Truncate(huge, keyfiles.MaxFile+1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		pipe: "must be a regular file", huge: "is larger than 16777216 bytes", dir: "must be a regular file",
	} {
		_, plans := (&config.Config{Plans: path}).PlanTable()
		_, logs := (&config.Config{WitnessLogs: path}).LogList()
		_, read := keyfiles.ReadFile(path)
		_, trusted := keyfiles.ReadTrusted(path)
		_, signer := keyfiles.Source{}.ReadSigner(path)
		for _, err := range []error{plans, logs, read, trusted, signer} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if text, err := keyfiles.ReadFile(good); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
}
