package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestSaysWhatToInstall(t *testing.T) {
	if _, err := findPrograms(context.Background(), []string{t.TempDir()}); !errors.Is(err, ErrNoPrograms) ||
		!strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("got %v", err)
	}
}

// TestSaysWhichProgramIsMissing: a server can run on a machine where backups cannot be made.
func TestSaysWhichProgramIsMissing(t *testing.T) {
	p := programs{dir: t.TempDir(), major: 15}
	err := p.has("pg_basebackup")
	if err == nil || !strings.Contains(err.Error(), "pg_basebackup") ||
		!strings.Contains(err.Error(), "postgresql-client-15") {
		t.Errorf("got %v", err)
	}
}
