package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"time"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/handlers/developers"
	"integrityledger/handlers/web"
)

// question is the input of the programs that call the other verifiers.
type question struct {
	Trusted string   `json:"trusted"` // the file's text
	Now     string   `json:"now"`
	Files   []string `json:"files"`
}

// Each program reads a question and answers the findings for all files, so that thousands take one process.
const (
	inPython = `import json, sys
from datetime import datetime
import verify_integrity
question = json.load(sys.stdin)
trusted = verify_integrity.parse_trusted_keys(question["trusted"].encode())
now = datetime.fromisoformat(question["now"].replace("Z", "+00:00"))
answers = []
for name in question["files"]:
    with open(name, "rb") as file:
        found = verify_integrity.verify_receipt(file.read(), trusted, now=now)
    answers.append({**found.as_json(), "good": found.exit_code == 0})
json.dump(answers, sys.stdout)
`
	inJavaScript = `import { readFileSync } from "node:fs";
import { parseTrustedKeys, supported, verify } from "./verifier.js";
if (!(await supported())) throw new Error("there is no Ed25519 here");
const question = JSON.parse(readFileSync(0, "utf8"));
const trusted = await parseTrustedKeys(new TextEncoder().encode(question.trusted));
const answers = [];
for (const name of question.files) {
  const bytes = new Uint8Array(readFileSync(name));
  const found = await verify(bytes, trusted, { now: new Date(question.now), document: null });
  answers.push({ ...found, good: found.reasons.length === 0 });
}
process.stdout.write(JSON.stringify(answers));
`
)

// others runs the verifiers that integrators download. Their findings must agree with the service's own package.
func (c *checker) others(list []exported, want []findings, keys []byte, now time.Time) error {
	directory, err := os.MkdirTemp("", "verifiers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	q := question{Trusted: string(keys), Now: now.UTC().Format("2006-01-02T15:04:05Z")}
	for _, e := range list {
		path, err := filepath.Abs(filepath.Join(c.Directory, e.file))
		if err != nil {
			return err
		}
		if e.text != nil {
			q.Files = append(q.Files, path)
		}
	}
	if err := putPrograms(directory); err != nil {
		return err
	}
	for _, v := range []struct{ name, program, file string }{
		{"Python", "python3", "ask.py"}, {"JavaScript", "node", "ask.mjs"},
	} {
		found, err := ask(directory, v.program, v.file, q)
		if err != nil {
			return fmt.Errorf("the verifier in %s: %w", v.name, err)
		}
		if len(found) != len(q.Files) {
			return fmt.Errorf("the verifier in %s answers %d files of %d", v.name, len(found), len(q.Files))
		}
		i := 0
		for n, e := range list {
			if e.text == nil {
				continue
			}
			is := found[i]
			i++
			is.payload = want[n].payload
			if !reflect.DeepEqual(is, want[n]) {
				c.violate(
					Evidence, e.file, []*history.Call{e.call}, "the verifier in %s finds %s, that in Go %s", v.name, is, want[n],
				)
			}
		}
		c.add("evidence: verified in "+v.name, int64(len(found)))
	}
	return nil
}

func putPrograms(directory string) error {
	scripts, err := web.Files()
	if err == nil {
		err = os.CopyFS(directory, scripts)
	}
	put := func(name, text string) {
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600)
		}
	}
	put("package.json", `{"type":"module"}`)
	put("ask.mjs", inJavaScript)
	put("ask.py", inPython)
	if err != nil {
		return err
	}
	downloads, err := developers.Downloads()
	if err != nil {
		return err
	}
	for _, d := range downloads {
		if d.Name == "verify_integrity.py" {
			return os.WriteFile(filepath.Join(directory, d.Name), d.Body, 0o600)
		}
	}
	return errors.New("the program has no verify_integrity.py")
}

func ask(directory, program, file string, q question) (list []findings, err error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	command := exec.Command(path, file) //nolint:gosec,noctx // both are ours; it ends with its input
	command.Dir, command.Stdin = directory, bytes.NewReader(text)
	var failure bytes.Buffer
	command.Stderr = &failure
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, failure.String())
	}
	return list, json.Unmarshal(out, &list)
}
