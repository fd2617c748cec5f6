package handlers_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// generators are client generators for TypeScript, and programs that use the generated clients.
var generators = nodeRoom(
	"testdata/generators", "generate.mjs", "environment.ts", "openapi-fetch.ts", "hey-api.ts", "orval.ts",
	"tsconfig.json", "tsconfig.exact.json",
)

// usedBy requires that a program with a generated client has registered version 1 of its document d-1, and has read the
// record and the account correctly.
func usedBy(t *testing.T, s *service, source string, out []byte) {
	t.Helper()
	var read struct{ Me, Record map[string]any }
	check(t, json.Unmarshal(out, &read))
	equal(
		t, "what the client of "+source+" read",
		[]any{read.Record["source"], read.Record["documentReference"], read.Record["status"]},
		[]any{source, "d-1", "current"},
	)
	equal(t, "the record", s.get(integrity+"/records/"+read.Record["publicId"].(string)).is(http.StatusOK), read.Record)
	me := s.get("/api/v1/me").is(http.StatusOK)
	maps.DeleteFunc(me, func(name string, _ any) bool { return name == "quota" }) // of which each request takes one
	delete(read.Me, "quota")
	equal(t, "the account", me, read.Me)
}

func environmentOf(s *service) []string {
	return append(os.Environ(), "ADDRESS="+s.http.URL, "KEY="+s.org.Secret, "COMPANY="+s.org.Company.Reference)
}

// TypeScript clients generated from the served documents compile in strict mode, register, compare and read.
func TestGeneratedTypeScript(t *testing.T) {
	if testing.Short() {
		t.Skip("installs generators")
	}
	directory, ok := generators(t, "what generators for TypeScript make")
	if !ok {
		t.Skip(errNoNPM)
	}
	s := open(t, options{})
	node := func(args ...string) []byte {
		t.Helper()
		run := exec.Command("node", args...)
		run.Dir, run.Env = directory, environmentOf(s)
		out, err := run.Output()
		if err != nil {
			var exit *exec.ExitError
			errors.As(err, &exit)
			t.Fatalf("node %s: %v\n%s%s", strings.Join(args, " "), err, out, exit.Stderr)
		}
		return out
	}
	node("generate.mjs")
	for _, settings := range []string{"tsconfig.json", "tsconfig.exact.json"} {
		node("node_modules/typescript/bin/tsc", "-p", settings)
	}
	for _, source := range []string{"openapi-fetch", "hey-api", "orval"} {
		usedBy(t, s, source, node("built/"+source+".js"))
	}
}
