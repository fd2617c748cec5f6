package handlers

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Every file that the package comment names exists, and there are few of them.
func TestLifeOfADeclaration(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, name := range regexp.MustCompile(`[a-z]+(?:/[a-z]+)+\.go`).FindAllString(string(text), -1) {
		files[name] = true
		if _, err := os.Stat(filepath.Join("..", name)); err != nil {
			t.Error(err)
		}
	}
	if len(files) < 10 || len(files) > 20 {
		t.Errorf("a declaration passes %d files", len(files))
	}
}
